"""What one frame shows of a task's true state."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from alewm.shapes import Float


@dataclass(frozen=True)
class Visible:
    """A number of the true state that can be read off a single frame."""

    column: str
    """The column of a data file that has it."""
    index: int = 0
    """Its place within a row of that column."""
    alike_per_turn: int = 0
    """0 for a length; of an angle, how many times what it turns looks the same in a full turn. It is read as sine and
    cosine of that multiple, which have no jump and no two values for one picture."""

    @property
    def names(self) -> tuple[str, ...]:
        """What its readings are called."""
        label = f"{self.column}[{self.index}]"
        if not self.alike_per_turn:
            return (label,)
        multiple = "" if self.alike_per_turn == 1 else f"{self.alike_per_turn} "
        return f"cos {multiple}{label}", f"sin {multiple}{label}"

    def read(self, column: np.ndarray) -> tuple[Float[np.ndarray, " rows"], ...]:
        """Its readings, one per name, from the rows of its column."""
        values = np.asarray(column, dtype=np.float64).reshape(len(column), -1)[:, self.index]
        if not self.alike_per_turn:
            return (values,)
        turned = self.alike_per_turn * values
        return np.cos(turned), np.sin(turned)


def all_of(column: str, indices: Iterable[int], alike_per_turn: int = 0) -> tuple[Visible, ...]:
    """The numbers at `indices` of one column."""
    return tuple(Visible(column, index, alike_per_turn) for index in indices)


def readings(visible: Iterable[Visible], columns: Mapping[str, np.ndarray]) -> dict[str, Float[np.ndarray, " rows"]]:
    """All readings by name."""
    return {
        name: values
        for each in visible
        for name, values in zip(each.names, each.read(columns[each.column]), strict=True)
    }
