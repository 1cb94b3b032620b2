"""Batches in which several data sets take turns, window by window.

Window i of a global batch comes from data set i mod n, the data sets in the order in which they were given:

    batch of 7 from three data sets    a b c a b c a

So every data set has an equal share, and where the batch does not divide evenly the first data sets have one window
more. Every data set keeps its own order and its own passes: one that is shorter begins anew while another goes on.

Several ranks hold consecutive equal parts of the global batch. For each part to hold the same mixture, and to be what
every data set's own loader gives that rank, the batch must be a multiple of data sets times ranks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from alewm.data.loader import WindowLoader, Windows
from alewm.errors import InputError
from alewm.shapes import Float, Tensor


def shares(batch_size: int, num_sets: int, num_ranks: int = 1) -> tuple[int, ...]:
    """How many of `batch_size` windows come from each data set."""
    if num_ranks > 1 and batch_size % (num_sets * num_ranks):
        raise InputError(
            f"A batch of {batch_size} windows does not divide evenly over {num_sets} data sets and {num_ranks} "
            f"processes; choose a batch size that is a multiple of {num_sets * num_ranks}."
        )
    if batch_size < num_sets:
        raise InputError(
            f"A batch of {batch_size} has no window for each of {num_sets} data sets; choose a larger one."
        )
    return tuple(batch_size // num_sets + (number < batch_size % num_sets) for number in range(num_sets))


def take_turns(parts: Sequence[Tensor]) -> Tensor:
    """The rows of all `parts` in one tensor, row i from part i mod n."""
    whole = parts[0].new_empty(sum(map(len, parts)), *parts[0].shape[1:])
    for number, part in enumerate(parts):
        rows_of_set(whole, number, len(parts)).copy_(part)
    return whole


def rows_of_set(whole: Tensor, number: int, num_sets: int) -> Tensor:
    """The rows of a batch that come from one data set."""
    return whole[number::num_sets]


def mean_q_of_sets(q: Float[Tensor, "B C"], names: Sequence[str]) -> dict[str, Float[Tensor, "C"]]:
    """The mean q over the rows of each data set, named `q/NAME`."""
    return {f"q/{name}": rows_of_set(q, number, len(names)).mean(0) for number, name in enumerate(names)}


@dataclass(frozen=True)
class MixedBatch:
    """One batch of each data set, that become one on the device."""

    parts: tuple[Windows, ...]

    def to(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Frames and normalised action blocks, the data sets taking turns."""
        pixels, actions = zip(*(part.to(device) for part in self.parts), strict=True)
        mixed = take_turns(pixels), take_turns(actions)
        if device.type == "cpu":
            # There `to` shares the memory of the parts, which have been copied now.
            for part in self.parts:
                part.release()
        return mixed


class MixedWindows:
    """The batches of several loaders, mixed; a `WindowSource`.

    A pass over it, an epoch, has as many batches as all windows together fill. In it a data set with more windows than
    its equal share is not seen whole, and one with fewer is seen more than once.
    """

    def __init__(self, loaders: Mapping[str, WindowLoader]) -> None:
        self._loaders = dict(loaders)

    def forever(self) -> Iterator[MixedBatch]:
        """Batches without end."""
        for parts in zip(*(loader.forever() for loader in self._loaders.values()), strict=True):
            yield MixedBatch(parts)

    def __iter__(self) -> Iterator[MixedBatch]:
        """Batches until one of the data sets is at the end of its own pass."""
        for parts in zip(*map(iter, self._loaders.values()), strict=False):
            yield MixedBatch(parts)

    def __len__(self) -> int:
        """Batches in an epoch."""
        loaders = self._loaders.values()
        return sum(loader.num_windows for loader in loaders) // sum(loader.config.batch_size for loader in loaders)

    def state_dict(self) -> dict[str, Any]:
        """The position in every data set."""
        return {name: loader.state_dict() for name, loader in self._loaders.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        if list(state) != list(self._loaders):
            raise InputError(
                f"The saved position is in the data sets {list(state)}, this run has {list(self._loaders)}."
            )
        for name, loader in self._loaders.items():
            loader.load_state_dict(state[name])
