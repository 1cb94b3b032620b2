"""What `alewm bench` can measure of the whole way from nothing to a result; the fields are the flags."""

from dataclasses import dataclass
from pathlib import Path

from alewm.cli.demo import Scale


@dataclass(frozen=True)
class FromNothing:
    """`alewm demo` from an empty folder and empty caches: its wall time, and the success of its ALeWM."""

    scale: Scale = "large"
    """How much of everything, as in `alewm demo`; `large` needs a GPU."""
    seeds: tuple[int, ...] = (3072, 3073, 3074)
    """Seeds of recording and training, each from nothing."""
    warm: bool = False
    """Use what was compiled before, instead of empty caches for every seed."""
    out: Path | None = None
    """Folder to keep the run folders in; if not given, nothing is kept."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.from_nothing import bench_from_nothing

        bench_from_nothing(**vars(self))
