"""What `alewm bench` can measure of data; the fields are the flags."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from alewm.cli.flags import BatchSize, Filter


@dataclass(frozen=True)
class Collect:
    """Frames per second of a task: stepped and drawn, and end to end into a file."""

    task_name: Annotated[str, tyro.conf.arg(name="task")] = "two-room"
    """The task."""
    episodes: int = 400
    """Episodes to record."""
    image_size: int | None = None
    """Pixels per side; if not given, the task's own."""
    jobs: int = 0
    """Processes; 0 means one per core."""
    device: str = "cpu"
    """Where to step and draw; on a GPU, one process, and nothing is stored."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.collect import bench_collect

        bench_collect(**vars(self))


@dataclass(frozen=True)
class Loader:
    """Windows per second from a compressed file."""

    data: Path | None = None
    """An episode file; if not given, Two-Room episodes are recorded for the occasion."""
    episodes: int = 200
    """Episodes to record for the occasion."""
    image_size: int | None = None
    """Pixels per side of those; if not given, 224."""
    compression: Filter = "gzip"
    """How those are compressed."""
    batch: BatchSize = 128
    """Windows per batch."""
    batches: int = 40
    """Batches to time."""
    threads: int = 0
    """Threads that decode; 0 means one per core."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.loader import bench_loader

        bench_loader(**vars(self))


@dataclass(frozen=True)
class Replay:
    """Success without a model on a file's test pairs: recorded actions replayed, random ones, and none."""

    data: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """An episode file."""
    task_name: Annotated[str | None, tyro.conf.arg(name="task")] = None
    """The task; needed for files from elsewhere, which do not say it."""
    num_pairs: Annotated[int | None, tyro.conf.arg(name="pairs")] = None
    """How many pairs, the first ones; if not given, all (200)."""
    split: Literal["family", "episode"] = "family"
    """How the test episodes were held out, as for `alewm train`."""
    seed: int = 42
    """Of the random actions; the default is that of `alewm evaluate`."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.replay import bench_replay
        from alewm.benchmarks.standard_pairs import pairs_of_file

        bench_replay("replay", pairs_of_file(self.data, self.task_name, self.num_pairs, self.split), self.seed)


@dataclass(frozen=True)
class ReplaySimulated:
    """The same on episodes simulated for the occasion, without drawing them."""

    task_name: Annotated[str, tyro.conf.arg(name="task")] = "two-room"
    """The task."""
    behaviour: str | None = None
    """What acts in the episodes; if not given, the task's default."""
    episodes: int = 300
    """Episodes, one pair each."""
    seed: int = 0
    """Of the episodes and of the random actions."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.replay import bench_replay
        from alewm.benchmarks.standard_pairs import simulated_pairs

        pairs = simulated_pairs(self.task_name, self.behaviour, self.episodes, self.seed)
        bench_replay("replay-simulated", pairs, self.seed)
