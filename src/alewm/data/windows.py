"""Which frames and actions form a training window.

With F = 4 frames, a frame skip of 5 and a window that starts at row s of an episode:

    row       s   s+1 s+2 s+3 s+4   s+5  ...  s+9   s+10 ... s+14   s+15 ... s+19
    frame     x_1                   x_2             x_3             x_4
    action    |------- a_1 -------| |---- a_2 ----| |---- a_3 ----| |-- unused --|

    x_f      the frame at row s + 5 (f - 1)
    a_f      the five actions taken from frame f to frame f + 1, in time order, flattened to 5 A numbers

The action of row t is the one taken *at* row t, so block a_f holds rows s + 5 (f - 1) ... s + 5 f - 1 and leads exactly
from x_f to x_{f+1}: F frames have F - 1 blocks between them. The window nevertheless spans F x 5 = 20 rows, as in the
published window counts of the field's files: valid starts are 0 ... length - 20, so an episode of n rows has
max(0, n - 19) windows, and 10,000 episodes with 920,809 rows have 730,809. The last row of an episode, whose action is
NaN, can only be row s + 19 and is never used. Windows stay inside their episode because they are counted per episode.

Where a file has a frame for one of five rows only, windows start at these rows: every frame of a window is there, and
an episode of n rows has max(0, floor((n - 20) / 5) + 1) windows.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from alewm.errors import InputError
from alewm.shapes import FRAME_SKIP, Int


@dataclass(frozen=True)
class WindowShape:
    """How many frames a window has and how far apart they are."""

    num_frames: int = 4
    """F, frames in a window."""

    frame_skip: int = FRAME_SKIP
    """Environment steps from one frame to the next, and actions in one block."""

    def __post_init__(self) -> None:
        if self.num_frames < 1 or self.frame_skip < 1:
            raise InputError(f"A window needs at least one frame and a frame skip of at least 1, got {self}.")

    @property
    def span(self) -> int:
        """Rows of the episode that a window takes up."""
        return self.num_frames * self.frame_skip

    @property
    def num_actions(self) -> int:
        """Actions between the first frame and the last."""
        return (self.num_frames - 1) * self.frame_skip

    def frame_rows(self, starts: Int[np.ndarray, " B"]) -> Int[np.ndarray, "B F"]:
        """The rows of the frames of the windows that start at rows `starts`."""
        rows: np.ndarray = starts[:, None] + self.frame_skip * np.arange(self.num_frames)
        return rows

    def action_rows(self, starts: Int[np.ndarray, " B"]) -> Int[np.ndarray, "B R"]:
        """The rows of the actions between those frames, in time order."""
        rows: np.ndarray = starts[:, None] + np.arange(self.num_actions)
        return rows

    def action_blocks(self, actions: np.ndarray, starts: Int[np.ndarray, " B"]) -> np.ndarray:
        """The blocks `[B, F-1, frame_skip * A]` cut from the whole action column `[N, A]`."""
        rows = actions[self.action_rows(starts)]
        blocks: np.ndarray = rows.reshape(len(starts), self.num_frames - 1, self.frame_skip * actions.shape[1])
        return blocks


@dataclass(frozen=True)
class WindowIndex:
    """All windows of some episodes, numbered from 0 in episode order."""

    offsets: np.ndarray
    """First row of each episode in the file, int64 [E]."""

    lengths: np.ndarray
    """Rows of each episode, int64 [E]."""

    shape: WindowShape

    every: int = 1
    """Rows from one start to the next: frames of rows between them were not drawn."""

    def __post_init__(self) -> None:
        if self.shape.frame_skip % self.every:
            raise InputError(
                f"One of {self.every} rows was drawn, and windows have frames {self.shape.frame_skip} rows apart: most "
                f"of them are not there. Collect the file again with --draw-every 1 or {self.shape.frame_skip}."
            )

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(np.maximum(0, (self.lengths - self.shape.span) // self.every + 1))

    def starts(self, windows: Int[np.ndarray, " B"]) -> Int[np.ndarray, " B"]:
        """The file rows at which the numbered `windows` start."""
        episodes = np.searchsorted(self._ends, windows, side="right")
        before = np.concatenate([[0], self._ends])[episodes]
        starts: np.ndarray = self.offsets[episodes] + self.every * (windows - before)
        return starts
