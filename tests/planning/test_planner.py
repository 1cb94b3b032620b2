"""Two images in, actions out; grouping, caching and what is refused."""

import dataclasses

import numpy as np
import pytest
import torch

from alewm.capacity.support import CapacitySupport
from alewm.errors import InputError
from alewm.model.world_model import build_world_model
from alewm.planning.planner import Planner, PlanningConfig, plan_group
from alewm.planning.policy import RecedingHorizon
from alewm.planning.search import CEMConfig
from alewm.training.presets import preset
from point_world import (
    ACTION_MEAN,
    ACTION_STD,
    SUPPORT,
    KnownWorld,
    PointEnvs,
    RandomWorld,
    SlicedRandomWorld,
    draw,
    rows,
)

QUICK = PlanningConfig(cem=CEMConfig(num_candidates=100, num_iterations=10, num_elites=10))


def planner_with(model=None, **changes):
    return Planner(model or KnownWorld(), ACTION_MEAN, ACTION_STD, dataclasses.replace(QUICK, **changes))


def images(count=8, seed=0):
    start, goal = rows(seed, count)
    return draw(start["state"]), draw(goal["state"])


def test_two_images_in_actions_out_and_the_point_arrives():
    start, goal = rows(count=1)
    env = PointEnvs()
    env.reset_to(start, goal)
    planner = Planner(KnownWorld(), ACTION_MEAN, ACTION_STD)
    actions = planner(env.render()[0].numpy(), env.render_goal()[0].numpy())
    assert actions.shape == (25, 2)
    for action in actions:
        env.step(action[None])
    assert env.success().all()


def test_the_same_images_give_the_same_plan_and_another_seed_another():
    now, goal = images(2)
    assert torch.equal(planner_with()(now, goal), planner_with()(now, goal))
    assert not torch.allclose(planner_with()(now, goal), planner_with(seed=1)(now, goal))


def test_a_frame_turned_around_by_a_slice_is_a_frame_like_any_other():
    now, goal = (each.numpy() for each in images(2))
    turned = now[:, ::-1].copy()[:, ::-1]
    assert torch.equal(planner_with()(turned, goal), planner_with()(now, goal))


def test_actions_are_denormalised_block_by_block_in_time_order():
    blocks = torch.arange(20.0).view(1, 2, 10)
    actions = planner_with().to_actions(blocks)
    assert actions.shape == (1, 10, 2)
    assert torch.allclose((actions - ACTION_MEAN) / ACTION_STD, torch.arange(20.0).view(1, 10, 2), atol=1e-5)


@pytest.mark.parametrize("goal_cost", ["active", "full"])
@pytest.mark.parametrize("batch", [1, 3, 256])
def test_planning_in_groups_of_any_size_equals_planning_each_alone(goal_cost, batch):
    now, goal = images(6)
    planner = planner_with(SlicedRandomWorld(), goal_cost=goal_cost, episodes_per_batch=batch)
    keys = [(0, 10 + b, 0) for b in range(6)]
    choices = [(2,), (4,), (2,), (6,), (4,), (2, 6)]
    _, latents = planner.encode(torch.stack([now, goal], 1))
    together = planner.plan(latents[:, 0], latents[:, 1], choices, keys)
    for b in range(6):
        alone = planner.plan(latents[b : b + 1, 0], latents[b : b + 1, 1], choices[b : b + 1], keys[b : b + 1])
        assert alone.capacities[0] == together.capacities[b]
        assert torch.allclose(alone.blocks[0], together.blocks[b], atol=1e-4)
        assert torch.allclose(alone.costs[0], together.costs[b], atol=1e-5)


def test_the_sliced_planner_finds_the_masked_planner_s_plans():
    now, goal = images(4)
    for capacity in ("2", "4", "6"):
        padded = planner_with(RandomWorld(), capacity=capacity)(now, goal)
        sliced = planner_with(SlicedRandomWorld(), capacity=capacity)(now, goal)
        assert torch.allclose(padded, sliced, atol=1e-3)


