"""Time of a plan against the capacity it is made with."""

from functools import partial

import torch

from alewm.benchmarks.timing import median_seconds, print_line
from alewm.devices import find_device
from alewm.experiments.presets import preset
from alewm.model.world_model import build_world_model
from alewm.planning.cem import CEMConfig
from alewm.planning.planner import Planner, PlanningConfig

_STEPS_PER_BLOCK = 5


def bench_planner(
    *, preset_name: str, episodes: int, candidates: int, iterations: int, repeats: int, device: str
) -> None:
    """Prints milliseconds per plan of a batch of episodes, for every supported capacity."""
    where, config = find_device(device), preset(preset_name)
    model = build_world_model(config.model, torch.Generator().manual_seed(0)).to(where).eval()
    action_dim = config.model.action_dim // _STEPS_PER_BLOCK
    cem = CEMConfig(candidates, iterations, max(2, candidates // 10))
    planning = PlanningConfig(cem=cem, episodes_per_batch=episodes)
    planner = Planner(model, [0.0] * action_dim, [1.0] * action_dim, planning)
    generator = torch.Generator().manual_seed(1)
    now, goal = torch.randn(2, episodes, config.model.latent_dim, generator=generator).to(where)
    keys = [(0, episode, 0) for episode in range(episodes)]
    capacities = config.model.support.capacities
    rows = {
        str(k): 1e3 * median_seconds(partial(planner.plan, now, goal, [(k,)] * episodes, keys), repeats, where)
        for k in capacities
    }
    print(
        f"{preset_name} on {where}: {episodes} episodes at once, {candidates} candidates, {iterations} iterations, "
        f"horizon {planning.horizon}, median of {repeats}"
    )
    print(f"{'capacity':>9}{'ms':>10}{'ms per episode':>16}")
    for k, milliseconds in rows.items():
        print(f"{k:>9}{milliseconds:>10.1f}{milliseconds / episodes:>16.2f}")
    print_line(
        "planner",
        preset=preset_name,
        episodes=episodes,
        candidates=candidates,
        iterations=iterations,
        device=where.type,
        milliseconds_by_capacity=rows,
        milliseconds_per_episode_by_capacity={k: milliseconds / episodes for k, milliseconds in rows.items()},
    )
