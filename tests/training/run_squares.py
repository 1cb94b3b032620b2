"""Train on the squares in a process of its own: `python run_squares.py FOLDER`."""

import sys
import time
from pathlib import Path

import torch
from memory_windows import MemoryWindows, Windows, draw_windows, run_config

from alewm.training.ranks import share_of_batch, start_ranks, this_rank
from alewm.training.trainer import Trainer, TrainingResult


class SlowWindows(MemoryWindows):
    """Leaves time to be killed between any two updates; each rank reads its own rows of every batch."""

    def forever(self):
        for batch in super().forever():
            time.sleep(0.02)
            share = share_of_batch(self.batch_size)
            yield Windows(*batch).rows(this_rank() * share, (this_rank() + 1) * share)


def train_slowly(folder: Path) -> TrainingResult:
    """The run that is killed, repeated and spread over ranks."""
    config = run_config(num_steps=30, checkpoint_every=7)
    source = SlowWindows(draw_windows(80), config.training.batch_size)
    return Trainer(config, source, folder=folder, device=start_ranks(torch.device("cpu"))).run()


if __name__ == "__main__":
    torch.set_num_threads(1)
    train_slowly(Path(sys.argv[1]))
