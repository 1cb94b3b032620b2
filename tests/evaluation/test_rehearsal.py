"""What a rehearsal plans is what an evaluation will plan: a full batch, with its search."""

import torch

from alewm import demo as rehearsal
from alewm.evaluation.evaluate_run import EPISODES_PER_BATCH
from alewm.planning.planner import PlanningConfig, SearchChoice, plan_group
from alewm.planning.search import CEMConfig
from alewm.training.presets import preset

CPU = torch.device("cpu")
MODEL = preset("two-room-tiny").model
PLANNING = PlanningConfig(cem=CEMConfig(num_candidates=8, num_iterations=1, num_elites=2))


def test_a_full_batch_is_planned_with_the_search_that_was_chosen(monkeypatch):
    planned = []

    def search(model, z_now, z_goal, noise, initial_mean, settings):
        planned.append((len(z_now), settings.cem))
        return plan_group(model, z_now, z_goal, noise, initial_mean, settings)

    monkeypatch.setattr(rehearsal, "choose_search", lambda *_: SearchChoice(search, "compiled"))
    rehearsal.rehearse_search(MODEL, PLANNING, CPU)
    assert planned == [(EPISODES_PER_BATCH["cpu"], PLANNING.cem)]


def test_nothing_is_planned_where_nothing_is_compiled(monkeypatch):
    monkeypatch.setattr(rehearsal, "Planner", None)
    rehearsal.rehearse_search(MODEL, PLANNING, CPU)
