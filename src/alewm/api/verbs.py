"""`alewm.train`, `alewm.evaluate` and `alewm.collect`: the commands of these names as functions.

Defaults, checks and messages are the commands' own: each function fills in the command and runs it. Further options are
those of `alewm VERB --help`, with underscores for dashes.
"""

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from alewm.api.loaded import LoadedModel, load
from alewm.cli.collect import Collect
from alewm.cli.evaluate import Evaluate
from alewm.cli.train import Train
from alewm.data.store import EpisodeStore
from alewm.errors import InputError, unknown_name
from alewm.evaluation.evaluate_run import EvaluatedRun
from alewm.training.checkpoint import latest_checkpoint, read_description

Paths = str | Path | Iterable[str | Path]
_PATHS = ("data", "out", "demonstrations")


def collect(task: str, out: str | Path, **options: Any) -> EpisodeStore:
    """The file `out` with recorded episodes of `task`, open for reading; those that are there already are kept.

    ```python
    store = alewm.collect("two-room", "data/two-room.h5", episodes=400, image_size=64)
    ```

    Options are those of `alewm collect --help`: episodes, seed, image_size, behaviour, max_steps, jobs, ...
    """
    out = Path(out)
    if "filter" in options:  # what the flag is called
        options["compression"] = options.pop("filter")
    _command(Collect, "collect", task=task, out=out, **options).collected()
    return EpisodeStore.open(out)


def train(preset: str, data: Paths, out: str | Path | None = None, **options: Any) -> LoadedModel:
    """The model that was trained from the episodes in `data`, in the run folder `out` (by default runs/PRESET-SEED).

    ```python
    model = alewm.train("two-room-tiny", "data/two-room.h5", steps=200)
    ```

    A run that was interrupted goes on; one that is finished is loaded. Options are those of `alewm train --help`: seed,
    steps, batch_size, learning_rate, device, ...; `set` is a mapping, for example `{"model.prior_degree": 2}`. Of
    several files, the model plans actions of the first; `alewm.load(folder, data_set=...)` names another.
    """
    if isinstance(settings := options.get("set"), dict):
        options["set"] = tuple(f"{name}={json.dumps(value)}" for name, value in settings.items())
    if isinstance(log := options.get("log"), str):
        options["log"] = (log,)
    command = _command(
        Train, "train", preset=preset, data=_paths(data), out=None if out is None else Path(out), **options
    )
    folder = command.trained()
    data_sets = read_description(latest_checkpoint(folder)).config.data_sets
    return load(folder, device=command.device, data_set=next(iter(data_sets)))


def evaluate(run: str | Path | LoadedModel, **options: Any) -> EvaluatedRun:
    """The closed-loop success of a run on held-out pairs, written into its folder as `alewm evaluate` does.

    ```python
    found = alewm.evaluate("pretrained/two-room-tiny", episodes=20)
    found.result["success_rate"], found.records[0].capacity
    ```

    Options are those of `alewm evaluate --help`: data, split, episodes, capacity, candidates, iterations, executed, ...
    """
    folder = run.path if isinstance(run, LoadedModel) else Path(run)
    command = _command(Evaluate, "evaluate", runs=(folder,), **options)
    if len(several := command.data_sets(folder)) > 1:
        raise InputError(f"{folder} learned from several data sets; name one, for example task={several[0]!r}.")
    found: EvaluatedRun = next(iter(command.evaluated().values()))
    return found


def _command(kind: Any, verb: str, **options: Any) -> Any:
    """The command with these options; one that it does not have is refused with the nearest that it has."""
    known = [field.name for field in fields(kind) if field.name != "list"]  # which only prints
    for name in options:
        if name not in known:
            raise unknown_name(f"option of alewm.{verb}", name, known)
    paths = {name: Path(value) for name, value in options.items() if name in _PATHS and isinstance(value, str)}
    return kind(**{**options, **paths})


def _paths(data: Paths) -> tuple[Path, ...]:
    return (Path(data),) if isinstance(data, (str, Path)) else tuple(map(Path, data))
