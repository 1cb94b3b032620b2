"""Our models in stable-worldmodel's solvers and policy, and its models in our planner."""

import importlib
import os
from importlib import metadata
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from stable_worldmodel.policy import PlanConfig, WorldModelPolicy
from stable_worldmodel.wm.utils import load_pretrained

import alewm
from alewm.evaluation.held_out import find_pairs
from alewm.evaluation.settings import EvaluationSettings
from alewm.interop.lewm import export_lewm, load_lewm
from alewm.interop.stable_worldmodel import ActionScaler, ForeignWorldModel, PlanningCost
from alewm.planning.planner import Planner, PlanningConfig
from alewm.planning.rollout import prefix_distance, sliced_roll_out
from alewm.planning.search import CEMConfig, solve

try:
    from stable_worldmodel import solver as solvers
except ImportError:  # where the main branch has them
    from stable_worldmodel.planning import solver as solvers

PACKAGES = ("stable-worldmodel",)
SEARCH = {"num_samples": 300, "n_steps": 30, "topk": 30}
PLAN = PlanConfig(horizon=5, receding_horizon=5, action_block=5)
SOLVERS = {
    "CEMSolver": {"batch_size": 2, **SEARCH},
    "ICEMSolver": {"batch_size": 2, **SEARCH},
    "MPPISolver": {"batch_size": 2, **SEARCH},
    "PredictiveSamplingSolver": {"batch_size": 2, "num_samples": 300},
    "GradientSolver": {"n_steps": 20, "num_samples": 4},
    "LagrangianSolver": {"n_steps": 10, "n_outer_steps": 3, "num_samples": 4, "optimizer_kwargs": {"lr": 0.1}},
}


@pytest.fixture(scope="module")
def loaded(shipped):
    """The shipped ALeWM, and 20 of its held-out pairs in an environment that draws at its native size."""
    model = alewm.load(shipped["two-room-tiny"], device="cpu")
    pairs = find_pairs(shipped["two-room-tiny"], model.data_set, EvaluationSettings(num_episodes=20), None)
    environment = alewm.envs.registry.get_task("two-room").make_vector_env(20, torch.device("cpu"), 224)
    environment.reset_to(pairs.start_rows, pairs.goal_rows)
    return SimpleNamespace(model=model, pairs=pairs, environment=environment)


def pool(count):
    """What the policy asks of environments."""
    low, high = np.full((count, 2), -1, np.float32), np.full((count, 2), 1, np.float32)
    return SimpleNamespace(
        num_envs=count,
        action_space=gymnasium.spaces.Box(low, high),
        single_action_space=gymnasium.spaces.Box(low[0], high[0]),
    )


def info_of(environment, count):
    """What a policy is shown: uint8 frames as they are drawn, channels last."""
    return {
        "pixels": environment.render()[:count, None].numpy(),
        "goal": environment.render_goal()[:count, None].numpy(),
        "action": np.zeros((count, 1, 2), np.float32),
    }


def configured(solver, count):
    solver.configure(action_space=pool(count).action_space, n_envs=count, config=PLAN)
    return solver


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_for_continuous_actions_improves_the_plan(name, loaded, found):
    count = 4
    cost = PlanningCost(loaded.model.model)
    solver = configured(getattr(solvers, name)(cost, **SOLVERS[name]), count)
    info = {key: torch.as_tensor(value) for key, value in info_of(loaded.environment, count).items()}
    plans = solver(dict(info))["actions"]
    assert plans.shape == (count, 5, 10)
    expanded = {key: value[:, None].expand(-1, 2, *value.shape[1:]) for key, value in info.items()}
    with torch.no_grad():
        ends = cost.get_cost(expanded, torch.stack([torch.zeros_like(plans), plans.detach()], 1))
    assert (ends[:, 1] < ends[:, 0]).all(), ends
    share = float((ends[:, 1] / ends[:, 0]).mean())
    found(f"`PlanningCost` in `{name}`", PACKAGES, f"goal cost {share:.2g} of doing nothing, mean of {count} goals")


def test_its_cem_finds_our_plan_for_the_same_noise(loaded, found):
    model, seed = loaded.model.model, 7
    cost = PlanningCost(model)
    solver = configured(solvers.CEMSolver(cost, batch_size=4, seed=seed, **SEARCH), 4)
    info = {key: torch.as_tensor(value) for key, value in info_of(loaded.environment, 4).items()}
    plans = solver(dict(info))["actions"]

    generator = torch.Generator().manual_seed(seed)
    noise = torch.stack([torch.randn(4, 300, 5, 10, generator=generator) for _ in range(30)])
    noise[:, :, 0] = 0
    frames, differences = torch.stack([info["pixels"][:, 0], info["goal"][:, 0]], 1), list[float]()
    with torch.no_grad():
        features, latents = model.encode(frames)
        chosen = loaded.model.model.capacity_logits(features).argmax(-1)
        for row in range(4):
            k = model.support.capacities[int(chosen[row])]

            def score(candidates, row=row, k=k):
                ends = sliced_roll_out(model, latents[row : row + 1, 0], candidates, k, last_width=k)[-1]
                return prefix_distance(ends, latents[row : row + 1, 1])

            ours = solve(score, noise[:, row : row + 1], CEMConfig()).mean[0]
            torch.testing.assert_close(plans[row], ours, atol=1e-3, rtol=1e-3)
            differences.append(float((plans[row] - ours).abs().max()))
    outcome = f"plans of 4 episodes to {max(differences):.1e}"
    found("`PlanningCost` in `CEMSolver` against our search, same noise", PACKAGES, outcome)


