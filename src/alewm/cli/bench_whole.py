"""What `alewm bench` can measure of the whole way from nothing to a result; the fields are the flags."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class FromNothing:
    """Record, train and evaluate by separate commands, from an empty folder and empty caches: wall time and success."""

    preset_name: Annotated[str, tyro.conf.arg(name="preset")] = "two-room-192"
    """The configuration to train."""
    seeds: tuple[int, ...] = (3072, 3073, 3074)
    """Seeds of training, each from nothing."""
    episodes: int = 10_000
    """Episodes to record."""
    steps: int | None = None
    """Updates, a complete schedule; if not given, the preset's."""
    learning_rate: float | None = None
    """Peak learning rate; if not given, the preset's."""
    collect_flags: str = ""
    """More flags of `alewm collect`, in one string after an equals sign: --collect-flags="--jobs 8"."""
    train_flags: str = ""
    """More flags of `alewm train`, likewise."""
    evaluate_flags: str = ""
    """More flags of `alewm evaluate`, likewise."""
    warm: bool = False
    """Use what was compiled before, instead of empty caches for every seed."""
    out: Path | None = None
    """Folder to keep the run folders in; if not given, nothing is kept."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.from_nothing import bench_from_nothing

        bench_from_nothing(**vars(self))
