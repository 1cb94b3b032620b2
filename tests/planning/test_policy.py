"""One episode acted frame by frame: the batched loop's decisions, its limits, and what is refused."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from alewm.envs.registry import get_task
from alewm.errors import InputError
from alewm.evaluation.held_out import load_pairs
from alewm.evaluation.success import read_records
from alewm.planning.planner import Planner, PlanningConfig
from alewm.planning.policy import Policy, RecedingHorizon
from alewm.planning.search import CEMConfig
from alewm.resize import area_downsample
from alewm.training.checkpoint import data_set_of, latest_checkpoint, load_world_model
from point_world import ACTION_MEAN, ACTION_STD, KnownWorld, PointEnvs, draw, rows

QUICK = PlanningConfig(cem=CEMConfig(num_candidates=100, num_iterations=10, num_elites=10))
SHIPPED = Path(__file__).parents[2] / "pretrained" / "two-room-tiny"


def planner_with(**changes):
    return Planner(KnownWorld(), ACTION_MEAN, ACTION_STD, dataclasses.replace(QUICK, **changes))


@pytest.mark.parametrize("executed", [1, 2, 5])
@pytest.mark.parametrize("rule", ["modal", "modal-every-plan"])
def test_a_policy_decides_as_the_loop_of_evaluation_does(executed, rule):
    planner = planner_with(executed_blocks=executed, capacity=rule)
    (start, goal), env = rows(count=1, seed=3), PointEnvs()
    env.reset_to(start, goal)
    loop, policy = RecedingHorizon(planner), Policy(planner)
    loop.begin(env.render(), env.render_goal(), [7])
    policy.reset(env.render_goal()[0], episode=7)
    for _ in range(3):
        expected = loop.next_actions(env.render(), torch.ones(1, dtype=torch.bool))[0]
        assert len(expected) == executed * planner.config.frame_skip
        for step, action in enumerate(expected):
            found = policy.act(env.render()[0].numpy())
            assert np.array_equal(found.action, action.numpy())
            assert found.is_new_plan == (step == 0)
            assert (found.cost, found.capacity) == (loop.predicted_costs[0][-1], loop.capacities[0])
            assert found.capacity == max(found.q, key=found.q.__getitem__)
            assert sum(found.q.values()) == pytest.approx(1)
            env.step(action[None])


def test_a_policy_arrives_and_a_reset_begins_anew():
    env, policy = PointEnvs(), Policy(planner_with())
    for seed in (0, 1):
        env.reset_to(*rows(count=1, seed=seed))
        policy.reset(env.render_goal()[0])
        for _ in range(50):
            env.step(torch.as_tensor(policy.act(env.render()[0]).action)[None])
            if env.success().all():
                break
        assert env.success().all()


def test_actions_stay_within_the_limits_that_are_given():
    start, goal = (draw(each["state"])[0] for each in rows(count=1))
    planner = planner_with()
    free = [Policy(planner, goal).act(start).action]
    policy = Policy(planner, goal, action_limits=(-0.05, np.array([0.1, 0.02])))
    acted = np.stack([policy.act(start).action for _ in range(25)])
    assert (acted >= np.float32(-0.05)).all()
    assert (acted <= np.float32([0.1, 0.02])).all()
    assert np.array_equal(acted[0], np.clip(free[0], np.float32(-0.05), np.float32([0.1, 0.02])))
    assert not np.array_equal(acted[0], free[0])


def test_a_planner_returns_the_blocks_that_are_executed():
    start, goal = (draw(each["state"])[0] for each in rows(count=1))
    whole, part = planner_with()(start, goal), planner_with(executed_blocks=1)(start, goal)
    assert whole.shape == (25, 2)
    assert torch.equal(part, whole[:5])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda image: image / 255.0, r"current image must be uint8 .* got float64"),
        (lambda image: image[..., 0], r"current image must be uint8 .* got uint8 \[8, 12\]"),
        (lambda image: np.stack([image] * 2), "one frame .* batch of 2"),
    ],
)
def test_frames_of_the_wrong_kind_are_refused(change, message):
    start, goal = (draw(each["state"])[0].numpy() for each in rows(count=1))
    with pytest.raises(InputError, match=message):
        Policy(planner_with(), goal).act(change(start))


def test_a_policy_without_a_goal_and_limits_the_wrong_way_round_are_refused():
    with pytest.raises(InputError, match="no goal yet"):
        Policy(planner_with()).act(np.zeros((8, 12, 3), np.uint8))
    with pytest.raises(InputError, match="lowest and the highest"):
        Policy(planner_with(), action_limits=(1, -1))


@pytest.fixture(scope="module")
def shipped():
    model, description = load_world_model(latest_checkpoint(SHIPPED))
    statistics = data_set_of(description).statistics
    return Planner(model, statistics.mean, statistics.std), data_set_of(description).fingerprint


def test_a_policy_on_stored_pairs_ends_as_the_shipped_records_say(shipped):
    planner, fingerprint = shipped
    pairs = load_pairs(SHIPPED / "pairs.safetensors", "test", fingerprint)
    task, published = get_task("two-room"), read_records(SHIPPED / "episodes.jsonl")
    missed = next(i for i, record in enumerate(published) if not record.success)
    for index in (0, 1, missed):
        record, pair = published[index], pairs.take([index])
        env = task.make_vector_env(1)  # of the native size, which the policy averages down
        env.reset_to(pair.start_rows, pair.goal_rows)
        policy = Policy(planner, action_limits=task.action_limits)
        policy.reset(env.render_goal()[0], episode=record.episode)
        steps, is_reached = 0, False
        while steps < 50 and not is_reached:
            found = policy.act(env.render()[0])
            if steps == 0:
                assert list(found.q.values()) == pytest.approx(record.q, abs=1e-4)
                assert found.cost == pytest.approx(record.predicted_costs[0], rel=1e-2)
            env.step(torch.as_tensor(found.action)[None])
            steps, is_reached = steps + 1, bool(env.success()[0])
        assert (is_reached, found.capacity) == (record.success, record.capacity)


def test_larger_frames_are_averaged_down_as_training_does(shipped):
    planner, _ = shipped
    frame = torch.randint(256, (97, 130, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    size = planner.model.image_size
    assert torch.equal(planner.pixels(frame.numpy(), "current"), area_downsample(frame, size))
    with pytest.raises(InputError, match="27 x 130, but the model reads 28 x 28 or larger"):
        planner.pixels(frame[: size - 1], "current")
