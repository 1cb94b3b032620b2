"""`alewm bench`: fast paths beside their references, a table for people and a last line of JSON."""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Bench:
    """Measure a fast path beside its reference on this machine; the last line is JSON."""

    name: Annotated[Literal["regularizer"], tyro.conf.Positional]
    """What to measure: `regularizer` is MixSIGReg, forward and backward."""
    batch: int = 256
    """B, windows."""
    frames: int = 9
    """F, frame positions."""
    latent_dim: int = 8
    """D; every prefix is supported up to 16 coordinates, eight equal blocks beyond."""
    projections: int = 64
    """P, random directions."""
    repeats: int = 15
    """Timed calls after three warm-up calls; the median is reported."""
    device: str = "cpu"
    """Where to measure, as torch names devices."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.regularizer import bench_regularizer

        bench_regularizer(
            batch=self.batch,
            frames=self.frames,
            latent_dim=self.latent_dim,
            projections=self.projections,
            repeats=self.repeats,
            device=self.device,
        )
