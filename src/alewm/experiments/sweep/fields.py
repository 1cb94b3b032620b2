"""In which fields the trials of a sweep differ, and how tables call them."""

from collections.abc import Sequence
from typing import Any

from alewm.config import changed_fields, to_dict
from alewm.experiments.framework.run import Run

SEED = "training.seed"


def varied_fields(runs: Sequence[Run]) -> tuple[str, ...]:
    """The dotted paths of all fields in which any two of `runs` differ, seeds apart."""
    found: dict[str, None] = {}
    for run in runs[1:]:
        found |= dict.fromkeys(changed_fields(run.config, runs[0].config))
    if "model.latent_dim" in found:
        found.pop("model.capacities", None)  # LeWM's only capacity is its width
    return tuple(field for field in sorted(found) if field != SEED)


def shown_value(run: Run, field: str) -> str:
    """What `run` has in a field."""
    value: Any = to_dict(run.config)
    for name in field.split("."):
        value = value[name]
    return f"{value:g}" if isinstance(value, float) else str(value)


def short_names(fields: Sequence[str]) -> dict[str, str]:
    """The last word of each dotted path, or the whole of it where two would be alike."""
    last = [field.rpartition(".")[2] for field in fields]
    return {field: word if last.count(word) == 1 else field for field, word in zip(fields, last, strict=True)}


def configuration(run: Run, fields: Sequence[str]) -> str:
    """`name=value` for each of `fields`."""
    return " ".join(f"{name}={shown_value(run, field)}" for field, name in short_names(fields).items())
