"""`alewm train`: a preset on a data file or several, as a run folder that continues when the command is repeated.

`alewm distill`: small dynamics in the coordinates that a run plans with.
"""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from alewm.cli.flags import Flag, Maybe, Several, assigned
from alewm.config import overridden
from alewm.errors import InputError

if TYPE_CHECKING:
    from alewm.training.config import RunConfig


@dataclass(frozen=True)
class Train:
    """Train a world model from recorded episodes.

    An interrupt writes a checkpoint; a second one stops at once. Repeating the command continues an interrupted run
    and ends with the same weights as an uninterrupted one. Under `torchrun --nproc_per_node N -m alewm train ...` N
    processes share every batch, with the statistics of one.
    """

    preset: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(help_behavior_hint="", metavar="TASK")] = None
    """The task, for example two-room, with --width and --method; or a preset's name, for example two-room-tiny (--list
    explains them). For data of your own: tiny, 96, 192 or 384; the task and its actions come from the file."""
    width: Maybe[Literal["tiny", "96", "192", "384"]] = None
    """Size of the model: tiny trains on a CPU in minutes, the others are the paper's; 192 if not given."""
    method: Maybe[Literal["alewm", "lewm", "alewm-sigreg", "nested-dropout"]] = None
    """What is trained: alewm, if not given, its baseline lewm, or an ablation."""
    latent: Maybe[int] = None
    """Coordinates of LeWM's latent, if fewer than the width has."""
    data: Annotated[tuple[Path, ...], tyro.conf.UseAppendAction] = ()
    """The episode file, from `alewm collect` or published with the same columns. Given several times, one model learns
    from all files: each has an equal share of every batch, and keeps its own splits and action statistics."""
    out: Maybe[Path] = None
    """The run folder; if not given, runs/PRESET-SEED."""
    seed: Maybe[int] = None
    """Seed of first weights, shuffling and all noise; the paper's are 3072, 3073 and 3074."""
    steps: Maybe[int] = None
    """Updates in all, a complete schedule; if not given, the preset's. A finished run that is asked for with more is
    extended by a second schedule: the learning rate warms up and decays again over the updates that are added."""
    batch_size: Maybe[int] = None
    """Windows per update, over all processes together."""
    learning_rate: Maybe[float] = None
    """Peak learning rate."""
    frame_skip: Maybe[int] = None
    """Environment steps per latent step, and so actions in a block; if not given, what the data file says, or 5."""
    set: Several[str] = ()
    """Any other field of the configuration, by the path config.json shows, for example
    --set objective.regularizer_weight=0.15 model.prior_degree=2."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda, cuda:1 or mps."""
    precision: Maybe[Literal["auto", "float32", "bfloat16"]] = None
    """Arithmetic of the networks; auto is bfloat16 where a GPU has it."""
    acceleration: Maybe[Literal["auto", "none", "compile", "record", "graph"]] = None
    """How updates are executed: as written, compiled, recorded as a CUDA graph, or both (graph); auto is the fastest.
    Runs of a minute or two end sooner with record, which has nothing to compile."""
    encoder_blocks: Maybe[Literal["auto", "plain", "fused"]] = None
    """The encoder's blocks plain, or by fused kernels where a GPU has bfloat16 and Triton; auto is the faster."""
    deterministic: Flag = False
    """Repeat bit by bit on a GPU too, at some cost; a CPU always does."""
    checkpoint_every: Maybe[int] = None
    """Updates between checkpoints."""
    validate_every: Maybe[int] = None
    """Updates between passes over the validation windows."""
    log_every: Maybe[int] = None
    """Updates between lines of metrics."""
    split: Literal["family", "episode"] = "family"
    """What is held out: whole families where episodes are copies of a demonstration (else episodes), or episodes even
    then, as in the paper."""
    log: Annotated[tuple[Literal["tensorboard", "trackio", "wandb"], ...], tyro.conf.UseAppendAction] = ()
    """Show metrics there too, besides the run's metrics.jsonl; may be given several times."""
    threads: int = 0
    """Threads that decode frames; 0 means one per core."""
    list: Flag = False
    """Say which tasks, widths and methods there are, and stop."""

    WHEN_INTERRUPTED: ClassVar[str] = "What was saved before is kept; repeat the command to continue."

    def run(self) -> None:
        """Trains what is left of the run."""
        if self.list:
            print(_preset_list())
            return
        from alewm.distributed import launched_rank

        out = self.trained()
        if launched_rank() == 0:
            print(out)

    def trained(self) -> Path:
        """The folder of the finished run."""
        return replace(self, data=self._data_files())._trained()

    def _data_files(self) -> tuple[Path, ...]:
        """The data files; a Lance table is made into one first, which several processes must not do at once."""
        from alewm.data.conversion.convert import data_file_of

        return self.data if "RANK" in os.environ else tuple(map(data_file_of, self.data))

    def _trained(self) -> Path:
        from alewm.data.checks import read_label
        from alewm.training.presets import WIDTHS, preset, preset_of_file, resolve_preset

        if self.preset is None:
            raise InputError("Name a task: alewm train TASK --data FILE. `alewm train --list` says what there is.")
        if self.preset in WIDTHS:
            if not self.data:
                raise InputError(f"--data FILE is needed: alewm train {self.preset} takes the task from the file.")
            if self.width is not None:
                raise InputError(f"{self.preset} is a width already; leave --width out.")
            name, base = preset_of_file(self.data[0], self.preset, self.method or "alewm", self.latent)
        else:
            name = resolve_preset(self.preset, self.width, self.method, self.latent)
            base = preset(name)
        if self.threads < 0:
            raise InputError(f"--threads must not be negative, got {self.threads}; 0 means one per core.")
        if not self.data:
            raise InputError(f"--data FILE is needed: the episodes of {base.task!r} to learn from.")
        config = self._configured(base, read_label(self.data[0]).frame_skip)

        from alewm.devices import find_device
        from alewm.training.train_run import train_run

        out = self.out or Path("runs") / f"{name}-{config.training.seed}"
        device = find_device(self.device)
        train_run(
            config,
            self.data,
            out,
            device=device,
            preset=name,
            split_by=self.split,
            num_threads=self.threads,
            loggers=self.log,
        )
        return out

    def _configured(self, config: "RunConfig", frame_skip_of_file: int | None) -> "RunConfig":
        asked: dict[str, Any] = {
            "seed": self.seed,
            "num_steps": self.steps,
            "batch_size": self.batch_size,
            "precision": self.precision,
            "acceleration": self.acceleration,
            "encoder_blocks": self.encoder_blocks,
            "deterministic": self.deterministic or None,
            "checkpoint_every": self.checkpoint_every,
            "validate_every": self.validate_every,
            "log_every": self.log_every,
        }
        frame_skip = frame_skip_of_file if self.frame_skip is None else self.frame_skip
        if frame_skip is not None:
            config = config.with_frame_skip(frame_skip)
        training = replace(config.training, **{name: value for name, value in asked.items() if value is not None})
        if self.learning_rate is not None:
            training = replace(training, optim=replace(training.optim, learning_rate=self.learning_rate))
        return overridden(replace(config, training=training), dict(map(assigned, self.set)))


