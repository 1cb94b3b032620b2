"""Train on the squares in a process of its own: `python run_squares.py FOLDER [BATCHES]`."""

import sys
import time
from pathlib import Path

import torch

from alewm.distributed import share_of_batch, start_ranks, this_rank
from alewm.training.data import RunWindows
from alewm.training.trainer import Trainer, TrainingResult
from memory_windows import MemoryWindows, Windows, draw_windows, run_config


class SlowWindows(MemoryWindows):
    """Leaves time to be killed between any two updates; each rank reads its own rows of every batch.

    After `most` batches none comes any more, so that no kill is too late.
    """

    def __init__(self, windows: Windows, batch_size: int, most: int | None = None) -> None:
        super().__init__(windows, batch_size)
        self.most = most

    def forever(self):
        for number, batch in enumerate(super().forever()):
            time.sleep(600 if number == self.most else 0.02)
            share = share_of_batch(self.batch_size)
            yield Windows(*batch).rows(this_rank() * share, (this_rank() + 1) * share)


def train_slowly(folder: Path, most: int | None = None) -> TrainingResult:
    """The run that is killed, repeated and spread over ranks."""
    config = run_config(num_steps=30, checkpoint_every=7)
    source = SlowWindows(draw_windows(80), config.training.batch_size, most)
    return Trainer(config, RunWindows(source), folder=folder, device=start_ranks(torch.device("cpu"))).run()


if __name__ == "__main__":
    torch.set_num_threads(1)
    train_slowly(Path(sys.argv[1]), *map(int, sys.argv[2:]))
