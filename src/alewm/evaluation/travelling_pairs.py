"""Held-out pairs as a small file that travels with a model, so that evaluating it needs no data file.

What an environment needs of a start and of a goal are a few numbers; it draws the images itself. The file holds them
for the validation and the test pairs, with the fingerprint of the data they were drawn from.
"""

from collections.abc import Mapping
from pathlib import Path

import torch

from alewm.errors import InputError, unknown_name
from alewm.evaluation.closed_loop import GoalPairs
from alewm.runs.tensors import load_tensors, save_tensors
from alewm.shapes import Tensor
from alewm.training.data_sets import DataSet

_NUMBERS = ("episodes", "start_steps", "goal_steps")


def pairs_name(learned: DataSet) -> str:
    """The file in the folder of a shared model that has the pairs of this data set."""
    return learned.splits.replace("splits", "pairs").replace(".json", ".safetensors")


def save_pairs(path: Path, pairs: Mapping[str, GoalPairs], fingerprint: str) -> None:
    """Write the pairs of each split."""
    tensors: dict[str, Tensor] = {}
    for split, part in pairs.items():
        tensors |= {f"{split}/{name}": torch.tensor(getattr(part, name)) for name in _NUMBERS}
        for role, rows in (("start", part.start_rows), ("goal", part.goal_rows)):
            tensors |= {f"{split}/{role}/{name}": torch.as_tensor(rows[name]).contiguous() for name in rows}
    save_tensors(path, tensors, {"fingerprint": fingerprint})


def load_pairs(path: Path, split: str, fingerprint: str | None) -> GoalPairs:
    """The pairs of `split`; those of data with another `fingerprint` are refused."""
    tensors, metadata = load_tensors(path, "restore it, or evaluate with --data.")
    found = metadata.get("fingerprint")
    if found != fingerprint:
        raise InputError(
            f"{path} has pairs of data with fingerprint {found}, but the model was trained on {fingerprint}: what is "
            f"held out there may have been trained on. Restore the file that came with the model."
        )
    splits = sorted({name.partition("/")[0] for name in tensors})
    if split not in splits:
        raise unknown_name(f"split of {path}", split, splits)
    own = {name.removeprefix(f"{split}/"): tensor for name, tensor in tensors.items() if name.startswith(f"{split}/")}
    numbers = [tuple(own[name].tolist()) for name in _NUMBERS]
    columns = [
        {name.removeprefix(f"{role}/"): tensor for name, tensor in own.items() if name.startswith(f"{role}/")}
        for role in ("start", "goal")
    ]
    return GoalPairs(numbers[0], numbers[1], numbers[2], columns[0], columns[1])
