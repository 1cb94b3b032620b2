"""What compressing a task's frames costs and brings: our encoder beside zlib, on one core."""

import time
from typing import NamedTuple

import numpy as np

from alewm.data.codec import Compression
from alewm.envs.registration import get_task

_FRAMES = 200
_REPEATS = 3


class Encoded(NamedTuple):
    """One encoder on one core."""

    encoder: str
    frames_per_second: float
    bytes_per_frame: float


def compare_encoders(task_name: str, size: int) -> list[Encoded]:
    """Our encoder, where it can be compiled, and zlib at levels 6 and 1, on frames spread over a few episodes."""
    task = get_task(task_name)
    steps = 40 if task.drawing_is_slow else task.max_episode_steps
    made = task.collect_episodes(0, range(1 if task.drawing_is_slow else 4), image_size=size, max_steps=steps)
    frames = np.concatenate([episode["pixels"] for episode in made])
    frames = frames[np.unique(np.linspace(0, len(frames) - 1, _FRAMES).astype(np.int64))]
    choices = {way.encoder_in_words: way for way in (Compression(), Compression(level=6), Compression(level=1))}
    return [_measure(way, frames) for way in choices.values()]


def _measure(compression: Compression, frames: np.ndarray) -> Encoded:
    best = float("inf")
    for _ in range(_REPEATS):
        began = time.thread_time()  # of this core alone, whatever else the machine does
        _, sizes = compression.compress_frames(frames)
        best = min(best, time.thread_time() - began)
    return Encoded(compression.encoder_in_words, len(frames) / best, float(sizes.mean()))
