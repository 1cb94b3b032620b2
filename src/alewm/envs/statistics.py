"""What a task's data are like, beyond what every data file has in common (`alewm.data.statistics`)."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

GOAL_OFFSET = 25
"""Environment steps from a start to its goal, as evaluation pairs have them (`alewm.data.pairs`)."""

Figure = int | float | str | Sequence[float]
"""One statistic: a number, one per dimension, or words where a published source has no number."""


@runtime_checkable
class TaskStatistics(Protocol):
    """Figures of one data file, gathered episode by episode.

    `alewm.experiments.data_statistics` shows every episode of a file to `update`, asks for `result` once, and prints
    the figures beside those of the published file.
    """

    PUBLISHED: ClassVar[Mapping[str, Figure]]
    """What is known of the task's published file, under the names of `result` or of `alewm.data.statistics`.

    A figure that was not measured on the file itself is written as words that say so.
    """

    @abstractmethod
    def update(self, episode: Mapping[str, np.ndarray]) -> None:
        """Take in one episode: its recorded columns `[T, ...]`, without pixels; the last action may be NaN.

        A file from elsewhere may lack a column, which is then a `KeyError`.
        """

    @abstractmethod
    def result(self) -> dict[str, Figure]:
        """The figures of all episodes seen, by names that say what they are and in what unit."""
