"""Small episodes for the tests of this room: every frame and action carries its own number."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from alewm.data.writer import StoreWriter

FRAME = (12, 16, 3)
ACTION_DIM = 2


def tape(first_row: int, length: int, frame_shape: tuple[int, ...] = FRAME) -> dict[str, np.ndarray]:
    """An episode whose row r of the file shows the number r in frame and action; the last action is NaN."""
    rows = np.arange(first_row, first_row + length)
    pixels = np.zeros((length, *frame_shape), dtype=np.uint8)
    pixels[:, 0, 0, 0], pixels[:, 0, 0, 1] = rows % 256, rows // 256
    action = np.stack([rows, -rows], axis=1).astype(np.float32)
    action[-1] = np.nan
    return {"pixels": pixels, "action": action, "proprio": np.stack([rows, rows + 0.5], axis=1)}


def numbers(pixels: np.ndarray) -> np.ndarray:
    """The rows that frames `[..., Y, X, 3]` of a tape show."""
    low, high = np.moveaxis(pixels[..., 0, 0, :2].astype(int), -1, 0)
    return np.asarray(low + 256 * high)


def write_tape(path: Path, lengths: Sequence[int], **options: object) -> Path:
    """A file of tape episodes with these lengths."""
    with StoreWriter(path, **options) as writer:  # type: ignore[arg-type]
        first_row = 0
        for length in lengths:
            writer.append(tape(first_row, length))
            first_row += length
    return path


def random_episodes(seed: int, episodes: Sequence[int]) -> Iterator[dict[str, np.ndarray]]:
    """An episode source: noise of random length, determined by (seed, episode)."""
    for episode in episodes:
        rng = np.random.default_rng([seed, episode])
        length = int(rng.integers(20, 40))
        action = rng.normal(size=(length, ACTION_DIM)).astype(np.float32)
        action[-1] = np.nan
        yield {
            "pixels": rng.integers(0, 4, (length, *FRAME), dtype=np.uint8),
            "action": action,
            "proprio": rng.normal(size=(length, 2)),
        }


HELD_EPISODE = 40


def slow_episodes(seed: int, episodes: Sequence[int]) -> Iterator[dict[str, np.ndarray]]:
    """`random_episodes`, slow enough to be killed in the middle: number `HELD_EPISODE` never comes."""
    for number, episode in zip(episodes, random_episodes(seed, episodes), strict=True):
        time.sleep(600 if number == HELD_EPISODE else 0.05)
        yield episode


def forgetful_episodes(seed: int, episodes: Sequence[int]) -> Iterator[dict[str, np.ndarray]]:
    """A broken source: it leaves the last episode out."""
    yield from random_episodes(seed, list(episodes)[:-1])


def generous_episodes(seed: int, episodes: Sequence[int]) -> Iterator[dict[str, np.ndarray]]:
    """A broken source: it makes an episode too many."""
    yield from random_episodes(seed, [*episodes, 1000])


def worker_that_tells_its_process(seed: int, episodes: Sequence[int]) -> Iterator[dict[str, np.ndarray]]:
    """`slow_episodes`, leaving a file named after the process that ran it in $TOY_PIDS."""
    Path(os.environ["TOY_PIDS"], str(os.getpid())).touch()
    yield from slow_episodes(seed, episodes)
