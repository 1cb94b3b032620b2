"""Our models under stable-worldmodel's calling convention, and models of its kind in our planner.

`documented_stable_worldmodel` holds its solver and policy, written from the description of its interfaces.
"""

import pytest
import torch

from alewm.errors import InputError
from alewm.interop.lewm import load_lewm
from alewm.interop.stable_worldmodel import ForeignWorldModel, PlanningCost
from alewm.model.vit import IMAGENET_MEAN, IMAGENET_STD
from alewm.planning.distilled import DistilledDynamics, DistilledModel, DynamicsConfig
from alewm.planning.noise import candidate_noise
from alewm.planning.planner import Planner, PlanningConfig
from alewm.planning.policy import RecedingHorizon
from alewm.planning.search import CEMConfig
from alewm.resize import area_downsample
from documented_lewm import SMALL, DocumentedLeWM
from documented_stable_worldmodel import CEMSolver, GoalMSE, ShootingCostEvaluator
from small_models import our_model, saved

CEM = CEMConfig(num_candidates=24, num_iterations=4, num_elites=6)
PLANNING = PlanningConfig(cem=CEM)
EPISODES = (5, 9, 2)
MEAN, STD = (0.1, -0.2), (0.5, 0.8)


class Solver(CEMSolver):
    """With given noise instead of a generator's, so that two searches can be compared."""

    def __init__(self, cost, batch_size, noise):
        super().__init__(cost, batch_size, CEM.num_candidates, CEM.num_iterations, CEM.num_elites)
        self.noise, self.horizon, self.action_dim = noise, 5, 10

    def draw(self, step, rows, num):
        return self.noise[step, rows]


def normalised(images):
    """uint8 images [B, Y, X, 3] as the policy hands them over: [B, 1, 3, Y, X]."""
    return ((images / 255 - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)).movedim(-1, 1)[:, None]


def images(seed, count=3):
    generator = torch.Generator().manual_seed(seed)
    brightness = torch.rand(count, 1, 1, 3, generator=generator)
    return (255 * brightness * torch.rand(count, 28, 28, 3, generator=generator)).to(torch.uint8)


def noise_of(episodes, plan_index):
    keys = [(PLANNING.seed, episode, plan_index) for episode in episodes]
    return candidate_noise(keys, CEM.num_iterations, CEM.num_candidates, 5, 10, device="cpu")


def info_of(frames, goals):
    return {
        "pixels": normalised(frames),
        "goal": normalised(goals),
        "action": torch.zeros(len(frames), 1, 2),
        "goal_action": torch.zeros(len(frames), 1, 2),
    }


@pytest.fixture(scope="module")
def model():
    """A model of ours whose selector wants different capacities for different episodes."""
    model = our_model(64, (4, 16, 64))
    features = model.encode(torch.stack([images(0, 32), images(2, 32)], 1)).features
    model.selector.head.bias.sub_(model.capacity_logits(features).mean(0))
    return model


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_full_search_finds_the_plans_of_our_own_planner(model, batch_size):
    """Over two plans per episode; the second, for fewer environments, keeps the capacities of the first."""
    planner = Planner(model, MEAN, STD, PLANNING)
    ours = RecedingHorizon(planner)
    first, later, goals = images(0), images(1), images(2)
    ours.begin(first, goals, EPISODES)
    active = torch.tensor([True, False, True])
    expected = [ours.next_actions(first, torch.ones_like(active)), ours.next_actions(later, active)]
    assert len(set(ours.capacities)) > 1

    cost = PlanningCost(model)
    plan = Solver(cost, batch_size, noise_of(EPISODES, 0)).solve(info_of(first, goals))["actions"]
    torch.testing.assert_close(planner.to_actions(plan), expected[0], atol=1e-4, rtol=1e-4)
    again = Solver(cost, batch_size, noise_of((5, 2), 1)).solve(info_of(later[active], goals[active]))["actions"]
    torch.testing.assert_close(planner.to_actions(again), expected[1][active], atol=1e-4, rtol=1e-4)


def test_distilled_dynamics_find_the_plans_of_our_own_planner(model):
    """One capacity has a network, the others are imagined by the model's own predictor."""
    network = DistilledDynamics(DynamicsConfig(16, 10, 8)).requires_grad_(requires_grad=False)
    for parameter in network.parameters():
        parameter.normal_(0, 0.3)
    distilled = DistilledModel(model, {16: network})
    first, goals = images(0, 12), images(2, 12)
    planner = Planner(distilled, MEAN, STD, PLANNING)
    ours = RecedingHorizon(planner)
    ours.begin(first, goals, range(12))
    expected = ours.next_actions(first, torch.ones(12, dtype=torch.bool))
    assert {16} < set(ours.capacities)
    plan = Solver(PlanningCost(distilled), 12, noise_of(range(12), 0)).solve(info_of(first, goals))["actions"]
    torch.testing.assert_close(planner.to_actions(plan), expected, atol=1e-4, rtol=1e-4)


