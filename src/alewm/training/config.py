"""Everything that decides a training run, in one value that is saved with it."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Literal

import torch

from alewm.capacity.support import TEMPERATURE
from alewm.config import ADDED_LATER, AT_LEAST_1, Count, CountOrZero, NotNegative, Positive, Share, check_ranges
from alewm.data.windows import WindowShape
from alewm.devices import why_no_bfloat16
from alewm.errors import InputError
from alewm.model.world_model import WorldModelConfig
from alewm.regularizers.quadrature import Directions
from alewm.shapes import FRAME_SKIP

Method = Literal["lewm", "alewm", "alewm-sigreg", "nested-dropout"]
LEARNS_CAPACITY = ("alewm", "alewm-sigreg")


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is minimised."""

    method: Method = "alewm"
    """Which composition of capacity choice and regularizer."""
    regularizer_weight: NotNegative = 0.09
    """Weight λ of the regularizer."""
    num_projections: Count = 1024
    """Random directions P of the regularizer."""
    temperature: Positive = TEMPERATURE
    """Temperature η of the straight-through choice."""
    prediction_target: Literal["full", "prefix", "detached"] = "full"
    """What is predicted: the whole next latent, its active prefix only, or the whole with no gradient beyond the
    active prefix."""
    marginalises_capacity: bool = False
    """Predict at every capacity and weigh by q, instead of sampling one; costs C predictions."""
    prior_weight: NotNegative = 0.0
    """Weight of KL(q || prior); the paper has none."""
    freezes_selector: bool = False
    """Keep q at the prior."""
    masked_sigreg: Literal["sampled", "marginal"] = "sampled"
    """For `alewm-sigreg`: SIGReg of the sampled masked latent, or of its mixture under q."""
    directions: Directions = field(default="sphere", metadata=ADDED_LATER)
    """For `alewm`: directions of MixSIGReg anywhere, as in the paper, or an equal share inside every prefix."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.method not in LEARNS_CAPACITY:
            for name, default in (("marginalises_capacity", False), ("prior_weight", 0.0), ("freezes_selector", False)):
                if getattr(self, name) != default:
                    raise InputError(f"{name} has no effect with the method {self.method!r}, which learns no capacity.")
        if self.method != "alewm-sigreg" and self.masked_sigreg != "sampled":
            raise InputError(f"masked_sigreg has no effect with the method {self.method!r}.")
        if self.method == "lewm" and self.prediction_target != "full":
            raise InputError(
                "prediction_target has no effect with the method 'lewm', whose prefix is the whole latent."
            )
        if self.method != "alewm" and self.directions != "sphere":
            raise InputError(f"directions has no effect with the method {self.method!r}.")


def check_fit(config: ObjectiveConfig, model: WorldModelConfig) -> None:
    """Refuses a model that lacks what the method needs, or has what it cannot use."""
    learns = config.method in LEARNS_CAPACITY
    if learns != model.has_selector:
        expected = "a selector" if learns else "no selector"
        raise InputError(f"The method {config.method!r} needs a model with {expected} (has_selector={learns}).")
    if config.method == "lewm" and len(model.capacities) > 1:
        raise InputError(
            f"The method 'lewm' always uses the whole latent: its support is ({model.latent_dim},), "
            f"got {model.capacities}."
        )


@dataclass(frozen=True)
class OptimConfig:
    """AdamW with a linear warm-up and a cosine decay to zero."""

    learning_rate: Positive = 5e-5
    """Peak learning rate."""
    selector_multiplier: Positive = 1.0
    """Factor s_q of the selector's learning rate."""
    selector_delay: Share = field(default=0.0, metadata=ADDED_LATER)
    """Share of all steps before the selector learns; until then q is the prior."""
    weight_decay: NotNegative = 1e-3
    """Decoupled weight decay, on all parameters."""
    warmup_fraction: Share = 0.01
    """Share of all steps over which the learning rate rises from zero."""
    clip_norm: Positive = 1.0
    """Largest norm of the gradient of all parameters together."""

    def __post_init__(self) -> None:
        check_ranges(self)


