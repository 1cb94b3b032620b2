"""Time of a plan: the reference one episode at a time, and ours for many at once, against the capacity."""

from collections.abc import Mapping
from functools import partial

import torch

from alewm.data.windows import FRAME_SKIP
from alewm.devices import find_device
from alewm.model.world_model import WorldModel, build_world_model
from alewm.planning.cem import CEMConfig
from alewm.planning.noise import candidate_noise
from alewm.planning.planner import Planner, PlanningConfig, Plans
from alewm.planning.search import choose_search
from alewm.shapes import Float, Tensor
from alewm.training.presets import preset
from alewm_lab.benchmarks.reference import reference_plan
from alewm_lab.benchmarks.timing import kernel_table, median_seconds, peak_mebibytes, print_line


@torch.no_grad()
def bench_planner(
    *,
    preset_name: str,
    episodes: int,
    candidates: int,
    iterations: int,
    repeats: int,
    device: str,
    capacities: tuple[int, ...],
    reference: bool,
    profile: bool,
) -> None:
    """Prints milliseconds per plan of a batch of episodes, for every capacity asked for."""
    where, config = find_device(device), preset(preset_name)
    support = config.model.support
    for k in capacities:
        support.index_of(k)
    model = build_world_model(config.model, torch.Generator().manual_seed(0)).to(where).eval()
    action_dim = config.model.action_dim // FRAME_SKIP
    cem = CEMConfig.with_a_tenth_elite(candidates, iterations)
    planning = PlanningConfig(cem=cem, episodes_per_batch=episodes)
    search = choose_search(model, where)
    planner = Planner(model, [0.0] * action_dim, [1.0] * action_dim, planning, inner_loop=search.inner_loop)
    generator = torch.Generator().manual_seed(1)
    now, goal = torch.randn(2, episodes, config.model.latent_dim, generator=generator).to(where)
    keys = [(0, episode, 0) for episode in range(episodes)]

    def plan(k: int) -> Plans:
        return planner.plan(now, goal, [(k,)] * episodes, keys)

    rows = {str(k): 1e3 * median_seconds(partial(plan, k), repeats, where) for k in capacities or support.capacities}
    alone = _reference_milliseconds(model, now, goal, planning, repeats) if reference else None
    print(
        f"{preset_name} on {where}: {episodes} episodes at once, {candidates} candidates, {iterations} iterations, "
        f"horizon {planning.horizon}, median of {repeats}"
    )
    print(f"search: {search.description}")
    _print_rows(rows, episodes, alone)
    if profile:
        print(kernel_table(partial(plan, (capacities or support.capacities)[0]), where))
    print_line(
        "planner",
        preset=preset_name,
        episodes=episodes,
        candidates=candidates,
        iterations=iterations,
        device=where.type,
        search=search.description,
        milliseconds_by_capacity=rows,
        milliseconds_per_episode_by_capacity={k: milliseconds / episodes for k, milliseconds in rows.items()},
        reference_milliseconds_per_episode=alone,
        peak_mebibytes=peak_mebibytes(where),
    )


def _print_rows(rows: Mapping[str, float], episodes: int, alone: float | None) -> None:
    print(f"{'capacity':>9}{'ms':>10}{'ms per episode':>16}")
    for name, milliseconds in rows.items():
        print(f"{name:>9}{milliseconds:>10.1f}{milliseconds / episodes:>16.2f}")
    if alone is not None:
        quickest = min(rows.values()) / episodes
        print(f"reference, one episode at a time, whole latent: {alone:.1f} ms; ratio {alone / quickest:.1f}x")


def _reference_milliseconds(
    model: WorldModel, now: Float[Tensor, "B D"], goal: Float[Tensor, "B D"], planning: PlanningConfig, repeats: int
) -> float:
    """The plan of one episode with its whole latent, by full-width rollouts, operation by operation."""
    cem, capacity = planning.cem, model.support.latent_dim
    sizes = (cem.num_iterations, cem.num_candidates, planning.horizon, model.config.action_dim)
    noise = candidate_noise([(0, 0, 0)], *sizes, device=now.device)
    dtype = torch.bfloat16 if now.is_cuda else None

    def plan() -> None:
        with torch.autocast(now.device.type, dtype=dtype, enabled=dtype is not None):
            reference_plan(model, now[:1], goal[:1], noise, capacity, cem)

    return 1e3 * median_seconds(plan, min(repeats, 3), now.device)
