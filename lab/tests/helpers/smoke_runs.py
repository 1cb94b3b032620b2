"""One folder of smoke runs, which all tests of experiments share, and results of runs that nobody trained.

A configuration is trained once.
"""

import json
from typing import cast

import pytest
import torch

from alewm.sweeps.library import EvaluationWork, Library
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


def write_result(library, run, settings, **values):
    """What an evaluation leaves behind, with these numbers; an eighth of its pairs is reached without a model."""
    path = EvaluationWork(run, settings).folder(library) / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    floors = dict.fromkeys(("random_success_rate", "zero_success_rate", "presolved_share"), 0.125)
    path.write_text(json.dumps({"evaluated": settings.identity(), "episodes": 100, **floors, **values}))
