"""Closed loop in a world whose laws are known: planning succeeds, floors do not, episodes are independent."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from alewm.capacity.support import polynomial_prior
from alewm.data.splits import EvaluationPair
from alewm.errors import InputError
from alewm.evaluation.closed_loop import GoalPairs, OpenLoop, Unseen, run_closed_loop, uniform_actions
from alewm.evaluation.evaluate_run import interval_in_words
from alewm.evaluation.held_out import load_pairs, save_pairs
from alewm.evaluation.statistics import family_interval, wilson_interval
from alewm.evaluation.success import (
    compare_records,
    evaluate_planner,
    read_records,
    summarise,
    write_records,
)
from alewm.planning.planner import Planner, PlanningConfig
from alewm.planning.search import CEMConfig
from point_world import ACTION_DIM, ACTION_MEAN, ACTION_STD, RADIUS, SUPPORT, KnownWorld, PointEnvs, rows

QUICK = PlanningConfig(cem=CEMConfig(num_candidates=100, num_iterations=10, num_elites=10))
PRIOR = polynomial_prior(3, 1.0)


def make_pairs(count=12, seed=0, reach=0.25):
    start, goal = rows(seed, count, reach)
    return GoalPairs(tuple(range(100, 100 + count)), tuple(range(count)), tuple(range(25, 25 + count)), start, goal)


def point_envs(_count):
    return PointEnvs()


def make_planner(**changes):
    return Planner(KnownWorld(), ACTION_MEAN, ACTION_STD, dataclasses.replace(QUICK, **changes))


class Scripted:
    """Walks straight, one step per look, and remembers who was still active."""

    def __init__(self, action):
        self.action, self.active = torch.tensor(action), []

    def begin(self, first, goal, episodes):
        self.episodes = episodes

    def next_actions(self, frames, active):
        self.active.append(active.tolist())
        return self.action.expand(len(frames), 1, 2)


def walk_pairs(*gaps):
    start = torch.full((len(gaps), 2), 0.5)
    goal = start + torch.tensor([[gap, 0.0] for gap in gaps])
    n = len(gaps)
    return GoalPairs(tuple(range(n)), (0,) * n, (25,) * n, {"state": start}, {"state": goal})


def test_planning_with_the_true_laws_succeeds_where_the_floors_do_not():
    found = evaluate_planner(point_envs, make_pairs(24), make_planner(), PRIOR)
    result = found.result
    assert result["success_rate"] == 1.0
    assert result["success_rate_nontrivial"] == 1.0
    assert result["episodes"] == 24
    assert result["random_success_rate"] < 0.6
    assert result["zero_success_rate"] == result["presolved_share"]
    assert sum(result["capacity_counts"].values()) == 24
    assert set(result["capacity_counts"]) == {"2", "4", "6"}
    assert result["mean_capacity"] == pytest.approx(sum(r.capacity for r in found.records) / 24)
    assert 0 < result["q_spread"] < 1
    assert json.loads(json.dumps(result, allow_nan=False)) == result


@pytest.mark.parametrize("capacity", ["2", "4", "6", "sample", "best-of"])
@pytest.mark.parametrize("goal_cost", ["active", "full"])
def test_every_capacity_rule_and_goal_cost_solves_the_known_world(capacity, goal_cost):
    found = evaluate_planner(point_envs, make_pairs(4), make_planner(capacity=capacity, goal_cost=goal_cost), PRIOR)
    assert found.result["success_rate"] == 1.0


def test_episodes_evaluated_together_or_one_by_one_have_the_same_records():
    pairs = make_pairs(6, seed=3)
    together = evaluate_planner(point_envs, pairs, make_planner(), PRIOR).records
    shuffled = [4, 0, 5, 2, 1, 3]
    regrouped = evaluate_planner(point_envs, pairs.take(shuffled), make_planner(episodes_per_batch=2), PRIOR).records
    for b, record in enumerate(together):
        alone = evaluate_planner(point_envs, pairs.take([b]), make_planner(), PRIOR).records[0]
        for other in (alone, regrouped[shuffled.index(b)]):
            for field in dataclasses.fields(record):
                mine, its = getattr(record, field.name), getattr(other, field.name)
                if field.name in ("predicted_costs", "distances", "q"):
                    assert mine == pytest.approx(its, abs=1e-4)
                else:
                    assert mine == its


def test_pairs_acted_out_in_parts_are_those_acted_out_together():
    pairs, made = make_pairs(7, seed=5), []

    def make_envs(count):
        made.append(count)
        return PointEnvs()

    whole = evaluate_planner(point_envs, pairs, make_planner(), PRIOR)
    parts = evaluate_planner(make_envs, pairs, make_planner(), PRIOR, side_by_side=3)
    assert made == [3, 1]  # the second part has as many as the first
    assert [record.success for record in parts.records] == [record.success for record in whole.records]
    torch.testing.assert_close(parts.outcome.actions, whole.outcome.actions, atol=1e-4, rtol=0)
    assert parts.result["capacity_counts"] == whole.result["capacity_counts"]
    assert parts.result["q_shift"] == pytest.approx(whole.result["q_shift"])


def test_floors_are_played_once_for_evaluations_of_the_same_pairs():
    pairs, steps = make_pairs(5, seed=7), []

    class Counted(PointEnvs):
        def step(self, actions, active=None):
            steps.append(1)
            super().step(actions, active)

    def evaluate(capacity, floors=None):
        steps.clear()
        found = evaluate_planner(lambda _: Counted(), pairs, make_planner(capacity=capacity), PRIOR, floors=floors)
        return found.records, len(steps)

    floors = {}
    for capacity in ("2", "6"):
        expected, usual_steps = evaluate(capacity)
        found, num_steps = evaluate(capacity, floors)
        assert found == expected
        assert num_steps == usual_steps if capacity == "2" else num_steps < usual_steps
    other = evaluate_planner(point_envs, pairs.take([1, 0]), make_planner(), PRIOR, floors=floors).records
    assert [r.random_success for r in other] == [expected[b].random_success for b in (1, 0)]
    assert len(floors) == 2


def test_pairs_of_one_episode_draw_noise_of_their_own():
    """The same start and goal twice: alike where the episode names the noise, not where each pair does."""
    once = make_pairs(1, seed=6)
    start, goal = (
        {name: torch.cat([rows_] * 2) for name, rows_ in each.items()} for each in (once.start_rows, once.goal_rows)
    )
    twice = GoalPairs((100, 100), (0, 1), (25, 26), start, goal)
    alike = evaluate_planner(point_envs, twice, make_planner(), PRIOR).outcome.actions
    torch.testing.assert_close(alike[0], alike[1])
    apart = evaluate_planner(point_envs, dataclasses.replace(twice, streams=(7, 8)), make_planner(), PRIOR)
    assert not torch.allclose(apart.outcome.actions[0], apart.outcome.actions[1], atol=1e-3)
    assert apart.result["different_episodes"] == 1
    with pytest.raises(InputError, match="2 pairs, but streams has 1"):
        dataclasses.replace(twice, streams=(7,))


def test_records_of_other_pairs_are_not_compared():
    records = evaluate_planner(point_envs, make_pairs(4), make_planner(), PRIOR).records
    lost = [dataclasses.replace(record, success=False) for record in records]
    compared = compare_records([records], [lost])
    assert (compared.num_clusters, compared.difference, compared.won) == (4, 1.0, 4)
    with pytest.raises(InputError, match="Only evaluations on the same pairs"):
        compare_records([records], [records[::-1]])


def test_success_is_tested_after_each_step_and_stays():
    envs, policy = PointEnvs(), Scripted([1.0, 0.0])
    outcome = run_closed_loop(envs, walk_pairs(0.0, 0.1, 0.4, -0.2), policy, budget=15)
    assert outcome.presolved.tolist() == [True, False, False, False]
    assert outcome.success.tolist() == [True, True, False, False]
    # The first starts at its goal but must still be there after a step; the second is within 0.03 after 0.08.
    assert outcome.steps.tolist() == [1, 4, 15, 15]
    assert torch.isnan(outcome.distances[0, 2:]).all()
    assert torch.allclose(outcome.distances[1, :5], torch.tensor([0.1, 0.08, 0.06, 0.04, 0.02]), atol=1e-5)
    assert torch.isnan(outcome.distances[1, 5:]).all()
    assert not torch.isnan(outcome.distances[2:]).any()


def test_leaving_the_goal_again_does_not_undo_success():
    outcome = run_closed_loop(PointEnvs(), walk_pairs(0.1), Scripted([1.0, 0.0]), budget=50)
    assert outcome.success.all()


def test_finished_episodes_are_frozen():
    envs, policy = PointEnvs(), Scripted([1.0, 0.0])
    outcome = run_closed_loop(envs, walk_pairs(0.1, 0.4), policy, budget=10)
    assert envs.position[0, 0] == pytest.approx(0.58)
    assert envs.position[1, 0] == pytest.approx(0.70)
    assert not outcome.actions[0, 4:].any()
    assert policy.active == [[True, True]] * 4 + [[False, True]] * 6


def test_the_loop_ends_early_when_nobody_is_left():
    envs = PointEnvs()
    outcome = run_closed_loop(envs, walk_pairs(0.1, 0.04), Scripted([1.0, 0.0]), budget=50)
    assert envs.steps_taken == 4
    assert outcome.distances.shape == (2, 51)
    assert outcome.actions.shape == (2, 50, 2)


def test_a_plan_longer_than_the_budget_is_cut():
    envs = PointEnvs()
    outcome = run_closed_loop(envs, walk_pairs(0.4), OpenLoop(torch.zeros(1, 30, ACTION_DIM)), budget=7)
    assert envs.steps_taken == 7
    assert outcome.steps.tolist() == [7]


def test_the_paper_s_loop_plans_twice_and_an_episode_that_arrives_early_once():
    pairs = walk_pairs(0.4, 0.7)
    pairs = dataclasses.replace(pairs, start_rows={"state": torch.tensor([[0.1, 0.5], [0.1, 0.5]])})
    pairs = dataclasses.replace(pairs, goal_rows={"state": torch.tensor([[0.4, 0.5], [0.95, 0.5]])})
    early, late = evaluate_planner(point_envs, pairs, make_planner(), PRIOR).records
    assert early.success
    assert len(early.predicted_costs) == 1
    assert early.steps <= 25
    assert len(late.predicted_costs) == 2
    assert late.steps > 25


def test_uniform_random_actions_belong_to_the_episode():
    pairs = make_pairs(3)
    together = uniform_actions(pairs, 2, 50, seed=1)
    assert torch.equal(uniform_actions(pairs.take([1]), 2, 50, seed=1)[0], together[1])
    assert not torch.isclose(together[0], together[1]).any()
    assert not torch.isclose(uniform_actions(pairs, 2, 50, seed=2), together).all(-1).any()
    assert together.abs().max() <= 1
    assert together.std() == pytest.approx(3**-0.5, abs=0.05)


def test_records_survive_the_disk_and_summarise_the_same(tmp_path):
    found = evaluate_planner(point_envs, make_pairs(4), make_planner(), PRIOR)
    write_records(tmp_path / "episodes.jsonl", found.records)
    read = read_records(tmp_path / "episodes.jsonl")
    assert tuple(read) == found.records
    for record in read:  # distances are those at the start and after every step
        assert len(record.distances) == record.steps + 1
        assert (record.distances[-1] < RADIUS) == record.success
    assert summarise(read).items() <= found.result.items()


def test_rates_over_nontrivial_pairs_leave_out_those_solved_at_the_start():
    records = evaluate_planner(point_envs, make_pairs(4), make_planner(), PRIOR).records
    easy, reached, missed = (
        dataclasses.replace(records[0], presolved=True, success=True, zero_success=True),
        dataclasses.replace(records[0], presolved=False, success=True, zero_success=False),
        dataclasses.replace(records[0], presolved=False, success=False, zero_success=False),
    )
    summary = summarise([easy, easy, reached, missed])
    assert (summary["success_rate"], summary["success_rate_nontrivial"]) == (0.75, 0.5)
    assert (summary["zero_success_rate"], summary["zero_success_rate_nontrivial"]) == (0.5, 0.0)
    assert summary["presolved_share"] == 0.5
    assert summarise([easy])["success_rate_nontrivial"] is None


def test_every_policy_has_its_own_rate_over_all_pairs_and_over_those_not_solved_at_the_start():
    record = evaluate_planner(point_envs, make_pairs(1), make_planner(), PRIOR).records[0]
    # Per pair: solved at the start, then who reached the goal.
    names = ("presolved", "success", "random_success", "zero_success", "replay_success")
    outcomes = ["11101", "00110", "00111", "01011", "00001"]
    records = [
        dataclasses.replace(record, **{name: flag == "1" for name, flag in zip(names, flags, strict=True)})
        for flags in outcomes
    ]
    summary = summarise(records)
    for name, every, hard in (("", 2, 1), ("random_", 3, 2), ("zero_", 3, 3), ("replay_", 4, 3)):
        assert summary[f"{name}success_rate"] == every / 5
        assert summary[f"{name}success_rate_nontrivial"] == hard / 4
    assert (summary["episodes"], summary["episodes_nontrivial"]) == (5, 4)


def test_a_broken_records_file_is_named_with_its_line(tmp_path):
    (tmp_path / "episodes.jsonl").write_text('{"episode": 1}\n')
    with pytest.raises(InputError, match=r"episodes.jsonl, line 1.*lacks the field 'start_step'"):
        read_records(tmp_path / "episodes.jsonl")


def test_stored_pairs_bring_their_state_columns():
    stored = [EvaluationPair(3, 1, 26, 11, 36), EvaluationPair(5, 0, 25, 40, 65)]
    columns = {"state": np.arange(140.0).reshape(70, 2), "pixels": None}
    pairs = GoalPairs.gather(stored, columns.__getitem__, ["state"], actions=np.arange(70.0)[:, None])
    assert (pairs.episodes, pairs.start_steps, pairs.goal_steps) == ((3, 5), (1, 0), (26, 25))
    assert pairs.start_rows["state"].tolist() == [[22, 23], [80, 81]]
    assert pairs.goal_rows["state"].tolist() == [[72, 73], [130, 131]]
    # The action of a row is taken there: that of the start is the first, that of the row before the goal the last.
    assert pairs.recorded[..., 0].tolist() == [list(range(11, 36)), list(range(40, 65))]
    assert pairs.take([1]).recorded[..., 0].tolist() == [list(range(40, 65))]


def test_pairs_must_fit_each_other_and_the_environment():
    pairs = make_pairs(3)
    with pytest.raises(InputError, match="3 pairs, but start column 'state' has 2 entries"):
        dataclasses.replace(pairs, start_rows={"state": torch.zeros(2, 2)})
    with pytest.raises(InputError, match="no pairs"):
        pairs.take([])
    with pytest.raises(InputError, match="occurs twice"):
        pairs.take([1, 1])
    with pytest.raises(InputError, match="budget must be at least one"):
        run_closed_loop(PointEnvs(), pairs, OpenLoop(torch.zeros(1, 1, 2)), budget=0)


def test_a_prior_of_another_support_is_refused():
    with pytest.raises(InputError, match="support has 3 capacities, but the prior has 2"):
        evaluate_planner(point_envs, make_pairs(1), make_planner(), polynomial_prior(2, 0.0))
    assert len(SUPPORT) == 3


def test_replayed_actions_are_those_given_and_nobody_draws_for_the_blind():
    pairs, actions = walk_pairs(0.2, 0.3), torch.tensor([[[0.1, 0.0]] * 4, [[0.0, 0.1]] * 4])
    seen, unseen = (
        run_closed_loop(envs, pairs, OpenLoop(actions), budget=4) for envs in (PointEnvs(), Unseen(PointEnvs()))
    )
    torch.testing.assert_close(seen.distances, unseen.distances, equal_nan=True)
    torch.testing.assert_close(unseen.actions[1], actions[1])


def test_recorded_actions_are_repeated_where_they_are_known():
    pairs = walk_pairs(0.2, 0.2, 0.2)
    unknown = evaluate_planner(point_envs, pairs, make_planner(), PRIOR)
    assert not [name for name in unknown.result if name.startswith("replay")]
    assert all(record.replay_success is None for record in unknown.records)
    steps = torch.tensor([1.0, 0.0]).repeat(3, 25, 1)
    steps[2] *= -1
    known = evaluate_planner(point_envs, dataclasses.replace(pairs, recorded=steps), make_planner(), PRIOR)
    assert [record.replay_success for record in known.records] == [True, True, False]
    assert known.result["replay_success_rate"] == known.result["replay_success_rate_nontrivial"] == 2 / 3
    assert known.result["success_rate"] == unknown.result["success_rate"]


def test_recorded_actions_are_repeated_once_whatever_the_budget():
    slow = torch.tensor([0.2, 0.0]).repeat(1, 25, 1)  # half of the way, and all of it where they come twice
    pairs = dataclasses.replace(walk_pairs(0.2), recorded=slow)
    assert evaluate_planner(point_envs, pairs, make_planner(), PRIOR).result["replay_success_rate"] == 0
    fast = dataclasses.replace(pairs, recorded=5 * slow)
    assert evaluate_planner(point_envs, fast, make_planner(), PRIOR, budget=2).result["replay_success_rate"] == 1


def test_records_name_the_demonstration_and_intervals_are_by_it(tmp_path):
    pairs = dataclasses.replace(make_pairs(6), families=(3, 3, 3, 8, 8, 8))
    found = evaluate_planner(point_envs, pairs, make_planner(), PRIOR)
    write_records(tmp_path / "episodes.jsonl", found.records)
    assert [record.demonstration for record in read_records(tmp_path / "episodes.jsonl")] == [3, 3, 3, 8, 8, 8]
    assert found.result["families"] == 2
    outcomes = [True, True, True, False, False, True]
    records = [dataclasses.replace(r, success=s) for r, s in zip(found.records, outcomes, strict=True)]
    summary = summarise(records)
    assert summary["interval"] == list(family_interval([(3, 3), (1, 3)]))
    unknown = summarise([dataclasses.replace(record, demonstration=None) for record in records])
    assert unknown["interval"] == list(wilson_interval(4, 6))
    assert "families" not in unknown
    assert interval_in_words(summary).endswith(" %, by 2 demonstrations")
    assert interval_in_words(unknown) == "30.0 % to 90.3 %"
    assert pairs.take([5, 0]).families == (8, 3)
    with pytest.raises(InputError, match="There are 6 pairs, but families has 5 entries"):
        dataclasses.replace(pairs, families=(3, 3, 3, 8, 8))


def test_pairs_that_travel_keep_their_demonstrations(tmp_path):
    pairs = make_pairs(4)
    labelled = dataclasses.replace(make_pairs(4, seed=1), families=(1, 1, 0, 0))
    save_pairs(tmp_path / "pairs.safetensors", {"validation": pairs, "test": labelled}, "print")
    loaded = [load_pairs(tmp_path / "pairs.safetensors", split, "print") for split in ("validation", "test")]
    assert [each.families for each in loaded] == [None, (1, 1, 0, 0)]
