"""The parts of stable-worldmodel that meet a model, written from the description of its interfaces.

Environments report values [n_env, 1, ...]; the policy transforms columns, plans for those whose queue is empty, and
hands out one action at a time. The solver adds the sample axis by expansion, works through batches of environments, and
passes the same dictionary at every iteration.
"""

import sys
import types
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class PlanConfig:
    horizon: int
    receding_horizon: int
    action_block: int = 1


class CEMSolver:
    def __init__(self, model, batch_size=1, num_samples=300, n_steps=30, topk=30, device="cpu", seed=1234):
        self.model, self.batch_size, self.device = model, batch_size, device
        self.num_samples, self.n_steps, self.topk = num_samples, n_steps, topk
        self.generator = torch.Generator(device).manual_seed(seed)
        self.dtype = next(model.parameters()).dtype

    def configure(self, *, action_space, n_envs, config):
        self.horizon, self.action_dim = config.horizon, config.action_block * int(np.prod(action_space.shape[1:]))

    def draw(self, step, rows, num):
        shape = (num, self.num_samples, self.horizon, self.action_dim)
        return torch.randn(shape, generator=self.generator, device=self.device, dtype=self.dtype)

    @torch.inference_mode()
    def solve(self, info, init_action=None):
        num_envs, plans = len(info["pixels"]), []
        for start in range(0, num_envs, self.batch_size):
            rows = slice(start, min(start + self.batch_size, num_envs))
            num = rows.stop - rows.start
            expanded = {}
            for name, value in info.items():
                if torch.is_tensor(value):
                    value = value[rows].to(self.device, self.dtype if value.is_floating_point() else None)
                    value = value[:, None].expand(num, self.num_samples, *value.shape[1:])
                expanded[name] = value
            mean = torch.zeros(num, self.horizon, self.action_dim, dtype=self.dtype)
            if init_action is not None:
                mean[:, : init_action.shape[1]] = init_action[rows]
            spread = torch.ones_like(mean)
            for step in range(self.n_steps):
                candidates = mean[:, None] + spread[:, None] * self.draw(step, rows, num)
                candidates[:, 0] = mean
                costs = self.model.get_cost(expanded, candidates)
                assert isinstance(costs, torch.Tensor)
                assert costs.shape == (num, self.num_samples)
                best = costs.topk(self.topk, 1, largest=False).indices
                elites = candidates[torch.arange(num)[:, None], best]
                mean, spread = elites.mean(1), elites.std(1)
            plans.append(mean)
        return {"actions": torch.cat(plans).cpu()}

    __call__ = solve


class WorldModelPolicy:
    def __init__(self, solver, config, process=None, transform=None):
        self.solver, self.config, self.process, self.transform = solver, config, process or {}, transform or {}

    def set_env(self, pool):
        self.env = pool
        self.solver.configure(action_space=pool.action_space, n_envs=pool.num_envs, config=self.config)
        self.queues: list[deque[Any]] = [deque() for _ in range(pool.num_envs)]

    def get_action(self, info):
        ready = {}
        for name, value in info.items():
            if name in self.process:
                value = self.process[name].transform(value.reshape(-1, *value.shape[2:])).reshape(value.shape)
            if name in self.transform:
                images = [self.transform[name](torch.as_tensor(image).movedim(-1, 0)) for image in value[:, 0]]
                value = torch.stack(images)[:, None]
            ready[name] = torch.as_tensor(value)
        waiting = [i for i, queue in enumerate(self.queues) if not queue]
        if waiting:
            plans = self.solver({name: value[waiting] for name, value in ready.items()})["actions"]
            executed = plans[:, : self.config.receding_horizon]
            executed = executed.reshape(len(waiting), self.config.receding_horizon * self.config.action_block, -1)
            for i, plan in zip(waiting, executed, strict=True):
                self.queues[i].extend(plan)
        actions = torch.stack([queue.popleft() for queue in self.queues]).numpy()
        return self.process["action"].inverse_transform(actions) if "action" in self.process else actions


class GoalMSE:
    """The main branch's objective: the squared distance of the last predicted latent to the goal's, all coordinates."""

    def __call__(self, info):
        reached, goal = info["predicted_emb"][:, :, -1], info["goal_emb"][:, None, -1]
        return (reached - goal.detach()).square().sum(-1)


class ShootingCostEvaluator(torch.nn.Module):
    """The main branch's composition of a model and an objective: the goal is encoded from the model's `encode`."""

    def __init__(self, model, objective):
        super().__init__()
        self.model, self.objective = model, objective

    def get_cost(self, info, candidates):
        if "goal_emb" not in info:
            goal = {name: value[:, 0] for name, value in info.items() if torch.is_tensor(value)}
            goal["pixels"] = goal["goal"]
            goal |= {name[5:]: goal.pop(name) for name in info if name.startswith("goal_")}
            del goal["action"]  # a goal prescribes none; a dictionary without one is an error there too
            goal.pop("action_history", None)
            info["goal_emb"] = self.model.encode(goal)["emb"]
        info = self.model.rollout(info, candidates)
        info["action_candidates"] = candidates
        return self.objective(info)


def installed(monkeypatch):
    """Makes importable what pages name: `solver` and `policy` of the release, `planning` of the main branch."""
    members: dict[str, list[Any]] = {
        "solver": [CEMSolver],
        "policy": [PlanConfig, WorldModelPolicy],
        "planning": [GoalMSE, ShootingCostEvaluator],
        "planning.solver": [CEMSolver],
    }
    monkeypatch.setitem(sys.modules, "stable_worldmodel", types.ModuleType("stable_worldmodel"))
    for name, classes in members.items():
        module: Any = types.ModuleType(f"stable_worldmodel.{name}")
        for each in classes:
            setattr(module, each.__name__, each)
        monkeypatch.setitem(sys.modules, module.__name__, module)
