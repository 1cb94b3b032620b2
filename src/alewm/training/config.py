"""Everything that decides a training run, in one value that is saved with it."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch

from alewm.config import ADDED_LATER, AT_LEAST_1, Count, CountOrZero, check_ranges
from alewm.data.windows import WindowShape
from alewm.devices import why_no_bfloat16
from alewm.errors import InputError
from alewm.model.world_model import WorldModelConfig
from alewm.training.acceleration import Acceleration, Chosen, EncoderBlocks, choose_acceleration
from alewm.training.objective import ObjectiveConfig, check_fit
from alewm.training.optim import OptimConfig


@dataclass(frozen=True)
class TrainingConfig:
    """How long and how a model is trained, and what is written while it is."""

    seed: CountOrZero = 3072
    """Seed of first weights, shuffling, and all noise."""
    batch_size: Count = 128
    """Windows per update, over all processes together."""
    num_epochs: Count = 10
    """Passes over the training windows."""
    num_steps: Annotated[int | None, AT_LEAST_1] = None
    """Updates in all; where given, it takes the place of the epochs."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimizer and schedule."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the networks; auto is bfloat16 where a GPU has it. Statistics and patches are always float32."""
    acceleration: Acceleration = "auto"
    """How updates are executed: `none`, `compile`, `record` (as a CUDA graph), `graph` (both); auto is the fastest."""
    encoder_blocks: EncoderBlocks = field(default="auto", metadata=ADDED_LATER)
    """`fused`: by kernels of our own, where a GPU with bfloat16 and Triton runs them; `plain`; auto is the faster."""
    deterministic: bool = False
    """Only algorithms that repeat bit by bit on a GPU, at some cost; a CPU always repeats."""
    log_every: Count = 50
    """Updates between lines of metrics."""
    diagnose_every: Count = 500
    """Updates between effective rank and masked variance."""
    validate_every: Count = 1000
    """Updates between looks at validation windows; also done at the end."""
    validation_batches: Count = 50
    """Batches of validation windows per look, the same ones each time."""
    recalibration_batches: CountOrZero = field(default=0, metadata=ADDED_LATER)
    """Batches of training windows from which BatchNorm's moments are measured anew before every look and checkpoint; 0
    keeps their trailing averages, as the paper does. Worth it where a checkpoint is used before the end."""
    checkpoint_every: Count = 1000
    """Updates between checkpoints; also written at the end."""
    keep_checkpoints: Count = 2
    """How many of the latest checkpoints stay."""

    def __post_init__(self) -> None:
        check_ranges(self)

    def total_steps(self, steps_per_epoch: int) -> int:
        """Updates in all, given those in one pass over the windows."""
        if self.num_steps is not None:
            return self.num_steps
        if steps_per_epoch < 1:
            raise InputError(
                f"The training windows do not fill one batch of {self.batch_size}; collect more episodes or choose a "
                f"smaller batch_size."
            )
        return self.num_epochs * steps_per_epoch

    def autocast_dtype(self, device: torch.device) -> torch.dtype | None:
        """The dtype of mixed precision on `device`, or None for float32 throughout."""
        obstacle = why_no_bfloat16(device)
        if self.precision == "bfloat16" and obstacle is not None:
            raise InputError(f"bfloat16 was asked for, but {obstacle}. Leave the precision at `auto`, or use float32.")
        if self.precision == "auto" and device.type == "cpu":
            return None  # a CPU can, but gains nothing
        return torch.bfloat16 if self.precision != "float32" and obstacle is None else None


@dataclass(frozen=True)
class RunConfig:
    """A training run, whole."""

    task: str = "two-room"
    """The task whose episodes are learned from; those of several data sets are joined by +, as in reacher+two-room."""
    model: WorldModelConfig = field(default_factory=WorldModelConfig)
    """The world model."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    """What is minimised."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """How."""

    def acceleration_on(self, device: torch.device) -> Chosen:
        """How its updates are executed there; a way or a precision that was asked for and is not there is refused."""
        training = self.training
        dtype = training.autocast_dtype(device)
        chosen = choose_acceleration(training.acceleration, device)
        return chosen.fusing(training.encoder_blocks, self.model.encoder, device, dtype)

    @property
    def data_sets(self) -> dict[str, str]:
        """The task of each data set by the data set's name, which is the task's; one that comes again is numbered."""
        tasks, named = self.task.split("+"), dict[str, str]()
        for number, task in enumerate(tasks):
            times = tasks[: number + 1].count(task)
            named[task if times == 1 else f"{task}-{times}"] = task
        return named


def check_trainable(config: RunConfig) -> None:
    """Refuses a model that cannot be trained with its objective, or on windows of the usual length.

    Not part of the configuration itself: a model from elsewhere that sees fewer positions can still be planned with.
    """
    check_fit(config.objective, config.model)
    positions, seen = WindowShape().num_frames - 1, config.model.predictor.context_length
    if seen < positions:
        raise InputError(
            f"model.predictor.context_length must be at least {positions}, the positions of a training window from "
            f"which the next is predicted; got {seen}."
        )
