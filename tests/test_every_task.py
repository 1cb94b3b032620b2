"""A task is registered everywhere or nowhere: page, picture, presets and statistics.

The contract (`envs/test_env_contract.py`) and the whole path through the command line
(`cli/test_cli_every_task.py`) run over every registered task too.
"""

import inspect
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alewm.envs.registry import OUR_TASKS, get_task
from alewm.shapes import FRAME_SKIP
from alewm.training.presets import ACTION_DIMS, CAPACITIES, preset
from alewm_lab.benchmarks.data_statistics import published_figures
from alewm_lab.publishing.environment_pages import page, write_pictures

DOCS = Path(__file__).parents[1] / "docs"
every_task = pytest.mark.parametrize("name", OUR_TASKS)


@every_task
def test_its_page_has_its_docstring_and_the_figures_of_its_published_file(name):
    task = get_task(name)
    text = page(task)
    assert inspect.cleandoc(task.env_class.__doc__) in text
    assert all(f"| {figure.replace('_', ' ')} | " in text for figure in published_figures(task))


@every_task
def test_its_picture_shows_six_frames(name):
    size = get_task(name).image_size
    with Image.open(DOCS / "images" / "envs" / f"{name}.png") as image:
        assert image.size == (3 * size + 16, 2 * size + 8)


def test_the_committed_picture_is_what_the_environment_draws(tmp_path):
    (path,) = write_pictures(tmp_path, ("two-room",))
    with Image.open(path) as made, Image.open(DOCS / "images/envs/two-room.png") as kept:
        np.testing.assert_array_equal(np.asarray(made), np.asarray(kept))


@every_task
@pytest.mark.parametrize("width", CAPACITIES)
def test_it_has_a_preset_of_each_width_for_each_method(name, width):
    for suffix in ("", "-alewm-sigreg", "-nested-dropout", f"-lewm-{width}"):
        config = preset(f"{name}-{width}{suffix}")
        assert config.task == name
        assert config.model.action_dim == FRAME_SKIP * get_task(name).action_dim == FRAME_SKIP * ACTION_DIMS[name]