def test_best_of_keeps_the_capacity_with_the_lowest_predicted_cost():
    now, goal = images(5)
    planner = planner_with(RandomWorld())
    _, latents = planner.encode(torch.stack([now, goal], 1))
    keys = [(0, b, 0) for b in range(5)]
    one_by_one = {k: planner.plan(latents[:, 0], latents[:, 1], [(k,)] * 5, keys) for k in SUPPORT.capacities}
    best = planner.plan(latents[:, 0], latents[:, 1], [SUPPORT.capacities] * 5, keys)
    for b in range(5):
        winner = min(SUPPORT.capacities, key=lambda k: one_by_one[k].costs[b].item())
        assert best.capacities[b] == winner
        assert torch.equal(best.blocks[b], one_by_one[winner].blocks[b])


def test_capacities_that_cost_the_same_leave_the_smaller():
    now, goal = images(3)
    planner = planner_with()  # every coordinate of the known world is a copy, so costs are equal up to rounding
    constant = planner_with(capacity="best-of:2,4")
    constant.inner_loop = lambda *a: dataclasses.replace(plan_group(*a), cost=torch.ones(len(a[1])))
    _, latents = planner.encode(torch.stack([now, goal], 1))
    plans = constant.plan(latents[:, 0], latents[:, 1], [(2, 4)] * 3, [(0, b, 0) for b in range(3)])
    assert plans.capacities == (2, 2, 2)


def test_a_model_without_a_choice_is_never_asked_for_one():
    class Lewm(KnownWorld):
        support = CapacitySupport.full(6)

        def capacity_logits(self, features):
            raise AssertionError("there is no selector")

    now, goal = images(2)
    planner = Planner(Lewm(), ACTION_MEAN, ACTION_STD, QUICK)
    assert planner(now, goal).shape == (2, 25, 2)


def test_the_capacity_is_chosen_once_and_kept_over_replans():
    now, goal = images(8)
    searched = []
    policy = RecedingHorizon(planner_with(), searched.append)
    policy.begin(now, goal, range(8))
    chosen = policy.capacities
    assert set(chosen) == {2, 4}
    everyone = torch.ones(8, dtype=torch.bool)
    policy.next_actions(now, everyone)
    policy.next_actions(goal, everyone)  # at the goal the selector would say 4 for all
    assert policy.capacities == chosen
    assert [len(costs) for costs in policy.predicted_costs] == [2] * 8
    assert sum(searched) == 2 * 8  # every plan of every episode was counted


def test_the_capacity_may_be_chosen_anew_at_every_plan():
    now, goal = images(8)
    policy = RecedingHorizon(planner_with(capacity="modal-every-plan"))
    policy.begin(now, goal, range(8))
    everyone = torch.ones(8, dtype=torch.bool)
    policy.next_actions(now, everyone)
    first = policy.capacities
    assert set(first) == {2, 4}
    policy.next_actions(goal, everyone)  # at the goal the selector says 4 for all
    assert set(policy.capacities) == {4}
    policy.next_actions(now, everyone)  # back where it began, as far from the goal
    assert policy.capacities == first


def test_an_episode_keeps_the_capacity_whose_first_plan_was_best():
    now, goal = images(6)
    policy, searched = RecedingHorizon(planner_with(SlicedRandomWorld(), capacity="best-of")), []

    def search(model, z_now, z_goal, noise, initial_mean, settings):
        searched.append((settings.capacity, len(z_now)))
        return plan_group(model, z_now, z_goal, noise, initial_mean, settings)

    policy.planner.inner_loop = search
    policy.begin(now, goal, range(6))
    policy.next_actions(now, torch.ones(6, dtype=torch.bool))
    assert searched == [(k, 6) for k in SUPPORT.capacities]
    chosen = policy.capacities
    assert len(set(chosen)) > 1
    policy.next_actions(now, torch.ones(6, dtype=torch.bool))
    assert searched[3:] == [(k, chosen.count(k)) for k in sorted(set(chosen))]
    assert policy.capacities == chosen