Acceleration = Literal["auto", "none", "compile", "record", "graph"]
EncoderBlocks = Literal["auto", "plain", "fused"]
"""How the encoder's blocks are computed: by PyTorch, or by fused Triton kernels."""


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
    schedules: tuple[int, ...] = field(default=(), metadata=ADDED_LATER)
    """Updates after which earlier schedules ended, of a run that was extended by `--steps`; the present one has its own
    warm-up and decay."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimizer and schedule."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the networks; auto is bfloat16 where a GPU has it. Statistics and patches are always float32."""
    acceleration: Acceleration = "auto"
    """How updates are executed: `none`, `compile`, `record` (as a CUDA graph), `graph` (both); auto is the fastest."""
    encoder_blocks: EncoderBlocks = field(default="auto", metadata=ADDED_LATER)
    """`fused` Triton kernels (a GPU with bfloat16), or `plain` PyTorch; auto is the faster of the two."""
    deterministic: bool = False
    """Use deterministic algorithms on a GPU, at some cost; a CPU is always deterministic."""
    log_every: Count = 50
    """Updates between lines of metrics."""
    diagnose_every: Count = 500
    """Updates between effective rank and masked variance."""
    validate_every: Count = 1000
    """Updates between validations; also done at the end."""
    validation_batches: Count = 50
    """Batches per validation, the same ones each time."""
    recalibration_batches: CountOrZero = field(default=0, metadata=ADDED_LATER)
    """Training batches from which BatchNorm statistics are recomputed before every validation and checkpoint; 0 keeps
    the running averages, as the paper does. Useful for checkpoints that are used before the end of training."""
    checkpoint_every: Count = 1000
    """Updates between checkpoints; also written at the end."""
    keep_checkpoints: Count = 2
    """How many of the latest checkpoints stay."""

    def __post_init__(self) -> None:
        check_ranges(self)
        ends = (0, *self.schedules, self.num_steps or 0)
        if self.schedules and any(end <= before for before, end in pairwise(ends)):
            raise InputError(f"training.schedules end one after the other, before num_steps; got {ends[1:]}.")

    @property
    def schedule_start(self) -> int:
        """Updates made before the present schedule."""
        return self.schedules[-1] if self.schedules else 0

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
    """The complete configuration of a training run."""

    task: str = "two-room"
    """The task whose episodes are learned from; those of several data sets are joined by +, as in reacher+two-room."""
    model: WorldModelConfig = field(default_factory=WorldModelConfig)
    """The world model."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    """What is minimised."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """Schedule, optimizer and logging."""
    frame_skip: Count = field(default=FRAME_SKIP, metadata=ADDED_LATER)
    """Environment steps per latent step, and so actions in a block; model.action_dim is so many actions."""

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def windows(self) -> WindowShape:
        """The shape of its training windows."""
        return WindowShape(frame_skip=self.frame_skip)

    def with_frame_skip(self, frame_skip: int) -> "RunConfig":
        """This configuration with other blocks of as many actions as `frame_skip` says."""
        AT_LEAST_1.check("frame_skip", frame_skip)
        action_dim = self.model.action_dim // self.frame_skip
        return replace(self, frame_skip=frame_skip, model=replace(self.model, action_dim=frame_skip * action_dim))

    def with_schedules_of(self, other: "RunConfig") -> "RunConfig":
        """This configuration with the number of updates and the schedules of another."""
        theirs = other.training
        training = replace(self.training, num_steps=theirs.num_steps, schedules=theirs.schedules)
        return replace(self, training=training)

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
    positions, seen = config.windows.num_frames - 1, config.model.predictor.context_length
    if seen < positions:
        raise InputError(
            f"model.predictor.context_length must be at least {positions}, the positions of a training window from "
            f"which the next is predicted; got {seen}."
        )
