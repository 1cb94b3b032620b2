"""`alewm-lab bench`: speed of the fast paths on this machine, a table for people and a last line of JSON.

Each class is one benchmark; its fields are the flags.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from alewm.cli.flags import Flag, Maybe, Several
from alewm.cli.start import Scale

PresetName = Annotated[str, tyro.conf.arg(name="preset")]
"""`--preset`."""

BatchSize = Annotated[int, tyro.conf.arg(name="batch-size", aliases=("--batch",))]
"""`--batch-size`, as for `alewm train`; benchmarks that were published have the short form."""


@dataclass(frozen=True)
class BenchCollect:
    """Frames per second of a task: stepped and drawn, and end to end into a file."""

    task_name: Annotated[str, tyro.conf.arg(name="task")] = "two-room"
    """The task."""
    episodes: int = 400
    """Episodes to record."""
    image_size: Maybe[int] = None
    """Pixels per side; if not given, the task's own."""
    jobs: int = 0
    """Processes; 0 means one per core."""
    device: str = "cpu"
    """Where to step and draw; on a GPU, one process, and nothing is stored."""

    def run(self) -> None:
        from alewm_lab.benchmarks.data_speed import bench_collect

        bench_collect(**vars(self))


@dataclass(frozen=True)
class BenchLoader:
    """Windows per second from a compressed file."""

    data: Maybe[Path] = None
    """An episode file; if not given, Two-Room episodes are recorded for the occasion."""
    episodes: int = 200
    """Episodes to record for the occasion."""
    image_size: Maybe[int] = None
    """Pixels per side of those; if not given, 224."""
    batch: BatchSize = 128
    """Windows per batch."""
    batches: int = 40
    """Batches to time."""
    threads: int = 0
    """Threads that decode; 0 means one per core."""

    def run(self) -> None:
        from alewm_lab.benchmarks.data_speed import bench_loader

        bench_loader(**vars(self))


@dataclass(frozen=True)
class BenchReplay:
    """Success without a model on a file's test pairs: recorded actions replayed, random ones, and none."""

    data: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """An episode file."""
    task_name: Annotated[str | None, tyro.conf.arg(help_behavior_hint="", name="task")] = None
    """The task; needed for files from elsewhere, which do not say it."""
    num_pairs: Annotated[int | None, tyro.conf.arg(help_behavior_hint="", name="pairs")] = None
    """How many pairs, the first ones; if not given, all (200)."""
    split: Literal["family", "episode"] = "family"
    """How the test episodes were held out, as for `alewm train`."""
    seed: int = 42
    """Of the random actions; the default is that of `alewm evaluate`."""

    def run(self) -> None:
        from alewm_lab.benchmarks.replay import bench_replay, pairs_of_file

        bench_replay("replay", pairs_of_file(self.data, self.task_name, self.num_pairs, self.split), self.seed)


@dataclass(frozen=True)
class BenchData:
    """Figures of a data file beside those of the published one: lengths, actions, pairs solved at the start, motion."""

    data: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """An episode file."""
    task_name: Annotated[str | None, tyro.conf.arg(help_behavior_hint="", name="task")] = None
    """The task; needed for files from elsewhere, which do not say it."""

    def run(self) -> None:
        from alewm_lab.benchmarks.data_statistics import bench_data

        bench_data(**vars(self))


@dataclass(frozen=True)
class BenchReplaySimulated:
    """The same on episodes simulated for the occasion, without drawing them."""

    task_name: Annotated[str, tyro.conf.arg(name="task")] = "two-room"
    """The task."""
    behaviour: Maybe[str] = None
    """What acts in the episodes; if not given, the task's default."""
    episodes: int = 300
    """Episodes, one pair each."""
    seed: int = 0
    """Of the episodes and of the random actions."""

    def run(self) -> None:
        from alewm_lab.benchmarks.replay import bench_replay, simulated_pairs

        pairs = simulated_pairs(self.task_name, self.episodes, behaviour=self.behaviour, seed=self.seed)
        bench_replay("replay-simulated", pairs, self.seed)


