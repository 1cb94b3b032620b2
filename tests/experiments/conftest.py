"""One folder of smoke runs, which all tests of experiments share: a configuration is trained once."""

import pytest
import torch

from alewm.experiments.catalogue import RECIPES
from alewm.experiments.collection import collect_task
from alewm.experiments.framework.choice import Choice
from alewm.experiments.framework.execution import execute
from alewm.experiments.framework.library import Library
from alewm.experiments.framework.scale import make_scale
from alewm.experiments.presets import preset

CPU = torch.device("cpu")


def smoke_choice(name="main-table", **options):
    """What `alewm experiment NAME --scale smoke` asks."""
    scale = make_scale("smoke")
    # Five capacities of two candidates are evaluations enough with one seed.
    seeds = scale.seeds[:1] if name == "nested-dropout" else RECIPES[name].seeds or scale.seeds
    return Choice(scale, seeds, **options)


@pytest.fixture(scope="session")
def smoke_data(tmp_path_factory):
    """A folder with twenty Two-Room episodes of small images."""
    folder = tmp_path_factory.mktemp("smoke-data")
    size = preset("two-room-tiny").model.encoder.image_size
    collect_task("two-room", folder / "two-room.h5", num_episodes=20, seed=0, image_size=size, jobs=1)
    return folder


@pytest.fixture(scope="session")
def smoke_root(tmp_path_factory):
    """Where all smoke runs are."""
    return tmp_path_factory.mktemp("smoke-runs")


@pytest.fixture
def library(smoke_root, smoke_data):
    """The shared runs, looked at afresh."""
    return Library(smoke_root, smoke_data)


@pytest.fixture
def perform(library):
    """Runs an experiment at the smoke scale: the experiment and its outcome."""

    def run(name, **options):
        experiment = RECIPES[name].build(smoke_choice(name, **options))
        return experiment, execute(experiment, library, jobs=1, device=CPU)

    return run
