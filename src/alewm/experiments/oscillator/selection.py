"""Choosing hyperparameters on validation data, as the paper's search does."""

from collections.abc import Iterable
from typing import Any

from alewm.experiments.oscillator.config import TRUE_FACTORS

Record = dict[str, Any]


def validation_score(record: Record) -> float:
    """Validation R² that selects: of the whole latent for LeWM, of the first four coordinates for ALeWM."""
    by_prefix: list[float] = record["validation_r2_by_prefix"]
    return by_prefix[-1] if record["method"] == "lewm" else by_prefix[min(TRUE_FACTORS, len(by_prefix)) - 1]


def select(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The selected configuration of LeWM at each width and of ALeWM, each with all its seeds.

    A configuration is judged by its mean over seeds; a tie goes to the smaller weight.
    """
    contests: dict[str, dict[tuple[Any, ...], list[Record]]] = {}
    for record in records:
        title = f"LeWM d={record['latent_dim']}" if record["method"] == "lewm" else "ALeWM"
        setting = (record["lambda"], record["alpha"])
        contests.setdefault(title, {}).setdefault(setting, []).append(record)
    return {title: max(entries.items(), key=_merit)[1] for title, entries in contests.items()}


def _merit(entry: tuple[tuple[Any, ...], list[Record]]) -> tuple[float, float]:
    (weight, _), records = entry
    return sum(map(validation_score, records)) / len(records), -weight