@dataclass(frozen=True)
class BenchDrawing:
    """Frames per second and agreement with MuJoCo of the batched renderer: in C, and on a GPU for several sizes."""

    task_name: Annotated[Literal["reacher", "cube"], tyro.conf.arg(name="task")] = "reacher"
    """The task."""
    frames: int = 40
    """Recorded states to draw."""
    repeats: int = 3
    """Timed calls after the first; the best is reported."""
    threads: tuple[int, ...] = (1,)
    """Threads of the C path, one row each."""
    shadow_size: int = 0
    """Texels per side of the shadow map; 0 for the model's own."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:1."""
    blocks: tuple[int, ...] = (64, 128)
    """On a GPU: triangles per program."""
    edges: tuple[float, ...] = (0.012, 0.024, 0.05)
    """On a GPU: metres that a triangle may be long before it is cut."""
    tiles: tuple[int, ...] = (32, 64)
    """On a GPU: pixels per tile."""
    casting: tuple[int, ...] = (32, 64)
    """On a GPU: triangles per program that draws the shadow map."""
    batches: tuple[int, ...] = (16, 64, 256)
    """On a GPU: frames drawn at once."""
    picture: Maybe[Path] = None
    """A PNG of two states to write: MuJoCo's frame, ours, and eight times their difference."""
    profile: Flag = False
    """Print where the GPU's time goes, kernel by kernel, in one draw of the last sizes and batch."""

    def run(self) -> None:
        """Prints the table and the line of JSON."""
        from alewm_lab.benchmarks.drawing import bench_drawing

        bench_drawing(**vars(self))


@dataclass(frozen=True)
class BenchPushT:
    """Push-T: physics and drawing per second on one core, and the share of demonstrations that reach their pose.

    With --human, how exactly the human demonstrations replay in our physics instead.
    """

    demonstrations: int = 150
    """Nominal demonstrations of the expert."""
    seed: int = 0
    """Their seed."""
    human: Maybe[Path] = None
    """The file of human demonstrations (pusht_cchi_v7_replay.zarr as folder, zip or tar, or an npz)."""

    def run(self) -> None:
        from alewm.envs.registry import get_task

        _ = get_task("push-t").env_class  # says which extra to install where the simulator is missing
        from alewm_lab.benchmarks.data_speed import bench_human_demonstrations, bench_push_t

        if self.human is not None:
            bench_human_demonstrations(self.human)
        else:
            bench_push_t(demonstrations=self.demonstrations, seed=self.seed)


@dataclass(frozen=True)
class BenchTrueSimulator:
    """The planner without a model: success of CEM that tries its candidates out in the environment itself.

    It is what this search reaches when predictions are perfect: a pair missed here is missed for want of candidates,
    iterations or horizon, or because the cost misleads. Everything but the rollout and the cost is as in `alewm
    evaluate`; the cost is how far the end state is from the goal state, as the task measures it.
    """

    task_name: Annotated[str | None, tyro.conf.arg(help_behavior_hint="", name="task")] = None
    """The task; needed without --data."""
    data: Maybe[Path] = None
    """An episode file, whose test pairs are taken; if not given, episodes are simulated without drawing them."""
    episodes: int = 32
    """Pairs: of the file the first ones, or one of each simulated episode."""
    every: int = 1
    """Simulate every n-th episode only: neighbours can be copies of one demonstration (16 of Push-T's), so that 17
    gives pairs that are independent, with all strengths of noise."""
    only: Several[int] = ()
    """Only the pairs of these episodes, for example to try those again that a smaller search missed."""
    candidates: int = 100
    """CEM: action sequences tried out per iteration (300 in `alewm evaluate`, which costs nine times as much here with
    its 30 iterations)."""
    iterations: int = 10
    """CEM: times the distribution is refined."""
    elites: Maybe[int] = None
    """CEM: best candidates it is refined from; if not given, a tenth."""
    horizon: int = 5
    """Blocks of five actions planned ahead."""
    executed: Maybe[int] = None
    """Blocks executed before planning again; if not given, all of them."""
    seed: int = 42
    """Of the planner's noise and of the random actions; the default is that of `alewm evaluate`."""
    jobs: int = 0
    """Processes, an episode at a time each; 0 means one per core."""
    out: Maybe[Path] = None
    """A file for a record of every pair, a line of JSON each; pairs that it holds are not planned again."""

    def run(self) -> None:
        """Prints the table, the pairs that were missed and the line of JSON."""
        from alewm.cli.look import asked_planning
        from alewm.errors import InputError
        from alewm_lab.benchmarks.replay import pairs_of_file, simulated_pairs
        from alewm_lab.benchmarks.true_simulator import bench_true_simulator

        planning = asked_planning(
            self.candidates, self.iterations, self.elites, self.horizon, self.executed, seed=self.seed
        )
        if self.episodes < 1:
            raise InputError(f"--episodes must be at least 1, got {self.episodes}.")
        if self.data is not None:
            standard = pairs_of_file(self.data, self.task_name, self.episodes)
        elif self.task_name is not None:
            standard = simulated_pairs(self.task_name, self.episodes, every=self.every)
        else:
            raise InputError("Say which task to simulate with --task, or which file's pairs to take with --data.")
        if self.only:
            standard = standard.only(self.only)
        bench_true_simulator(standard, planning, jobs=self.jobs, out=self.out)


