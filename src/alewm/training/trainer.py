"""The loop: data, update, log, validate, save, resume."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from alewm.capacity.support import survival
from alewm.config import differences, late_field_defaults, to_dict
from alewm.distributed import num_ranks, share_of_batch, this_rank, wait_for_all_ranks
from alewm.errors import InputError
from alewm.interrupts import DeferredInterrupts
from alewm.model.checkpoint_files import checkpoints_in, prune_checkpoints, step_of
from alewm.model.world_model import WorldModel, build_world_model
from alewm.shapes import Tensor
from alewm.training.acceleration import RECORDED, accelerated, acceleration_of
from alewm.training.checkpoint import Description, load_checkpoint, read_description, save_checkpoint
from alewm.training.config import RunConfig
from alewm.training.data import RunWindows, WindowBatch, batches_on
from alewm.training.metrics import Logbook, Loggers, RunningMeans, q_by_capacity
from alewm.training.mixture import mean_q_of_sets
from alewm.training.objective import Losses, Objective
from alewm.training.random_streams import RandomStreams, seeded_generator
from alewm.training.step import (
    PlainUpdates,
    StepResult,
    build_optimizer,
    learning_rate_factor,
    repeatable,
    set_learning_rate,
)
from alewm.training.validation import (
    effective_rank,
    masked_variance,
    mean_entropy,
    recalibrate,
    validate,
    variance,
)


class NonFiniteUpdateError(InputError):
    """Training met a loss or gradient that is not finite, and stopped before applying it."""


@dataclass(frozen=True)
class TrainingResult:
    """Where training ended."""

    step: int
    """Updates made."""
    checkpoint: Path
    """The last checkpoint."""
    metrics: dict[str, Any]
    """The last line of metrics of each kind, joined."""
    seconds: float
    """Time up to the last update, updates before an interruption included."""


Updates = Callable[[Tensor, Tensor], StepResult]
"""From a batch's pixels and actions to what the update computed."""

Found = TypeVar("Found")

OnMetrics = Callable[[int, Mapping[str, Any]], None]
"""Called with updates made and the latest metrics, at every line of metrics."""


