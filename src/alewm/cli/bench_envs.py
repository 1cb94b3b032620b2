"""What `alewm bench` can measure of environments; the fields are the flags."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class PushT:
    """Push-T: physics and drawing per second on one core, and the share of demonstrations that reach their pose."""

    demonstrations: int = 150
    """Nominal demonstrations of the expert."""
    seed: int = 0
    """Their seed."""

    def run(self) -> None:
        """Prints the figures and the line of JSON."""
        from alewm.envs.registration import get_task

        _ = get_task("push-t").env_class  # says which extra to install where the simulator is missing
        from alewm.benchmarks.push_t import bench_push_t

        bench_push_t(**vars(self))


@dataclass(frozen=True)
class Floors:
    """Success without a model on the pairs of a data file: recorded, uniform-random and no actions."""

    data: Path
    """An episode file."""
    task_name: Annotated[str | None, tyro.conf.arg(name="task")] = None
    """Its task; if not given, the one the file says it is of."""
    pairs: int = 300
    """Pairs, at most one per episode."""
    budget: int = 50
    """Environment steps for random and no actions; the recorded ones are 25."""
    seed: int = 0
    """Seed of the random actions; the pairs are those of an evaluation."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.floors import bench_floors

        bench_floors(**vars(self))