@dataclass(frozen=True)
class BenchTrainStep:
    """One whole training update with the data already on the device."""

    preset_name: PresetName = "two-room-192"
    """The configuration; two-room-192 is ViT-Tiny/14 with D = 192."""
    batch: BatchSize = 128
    """Windows per update."""
    repeats: int = 20
    """Timed updates after three warm-up ones; the median is reported."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""
    acceleration: Literal["auto", "none", "compile", "record", "graph"] = "auto"
    """How updates are executed: as written, compiled, recorded as a CUDA graph, or both (graph); auto is fastest."""
    encoder_blocks: Literal["auto", "plain", "fused"] = "auto"
    """The encoder's blocks plain or by fused kernels."""
    deterministic: Flag = False
    """Only algorithms that repeat bit by bit, as `alewm train --deterministic`, and the usual ones beside them."""
    reference: Flag = False
    """Time LeWM as documented and our update as written beside it."""
    profile: Flag = False
    """Print where the GPU's time goes, kernel by kernel."""

    def run(self) -> None:
        from alewm_lab.benchmarks.train_step import bench_train_step

        bench_train_step(**vars(self))


@dataclass(frozen=True)
class BenchEncoderBlocks:
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
    tiles: Several[str] = ()
    """More tiles for every kernel beside its candidates, as rows,chunk,warps,stages,resident: 64,32,4,2,0."""
    repeats: int = 20
    """Timed calls of each."""
    device: str = "auto"
    """auto, cuda or cuda:1; a cpu where TRITON_INTERPRET=1 is set, to try the command."""

    def run(self) -> None:
        """Prints the tables and the line of JSON."""
        from alewm_lab.benchmarks.encoder_kernels import bench_encoder_blocks

        bench_encoder_blocks(**vars(self))


@dataclass(frozen=True)
class BenchPlanner:
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
    capacities: Several[int] = ()
    """Capacities to plan with; if not given, all that the configuration supports."""
    reference: Flag = False
    """Time the plan of one episode by full-width rollouts, operation by operation, beside it."""
    profile: Flag = False
    """Print where the GPU's time goes, kernel by kernel."""

    def run(self) -> None:
        from alewm_lab.benchmarks.plan_speed import bench_planner

        bench_planner(**vars(self))


@dataclass(frozen=True)
class BenchDistilled:
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
    capacities: Several[int] = ()
    """Capacities to plan with; if not given, all that the configuration supports."""
    search: Literal["cem", "icem", "mppi", "gradient"] = "cem"
    """The search, as in `alewm evaluate --search`."""
    own_capacities: Several[int] = ()
    """Those of them to time the model's own predictor with, which takes long; if not given, all."""

    def run(self) -> None:
        from alewm_lab.benchmarks.plan_speed import bench_distilled

        bench_distilled(**vars(self))


@dataclass(frozen=True)
class BenchEvaluate:
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

    def run(self) -> None:
        from alewm_lab.benchmarks.whole_path import bench_evaluate

        bench_evaluate(**vars(self))


@dataclass(frozen=True)
class BenchCheck:
    """Every fast path of a GPU beside its reference: are they equal up to rounding?"""

    preset_name: PresetName = "two-room-192"
    """The configuration; the weights are untrained."""
    batch: BatchSize = 32
    """Windows, images or candidates compared at once."""
    device: str = "auto"
    """auto, cuda or cuda:1."""
    only: Several[Literal["model", "planning", "training", "drawing"]] = ()
    """What to check; everything, which takes two minutes, if not given."""

    def run(self) -> None:
        """Prints the table and the line of JSON; fails where a difference is too large."""
        from alewm_lab.benchmarks.check import bench_check

        bench_check(**vars(self))


