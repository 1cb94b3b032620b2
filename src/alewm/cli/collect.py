"""`alewm collect`: episodes of a task, recorded into one file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from alewm.cli.flags import Filter


@dataclass(frozen=True)
class Collect:
    """Record episodes of a task into one HDF5 file.

    The same settings give the same bytes, whatever the number of processes. Repeating the command after an
    interruption continues; a complete file is left as it is.
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """The task, for example two-room."""
    out: Path
    """The file to write; its folder is made if it does not exist."""
    episodes: int = 10_000
    """How many episodes."""
    seed: int = 0
    """Every episode is determined by this seed and its number."""
    image_size: int | None = None
    """Pixels per side of a frame; if not given, the task's own (224). Smaller frames are exact area averages."""
    compression: Filter = "gzip"
    """How frames are compressed, losslessly: gzip opens everywhere; zstd is smaller and faster to read, and needs the
    extra alewm[zstd]."""
    behaviour: str | None = None
    """What acts while recording, for tasks that have a choice; if not given, what comes nearest to published data."""
    max_steps: int | None = None
    """Cut episodes after this many environment steps, for a quick try; if not given, where the task does."""
    draw_every: int = 1
    """Draw one of so many steps, 1 or 5. Training looks at frames five steps apart; with 5 its windows start at every
    fifth step, and where drawing takes the time (reacher, cube) the same time gives four times as many episodes."""
    jobs: int = 0
    """Processes to use; 0 means one per core."""

    def run(self) -> None:
        """Records what is missing of the file."""
        from alewm.data.codec import Compression
        from alewm.envs.registration import get_task
        from alewm.experiments.collection import collect_task
        from alewm.experiments.data_statistics import load_or_measure, statistics_table

        made = collect_task(
            self.task,
            self.out,
            num_episodes=self.episodes,
            seed=self.seed,
            image_size=self.image_size,
            compression=Compression(self.compression),
            behaviour=self.behaviour,
            max_steps=self.max_steps,
            draw_every=self.draw_every,
            jobs=self.jobs,
        )
        print(made.in_words(self.out, self.episodes))
        task = get_task(self.task)
        print(statistics_table(load_or_measure(self.out, task), task))
        print(self.out)
