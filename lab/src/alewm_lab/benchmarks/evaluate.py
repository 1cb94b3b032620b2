"""A whole evaluation, environment and planning together, with a model that has learned nothing."""

import time

import torch

from alewm.data.pairs import GOAL_OFFSET
from alewm.devices import find_device, simulation_device
from alewm.envs.registry import get_task
from alewm.envs.two_room.behaviour import simulate_episodes
from alewm.errors import InputError
from alewm.evaluation.closed_loop import GoalPairs
from alewm.evaluation.evaluate_run import EPISODES_PER_BATCH
from alewm.evaluation.success import evaluate
from alewm.model.world_model import build_world_model
from alewm.planning.cem import CEMConfig
from alewm.planning.planner import Planner, PlanningConfig
from alewm.planning.search import choose_search
from alewm.training.presets import preset
from alewm_lab.benchmarks.timing import peak_mebibytes, print_line


def bench_evaluate(
    *, preset_name: str, episodes: int, candidates: int, iterations: int, device: str, reference: bool
) -> None:
    """Prints the seconds of an evaluation of `episodes` pairs; an untrained model finishes few early, so it is long.

    Cold is the first of two in this process, in which kernels are compiled.
    """
    where, config = find_device(device), preset(preset_name)
    if config.task != "two-room" or episodes < 1:
        raise InputError(f"Expected a preset of two-room and 1 episode or more, got {preset_name} and {episodes}.")
    model = build_world_model(config.model, torch.Generator().manual_seed(0)).to(where).eval()
    task = get_task(config.task)
    cem = CEMConfig.with_a_tenth_elite(candidates, iterations)
    planning = PlanningConfig(cem=cem, episodes_per_batch=EPISODES_PER_BATCH[where.type])
    search = choose_search(model, where, reference=reference)
    planner = Planner(model, [0.0] * task.action_dim, [1.0] * task.action_dim, planning, inner_loop=search.inner_loop)
    paths = [torch.from_numpy(made["proprio"]) for made in simulate_episodes(0, range(episodes))]
    starts = torch.stack([path[0] for path in paths])
    goals = torch.stack([path[min(GOAL_OFFSET, len(path) - 1)] for path in paths])
    steps = ((0,) * episodes, (GOAL_OFFSET,) * episodes)
    pairs = GoalPairs(tuple(range(episodes)), *steps, {"proprio": starts}, {"proprio": goals})
    envs = task.make_vector_env(episodes, simulation_device(where), config.model.encoder.image_size)
    began = time.perf_counter()
    evaluate(envs, pairs, planner, model.log_prior.exp())
    cold = time.perf_counter() - began
    result = evaluate(envs, pairs, planner, model.log_prior.exp()).result
    seconds, planned = result["seconds"], result["seconds_planning"]
    print(f"{preset_name} on {where}: {episodes} pairs, {candidates} candidates, {iterations} iterations")
    print(f"search: {search.description}")
    print(f"{'cold s':>10}{'warm s':>10}{'of it planning':>16}{'warm s per episode':>20}")
    print(f"{cold:>10.2f}{seconds:>10.2f}{planned:>16.2f}{seconds / episodes:>20.3f}")
    print_line(
        "evaluate",
        preset=preset_name,
        episodes=episodes,
        candidates=candidates,
        iterations=iterations,
        device=where.type,
        search=search.description,
        seconds_cold=cold,
        seconds=seconds,
        seconds_planning=planned,
        peak_mebibytes=peak_mebibytes(where),
    )
