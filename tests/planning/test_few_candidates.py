"""An iteration of CEM by kernels against the plain one; they run in Triton's interpreter, so no GPU is needed."""

import torch

from alewm.experiments.presets import preset
from alewm.model.fast_imagination import FastImagination
from alewm.model.world_model import build_world_model
from alewm.planning.cem import CEMConfig, refine
from alewm.planning.few_candidates import refine_in_place
from alewm.planning.inner_loop import plan_group
from alewm.planning.objective import prefix_distance

ITERATIONS, B, S, H, A, E, D = 3, 2, 45, 3, 7, 9, 6


def draw(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Search:
    """Where a search stands, as a recording keeps it."""

    def __init__(self, noise, mean, std):
        self.mean, self.std, self.noise = mean.clone(), std.clone(), noise
        self.step = torch.zeros(1, dtype=torch.long)
        self.elite_costs = torch.zeros(noise.shape[:2])

    def refine(self, imagine_end, goal, num_elites=E):
        refine_in_place(imagine_end, goal, self.mean, self.std, self.noise, self.step, self.elite_costs, num_elites)


def test_iterations_are_those_of_cem():
    mean, std, noise = draw(B, H, A, seed=0), draw(B, H, A, seed=1).abs(), draw(ITERATIONS, B, S, H, A, seed=2)
    goal, weight = draw(B, D, seed=3), draw(H * A, 4, seed=4)
    search = Search(noise, mean, std)

    def imagine_end(candidates):
        return torch.tanh(candidates.flatten(2).flatten(0, 1) @ weight)

    def score(candidates):
        return prefix_distance(imagine_end(candidates).view(B, S, -1), goal)

    for i in range(ITERATIONS):
        mean, std, cost = refine(score, mean, std, noise[i], E)
        search.refine(imagine_end, goal)
        torch.testing.assert_close((search.mean, search.std), (mean, std))
        torch.testing.assert_close(search.elite_costs[i], cost)
    assert search.step.item() == ITERATIONS


def test_equal_costs_keep_their_order_and_nan_is_taken_last():
    noise = draw(1, 1, 8, 1, 2, seed=0)
    nan, inf = torch.nan, torch.inf
    ends = torch.tensor([nan, 1.0, inf, 2.0, 1.0, nan, 1.0, 2.0])[:, None]
    for num_elites, elites in ((2, [1, 4]), (4, [1, 4, 6, 3]), (7, [1, 4, 6, 3, 7, 2, 0])):
        search = Search(noise, torch.zeros(1, 1, 2), torch.ones(1, 1, 2))
        search.refine(lambda _: ends, torch.zeros(1, 1), num_elites)
        chosen = noise[0, :, elites]
        torch.testing.assert_close((search.mean, search.std), (chosen.mean(1), chosen.std(1)))
        torch.testing.assert_close(search.elite_costs[0, 0], ends[elites].square().mean(), equal_nan=True)


@torch.no_grad()
def test_a_plan_by_kernels_is_the_plan_of_the_plain_search():
    model = build_world_model(preset("two-room-tiny").model, torch.Generator().manual_seed(0)).eval()
    for parameter in model.predictor.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    latent_dim, action_dim, capacity = model.support.latent_dim, model.config.action_dim, 8
    now, goal = draw(2, 1, latent_dim, seed=2)
    noise, start = draw(2, 1, 16, 1, action_dim, seed=3), torch.zeros(1, 1, action_dim)
    cem = CEMConfig(num_candidates=16, num_iterations=2, num_elites=4)
    exact = plan_group(model, now, goal, noise, start, capacity=capacity, goal_cost="active", cem=cem)

    rollout = FastImagination(model, torch.float32).rollout_for(16)
    search = Search(noise, start, torch.ones_like(start))
    for _ in range(2):
        search.refine(
            lambda candidates: rollout.imagine_prefix(now[:, :capacity].expand(16, -1), candidates[0], capacity, 3)[-1],
            goal,
            cem.num_elites,
        )
    torch.testing.assert_close(search.mean, exact.mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(search.std, exact.std, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(search.elite_costs.mT, exact.elite_costs, rtol=1e-3, atol=1e-4)