class Trainer:
    """One training run in one folder; running it again continues it.

    Writes `metrics.jsonl` and `checkpoints/` below `folder`, and what its `loggers` write. Every rank constructs
    one with its own windows; rank 0 writes. With several data sets, q and losses of each are logged too. BatchNorm
    statistics are recomputed before every validation and checkpoint if `windows.recalibration` has batches.
    """

    def __init__(
        self,
        config: RunConfig,
        windows: RunWindows,
        *,
        folder: Path,
        device: torch.device,
        extras: Mapping[str, Any] | None = None,
        loggers: Loggers | None = None,
    ) -> None:
        training = config.training
        # Unsupported options are refused before anything is written.
        self.acceleration = acceleration_of(config, device)
        share_of_batch(training.batch_size)
        self.config, self.windows = config, windows
        self.device, self.extras = device, dict(extras or {})
        self.loggers = loggers or Loggers()
        self.checkpoints = folder / "checkpoints"
        self.logbook = Logbook(folder / "metrics.jsonl")
        self.num_steps = training.total_steps(len(windows.training))
        first_weights = seeded_generator(training.seed, "weights")
        self.model: WorldModel = build_world_model(config.model, first_weights).to(device)
        self.objective = Objective(config.objective, config.model).to(device)
        self.optimizer = build_optimizer(self.model, training.optim, on_device=self.acceleration.path in RECORDED)
        self.streams = RandomStreams(training.seed, device)
        self.step = 0
        self._means = RunningMeans()
        self._latest: dict[str, Any] = {}
        self._clock = time.perf_counter()
        self._seconds = 0.0
        self._interrupts = DeferredInterrupts()
        self._is_stopping = False

    def run(
        self,
        on_metrics: OnMetrics = lambda _step, _metrics: None,
        on_interrupt: Callable[[], None] = lambda: None,
    ) -> TrainingResult:
        """Train to the end, from the latest checkpoint or from the start.

        An interrupt is answered after the update that is being made, with a checkpoint of it; a second one at once.
        Several ranks stop together, at the next line of metrics. `on_interrupt` is called by the signal handler.
        """
        with repeatable(self.config.training.deterministic), closing(self.loggers):
            self._resume()
            plain = PlainUpdates(self.model, self.objective, self.optimizer, self.streams, self.config.training)
            update = accelerated(plain, self.acceleration, self.device)
            self.model.train()
            self._clock = time.perf_counter()
            batches = batches_on(self.device, self.windows.training)
            with DeferredInterrupts(on_interrupt) as self._interrupts:
                while self.step < self.num_steps:
                    self._advance(update, *next(batches), on_metrics)
                    if self._is_stopping:
                        self._interrupts.answer()
        return TrainingResult(self.step, checkpoints_in(self.checkpoints)[-1], self._latest, self._seconds)

    def _advance(self, update: Updates, pixels: Tensor, actions: Tensor, on_metrics: OnMetrics) -> None:
        training = self.config.training
        start = training.schedule_start
        factor = learning_rate_factor(self.step - start, self.num_steps - start, training.optim.warmup_fraction)
        # The selector's delay is over in a run that is extended.
        progress = 1.0 if start else self.step / self.num_steps
        set_learning_rate(self.optimizer, factor * training.optim.learning_rate, progress)
        result = update(pixels, actions)
        self.step += 1
        self._gather(result)
        is_last = self.step == self.num_steps
        # Ranks would disagree about the update at which one of them was interrupted: they exchange it with the metrics.
        self._is_stopping = num_ranks() == 1 and self._interrupts.is_waiting
        saves = is_last or self._is_stopping or self.step % training.checkpoint_every == 0
        if saves or self.step % training.log_every == 0:
            self._log(factor * training.optim.learning_rate)
            saves = saves or self._is_stopping
            on_metrics(self.step, self._latest)
        elif self.device.type == "cpu" and not result.is_finite:
            self._refuse()
        if is_last or self.step % training.diagnose_every == 0:
            self._diagnose(result.losses)
        looks = is_last or self.step % training.validate_every == 0
        if looks or saves:
            self._recalibrate()
        if looks:
            self._validate()
        if saves:
            self._save()

    def _gather(self, result: StepResult) -> None:
        self._means.add(
            {
                "loss": result.total,
                **result.losses.terms,
                "gradient_norm": result.gradient_norm,
                "refused": (~result.is_finite).float(),
                "interrupted": torch.full_like(result.gradient_norm, self._interrupts.is_waiting),
                "q": result.losses.q.mean(0),
                "q_entropy": mean_entropy(result.losses.q),
                **mean_q_of_sets(result.losses.q, list(self.windows.validation_apart)),
            }
        )

    def _log(self, learning_rate: float) -> None:
        num_steps = self._means.count
        means = self._means.take()
        if means.pop("refused"):
            self._refuse()
        self._is_stopping = bool(means.pop("interrupted")) or self._is_stopping
        seconds = time.perf_counter() - self._clock
        self._clock = time.perf_counter()
        self._seconds += seconds
        rate = num_steps * self.config.training.batch_size / seconds
        named = q_by_capacity(means, self.config.model.capacities)
        timed = {"learning_rate": learning_rate, "windows_per_second": rate, "seconds": self._seconds}
        self._write("train", {**named, **timed})

    def _diagnose(self, losses: Losses) -> None:
        support = self.model.support
        self._write(
            "latent",
            {
                "effective_rank": effective_rank(losses.latents).item(),
                "masked_variance": masked_variance(losses.latents, losses.q, support).tolist(),
                "prior_survival": survival(self.model.log_prior.exp(), support).tolist(),
                "variance": variance(losses.latents).tolist(),
            },
        )

    def _recalibrate(self) -> None:
        """Recompute BatchNorm statistics with the current weights; training itself never reads them."""
        self._look(recalibrate, self.windows.recalibration)

    def _validate(self) -> None:
        """The losses on held-out windows."""
        means = self._look(validate, self.windows.validation)
        for name, windows in self.windows.validation_apart.items():
            apart = self._look(validate, windows)
            means |= {f"{metric}/{name}": value for metric, value in apart.items() if metric != "precision_gap"}
        if means:
            self._write("validation", q_by_capacity(means, self.config.model.capacities))

    def _look(self, look: Callable[..., Found], windows: Iterable[WindowBatch]) -> Found:
        """What `look` finds in `windows`, with the current weights and the same noise every time."""
        training = self.config.training
        streams = RandomStreams(training.seed, self.device)
        with self.acceleration.suspended():
            return look(self.model, self.objective, windows, streams, dtype=training.autocast_dtype(self.device))

    def _write(self, kind: str, values: Mapping[str, Any]) -> None:
        self._latest |= {f"{kind}/{name}": value for name, value in values.items()}
        if this_rank() == 0:
            self.logbook.append({"step": self.step, "kind": kind, **values})
            self.loggers.write(self.step, kind, values)

    def _save(self) -> None:
        if this_rank() == 0:
            description = Description(self.step, self.config, self.windows.training.state_dict(), self.extras)
            self.logbook.flush()  # first, so that no power cut keeps a checkpoint without the lines before it
            save_checkpoint(self.checkpoints, description, self.model, self.optimizer, self.streams)
            prune_checkpoints(self.checkpoints, self.config.training.keep_checkpoints)
        wait_for_all_ranks()

    def _resume(self) -> None:
        saved = checkpoints_in(self.checkpoints)
        if saved:
            self._check_same_config(saved[-1])
            description = load_checkpoint(saved[-1], self.model, self.optimizer, self.streams)
            self.windows.training.load_state_dict(description.source_state)
            self.step = description.step
        wait_for_all_ranks()
        if this_rank() == 0:
            prune_checkpoints(self.checkpoints, self.config.training.keep_checkpoints)  # as a kill may have left them
            furthest_step = self.logbook.rewind(self.step)
            self._latest = self.logbook.latest()
            self._seconds = self._latest.get("train/seconds", 0.0)
            if self.step < self.num_steps:
                self.loggers.open(self.step, furthest_step)

    def _check_same_config(self, checkpoint: Path) -> None:
        description, asked = read_description(checkpoint), self.config
        found = description.config
        if description.step == asked.training.schedule_start:  # the end of the schedule before
            asked = asked.with_schedules_of(found)
        lines = differences(to_dict(asked), to_dict(found), late_field_defaults(RunConfig))
        if lines:
            raise InputError(
                f"{self.checkpoints.parent} holds a run with another config:\n  "
                + "\n  ".join(lines)
                + "\nRepeat its command to continue it, or choose another folder."
            )

    def last_saved(self) -> str:
        """Which checkpoint there is to go on from, in words."""
        saved = checkpoints_in(self.checkpoints)
        return f"The last good checkpoint is {saved[-1]}." if saved else "Nothing was saved yet."

    def lost_if_stopped(self) -> str:
        """Which updates have to be repeated if training stops now, in words."""
        saved = checkpoints_in(self.checkpoints)
        last = step_of(saved[-1]) if saved else 0
        lost = f"Updates after it, {last + 1} to {self.step}, are lost." if saved else f"{self.step} updates are lost."
        return f"{lost if self.step > last else 'No update is lost.'} Repeat the command to continue."

    def _refuse(self) -> None:
        raise NonFiniteUpdateError(
            f"Loss or gradient became infinite or NaN by step {self.step}; the update was not applied. "
            f"{self.last_saved()} Check the data for extreme actions, or lower the learning rate."
        )
