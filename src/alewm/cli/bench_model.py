"""What `alewm bench` can measure of models; the fields are the flags."""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class TrainStep:
    """One whole training update with the data already on the device."""

    preset_name: Annotated[str, tyro.conf.arg(name="preset")] = "two-room-192"
    """The configuration; two-room-192 is ViT-Tiny/14 with D = 192."""
    batch: int = 128
    """Windows per update."""
    repeats: int = 20
    """Timed updates after three warm-up ones; the median is reported."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the networks."""
    compiled: Annotated[bool, tyro.conf.arg(name="compile")] = False
    """Compile encoder and predictor; GPU only."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.train_step import bench_train_step

        bench_train_step(**vars(self))


@dataclass(frozen=True)
class Planner:
    """Time of a plan against the capacity it is made with."""

    preset_name: Annotated[str, tyro.conf.arg(name="preset")] = "two-room-192"
    """The configuration; the weights are untrained."""
    episodes: int = 50
    """Episodes planned together."""
    candidates: int = 300
    """CEM: action sequences scored per iteration."""
    iterations: int = 30
    """CEM: times the distribution is refined."""
    repeats: int = 5
    """Timed plans after three warm-up ones; the median is reported."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.planner import bench_planner

        bench_planner(**vars(self))


@dataclass(frozen=True)
class Evaluate:
    """A whole Two-Room evaluation, environment, planning and floors together."""

    preset_name: Annotated[str, tyro.conf.arg(name="preset")] = "two-room-192"
    """The configuration; the weights are untrained."""
    episodes: int = 200
    """Pairs to plan to."""
    candidates: int = 300
    """CEM: action sequences scored per iteration."""
    iterations: int = 30
    """CEM: times the distribution is refined."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.evaluate import bench_evaluate

        bench_evaluate(**vars(self))