@dataclass(frozen=True)
class BenchScaling:
    """How costs grow with capacity, candidates, episodes, batch, width and projections; a panel each.

    Every size that does not grow stays at its middle value.
    """

    costs: tuple[Literal["plan", "state", "regularizer", "update"], ...] = ("plan", "state", "regularizer", "update")
    """What is measured: milliseconds, and the bytes of a state that planning carries."""
    episodes: tuple[int, ...] = (1, 10, 50, 100)
    """Episodes planned together."""
    candidates: tuple[int, ...] = (100, 300, 1000)
    """CEM: action sequences scored per iteration."""
    iterations: int = 30
    """CEM: times the distribution is refined."""
    batches: tuple[int, ...] = (64, 128, 256)
    """Windows per update."""
    presets: tuple[str, ...] = ("two-room-96", "two-room-192", "two-room-384")
    """Widths, by preset."""
    projections: tuple[int, ...] = (256, 1024, 4096)
    """Random directions of the regularizer."""
    preset_name: PresetName = "two-room-192"
    """The configuration that stays where another size grows."""
    repeats: int = 5
    """Timed calls after warm-up; the median is reported."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""
    out: Path = Path("runs/scaling.png")
    """The figure."""
    kept: Several[Path] = ()
    """Measure nothing and draw these again: files with the last lines of earlier calls."""

    def run(self) -> None:
        """Prints the tables and the line of JSON."""
        from alewm_lab.benchmarks.scaling import bench_scaling, redraw_scaling

        if self.kept:
            redraw_scaling(self.kept, self.out)
            return
        bench_scaling(self)


@dataclass(frozen=True)
class BenchFromNothing:
    """`alewm demo` from an empty folder and empty caches: its wall time, and the success of its ALeWM."""

    scale: Scale = "large"
    """How much of everything, as in `alewm demo`; `large` needs a GPU."""
    seeds: tuple[int, ...] = (3072, 3073, 3074)
    """Seeds of recording and training, each from nothing."""
    out: Maybe[Path] = None
    """Folder to keep the run folders in; if not given, nothing is kept."""

    def run(self) -> None:
        from alewm_lab.benchmarks.whole_path import bench_from_nothing

        bench_from_nothing(**vars(self))


@dataclass(frozen=True)
class BenchRegularizer:
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
        from alewm_lab.benchmarks.train_step import bench_regularizer

        bench_regularizer(**vars(self))


@dataclass(frozen=True)
class Bench:
    """Measure a fast path on this machine; the last line is JSON."""

    what: tyro.conf.OmitSubcommandPrefixes[
        tyro.conf.OmitArgPrefixes[
            Annotated[BenchCollect, tyro.conf.subcommand("collect")]
            | Annotated[BenchLoader, tyro.conf.subcommand("loader")]
            | Annotated[BenchData, tyro.conf.subcommand("data")]
            | Annotated[BenchReplay, tyro.conf.subcommand("replay")]
            | Annotated[BenchReplaySimulated, tyro.conf.subcommand("replay-simulated")]
            | Annotated[BenchTrueSimulator, tyro.conf.subcommand("true-simulator")]
            | Annotated[BenchDrawing, tyro.conf.subcommand("drawing")]
            | Annotated[BenchPushT, tyro.conf.subcommand("push-t")]
            | Annotated[BenchTrainStep, tyro.conf.subcommand("train-step")]
            | Annotated[BenchEncoderBlocks, tyro.conf.subcommand("encoder-blocks")]
            | Annotated[BenchPlanner, tyro.conf.subcommand("planner")]
            | Annotated[BenchDistilled, tyro.conf.subcommand("distilled")]
            | Annotated[BenchEvaluate, tyro.conf.subcommand("evaluate")]
            | Annotated[BenchRegularizer, tyro.conf.subcommand("regularizer")]
            | Annotated[BenchCheck, tyro.conf.subcommand("check")]
            | Annotated[BenchScaling, tyro.conf.subcommand("scaling")]
            | Annotated[BenchFromNothing, tyro.conf.subcommand("from-nothing")]
        ]
    ]
    """What to measure."""

    def run(self) -> None:
        """Measures it."""
        self.what.run()
