"""The planner in the true simulator imagines what then happens, and its pairs do not depend on who plans them."""

import json
from pathlib import Path

import pytest
import torch

from alewm.envs.registry import get_task
from alewm.errors import InputError
from alewm.evaluation.closed_loop import Unseen, run_closed_loop
from alewm.planning.noise import candidate_noise
from alewm.planning.planner import PlanningConfig
from alewm.planning.search import CEMConfig
from alewm_lab.benchmarks.replay import simulated_pairs
from alewm_lab.benchmarks.true_simulator import EFFECTOR_SHARE, TrueSimulator, plan_pair, state_cost

SMALL = PlanningConfig(cem=CEMConfig(num_candidates=6, num_iterations=2, num_elites=2))


@pytest.mark.parametrize("name", ["two-room", "push-t", "reacher"])
def test_what_a_first_plan_imagines_is_what_then_happens(name):
    """Exactly, also where engines hide state: an episode begins by loading a row, as the copies do."""
    standard = simulated_pairs(name, 3)
    env, num_compared = standard.task.make_vector_env(1), 0
    for index in range(3):
        policy = TrueSimulator(env, standard.task.make_vector_env, state_cost(name), standard.statistics, SMALL)
        outcome = run_closed_loop(Unseen(env), standard.pairs.take([index]), policy, budget=25)
        if int(outcome.steps) == 25:  # an episode that succeeds on its way is stopped there
            assert policy.predicted_costs == pytest.approx([float(outcome.distances[0, -1])], rel=1e-6)
            num_compared += 1
    assert num_compared > 0


def test_planning_in_the_simulator_reaches_goals_that_its_floors_do_not():
    standard = simulated_pairs("two-room", 6)
    planning = PlanningConfig(cem=CEMConfig(num_candidates=100, num_iterations=10, num_elites=10))
    plans = [
        plan_pair("two-room", standard.statistics, planning, standard.pairs.take([index]))
        for index in range(len(standard.pairs))
    ]
    assert all(plan.success for plan in plans)
    assert all(len(plan.distances) == plan.steps + 1 for plan in plans)
    assert all(plan.distances[-1] < 16 for plan in plans)


def test_blocks_that_were_not_executed_are_where_the_next_search_begins_and_its_noise_is_its_own(monkeypatch):
    standard = simulated_pairs("two-room", 1)
    planning = PlanningConfig(cem=SMALL.cem, horizon=3, executed_blocks=1)
    env = standard.task.make_vector_env(1)
    searches, keys = [], []

    def noise(asked, *sizes, **options):
        keys.extend(asked)
        return candidate_noise(asked, *sizes, **options)

    monkeypatch.setattr("alewm_lab.benchmarks.true_simulator.candidate_noise", noise)

    def cost(worlds):
        searches.append(worlds.num_envs)
        return worlds.distance()

    policy = TrueSimulator(env, standard.task.make_vector_env, cost, standard.statistics, planning)
    env.reset_to(standard.pairs.start_rows, standard.pairs.goal_rows)
    policy.begin(torch.zeros(1, 1, 1, 3, dtype=torch.uint8), torch.zeros(1, 1, 1, 3, dtype=torch.uint8), (7,))
    for _ in range(2):
        actions = policy.next_actions(torch.zeros(1, 1, 1, 3, dtype=torch.uint8), torch.ones(1, dtype=torch.bool))
        assert actions.shape == (1, 5, 2)
        assert policy._blocks[0, :2].abs().sum() > 0 == policy._blocks[0, 2].abs().sum()
    assert keys == [(planning.seed, 7, 0), (planning.seed, 7, 1)]  # those of a planner with a model
    assert searches == [6, 6, 1] * 2  # every iteration's candidates, then the plan itself


def test_the_arm_of_cube_counts_a_share_of_what_the_cube_does():
    envs = get_task("cube").make_vector_env(2)
    start, moved = envs.state(), envs.state()
    moved["qpos"][:, 0] += 0.3  # the first joint, which turns the whole arm
    envs.reset_to(start, start)
    assert state_cost("cube")(envs).abs().max() < 1e-9
    envs.reset_to(moved, start)
    assert torch.equal(envs.distance(), torch.zeros(2, dtype=torch.float64))
    place = envs.columns()["proprio_effector_pos"]
    envs.set_state(start)
    apart = (place - envs.columns()["proprio_effector_pos"]).square().sum(-1).sqrt()
    envs.set_state(moved)
    torch.testing.assert_close(state_cost("cube")(envs), EFFECTOR_SHARE * apart)


def test_processes_change_nothing_missed_pairs_are_named_and_planned_ones_are_kept(alewm_here, refused):
    def alewm_bench(*arguments):
        """The line of JSON of the bench."""
        return json.loads(alewm_here("bench", "true-simulator", *arguments).splitlines()[-1])

    arguments = ("--task", "two-room", "--episodes", 3, "--candidates", 4, "--iterations", 1)
    alone = alewm_bench(*arguments, "--jobs", 1, "--out", "records/alone.jsonl")
    together = alewm_bench(*arguments, "--jobs", 2, "--out", "records/together.jsonl")
    assert Path("records/alone.jsonl").read_text() == Path("records/together.jsonl").read_text()
    records = [json.loads(line) for line in Path("records/alone.jsonl").read_text().splitlines()]
    for line in (alone, together):
        assert line["missed"] == [[each["episode"], each["start_step"]] for each in records if not each["success"]]
        assert line["planned_success_rate"] == sum(each["success"] for each in records) / 3
        assert line["cem"]["num_elites"] == 2
    assert together["processes"] == 2
    again = alewm_bench(*arguments, "--jobs", 1, "--only", 2, "--out", "records/again.jsonl")
    assert (again["pairs"], json.loads(Path("records/again.jsonl").read_text())) == (1, records[2])
    continued = alewm_bench(*arguments, "--jobs", 1, "--out", "records/again.jsonl")
    assert (continued["pairs"], continued["planned_before"]) == (3, 1)
    assert continued["missed"] == alone["missed"]
    finished = alewm_bench(*arguments, "--jobs", 1, "--out", "records/again.jsonl")
    assert (finished["missed"], finished["planned_before"]) == (alone["missed"], 3)
    another = ("bench", "true-simulator", *arguments[:-1], 2, "--jobs", 1, "--out", "records/again.jsonl")
    assert "planning.cem.num_iterations" in refused(*another)
    with pytest.raises(InputError, match="Unknown episode with a pair '3'"):
        simulated_pairs("two-room", 3).only([3])
