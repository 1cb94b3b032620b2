"""Starting the processes that train one model together."""

import os
import subprocess
import sys
from collections.abc import Sequence

import torch

from alewm.follower import FOLLOWED


def launch_ranks(num_ranks: int, words: Sequence[str]) -> None:
    """Runs `alewm WORDS` in `num_ranks` processes of this machine that share every batch, and waits for their end.

    They end with this process, however that ends. Each has its share of this process's threads.
    """
    follower = "alewm.follower"
    torchrun = [sys.executable, "-m", follower, "torch.distributed.run", "--standalone", "--nproc_per_node"]
    own = {FOLLOWED: str(os.getpid()), "OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // num_ranks))}
    done = subprocess.run(
        [*torchrun, str(num_ranks), "-m", follower, "alewm", *words], env={**os.environ, **own}, check=False
    )
    if done.returncode:
        raise RuntimeError(f"torchrun ended with status {done.returncode}; its log says why")