_OF_METHODS = {
    "alewm": "chooses a capacity per episode (if not given)",
    "lewm": "the baseline: all coordinates always in use",
    "alewm-sigreg": "ablation: SIGReg on the masked latent in place of MixSIGReg",
    "nested-dropout": "baseline: capacities from the fixed prior, no selector",
}


def _preset_list() -> str:
    """What can be trained: the tasks, widths and methods that a command combines, and how presets are named."""
    from alewm.training.presets import ACTION_DIMS, CAPACITIES, MIXED, preset, preset_flags

    tiny, example = preset("two-room-tiny").model, "two-room-192-lewm-32"
    mixed, widths = "+".join(MIXED), ", ".join(map(str, CAPACITIES))
    latents = ", ".join(map(str, CAPACITIES[192]))
    methods = f"\n{'':<11}".join(f"{name:<15} {meaning}" for name, meaning in _OF_METHODS.items())
    return "\n".join(
        [
            "alewm train TASK [--width WIDTH] [--method METHOD] [--latent LATENT] --data FILE",
            f"  TASK     {', '.join(ACTION_DIMS)}; {mixed} (width 192, two files)",
            f"  WIDTH    {'tiny':<15} latent of {tiny.latent_dim}, frames of {tiny.encoder.image_size} pixels: a CPU",
            f"           {widths:<15} the paper's, frames of 224 pixels: a GPU (192 if not given)",
            f"  METHOD   {methods}",
            f"  LATENT   of lewm, up to the width; the paper's at 192: {latents}",
            "",
            "alewm train WIDTH --data FILE trains on data of your own: the task comes from the file.",
            "",
            f"A preset's name stands for all of them: {example} is",
            f"alewm train {preset_flags(example)}",
        ]
    )


@dataclass(frozen=True)
class Distill:
    """Fit a small network to a trained model's latent dynamics, so that plans take a fraction of the time.

    Encodes the training episodes once with the run's encoder and fits a network of two hidden layers that predicts the
    first k coordinates from themselves and an action block. There is one network for each capacity that pairs of
    training episodes choose. Writes RUN/distilled; `alewm evaluate RUN --dynamics distilled` plans with it. Repeating
    the command finds what is there.
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder of `alewm train`, or the folder of a shared model."""
    capacities: Annotated[tuple[int, ...], tyro.conf.arg(help_behavior_hint="", name="capacity")] = ()
    """Capacities to distil, for example 8 or 8 16; if not given, those that pairs of training episodes choose."""
    data: Maybe[Path] = None
    """The data file, if it is no longer where the run was trained."""
    episodes: int = 0
    """Training episodes to encode, spread evenly over the file; 0 for all."""
    hidden: int = 128
    """Units of each of the two hidden layers."""
    horizon: int = 5
    """Blocks of actions that the network is fitted to roll out; that of planning."""
    updates: int = 3000
    """Updates of each network."""
    batch_size: int = 1024
    """Windows per update."""
    learning_rate: float = 2e-2
    """Highest learning rate."""
    seed: int = 3072
    """Of the first weights and the order of windows."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda, cuda:1 or mps."""
    out: Maybe[Path] = None
    """Another folder for the networks; evaluate with --dynamics FOLDER then."""

    WHEN_INTERRUPTED: ClassVar[str] = "Finished networks are kept; repeat the command to continue."

    def run(self) -> None:
        """Writes the folder, prints the errors beside those of the model's own predictor, and its path."""
        from alewm.devices import find_device
        from alewm.evaluation.distill_run import distill, distill_table, too_inaccurate
        from alewm.training.distill import DistillConfig

        config = DistillConfig(
            hidden_dim=self.hidden,
            horizon=self.horizon,
            num_updates=self.updates,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            num_episodes=self.episodes,
            seed=self.seed,
        )
        device = find_device(self.device)
        found = distill(self.run_folder, self.capacities, config, data_path=self.data, out=self.out, device=device)
        print(distill_table(found.networks))
        for note in too_inaccurate(found.networks):
            print(note, file=sys.stderr)
        print(found.path)
