"""One folder of smoke runs, which all tests of experiments share: a configuration is trained once."""

from typing import cast

import pytest
import torch

from alewm.sweeps.library import Library
from alewm_lab.experiments.framework import RECIPES, execute, record_own_data
from alewm_lab.experiments.request import OwnData, Request, make_scale

CPU = torch.device("cpu")
OWN_DATA = cast("OwnData", make_scale("smoke").own_data)


@pytest.fixture
def library(tmp_path_factory):
    """The runs that this session has trained so far, beside the Two-Room episodes of small images they learn from."""
    folder = tmp_path_factory.getbasetemp() / "smoke"
    library = Library(folder / "runs", folder / "data")
    record_own_data(library, OWN_DATA, {"two-room"})
    return library


def perform(name, library):
    """An experiment at the smoke scale, and its outcome."""
    scale = make_scale("smoke")
    # Five capacities of two candidates are evaluations enough with one seed.
    seeds = scale.seeds[:1] if name == "nested-dropout" else RECIPES[name].seeds or scale.seeds
    experiment = RECIPES[name].build(Request(scale, seeds))
    record_own_data(library, OWN_DATA, experiment.data_sets)
    return experiment, execute(experiment, library, jobs=1, device=CPU)