def test_its_policy_reaches_the_goals_our_policy_reaches(loaded, found):
    """Native frames, no transform: the adapter averages them down as training did."""
    count, environment = 20, loaded.environment
    environment.reset_to(loaded.pairs.start_rows, loaded.pairs.goal_rows)
    solver = solvers.CEMSolver(PlanningCost(loaded.model.model), batch_size=count, **SEARCH)
    policy = WorldModelPolicy(solver, PLAN, process={"action": ActionScaler.of(loaded.model.description)})
    policy.set_env(pool(count))
    reached = torch.zeros(count, dtype=torch.bool)
    for _ in range(50):
        actions = policy.get_action(info_of(environment, count))
        environment.step(torch.as_tensor(actions), ~reached)
        reached |= environment.success()
    goals = int(reached.sum())
    assert goals >= 18, goals
    found(
        "`PlanningCost` in `WorldModelPolicy`, frames of 224 x 224 for a model of 28",
        PACKAGES,
        f"{goals} of {count} goals",
    )


def test_frames_resized_otherwise_cost_goals_or_are_refused(loaded):
    info = {key: torch.as_tensor(value)[:, None] for key, value in info_of(loaded.environment, 1).items()}
    floats = {key: value.float() for key, value in info.items()}
    with pytest.raises(alewm.errors.InputError, match="Leave out the policy's `transform`"):
        PlanningCost(loaded.model.model).get_cost(floats, torch.zeros(1, 1, 5, 10))


def test_its_model_plans_in_our_planner(shipped, tmp_path, loaded, found):
    export_lewm(shipped["two-room-tiny-lewm"], tmp_path / "lewm")
    theirs = load_pretrained(str(tmp_path / "lewm")).eval().requires_grad_(False)
    ours = load_lewm(tmp_path / "lewm").requires_grad_(False)
    config = PlanningConfig(cem=CEMConfig(100, 10, 10))
    frames, goals = loaded.environment.render()[:4], loaded.environment.render_goal()[:4]
    plans = [
        Planner(model, (0, 0), (1, 1), config)(frames, goals)
        for model in (ForeignWorldModel(theirs, latent_dim=64, image_size=28), ours)
    ]
    difference = float((plans[0] - plans[1]).abs().max())
    assert difference < 1e-3, difference
    bridge = "their LeWM as `ForeignWorldModel` in our planner, against the same weights imported"
    found(bridge, PACKAGES, f"plans to {difference:.1e}")


@pytest.fixture
def planning():
    """The main branch's module of objectives and evaluators, which the release does not have."""
    try:
        return importlib.import_module("stable_worldmodel.planning")
    except ModuleNotFoundError:
        if "STABLE_WORLDMODEL" in os.environ:  # the job that installed another version than the release
            raise
        version = metadata.version("stable-worldmodel")
        pytest.skip(f"stable-worldmodel {version} has no stable_worldmodel.planning; the main branch has it")


def test_a_shooting_evaluator_ranks_candidates_as_we_do(planning, loaded, found):
    info = {key: torch.as_tensor(value)[:, None] for key, value in info_of(loaded.environment, 3).items()}
    info = {key: value.expand(-1, 6, *value.shape[2:]) for key, value in info.items()}
    candidates = torch.randn(3, 6, 5, 10, generator=torch.Generator().manual_seed(0))
    cost = PlanningCost(loaded.model.model)
    evaluator = planning.ShootingCostEvaluator(cost, planning.GoalMSE())
    with torch.no_grad():
        theirs, ours = evaluator.get_cost(dict(info), candidates), cost.get_cost(dict(info), candidates)
    assert torch.equal(theirs.argsort(1), ours.argsort(1))
    found("`PlanningCost` in `ShootingCostEvaluator`", PACKAGES, "the same order of candidates")


def test_a_shooting_evaluator_is_searched_and_descended(planning, loaded, found):
    """The documented lines, by a search and by gradients."""
    info = {key: torch.as_tensor(value) for key, value in info_of(loaded.environment, 4).items()}
    for name in ("CEMSolver", "GradientSolver"):
        cost = PlanningCost(loaded.model.model)
        evaluator = planning.ShootingCostEvaluator(cost, planning.GoalMSE())
        plans = configured(getattr(planning.solver, name)(evaluator, **SOLVERS[name]), 4)(dict(info))["actions"]
        expanded = {key: value[:, None].expand(-1, 2, *value.shape[1:]) for key, value in info.items()}
        with torch.no_grad():
            ends = cost.get_cost(expanded, torch.stack([torch.zeros_like(plans), plans.detach()], 1))
        assert (ends[:, 1] < ends[:, 0]).all(), (name, ends)
    outcome = "both end below the cost of doing nothing, 4 goals each"
    found("`ShootingCostEvaluator` in `CEMSolver` and `GradientSolver`", PACKAGES, outcome)