def test_a_capacity_is_kept_for_the_episode_and_forgotten_when_told(model):
    """From the later frame alone, another capacity would have been chosen for some episode."""
    first, later, goals = images(0, 12), images(7, 12), images(2, 12)
    candidates = torch.zeros(12, 1, 5, 10)

    def capacities(cost, frames):
        info = {name: value[:, None] for name, value in info_of(frames, goals).items()}
        cost.get_cost(info, candidates)
        return info["alewm_capacities"]

    cost = PlanningCost(model)
    chosen = capacities(cost, first)
    assert capacities(cost, later) == chosen
    cost.forget()
    assert capacities(cost, later) != chosen
    assert set(capacities(PlanningCost(model, capacity="16"), first)) == {16}
    assert capacities(PlanningCost(model, capacity="sample"), first) == capacities(
        PlanningCost(model, capacity="sample"), first
    )


def test_frames_are_encoded_once_per_plan(model, monkeypatch):
    calls = []
    read = model.encoder.read
    monkeypatch.setattr(model.encoder, "read", lambda x: (calls.append(len(x)), read(x))[1])
    Solver(PlanningCost(model), 3, noise_of(EPISODES, 0)).solve(info_of(images(0), images(2)))
    assert calls == [3, 3]


def test_a_shooting_evaluator_ranks_candidates_as_we_do(model):
    """It encodes the goal itself and compares the whole `predicted_emb`: beyond the capacity that adds a constant."""
    cost = PlanningCost(model)
    info = {name: value[:, None].expand(-1, 6, *value.shape[1:]) for name, value in
            info_of(images(0), images(2)).items()}  # fmt: skip
    candidates = torch.randn(3, 6, 5, 10, generator=torch.Generator().manual_seed(3))
    ours = cost.get_cost(dict(info), candidates)
    theirs = ShootingCostEvaluator(cost, GoalMSE()).get_cost(info, candidates)
    assert info["predicted_emb"].shape == (3, 6, 6, 64)
    capacity = torch.tensor(info["alewm_capacities"])[:, None]
    constant = theirs - ours * capacity
    torch.testing.assert_close(constant, constant[:, :1].expand_as(constant), atol=1e-4, rtol=1e-4)
    for row, k in enumerate(info["alewm_capacities"]):
        assert not info["predicted_emb"][row, :, :, k:].any()


def test_a_search_by_a_shooting_evaluator_finds_our_plan(model):
    plans = [
        Solver(cost, 3, noise_of(EPISODES, 0)).solve(info_of(images(0), images(2)))["actions"]
        for cost in (PlanningCost(model), ShootingCostEvaluator(PlanningCost(model), GoalMSE()))
    ]
    torch.testing.assert_close(*plans, atol=1e-4, rtol=1e-4)


def test_a_longer_history_is_continued_with_the_blocks_between(tmp_path):
    """Against the documented rollout of the same weights, at full width."""
    there = DocumentedLeWM(SMALL)
    ours = PlanningCost(load_lewm(saved(there, tmp_path / "lewm")).requires_grad_(False))
    generator = torch.Generator().manual_seed(4)
    candidates, history = (torch.randn(3, 4, n, 10, generator=generator) for n in (5, 2))
    frames = torch.stack([images(seed) for seed in (0, 1, 3)], 1)
    pixels = torch.stack([normalised(frames[:, t])[:, 0] for t in range(3)], 1)[:, None].expand(-1, 4, *[-1] * 4)
    info = {"pixels": pixels, "goal": normalised(images(2))[:, None].expand(-1, 4, *[-1] * 4)}
    with pytest.raises(InputError, match="3 frames of context need the blocks between them: `action_history`"):
        ours.rollout(dict(info), candidates)
    info["action_history"] = history
    expected = there.rollout(dict(info), candidates)["predicted_emb"]
    torch.testing.assert_close(ours.rollout(info, candidates)["predicted_emb"], expected, atol=1e-5, rtol=1e-5)


def test_a_rollout_without_a_goal_uses_the_whole_latent_or_the_fixed_capacity(model):
    pixels, candidates = normalised(images(0))[:, None], torch.zeros(3, 1, 5, 10)
    whole = PlanningCost(model).rollout({"pixels": pixels}, candidates)["predicted_emb"]
    short = PlanningCost(model, capacity="4").rollout({"pixels": pixels}, candidates)["predicted_emb"]
    assert whole.all()
    assert short[..., :4].all()
    assert not short[..., 4:].any()


def test_a_rule_that_compares_plans_is_refused(model):
    with pytest.raises(InputError, match=r"'best-of:4,16' compares several plans, but a solver makes one"):
        PlanningCost(model, capacity="best-of:4,16")


