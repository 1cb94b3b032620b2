"""One thing is changed at a time, and what variants are compared by is what it says."""

import pytest

from alewm.config import changed_fields
from alewm.sweeps.library import EvaluationWork
from alewm.training.presets import SEEDS
from alewm_lab.experiments.ablations import VARIANTS, learns_q, misfit, only_one_reaches
from alewm_lab.experiments.experiment import Results
from alewm_lab.experiments.framework import recipe
from alewm_lab.experiments.request import Request, make_scale
from smoke_runs import perform

PAPER = Request(make_scale("paper"), SEEDS[:1], ("two-room", "192"))


def test_each_variant_differs_from_alewm_in_one_thing():
    runs = {name: variant.runs(PAPER, "two-room", 192)[0] for name, variant in VARIANTS.items()}
    whole = runs.pop("ALeWM")
    changed = {name: set(changed_fields(run.config, whole.config)) for name, run in runs.items()}
    lewm = changed.pop("LeWM")
    assert {"objective.method", "model.has_selector"} <= lewm
    sampled, marginal = changed.pop("SIGReg, sampled"), changed.pop("SIGReg, marginal")
    assert sampled == {"objective.method"}
    assert marginal == {"objective.method", "objective.masked_sigreg"}
    # Without a selector there is none to have a learning rate of its own.
    nested = changed.pop("nested dropout, full target")
    assert nested == {"objective.method", "model.has_selector", "training.optim.selector_multiplier"}
    assert changed.pop("nested dropout") == nested | {"objective.prediction_target"}
    assert all(len(fields) == 1 for fields in changed.values())
    assert len(set(map(frozenset, changed.values()))) == len(changed) - 1  # two strengths of one KL
    assert {name for name, run in runs.items() if not learns_q(run)} == {
        "q frozen at the prior",
        "nested dropout",
        "nested dropout, full target",
        "LeWM",
    }


def test_runs_come_seed_by_seed():
    request = Request(make_scale("short", 10), SEEDS, ("two-room", "192"))
    seeds = [run.seed for run in recipe("ablations").build(request).runs]
    assert seeds == [seed for seed in SEEDS for _ in VARIANTS]


def test_capacities_are_imposed_where_there_is_a_choice():
    experiment = recipe("ablations").build(PAPER)
    imposed = {}
    for work in experiment.works:
        assert isinstance(work, EvaluationWork)
        if work.settings.planning.capacity != "modal":
            imposed.setdefault(work.run.key, []).append(int(work.settings.planning.capacity))
    by_name = {name: imposed.get(variant.runs(PAPER, "two-room", 192)[0].key, []) for name, variant in VARIANTS.items()}
    every = [8, 16, 32, 64, 96, 128, 160, 192]
    assert all(by_name.pop(name) == every for name in ("ALeWM", "nested dropout", "nested dropout, full target"))
    assert by_name.pop("LeWM") == []
    assert all(ks == [8, 192] for ks in by_name.values())


def test_the_tables_say_what_run_folders_say(library):
    experiment, outcome = perform("ablations", library)
    request, results = experiment.request, Results(library)
    success, selector, capacities = outcome.tables
    assert [row[1].text for row in success.rows] == list(VARIANTS)
    groups = {name: variant.runs(request, "two-room", 32) for name, variant in VARIANTS.items()}
    test = request.scale.evaluation()
    for row in success.rows:
        runs = groups[row[1].text]
        rates = [100 * results.evaluation(run, test)["success_rate"] for run in runs]
        assert row[3].text == ", ".join(f"{rate:.1f}" for rate in rates)
        won, lost = only_one_reaches(request, runs, groups["ALeWM"], results)
        # Over all seeds, what is won and lost is the difference of the numbers of pairs reached.
        base = [100 * results.evaluation(run, test)["success_rate"] for run in groups["ALeWM"]]
        assert 100 * (won - lost) == pytest.approx(4 * (sum(rates) - sum(base)))
        assert (row[4].text == "–") == (row[1].text == "ALeWM")
    # LeWM asks for variance one of every coordinate; ALeWM for that of the prior's survival.
    last = results.metrics(groups["LeWM"][0], "latent")[-1]
    assert set(last["prior_survival"]) == {1.0}
    assert misfit(groups["LeWM"][0], results) == pytest.approx(
        sum(abs(1 - v) for v in last["masked_variance"]) / len(last["masked_variance"])
    )
    told = {row[1].text: row[2].text for row in selector.rows}
    assert {name for name, text in told.items() if text == "–"} == {
        "q frozen at the prior",
        "nested dropout",
        "nested dropout, full target",
        "LeWM",
    }
    nested = next(row for row in capacities.rows if row[1].text == "nested dropout")
    assert "–" not in [cell.text for cell in nested]
    assert [command.split()[1] for command in nested[2].commands] == ["train", "evaluate"] * len(request.seeds)