def test_each_replan_meets_new_noise_and_sees_the_new_frame():
    now, goal = images(2)
    policy = RecedingHorizon(planner_with())
    everyone = torch.ones(2, dtype=torch.bool)
    policy.begin(now, goal, range(2))
    first, again = policy.next_actions(now, everyone), policy.next_actions(now, everyone)
    at_goal = policy.next_actions(goal, everyone)
    assert not torch.allclose(first, again)
    assert torch.allclose(first.clamp(-1, 1).sum(1), again.clamp(-1, 1).sum(1), atol=1.5)
    assert at_goal.clamp(-1, 1).sum(1).norm() < first.clamp(-1, 1).sum(1).norm()


def test_finished_episodes_are_not_planned_and_do_not_matter_to_the_others():
    now, goal = images(4)
    everyone, two = torch.ones(4, dtype=torch.bool), torch.tensor([False, True, False, True])
    full, part = RecedingHorizon(planner_with()), RecedingHorizon(planner_with())
    for policy in (full, part):
        policy.begin(now, goal, [5, 6, 7, 8])
        policy.next_actions(now, everyone)
    complete, partial = full.next_actions(now, everyone), part.next_actions(now, two)
    assert not partial[~two].any()
    assert torch.allclose(partial[two], complete[two], atol=1e-4)
    assert [len(costs) for costs in part.predicted_costs] == [1, 2, 1, 2]


def test_blocks_left_over_are_where_the_next_search_starts():
    now, goal = images(1)
    starts = []

    def spy(model, z_now, z_goal, noise, initial_mean, settings):
        starts.append(initial_mean)
        return plan_group(model, z_now, z_goal, noise, initial_mean, settings)

    planner = Planner(
        KnownWorld(), ACTION_MEAN, ACTION_STD, dataclasses.replace(QUICK, executed_blocks=2), inner_loop=spy
    )
    policy = RecedingHorizon(planner)
    policy.begin(now, goal, [0])
    actions = policy.next_actions(now, torch.tensor([True]))
    policy.next_actions(now, torch.tensor([True]))
    assert actions.shape == (1, 10, 2)
    assert not starts[0].any()
    assert starts[1][:, :3].all()
    assert not starts[1][:, 3:].any()


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (np.zeros((8, 12, 3), np.float32), r"must be uint8 \[Y, X, 3\].*float32"),
        (np.zeros((3, 8, 12), np.uint8), r"got uint8 \[3, 8, 12\]"),
        (np.zeros((4, 4, 3), np.uint8), "different shapes"),
    ],
)
def test_wrong_images_are_refused(now, message):
    with pytest.raises(InputError, match=message):
        planner_with()(now, np.zeros((8, 12, 3), np.uint8))


def test_a_model_in_training_mode_is_refused():
    model = KnownWorld().train()
    with pytest.raises(InputError, match=r"training mode.*call model.eval\(\)"):
        planner_with(model)(*images(1))


def test_a_diverged_model_is_named_as_such():
    model = RandomWorld()
    model.out.bias.fill_(torch.nan)
    with pytest.raises(InputError, match="not finite for 2 of 2 episodes"):
        planner_with(model)(*images(2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"executed_blocks": 6}, "6 executed, but 5 planned"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"seed": -1}, "seed must not be negative, got -1"),
        ({"capacity": "3"}, "Capacity 3 is not supported"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        planner_with(**changes)


def test_wrong_action_statistics_are_refused():
    with pytest.raises(InputError, match=r"shapes \(2,\) and \(3,\)"):
        Planner(KnownWorld(), [0.0, 0.0], [1.0, 1.0, 1.0])
    model = build_world_model(preset("two-room-tiny").model, torch.Generator()).eval()
    with pytest.raises(InputError, match=r"action blocks of 10 numbers, but 5 actions of 3 are 15\."):
        Planner(model, [0.0] * 3, [1.0] * 3)
    with pytest.raises(InputError, match=r"action blocks of 10 numbers, but 1 actions of 2 are 2\."):
        Planner(model, [0.0] * 2, [1.0] * 2, PlanningConfig(frame_skip=1))
