"""A task is registered everywhere or nowhere: page, picture, presets and statistics.

The contract (`envs/test_env_contract.py`) and the whole path through the command line
(`cli/test_cli_every_task.py`) run over every registered task too.
"""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alewm.envs.registry import OUR_TASKS, get_task
from alewm.shapes import FRAME_SKIP
from alewm.training.presets import ACTION_DIMS, CAPACITIES, preset
from alewm_lab.publishing.environment_pages import page, write_pages

DOCS = Path(__file__).parents[1] / "docs"
every_task = pytest.mark.parametrize("name", OUR_TASKS)


@every_task
def test_its_page_is_what_its_docstring_makes(name):
    path = DOCS / "environments" / f"{name}.md"
    assert path.exists(), "make it: python -m alewm_lab.publishing.environment_pages"
    assert path.read_text() == page(get_task(name)), (
        f"{path} is out of date: python -m alewm_lab.publishing.environment_pages"
    )


@every_task
def test_its_picture_shows_six_frames(name):
    size = get_task(name).image_size
    with Image.open(DOCS / "images" / "envs" / f"{name}.png") as image:
        assert image.size == (3 * size + 16, 2 * size + 8)


def test_no_page_is_left_of_a_task_that_is_gone():
    assert {path.stem for path in (DOCS / "environments").glob("*.md")} == set(OUR_TASKS)


def test_pages_are_written_with_their_pictures(tmp_path):
    (path,) = write_pages(tmp_path, ("two-room",))
    assert path.read_text() == (DOCS / "environments/two-room.md").read_text()
    with (
        Image.open(tmp_path / "images/envs/two-room.png") as made,
        Image.open(DOCS / "images/envs/two-room.png") as kept,
    ):
        np.testing.assert_array_equal(np.asarray(made), np.asarray(kept))


@every_task
@pytest.mark.parametrize("width", CAPACITIES)
def test_it_has_a_preset_of_each_width_for_each_method(name, width):
    for suffix in ("", "-alewm-sigreg", "-nested-dropout", f"-lewm-{width}"):
        config = preset(f"{name}-{width}{suffix}")
        assert config.task == name
        assert config.model.action_dim == FRAME_SKIP * get_task(name).action_dim == FRAME_SKIP * ACTION_DIMS[name]