@pytest.mark.parametrize("is_caching", [True, False])
def test_our_planner_plans_with_a_model_of_that_kind(is_caching, tmp_path):
    """Whether its rollout uses the latent it is given or encodes the frame again."""
    original = DocumentedLeWM(SMALL)
    ours = load_lewm(saved(original, tmp_path / "lewm")).requires_grad_(False)
    if not is_caching:
        rollout = original.rollout
        original.rollout = lambda info, candidates: rollout({"pixels": info["pixels"]}, candidates)
    foreign = ForeignWorldModel(original, latent_dim=64, image_size=28)
    frames, goals = images(0), images(2)
    expected = Planner(ours, MEAN, STD, PLANNING)(frames, goals)
    torch.testing.assert_close(Planner(foreign, MEAN, STD, PLANNING)(frames, goals), expected, atol=1e-4, rtol=1e-4)


def test_what_cannot_be_planned_with_is_refused():
    with pytest.raises(InputError, match="A Linear has no `encode` and `rollout`"):
        ForeignWorldModel(torch.nn.Linear(2, 2), latent_dim=2)
    foreign = ForeignWorldModel(DocumentedLeWM(SMALL), latent_dim=32, image_size=28)
    with pytest.raises(InputError, match=r"`emb` of shape \[3, 1, 64\], expected \[3, 1, 32\]"):
        foreign.encode(images(0)[:, None])
    with pytest.raises(InputError, match="Plan from images"):
        foreign.imagine_prefix(torch.zeros(4, 32), torch.zeros(4, 5, 10), 32, 3)


@pytest.mark.parametrize("side", [28, 56, 63])
def test_frames_as_an_environment_draws_them_are_averaged_down_as_in_training(model, side):
    """uint8 of any size, channels last or first, give the costs of the frames that training would have stored."""
    generator = torch.Generator().manual_seed(side)
    now, goal = torch.randint(256, (2, 3, 1, 1, side, side, 3), dtype=torch.uint8, generator=generator)
    candidates = torch.randn(3, 1, 5, 10, generator=generator)
    small = {"pixels": area_downsample(now, 28), "goal": area_downsample(goal, 28)}
    expected = PlanningCost(model).get_cost(dict(small), candidates)
    for info in ({"pixels": now, "goal": goal}, {"pixels": now.movedim(-1, 3), "goal": goal.movedim(-1, 3)}):
        assert torch.equal(PlanningCost(model).get_cost(info, candidates), expected)
    normalised_small = {name: normalised(value[:, 0, 0])[:, None] for name, value in small.items()}
    found = PlanningCost(model).get_cost(normalised_small, candidates)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (torch.full((1, 1, 1, 3, 28, 28), 128.0), "got numbers from 128 to 128. Leave out the policy's `transform`"),
        (torch.linspace(0, 1, 3 * 28 * 28).view(1, 1, 1, 3, 28, 28), "must be normalised.*got numbers from 0 to 1"),
        (torch.full((1, 1, 1, 3, 28, 28), torch.nan), "got numbers from nan to nan"),
        (-torch.ones(1, 1, 1, 3, 56, 56), "encoder's size, 28 x 28; got 56 x 56"),
        (-torch.ones(1, 1, 1, 28, 28, 3), r"Normalised frames are \[B, T, 3, Y, X\], got \[1, 1, 28, 28, 3\]"),
        (torch.zeros(1, 1, 1, 20, 20, 3, dtype=torch.uint8), "20 x 20 cannot be averaged down to 28 x 28"),
        (torch.zeros(1, 1, 1, 3, 28, 28, dtype=torch.int64), r"uint8, or floats in \[0, 1\]; got torch.int64"),
    ],
)
def test_frames_that_would_silently_be_read_wrongly_are_refused(model, pixels, message):
    with pytest.raises(InputError, match=message):
        PlanningCost(model).get_cost({"pixels": pixels, "goal": pixels}, torch.zeros(1, 1, 5, 10))


def test_a_cost_without_a_goal_says_so(model):
    pixels = torch.zeros(1, 1, 1, 28, 28, 3, dtype=torch.uint8)
    with pytest.raises(InputError, match="`goal` is not in the dictionary"):
        PlanningCost(model).get_cost({"pixels": pixels}, torch.zeros(1, 1, 5, 10))


def test_gradients_can_be_followed_for_several_steps():
    """What one step keeps in the dictionary must not tie the next step to its graph."""
    cost = PlanningCost(our_model(64, (4, 16, 64)).requires_grad_(True))
    info = {"pixels": images(0)[:, None, None], "goal": images(2)[:, None, None]}
    candidates = torch.zeros(3, 1, 5, 10, requires_grad=True)
    optimizer, found = torch.optim.Adam([candidates], lr=0.05), []
    for _ in range(8):
        costs = cost.get_cost(info, candidates)
        found.append(costs.detach())
        costs.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert (found[-1] < found[0]).all()
    assert not info["emb"].requires_grad
    assert not info["goal_emb"].requires_grad
