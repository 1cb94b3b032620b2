"""The paper's recursion, the sliding history, and the agreement of its two ways of computing."""

import pytest
import torch

from alewm.planning.planner import SearchSettings, plan_group
from alewm.planning.rollout import compared_width, masked_roll_out, prefix_distance, sliced_roll_out
from alewm.planning.search import CEMConfig
from point_world import RandomWorld, SlicedRandomWorld


def start_and_candidates(B=3, S=4, H=5, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, 6, generator=generator), torch.randn(B, S, H, 10, generator=generator)


def test_every_candidate_follows_the_paper_s_recursion():
    model = RandomWorld()
    z_first, candidates = start_and_candidates()
    latents = masked_roll_out(model, z_first, candidates, 2, last_width=2)
    mask = torch.tensor([1.0, 1, 0, 0, 0, 0])
    for b in range(3):
        for s in range(4):
            history = [mask * z_first[b]]
            for t in range(5):
                z = torch.stack(history[-3:])[None]
                a = candidates[b, s, max(0, t - 2) : t + 1][None]
                history.append(mask * model.predict(z, a)[0, -1])
                assert torch.allclose(latents[t][b, s], history[-1], atol=1e-6)


@pytest.mark.parametrize("world", [RandomWorld, SlicedRandomWorld])
@pytest.mark.parametrize("capacity", [2, 4, 6])
@pytest.mark.parametrize("goal_cost", ["active", "full"])
def test_masked_and_sliced_rollouts_agree_to_rounding(world, capacity, goal_cost):
    model, width = world(), compared_width(goal_cost, capacity, 6)
    z_first, candidates = start_and_candidates()
    masked = masked_roll_out(model, z_first, candidates, capacity, last_width=width)
    sliced = sliced_roll_out(model, z_first, candidates, capacity, last_width=width)
    assert [z.shape[-1] for z in sliced] == [capacity] * 4 + [width]
    for wide, short in zip(masked, sliced, strict=True):
        assert torch.allclose(wide[..., : short.shape[-1]], short, atol=1e-6)
        assert not wide[..., short.shape[-1] :].any()


def test_the_full_variant_masks_every_latent_but_the_last():
    z_first, candidates = start_and_candidates()
    *carried, last = masked_roll_out(RandomWorld(), z_first, candidates, 2, last_width=6)
    assert not any(z[..., 2:].any() for z in carried)
    assert last[..., 2:].all()


def test_history_grows_to_three_and_slides_with_its_blocks():
    seen = []

    class Spy(RandomWorld):
        def predict(self, z, actions):
            seen.append((z.shape[1], actions[0, :, 0].tolist()))
            return super().predict(z, actions)

    z_first, candidates = start_and_candidates(B=1, S=1)
    candidates[0, 0, :, 0] = torch.arange(1.0, 6)
    sliced_roll_out(Spy(), z_first, candidates, 4, last_width=4)
    assert seen == [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (3, [2, 3, 4]), (3, [3, 4, 5])]


@pytest.mark.parametrize("context", [1, 2, 3])
def test_the_predictor_is_never_shown_more_than_its_context(context):
    z_first, candidates = start_and_candidates()
    masked = masked_roll_out(RandomWorld(), z_first, candidates, 4, last_width=4, context=context)
    sliced = sliced_roll_out(SlicedRandomWorld(), z_first, candidates, 4, last_width=4, context=context)
    assert torch.allclose(masked[-1][..., :4], sliced[-1], atol=1e-6)


def test_a_candidate_does_not_feel_the_others():
    model = SlicedRandomWorld()
    z_first, candidates = start_and_candidates()
    together = sliced_roll_out(model, z_first, candidates, 4, last_width=4)[-1]
    for b in range(3):
        for s in range(4):
            alone = sliced_roll_out(model, z_first[b : b + 1], candidates[b : b + 1, s : s + 1], 4, last_width=4)[-1]
            assert torch.allclose(together[b, s], alone[0, 0], atol=1e-6)


@pytest.mark.parametrize("goal_cost", ["active", "full"])
def test_nothing_in_the_search_looks_at_values(goal_cost):
    """On the meta device tensors have shapes and no values, so any wait for a value would raise."""
    model = SlicedRandomWorld().to("meta")
    cem = CEMConfig(num_candidates=8, num_iterations=3, num_elites=2)
    z_now, z_goal = torch.empty(2, 3, 6, device="meta")
    noise, mean = torch.empty(3, 3, 8, 5, 10, device="meta"), torch.empty(3, 5, 10, device="meta")
    found = plan_group(model, z_now, z_goal, noise, mean, SearchSettings(4, cem, goal_cost))
    assert found.mean.shape == (3, 5, 10)
    assert found.mean.is_meta


def test_goal_cost_is_the_mean_square_over_the_compared_coordinates():
    z, goal = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(2, 6)
    goal[:, :4] = 1
    goal[:, 4:] = 1e6
    assert torch.allclose(prefix_distance(z, goal), ((z - 1) ** 2).sum(-1) / 4)


def test_low_precision_latents_are_compared_in_float32():
    z = torch.full((1, 1, 2), 1.0, dtype=torch.bfloat16)
    goal = torch.tensor([[1.0, 1.001]])
    cost = prefix_distance(z, goal)
    assert cost.dtype == torch.float32
    assert torch.allclose(cost, torch.tensor([[0.5e-6]]), rtol=1e-2)
