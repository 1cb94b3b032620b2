"""A training run as a folder: opened or continued, trained, and left with everything evaluation needs."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from alewm.config import differences, from_dict, late_field_defaults, to_dict
from alewm.data.splits import SplitBy
from alewm.devices import busy_note
from alewm.distributed import (
    first_rank_first,
    leave_ranks,
    num_ranks,
    share_of_batch,
    start_ranks,
    this_rank,
    wait_for_all_ranks,
)
from alewm.errors import InputError
from alewm.files import read_if_there, read_json, write_json
from alewm.model.checkpoint_files import checkpoints_in, step_of
from alewm.progress import Progress
from alewm.runs.folder import RunFolder, only_writer, provenance
from alewm.training.checkpoint import named_tasks
from alewm.training.config import RunConfig, check_trainable
from alewm.training.data import TrainingData
from alewm.training.metrics import Loggers
from alewm.training.mixture import MixedData
from alewm.training.trainer import Trainer, TrainingResult

LARGEST_PRECISION_GAP = 0.05
"""The `precision_gap` that is worth a warning. At 0.98 a model planned to 60 % of goals instead of 99 %."""


def train_run(
    config: RunConfig,
    data: Path | Sequence[Path],
    out: Path,
    *,
    device: torch.device,
    preset: str | None = None,
    split_by: SplitBy = "family",
    num_threads: int = 0,
    loggers: Sequence[str] = (),
    is_silent: bool = False,
    command: str | None = None,
) -> RunFolder:
    """The finished run in `out`, begun there or continued; `torchrun` may have started several processes for it.

    `data` is one file, or one for each data set of `config`, in that order. Data, configuration and folder are
    validated before anything is written. `loggers` are those of `alewm.training.metrics`;
    they are no part of the configuration, and may change when a run goes on. `command` is what provenance.json names,
    if not the command that was typed.
    """
    paths = (data,) if isinstance(data, Path) else tuple(data)
    config = named_tasks(config, paths)
    check_trainable(config)
    sinks = Loggers(loggers, out, to_dict(config))
    device = start_ranks(device)
    try:
        share_of_batch(config.training.batch_size)
        with first_rank_first():
            learned: TrainingData | MixedData
            if len(paths) == 1:
                learned = TrainingData.open(paths[0], config, split_by)
            else:
                learned = MixedData.open(paths, config, split_by)
            folder = RunFolder(out, late_field_defaults(RunConfig))
            config = with_schedules(config, folder)
            described = {**to_dict(config), "data": learned.identity()}
            extends = folder.result().get("training", {}).get("step") in config.training.schedules
            if not extends:
                folder.check(described)
        is_first = this_rank() == 0
        if is_first and not is_silent:
            for note in learned.notes:
                print(note, file=sys.stderr)
        windows = learned.windows(config, device, num_threads)
        trainer = Trainer(config, windows, folder=out, device=device, extras=learned.extras(config), loggers=sinks)
        if is_first and not is_silent:
            print(f"updates on {device}: {trainer.acceleration}", file=sys.stderr)
            if note := busy_note(device):
                print(note, file=sys.stderr)
        with only_writer(out) if is_first else nullcontext():
            if is_first:
                made_from: dict[str, Any] = {"preset": preset, "data": learned.sources(config), "device": str(device)}
                made_from |= {"processes": num_ranks(), "updates": str(trainer.acceleration)}
                if extends:
                    _begin_schedule(folder, described, config, command)
                    if not is_silent:
                        print(_extension_in_words(out, config), file=sys.stderr)
                folder.open(described, command=command, **made_from)
                learned.save_splits(out)
            wait_for_all_ranks()  # for the folder to be there
            try:
                result = _run(trainer, out, shows_progress=is_first and not is_silent)
            except (OSError, KeyboardInterrupt) as error:
                error.add_note(trainer.last_saved())
                if isinstance(error, KeyboardInterrupt):
                    error.add_note(trainer.lost_if_stopped())
                raise
            if is_first:
                _record(folder, result)
                if not is_silent:
                    _warn_of_a_precision_gap(result)
        return folder
    finally:
        leave_ranks()


SCHEDULES = "schedules"
"""The folder below an extended run's with the results that each schedule before the present one ended with."""
_RESULTS = ("evaluations", "measurements", "distilled", "report", "animations", "episodes.jsonl", "actions.safetensors")
"""What was made of the weights that a schedule ended with, besides result.json."""


