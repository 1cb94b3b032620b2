"""`alewm bench`: fast paths on this machine, a table for people and a last line of JSON."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from alewm.cli.bench_data import Collect, Loader, Replay, ReplaySimulated
from alewm.cli.bench_envs import PushT, TrueSimulator
from alewm.cli.bench_model import Check, Distilled, EncoderBlocks, Evaluate, Planner, Scaling, TrainStep
from alewm.cli.bench_whole import FromNothing
from alewm.cli.flags import BatchSize


@dataclass(frozen=True)
class Regularizer:
    """MixSIGReg forward and backward: every path beside the definition."""

    batch: BatchSize = 256
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
    """auto (a GPU where there is one), cpu, cuda or cuda:1."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.regularizer import bench_regularizer

        bench_regularizer(**vars(self))


@dataclass(frozen=True)
class Bench:
    """Measure a fast path on this machine; the last line is JSON."""

    what: tyro.conf.OmitSubcommandPrefixes[
        tyro.conf.OmitArgPrefixes[
            Annotated[Collect, tyro.conf.subcommand("collect")]
            | Annotated[Loader, tyro.conf.subcommand("loader")]
            | Annotated[Replay, tyro.conf.subcommand("replay")]
            | Annotated[ReplaySimulated, tyro.conf.subcommand("replay-simulated")]
            | Annotated[TrueSimulator, tyro.conf.subcommand("true-simulator")]
            | Annotated[PushT, tyro.conf.subcommand("push-t")]
            | Annotated[TrainStep, tyro.conf.subcommand("train-step")]
            | Annotated[EncoderBlocks, tyro.conf.subcommand("encoder-blocks")]
            | Annotated[Planner, tyro.conf.subcommand("planner")]
            | Annotated[Distilled, tyro.conf.subcommand("distilled")]
            | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
            | Annotated[Regularizer, tyro.conf.subcommand("regularizer")]
            | Annotated[Check, tyro.conf.subcommand("check")]
            | Annotated[Scaling, tyro.conf.subcommand("scaling")]
            | Annotated[FromNothing, tyro.conf.subcommand("from-nothing")]
        ]
    ]
    """What to measure."""

    def run(self) -> None:
        """Measures it."""
        self.what.run()
