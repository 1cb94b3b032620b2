"""What `alewm bench` can measure of models; the fields are the flags."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from alewm.benchmarks.sizes import Sizes
from alewm.cli.flags import BatchSize, PresetName


@dataclass(frozen=True)
class TrainStep:
    """One whole training update with the data already on the device."""

    preset_name: PresetName = "two-room-192"
    """The configuration; two-room-192 is ViT-Tiny/14 with D = 192."""
    batch: BatchSize = 128
    """Windows per update."""
    repeats: int = 20
    """Timed updates after three warm-up ones; the median is reported."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the networks."""
    acceleration: Literal["auto", "none", "compile", "record", "graph"] = "auto"
    """How updates are executed: as written, compiled, recorded as a CUDA graph, or both (graph); auto is fastest."""
    encoder_blocks: tuple[Literal["auto", "plain", "fused"], ...] = ("auto",)
    """The encoder's blocks plain or by fused kernels; several are compared, each in a process of its own."""
    deterministic: bool = False
    """Only algorithms that repeat bit by bit, as `alewm train --deterministic`, and the usual ones beside them."""
    reference: bool = False
    """Time LeWM as documented and our update as written beside it."""
    profile: bool = False
    """Print where the GPU's time goes, kernel by kernel."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        if len(self.encoder_blocks) != 1:
            from alewm.benchmarks.block_variants import bench_block_variants

            bench_block_variants(**vars(self))
            return
        from alewm.benchmarks.train_step import bench_train_step

        bench_train_step(**{**vars(self), "encoder_blocks": self.encoder_blocks[0]})


@dataclass(frozen=True)
class EncoderBlocks:
    """Fused blocks of an encoder: each kernel by tile, then the blocks beside plain ones, compiled."""

    rows: int = 131_584
    """Tokens at once; 128 windows of 4 frames of 224 x 224 have so many."""
    tokens: int = 257
    """Tokens of an image, which attend to each other; divides the rows."""
    width: int = 192
    """Width W of a token."""
    hidden: int = 768
    """Hidden width of the MLP."""
    heads: int = 3
    """Attention heads of a block."""
    blocks: int = 3
    """Blocks one after the other."""
    tiles: tuple[str, ...] = ()
    """More tiles for every kernel beside its candidates, as rows,chunk,warps,stages,resident: 64,32,4,2,0."""
    repeats: int = 20
    """Timed calls of each."""
    device: str = "auto"
    """auto, cuda or cuda:1; a cpu where TRITON_INTERPRET=1 is set, to try the command."""

    def run(self) -> None:
        """Prints the tables and the line of JSON."""
        from alewm.benchmarks.encoder_blocks import bench_encoder_blocks

        bench_encoder_blocks(**vars(self))


@dataclass(frozen=True)
class Planner:
    """Time of a plan against the capacity it is made with."""

    preset_name: PresetName = "two-room-192"
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
    capacities: tuple[int, ...] = ()
    """Capacities to plan with; if not given, all that the configuration supports."""
    reference: bool = False
    """Time the plan of one episode by full-width rollouts, operation by operation, beside it."""
    profile: bool = False
    """Print where the GPU's time goes, kernel by kernel."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.planner import bench_planner

        bench_planner(**vars(self))


@dataclass(frozen=True)
class Distilled:
    """Time and memory of a plan against its capacity, with the model's own predictor and with distilled dynamics."""

    preset_name: PresetName = "two-room-192"
    """The configuration; the weights are untrained, and time does not depend on them."""
    episodes: int = 1
    """Episodes planned together."""
    candidates: int = 300
    """CEM: action sequences scored per iteration."""
    iterations: int = 30
    """CEM: times the distribution is refined."""
    hidden: int = 128
    """Units of each hidden layer of the distilled dynamics."""
    repeats: int = 5
    """Timed rounds after one warm-up round, both dynamics in turns; medians are reported."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""
    capacities: tuple[int, ...] = ()
    """Capacities to plan with; if not given, all that the configuration supports."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.distilled import bench_distilled

        bench_distilled(**vars(self))


@dataclass(frozen=True)
class Evaluate:
    """A whole Two-Room evaluation, environment, planning and floors together."""

    preset_name: PresetName = "two-room-192"
    """The configuration; the weights are untrained."""
    episodes: int = 200
    """Pairs to plan to."""
    candidates: int = 300
    """CEM: action sequences scored per iteration."""
    iterations: int = 30
    """CEM: times the distribution is refined."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""
    reference: bool = False
    """Search as it is written, in float32, also where a faster search could run."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm.benchmarks.evaluate import bench_evaluate

        bench_evaluate(**vars(self))


@dataclass(frozen=True)
class Check:
    """Every fast path of a GPU beside its reference: are they equal up to rounding?"""

    preset_name: PresetName = "two-room-192"
    """The configuration; the weights are untrained."""
    batch: BatchSize = 32
    """Windows, images or candidates compared at once."""
    device: str = "auto"
    """auto, cuda or cuda:1."""

    def run(self) -> None:
        """Prints the table and the line of JSON; fails where a difference is too large."""
        from alewm.benchmarks.check import bench_check

        bench_check(**vars(self))


@dataclass(frozen=True)
class Scaling(Sizes):
    """How costs grow with capacity, candidates, episodes, batch, width and projections; a panel each."""

    preset_name: PresetName = "two-room-192"
    """The configuration that stays where another size grows."""
    repeats: int = 5
    """Timed calls after warm-up; the median is reported."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""
    out: Path = Path("runs/scaling.png")
    """The figure."""
    kept: tuple[Path, ...] = ()
    """Measure nothing and draw these again: files with the last lines of earlier calls."""

    def run(self) -> None:
        """Prints the tables and the line of JSON."""
        from alewm.benchmarks.scaling import bench_scaling, redraw_scaling

        if self.kept:
            redraw_scaling(self.kept, self.out)
            return
        bench_scaling(preset_name=self.preset_name, sizes=self, repeats=self.repeats, device=self.device, out=self.out)