def with_schedules(config: RunConfig, folder: RunFolder) -> RunConfig:
    """`config` with the finished schedules of the run in `folder`, where that differs in the number of updates only.

    A finished run that is asked for with more updates is extended by one more schedule.
    """
    stored = {name: value for name, value in read_if_there(folder.config_path).items() if name != "data"}
    if config.training.num_steps is None or not stored:
        return config
    try:
        found = from_dict(RunConfig, stored)
    except InputError:
        return config  # no run of ours, which `RunFolder.check` refuses
    if config.with_schedules_of(found) != found:
        return config
    if config.training.num_steps == found.training.num_steps:
        return found
    done = folder.result().get("training", {}).get("step")
    if done is None:
        changed = differences(to_dict(config), to_dict(found))
        raise InputError(
            f"{folder.path} holds a run with another configuration:\n  {changed[0]}\nIt has not finished. Repeat its "
            f"own command to finish it; then --steps can extend it."
        )
    if done >= config.training.num_steps:
        return config
    return replace(config, training=replace(config.training, schedules=(*found.training.schedules, done)))


def _begin_schedule(folder: RunFolder, described: Mapping[str, Any], config: RunConfig, command: str | None) -> None:
    """Give a finished run the config of its next schedule, and put its results aside.

    A call that was interrupted is completed by the next one: result.json is the last to move.
    """
    aside = folder.path / SCHEDULES / f"step-{config.training.schedule_start:08d}"
    aside.mkdir(parents=True, exist_ok=True)
    if not (aside / "config.json").exists():
        write_json(aside / "config.json", read_json(folder.config_path))
    known = read_if_there(folder.provenance_path)
    extensions = known.get("extensions", [])
    if len(extensions) < len(config.training.schedules):
        write_json(folder.provenance_path, {**known, "extensions": [*extensions, provenance(command)]})
    write_json(folder.config_path, described)
    for name in (*_RESULTS, folder.result_path.name):
        if (folder.path / name).exists():
            (folder.path / name).replace(aside / name)


def _extension_in_words(out: Path, config: RunConfig) -> str:
    start, end = config.training.schedule_start, config.training.num_steps
    return (
        f"{out} was finished after {start} updates and is extended to {end}, by a new schedule: the learning rate "
        f"warms up and decays again over updates {start + 1} to {end}. A run of {end} updates from the start would end "
        f"with other weights. The results so far are in {out / SCHEDULES}/step-{start:08d}."
    )


def _run(trainer: Trainer, out: Path, *, shows_progress: bool) -> TrainingResult:
    if not shows_progress:
        return trainer.run()
    saved = checkpoints_in(out / "checkpoints")
    done = step_of(saved[-1]) if saved else 0
    if 0 < done < trainer.num_steps:
        print(f"continuing {out} after update {done}", file=sys.stderr)
    with Progress(f"training {out}", trainer.num_steps, "updates", done=done) as progress:

        def show(step: int, metrics: Mapping[str, Any]) -> None:
            progress.advance(step - progress.done, f"loss {metrics['train/loss']:.4f}")

        return trainer.run(show, _say_that_a_checkpoint_comes)


def _say_that_a_checkpoint_comes() -> None:
    words = "Interrupted: finishing this update and writing a checkpoint. Interrupt again to stop at once."
    with suppress(OSError):  # the terminal may be gone
        os.write(2, f"\n{words}\n".encode())  # unbuffered, because a signal handler calls this


def _warn_of_a_precision_gap(result: TrainingResult) -> None:
    gap = result.metrics.get("validation/precision_gap", 0.0)
    if gap > LARGEST_PRECISION_GAP:
        print(
            f"Latents in the arithmetic of training differ from those in float32 by {gap:.0%} of their variance; "
            f"planning encodes in float32, and may miss goals that this model could reach.",
            file=sys.stderr,
        )


def _record(folder: RunFolder, result: TrainingResult) -> None:
    known = folder.result()
    if known.get("training", {}).get("step") == result.step:
        return  # already finished: keep what evaluation added
    scalars = {name: value for name, value in result.metrics.items() if isinstance(value, (int, float))}
    training = {
        "step": result.step,
        "checkpoint": str(result.checkpoint.relative_to(folder.path)),
        "seconds": result.seconds,
        **scalars,
    }
    folder.finish({**known, "training": training})
