"""How costs grow with capacity, candidates, episodes, batch, width and projections: a figure with a panel each."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from alewm.capacity.support import polynomial_prior
from alewm.devices import find_device
from alewm.errors import InputError
from alewm.files import read_json
from alewm.planning.planner import PlanningConfig
from alewm.planning.rollout import sliced_roll_out
from alewm.planning.search import CEMConfig
from alewm.regularizers.quadrature import random_directions
from alewm.regularizers.sigreg import mix_sigreg
from alewm.training.acceleration import WARM_UPS, acceleration_of, random_batch, updates_of
from alewm.training.presets import preset
from alewm_lab.benchmarks.plan_speed import plans_between, random_ends, untrained_model
from alewm_lab.benchmarks.timing import median_seconds, print_line, recorded
from alewm_lab.presentation import panel_grid

if TYPE_CHECKING:
    from alewm_lab.cli.bench import BenchScaling


@dataclass(frozen=True)
class Panel:
    """A cost against one size."""

    title: str
    """Of what."""
    size: str
    """What grows."""
    points: tuple[tuple[int, float], ...]
    """Pairs of size and cost."""
    unit: str = "ms"
    """Of the cost."""


def bench_scaling(asked: "BenchScaling") -> None:
    """Prints a table per panel and writes the figure."""
    where = find_device(asked.device)
    if not asked.costs:
        raise InputError("Name what is to be measured after --costs, or leave it out to measure everything.")
    panels: list[Panel] = []
    measured = {"plan": _planning, "state": _state, "regularizer": _regularizer, "update": _training}
    for panel in chain.from_iterable(measured[cost](asked, where) for cost in asked.costs):
        points = ", ".join(f"{x:,}: {y:,.2f}" for x, y in panel.points)
        print(f"{panel.title}, {panel.unit} against {panel.size}: {points}", flush=True)
        panels.append(panel)
    draw(panels, f"{asked.preset_name} on {where.type}", asked.out)
    print(asked.out)
    print_line("scaling", preset=asked.preset_name, device=where.type, panels=[vars(panel) for panel in panels])


def redraw_scaling(lines: Sequence[Path], out: Path) -> None:
    """Draw the panels of kept lines of JSON into one figure; panels of one thing against one size are the same one."""
    kept = [_kept(path) for path in lines]
    panels = {(panel.title, panel.size): panel for _, found in kept for panel in found}
    draw(list(panels.values()), kept[0][0], out)
    print(out)


def _kept(path: Path) -> tuple[str, list[Panel]]:
    """What was measured on which hardware, and its panels."""
    line = read_json(path)
    try:
        if line["bench"] != "scaling" or not line["panels"]:
            raise ValueError(line["bench"])
        panels = [
            Panel(**{**panel, "points": tuple((int(x), float(y)) for x, y in panel["points"])})
            for panel in line["panels"]
        ]
        return f"{line['preset']} on {line['made_with']['accelerator'] or line['device']}", panels
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path} holds no line of `alewm-lab bench scaling`: expected its panels.") from None


def draw(panels: Sequence[Panel], title: str, out: Path) -> None:
    """Write the panels to `out`, an image file."""
    figure, places = panel_grid(len(panels), 3, panel=(3.4, 2.6))
    for axes, panel in zip(places, panels, strict=True):
        axes.plot(*zip(*panel.points, strict=True), marker="o", color="#0b62a4")
        axes.set(title=panel.title, xlabel=panel.size, ylabel=panel.unit)
        axes.set_ylim(0, 1.15 * max(y for _, y in panel.points))
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=130)


def _planning(asked: "BenchScaling", where: torch.device) -> Iterator[Panel]:
    config = preset(asked.preset_name)
    model = untrained_model(config.model, where)
    smallest, capacities = config.model.capacities[0], config.model.capacities
    middle, usual = asked.episodes[len(asked.episodes) // 2], CEMConfig().num_candidates

    def milliseconds(capacity: int = smallest, episodes: int = middle, candidates: int = usual) -> float:
        cem = CEMConfig.with_a_tenth_elite(candidates, asked.iterations)
        planning = PlanningConfig(cem=cem, episodes_per_batch=episodes)
        now, goal = random_ends(config.model, episodes, where)
        plan, _ = plans_between(now, goal, model, planning, config.model.action_dim)
        return 1e3 * median_seconds(partial(plan, capacity), asked.repeats, where)

    yield Panel("a plan", "capacity k", tuple((k, milliseconds(capacity=k)) for k in capacities))
    yield Panel("a plan", "episodes together", tuple((b, milliseconds(episodes=b)) for b in asked.episodes))
    yield Panel("a plan", "candidates", tuple((n, milliseconds(candidates=n)) for n in asked.candidates))


def _state(asked: "BenchScaling", where: torch.device) -> Iterator[Panel]:
    """What a candidate's rollout carries from one step to the next: the prefix, and nothing beyond it."""
    config = preset(asked.preset_name).model
    model = untrained_model(config, where)
    z, blocks = torch.zeros(1, config.latent_dim), torch.zeros(1, 1, 2, config.action_dim)

    @torch.no_grad()
    def num_bytes(k: int) -> float:
        after_one_step, _ = sliced_roll_out(model, z.to(where), blocks.to(where), k, last_width=k)
        return float(after_one_step.nbytes)

    yield Panel("a candidate's state", "capacity k", tuple((k, num_bytes(k)) for k in config.capacities), "bytes")


def _regularizer(asked: "BenchScaling", where: torch.device) -> Iterator[Panel]:
    config = preset(asked.preset_name)
    usual_batch, usual_projections = config.training.batch_size, config.objective.num_projections

    def milliseconds(batch: int = usual_batch, projections: int = usual_projections) -> float:
        call = recorded(_mix_sigreg(asked.preset_name, batch, projections, where), where)
        return 1e3 * median_seconds(call, asked.repeats, where)

    yield Panel("MixSIGReg", "projections", tuple((p, milliseconds(projections=p)) for p in asked.projections))
    yield Panel("MixSIGReg", "windows", tuple((b, milliseconds(batch=b)) for b in asked.batches))


def _mix_sigreg(preset_name: str, batch: int, projections: int, where: torch.device) -> Callable[[], object]:
    """The loss and its gradient, on data made before."""
    config = preset(preset_name)
    support, generator = config.model.support, torch.Generator(where).manual_seed(0)
    s = torch.randn(4, batch, support.latent_dim, generator=generator, device=where).requires_grad_()
    q = torch.rand(1, batch, len(support), generator=generator, device=where).softmax(-1)
    u = random_directions(support.latent_dim, projections, generator=generator)
    prior = polynomial_prior(len(support), config.model.prior_degree).to(where)
    return lambda: torch.autograd.grad(mix_sigreg(s, q, u[None], prior[None], support).mean(), s)


def _training(asked: "BenchScaling", where: torch.device) -> Iterator[Panel]:
    def update(name: str, batch: int) -> float:
        config = preset(name)
        config = replace(config, training=replace(config.training, batch_size=batch))
        chosen = acceleration_of(config, where)
        updates = updates_of(config, chosen, where)
        call = partial(updates, *random_batch(config, batch, where))
        for _ in range(WARM_UPS + 1):  # the last of them is recorded
            call()
        return 1e3 * median_seconds(call, asked.repeats, where)

    usual = preset(asked.preset_name).training.batch_size
    yield Panel("an update", "windows", tuple((batch, update(asked.preset_name, batch)) for batch in asked.batches))
    by_width = tuple((preset(name).model.latent_dim, update(name, usual)) for name in asked.presets)
    yield Panel("an update", "latent width D", by_width)
