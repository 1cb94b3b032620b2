import torch

from alewm.model.world_model import build_world_model
from alewm.planning.distilled import DistilledDynamics, DistilledModel, DynamicsConfig
from alewm.planning.planner import choose_search, plan_group
from alewm.training.presets import preset
from point_world import KnownWorld


def test_the_plain_search_runs_where_there_is_no_gpu_and_says_why():
    model = build_world_model(preset("two-room-tiny").model, torch.Generator())
    assert choose_search(model, torch.device("cpu")) == (plan_group, "reference (the device is a cpu)")
    assert choose_search(model, torch.device("cpu"), reference=True) == (plan_group, "reference (asked for)")


def test_a_model_of_somebody_else_is_searched_with_as_it_is():
    found = choose_search(KnownWorld(), torch.device("cuda"))
    assert found == (plan_group, "reference (the model is a KnownWorld)")


def test_distilled_dynamics_are_searched_with_as_they_are_on_a_cpu():
    model = build_world_model(preset("two-room-tiny").model, torch.Generator()).eval()
    distilled = DistilledModel(model, {4: DistilledDynamics(DynamicsConfig(4, 10, 8))})
    assert choose_search(distilled, torch.device("cpu")) == (plan_group, "reference (the device is a cpu)")
