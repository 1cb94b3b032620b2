"""Collecting with a bar for whoever waits, and what it came to."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alewm.data.collect import CollectionProgress, EpisodeSource, collect
from alewm.progress import Progress


@dataclass(frozen=True)
class Collected:
    """What a collection added to its file."""

    num_episodes: int
    """Episodes in the file."""
    num_new_frames: int
    """Frames recorded now; 0 if the file was complete already."""
    seconds: float
    """Time it took."""
    num_processes: int
    """Processes that shared the work."""

    @property
    def frames_per_second(self) -> float:
        """Frames made, compressed and stored per second."""
        return self.num_new_frames / self.seconds

    def in_words(self, path: Path) -> str:
        """One line for the person who waited."""
        size = f"{self.num_episodes:,} episodes in {path.stat().st_size / 1e6:,.1f} MB"
        if not self.num_new_frames:
            return f"complete already: {size}"
        rate = f"{self.frames_per_second:,.0f} frames/s with {self.num_processes} processes"
        return f"{self.num_new_frames:,} new frames in {self.seconds:.1f} s: {rate}; {size}"


def collect_watched(
    source: EpisodeSource, out: Path, title: str, *, num_episodes: int, num_workers: int, **options: Any
) -> Collected:
    """What was added to `out` now, by `alewm.data.collect.collect` with these `options`; its folder is made."""
    out.parent.mkdir(parents=True, exist_ok=True)
    began, num_new_frames = time.perf_counter(), 0
    with Progress(title, num_episodes, "episodes") as bar:

        def show(now: CollectionProgress) -> None:
            nonlocal num_new_frames
            if num_new_frames == 0:
                bar.done = bar.before = now.num_done - 1  # what an interrupted run had finished
            num_new_frames = now.num_new_frames
            rate = num_new_frames / (time.perf_counter() - began)
            bar.advance(now.num_done - bar.done, f"{rate:,.0f} frames/s")

        collect(source, out, num_episodes=num_episodes, num_workers=num_workers, on_progress=show, **options)
    return Collected(num_episodes, num_new_frames, time.perf_counter() - began, num_workers)
