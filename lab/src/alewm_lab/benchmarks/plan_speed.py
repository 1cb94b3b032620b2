"""Time of a plan against its capacity: by the reference, by our searches, and with distilled dynamics.

`python -m alewm_lab.benchmarks.plan_speed RECORD ... OUT.svg` draws the lines that `alewm-lab bench distilled` printed.
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from alewm.devices import find_device
from alewm.files import read_object, write_bytes
from alewm.model.world_model import WorldModel, WorldModelConfig, build_world_model
from alewm.planning.distilled import DistilledDynamics, DistilledModel, DynamicsConfig
from alewm.planning.noise import candidate_noise
from alewm.planning.planner import Planner, PlanningConfig, Plans, choose_search
from alewm.planning.search import CEMConfig, SearchName
from alewm.shapes import FRAME_SKIP, Float, Tensor
from alewm.theme import Draw, Theme, as_svg
from alewm.training.presets import preset
from alewm_lab.benchmarks.reference import reference_plan
from alewm_lab.benchmarks.timing import (
    check_repeats,
    kernel_table,
    median_seconds,
    peak_mebibytes,
    print_line,
    wait_for,
)
from alewm_lab.presentation import panel_grid


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
    model = untrained_model(config.model, where)
    cem = CEMConfig.with_a_tenth_elite(candidates, iterations)
    planning = PlanningConfig(cem=cem, episodes_per_batch=episodes)
    now, goal = random_ends(config.model, episodes, where)
    plan, search = plans_between(now, goal, model, planning, config.model.action_dim)
    rows = {str(k): 1e3 * median_seconds(partial(plan, k), repeats, where) for k in capacities or support.capacities}
    alone = _reference_milliseconds(model, now, goal, planning, repeats) if reference else None
    print(
        f"{preset_name} on {where}: {episodes} episodes at once, {candidates} candidates, {iterations} iterations, "
        f"horizon {planning.horizon}, median of {repeats}"
    )
    print(f"search: {search}")
    _print_plans(rows, episodes, alone)
    if profile:
        print(kernel_table(partial(plan, (capacities or support.capacities)[0]), where))
    print_line(
        "planner",
        preset=preset_name,
        episodes=episodes,
        candidates=candidates,
        iterations=iterations,
        device=where.type,
        search=search,
        milliseconds_by_capacity=rows,
        milliseconds_per_episode_by_capacity={k: milliseconds / episodes for k, milliseconds in rows.items()},
        reference_milliseconds_per_episode=alone,
        peak_mebibytes=peak_mebibytes(where),
    )


def _print_plans(rows: Mapping[str, float], episodes: int, alone: float | None) -> None:
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


@torch.no_grad()
def bench_distilled(
    *,
    preset_name: str,
    episodes: int,
    candidates: int,
    iterations: int,
    hidden: int,
    repeats: int,
    device: str,
    capacities: tuple[int, ...],
    search: SearchName,
    own_capacities: tuple[int, ...],
) -> None:
    """Prints milliseconds per plan of both dynamics for every capacity asked for, their bytes, and one encoding.

    Both are timed in turns, because the load of a shared machine
    changes; what can be compared is the ratio of medians. With one thread on a CPU, the processor time is what a plan
    takes on an idle machine.
    """
    check_repeats(repeats)
    where, config = find_device(device), preset(preset_name)
    ks = capacities or config.model.support.capacities
    model = untrained_model(config.model, where)
    networks = {k: DistilledDynamics(DynamicsConfig(k, config.model.action_dim, hidden)).to(where) for k in ks}
    cem = CEMConfig.with_a_tenth_elite(candidates, iterations)
    planning = PlanningConfig(cem=cem, episodes_per_batch=episodes, search=search)
    now, goal = random_ends(config.model, episodes, where)
    size = config.model.encoder.image_size
    frame = torch.zeros(episodes, 1, size, size, 3, dtype=torch.uint8, device=where)
    calls: dict[tuple[str, int], Callable[[], object]] = {("encoder", 0): lambda: model.encode(frame)}
    searches = {}
    for name, each in (("own", model), ("distilled", DistilledModel(model, networks))):
        plan, searches[name] = plans_between(now, goal, each, planning, config.model.action_dim)
        for k in ks if name == "distilled" else own_capacities or ks:
            calls[name, k] = partial(plan, k)
    milliseconds, processor = _alternating(calls, repeats, where)
    print(
        f"{preset_name} on {where}, {torch.get_num_threads()} threads: {search}, {episodes} episodes at once, "
        f"{candidates} candidates, {iterations} iterations, horizon {planning.horizon}, {hidden} hidden units, "
        f"median of {repeats}"
    )
    head = ("own, ms", "distilled, ms", "ratio", "own, CPU ms", "distilled, CPU ms", "own, kB", "distilled, kB")
    print(f"{'capacity':>9}" + "".join(f"{name:>{len(name) + 3}}" for name in head))
    own_bytes = _dynamics_bytes(model)
    rows: dict[str, dict[str, float]] = {}
    for k in ks:
        row: dict[str, float] = {"distilled_bytes": sum(tensor.nbytes for tensor in networks[k].state_dict().values())}
        for name in ("own", "distilled"):
            if (name, k) in calls:
                row |= {f"{name}_ms": milliseconds[name, k], f"{name}_cpu_ms": processor[name, k]}
        rows[str(k)] = row
        ratio = row["own_ms"] / row["distilled_ms"] if "own_ms" in row else None
        values = (row.get("own_ms"), row["distilled_ms"], ratio, row.get("own_cpu_ms"), row["distilled_cpu_ms"])
        sizes = own_bytes / 1e3, row["distilled_bytes"] / 1e3
        shown = ["–" if value is None else f"{value:.1f}" for value in (*values, *sizes)]
        print(f"{k:>9}" + "".join(f"{cell:>{len(name) + 3}}" for name, cell in zip(head, shown, strict=True)))
    encoding = milliseconds["encoder", 0], processor["encoder", 0]
    print(f"encoding {episodes} frame{'s' * (episodes > 1)}: {encoding[0]:.1f} ms, {encoding[1]:.1f} CPU ms")
    print_line(
        "distilled",
        preset=preset_name,
        episodes=episodes,
        candidates=candidates,
        iterations=iterations,
        hidden=hidden,
        search=search,
        device=where.type,
        threads=torch.get_num_threads(),
        searches=searches,
        own_bytes=own_bytes,
        by_capacity=rows,
        encoder_ms=encoding[0],
        encoder_cpu_ms=encoding[1],
    )


def untrained_model(config: WorldModelConfig, where: torch.device) -> WorldModel:
    """A model to plan with: the time of a plan does not depend on what its weights are."""
    return build_world_model(config, torch.Generator().manual_seed(0)).to(where).eval()


def random_ends(config: WorldModelConfig, episodes: int, where: torch.device) -> Float[Tensor, "2 B D"]:
    """Latents to plan from, and to plan to."""
    return torch.randn(2, episodes, config.latent_dim, generator=torch.Generator().manual_seed(1)).to(where)


def plans_between(
    now: Float[Tensor, "B D"],
    goal: Float[Tensor, "B D"],
    model: WorldModel | DistilledModel,
    planning: PlanningConfig,
    block_dim: int,
) -> tuple[Callable[[int], Plans], str]:
    """What plans from `now` to `goal` with a capacity, in blocks of `block_dim` numbers, and the search it uses."""
    search, action_dim = choose_search(model, now.device, search=planning.search), block_dim // FRAME_SKIP
    planner = Planner(model, [0.0] * action_dim, [1.0] * action_dim, planning, inner_loop=search.inner_loop)
    keys = [(0, episode, 0) for episode in range(len(now))]
    return lambda k: planner.plan(now, goal, [(k,)] * len(now), keys), search.description


def _alternating(
    calls: dict[tuple[str, int], Callable[[], object]], repeats: int, device: torch.device
) -> tuple[dict[tuple[str, int], float], dict[tuple[str, int], float]]:
    """Median milliseconds of every call, elapsed and of this process, in turns after one round that does not count."""
    elapsed: dict[tuple[str, int], list[float]] = {name: [] for name in calls}
    processor: dict[tuple[str, int], list[float]] = {name: [] for name in calls}
    for repeat in range(repeats + 1):
        for name, call in calls.items():
            began, began_processor = time.perf_counter(), time.process_time()
            call()
            wait_for(device)
            if repeat:
                elapsed[name].append(1e3 * (time.perf_counter() - began))
                processor[name].append(1e3 * (time.process_time() - began_processor))
    medians = [{name: statistics.median(each) for name, each in taken.items()} for taken in (elapsed, processor)]
    return medians[0], medians[1]


def _dynamics_bytes(model: WorldModel) -> int:
    """What a plan reads of the model at every step: predictor, its projector and the action encoder."""
    parts = (model.predictor, model.prediction_projector, model.action_encoder)
    return sum(tensor.nbytes for part in parts for tensor in part.state_dict().values())


def time_figure(records: Sequence[Mapping[str, Any]]) -> Draw:
    """Processor time of a plan against k, a panel per record: the model's own predictor and distilled dynamics."""

    def draw(theme: Theme) -> Figure:
        figure, panels = panel_grid(len(records), 2, panel=(3.4, 2.6), sharey=True)
        for axes, record in zip(panels, records, strict=True):
            for color, (name, title) in enumerate((("own", "own predictor"), ("distilled", "distilled"))):
                timed = {int(k): row for k, row in record["by_capacity"].items() if f"{name}_cpu_ms" in row}
                times = [row[f"{name}_cpu_ms"] for row in timed.values()]
                axes.plot(list(timed), times, "o-", color=theme.color(color), markersize=4, label=title)
            axes.set(xscale="log", yscale="log", xlabel="coordinates planned in (k)", title=record["preset"])
            ks = [int(k) for k in record["by_capacity"]]
            axes.set_xticks(ks, [str(k) if place % 2 == 0 or len(ks) < 6 else "" for place, k in enumerate(ks)])
            axes.minorticks_off()
        panels[0].set_ylabel("one plan (CPU ms)")
        panels[0].legend()
        return figure

    return draw


if __name__ == "__main__":
    *_records, _out = map(Path, sys.argv[1:])
    write_bytes(_out, as_svg(time_figure([read_object(path) for path in _records])))
