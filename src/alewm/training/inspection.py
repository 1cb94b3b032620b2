"""What a run folder or a checkpoint is, in words."""

from pathlib import Path
from typing import Any

from alewm.files import read_if_there, reading
from alewm.model.checkpoint import DESCRIPTION, check_digests, checkpoints_in
from alewm.model.world_model import build_world_model
from alewm.runs.folder import is_number
from alewm.training.checkpoint import Description, read_description
from alewm.training.config import RunConfig
from alewm.training.data_sets import DATA_SETS
from alewm.training.logbook import Logbook
from alewm.training.noise import seeded_generator


def describe_checkpoint(path: Path) -> str:
    """A checkpoint's model, data and position in its training, a line each."""
    description = read_description(path)
    with reading(path / DESCRIPTION):
        lines = [f"{path}: a checkpoint after {description.step:,} updates", *_describe(description)]
    return "\n".join([*lines, _describe_digests([path])])


def describe_run(path: Path) -> str:
    """A run folder: what it trains or has trained, how far it is, and what was measured, a line each."""
    config = read_if_there(path / "config.json")
    saved = checkpoints_in(path / "checkpoints")
    result = read_if_there(path / "result.json")
    if "model" not in config and not saved:
        fields = ", ".join(sorted(config))
        return f"{path}: a run folder that holds no training of a world model; its config has {fields}"
    if "evaluated" in config:
        with reading(path / "config.json"):
            settings = ", ".join(f"{name} {value}" for name, value in config["evaluated"].items())
        return "\n".join([f"{path}: an evaluation", settings, *_success(path, result)])
    lines = [f"{path}: a training run"]
    if saved:
        description = read_description(saved[-1])
        state = "finished" if "training" in result else "unfinished; repeat its command to continue"
        with reading(saved[-1] / DESCRIPTION):
            lines += [f"after {description.step:,} updates, {state}", *_describe(description)]
        lines.append(f"checkpoints: {', '.join(checkpoint.name for checkpoint in saved)}")
        lines.append(_describe_digests(saved))
    else:
        lines.append("no checkpoint yet; repeat its command to train it")
    latest = Logbook(path / "metrics.jsonl").latest()
    shown = ("train/loss", "validation/loss", "validation/prediction", "latent/effective_rank")
    lines += [f"{name}: {latest[name]:.4g}" for name in shown if is_number(latest.get(name))]
    lines += _success(path, result)
    if command := read_if_there(path / "provenance.json").get("command"):
        lines.append(f"made by: {command}")
    return "\n".join(lines)


def _describe_digests(checkpoints: list[Path]) -> str:
    without = [checkpoint.name for checkpoint in checkpoints if not check_digests(checkpoint)]
    if without:
        return f"weights: no digest in {', '.join(without)}, written by an older version; damage would go unnoticed"
    return "weights: equal to their SHA-256"


def _describe(description: Description) -> list[str]:
    config: RunConfig = description.config
    model = build_world_model(config.model, seeded_generator(0, "weights"))
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    capacities = ", ".join(map(str, config.model.capacities))
    size = config.model.encoder.image_size
    lines = [
        f"method {config.objective.method}, task {config.task}, seed {config.training.seed}",
        f"latent of {config.model.latent_dim}, capacities {capacities}; {num_parameters:,} parameters",
        f"reads frames of {size} x {size} and action blocks of {config.model.action_dim} numbers",
    ]
    apart: dict[str, Any] = description.extras.get(DATA_SETS, {})
    for name, extras in (apart or {"": description.extras}).items():
        of = f"{name}: " if name else ""
        if data := extras.get("data", {}):
            lines.append(f"{of}learned from {data.get('path')} (fingerprint {data.get('fingerprint')})")
        if statistics := extras.get("action_statistics"):
            means, stds = (", ".join(f"{value:.4g}" for value in statistics[key]) for key in ("mean", "std"))
            lines.append(f"{of}actions: mean {means}; std {stds}")
    return lines


def _success(path: Path, result: dict[str, Any]) -> list[str]:
    places = {"": path / "result.json", **{p.parent.name: p for p in sorted(path.glob("evaluations/*/result.json"))}}
    lines = []
    for name, place in places.items():
        with reading(place):
            values = read_if_there(place) if name else result
            if "success_rate" in values:
                rates = f"{values['success_rate']:.1%}, random actions {values['random_success_rate']:.1%}"
                lines.append(f"success{f' ({name})' if name else ''}: {rates}")
    return lines
