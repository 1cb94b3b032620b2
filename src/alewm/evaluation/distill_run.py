"""Distilling a run: its data and encoder, the capacities its pairs choose, and one small network for each of them.

The networks are in `RUN/distilled/k<capacity>/` (`alewm.planning.distilled`). One that is there already is kept where
its settings and the model's weights are the same, and refused with the difference where they are not.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from alewm.config import to_dict
from alewm.errors import InputError
from alewm.evaluation.held_out import only_data_set, open_own_data, own_data_path
from alewm.model.checkpoint_files import weights_sha256
from alewm.model.world_model import WorldModel
from alewm.planning.distilled import (
    DISTILLED,
    DYNAMICS,
    DistilledModel,
    distilled_capacities,
    load_distilled,
)
from alewm.progress import Progress
from alewm.runs.fitted import FORMAT
from alewm.runs.folder import only_writer, provenance
from alewm.training.checkpoint import latest_checkpoint, load_world_model
from alewm.training.distill import (
    DistillConfig,
    chosen_capacities,
    encode_windows,
    fit_dynamics,
    open_loop_errors,
)


@dataclass(frozen=True)
class Distilled:
    """The dynamics that a run has been distilled to."""

    path: Path
    """The folder that holds them all."""
    networks: dict[int, dict[str, Any]]
    """The content of `distilled.json`, by capacity."""


def evenly_spread(episodes: Sequence[int], count: int) -> Sequence[int]:
    """At most `count` of `episodes`, from all over the file: neighbours may be copies of one demonstration."""
    count = min(count, len(episodes))
    return [episodes[i * len(episodes) // count] for i in range(count)]


def distill(
    run: str | Path,
    capacities: Sequence[int] = (),
    config: DistillConfig | None = None,
    *,
    data_path: Path | None = None,
    out: Path | None = None,
    device: torch.device | None = None,
    is_silent: bool = False,
) -> Distilled:
    """Small dynamics for `capacities` of the newest checkpoint of `run`, found in `out` or fitted and written there.

    Without `capacities` there is one network for each that pairs of training episodes choose. The data file is the one
    the run was trained on, at `data_path` if it has moved; `out` is `RUN/distilled` if it is not given.
    """
    run, config = Path(run), config or DistillConfig()
    checkpoint = latest_checkpoint(run)
    model, description = load_world_model(checkpoint, device)
    for capacity in capacities:
        model.support.index_of(capacity)
    learned, folder = only_data_set(run, description), out or run / DISTILLED
    asked = {"weights_sha256": weights_sha256(checkpoint), "settings": to_dict(config)}
    networks = _finished(folder, asked, capacities)
    wanted = tuple(sorted(set(capacities))) or _chosen_before(networks)
    if wanted and networks.keys() >= set(wanted):
        return Distilled(folder, {capacity: networks[capacity] for capacity in wanted})
    with open_own_data(run, learned, own_data_path(run, learned, data_path)) as (store, splits), only_writer(folder):
        train = evenly_spread(splits.train, config.num_episodes or len(splits.train))
        pairs = chosen_capacities(model, store, splits.train)
        wanted = wanted or tuple(sorted(pairs))
        missing = [capacity for capacity in wanted if capacity not in networks]
        num_frames = len(store.drawn_rows(train)) + len(store.drawn_rows(splits.validation))
        with Progress("encoding frames", num_frames, "frames", is_silent=is_silent) as bar:
            windows, held_out = (
                encode_windows(
                    model,
                    store,
                    episodes,
                    learned.statistics,
                    horizon=config.horizon,
                    frame_skip=description.config.frame_skip,
                    width=max(missing),
                    advance=bar.advance,
                )
                for episodes in (train, splits.validation)
            )
        for capacity in missing:
            began = time.perf_counter()
            title = f"fitting {capacity} coordinates"
            with Progress(title, config.num_updates, "updates", is_silent=is_silent) as bar:
                network = fit_dynamics(windows, held_out, capacity, config, advance=bar.advance)
            own_rollout = partial(model.imagine_prefix, last_width=capacity, context=model.context_length)
            networks[capacity] = {
                "format": FORMAT,
                "config": to_dict(network.config),
                **asked,
                "checkpoint": checkpoint.name,
                "fingerprint": learned.fingerprint,
                "training_windows": len(windows),
                "training_pairs_by_capacity": {str(k): count for k, count in sorted(pairs.items())},
                "validation_error": {
                    "distilled": open_loop_errors(network.imagine, held_out, capacity),
                    "own": open_loop_errors(own_rollout, held_out, capacity),
                },
                "parameters": sum(parameter.numel() for parameter in network.parameters()),
                "seconds": time.perf_counter() - began,
                "made_with": provenance(),
            }
            DYNAMICS.write(folder / f"k{capacity}", network, networks[capacity])
    return Distilled(folder, {capacity: networks[capacity] for capacity in wanted})


def with_dynamics(model: WorldModel, run: Path, dynamics: str) -> DistilledModel:
    """`model`, the newest checkpoint of `run`, with the distilled dynamics in the run or in the folder `dynamics`."""
    folder = run / DISTILLED if dynamics == DISTILLED else Path(dynamics)
    if not distilled_capacities(folder):
        raise InputError(f"{folder} holds no distilled dynamics. Make them: alewm distill {run}")
    return load_distilled(model, weights_sha256(latest_checkpoint(run)), folder)


def distill_table(networks: dict[int, dict[str, Any]]) -> str:
    """Size and open-loop error of each network beside the model's own predictor, for a terminal."""
    horizon = max(len(each["validation_error"]["distilled"]) for each in networks.values())
    ahead = "".join(f"{f'{h} ahead':>10}" for h in range(1, horizon + 1))
    lines = [f"{'capacity':<10}{'dynamics':<12}{'parameters':>12}{ahead}   (error / variance, validation)"]
    for capacity, each in networks.items():
        for name, count in (("distilled", f"{each['parameters']:,}"), ("own", "")):
            errors = "".join(f"{error:>10.4f}" for error in each["validation_error"][name])
            lines.append(f"{capacity:<10}{name:<12}{count:>12}{errors}")
    return "\n".join(lines)


def too_inaccurate(networks: dict[int, dict[str, Any]]) -> list[str]:
    """A line for each network that predicts worse than the model it replaces, at the end of the rollout."""
    lines = []
    for capacity, each in networks.items():
        distilled, own = (each["validation_error"][name][-1] for name in ("distilled", "own"))
        if distilled > own:
            lines.append(
                f"The network for {capacity} coordinates predicts worse than the model's own predictor: its error is "
                f"{distilled:.3f} of the variance, the model's {own:.3f}. Plans in it may reach fewer goals. Fit it "
                f"longer (--updates {4 * each['settings']['num_updates']}) or make it wider (--hidden), with another "
                f"--out."
            )
    return lines


def _finished(folder: Path, asked: dict[str, Any], capacities: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The networks that are there, all of which must be of these weights; those asked for, of these settings too."""
    found = {capacity: DYNAMICS.describe(path) for capacity, path in distilled_capacities(folder).items()}
    for capacity, each in found.items():
        names = asked if capacity in capacities or not capacities else ("weights_sha256",)
        DYNAMICS.refuse_other(folder / f"k{capacity}", each, {name: asked[name] for name in names})
    return found


def _chosen_before(networks: dict[int, dict[str, Any]]) -> tuple[int, ...]:
    """The capacities that training pairs chose, as stored with a fitted network; empty before."""
    counts: dict[str, int] = next((each["training_pairs_by_capacity"] for each in networks.values()), {})
    return tuple(sorted(map(int, counts)))
