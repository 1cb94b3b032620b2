"""The folder of all runs: whoever trained a configuration there before, under whatever name, spares the next."""

from functools import cached_property
from pathlib import Path
from typing import Any

from alewm.config import to_dict
from alewm.data.collect import collect_command
from alewm.data.store import EpisodeStore
from alewm.envs.registry import get_task
from alewm.errors import InputError
from alewm.files import read_json
from alewm.runs.folder import RunFolder
from alewm.sweeps.choice import TASK_TITLES
from alewm.sweeps.run import Run, config_key, weights_key


class Library:
    """Run folders directly below `root`, and data files `NAME.h5` in `data`, named like their task.

    `data` may itself be a file, that of the only task, also one that is still to be made.
    """

    def __init__(self, root: Path, data: Path) -> None:
        self.root, self.data = root, data
        self._fingerprints: dict[str, str] = {}

    def data_path(self, task: str) -> Path:
        """The episodes of `task`."""
        is_file = self.data.is_file() or (self.data.suffix == ".h5" and not self.data.is_dir())
        return self.data if is_file else self.data / f"{task}.h5"

    def data_paths(self, run: Run) -> tuple[Path, ...]:
        """What `run` learns from, in order."""
        return tuple(self.data_path(name) for name in run.data_sets)

    def check_data(self, tasks: set[str]) -> None:
        """Refuses to begin without the data that will be needed."""
        missing = sorted(task for task in tasks if not self.data_path(task).is_file())
        if missing:
            commands = "\n".join(f"  alewm collect {task} --out {self.data_path(task)}" for task in missing)
            raise InputError(
                f"There is no data for {', '.join(missing)} in {self.data}. Record it, or put published files there "
                f"under the names in these commands:\n{commands}"
            )

    def data_notes(self, data_sets: set[str]) -> str:
        """What every caption must say about data that was recorded here instead of where published numbers are from."""
        notes = []
        for name in sorted(data_sets):
            with EpisodeStore.open(self.data_path(name)) as store:
                command = collect_command(store.attributes, store.path.name)
                task = store.attributes["task"] if command else None  # a data set may be called otherwise
            if task is not None and (note := get_task(task).note_on(command)):
                notes.append(f"{TASK_TITLES[task]}: {note}")
        return " ".join(dict.fromkeys(notes))

    def folder(self, run: Run) -> Path:
        """Where `run` is, or will be; two presets that name one configuration share a folder.

        A finished run that was watched and saved at other intervals has the same weights, and serves as well.
        """
        if run.key not in self._known:
            self._known[run.key] = self._finished.get(weights_key(to_dict(run.config)), self.root / run.name)
        return self._known[run.key]

    def holding(self, *runs: Run) -> "Library":
        """The same for whoever needs these `runs` alone: small enough to be sent to another machine."""
        library = Library(self.root, self.data)
        library._known = {run.key: self.folder(run) for run in runs}
        return library

    def below(self, folder: Path) -> "Library":
        """The same with paths that start in `folder`, for a process whose working directory may be another."""
        library = Library(folder / self.root, folder / self.data)
        library._known = {key: folder / path for key, path in self._known.items()}
        return library

    def is_trained(self, run: Run) -> bool:
        """Whether it has been trained to its end, on the data that is here now."""
        folder = self.folder(run)
        if "training" not in RunFolder(folder).result():
            return False
        data = read_json(folder / "config.json").get("data", {})
        for name in run.data_sets:
            found = (data[name] if len(run.data_sets) > 1 else data).get("fingerprint")
            if found != self._fingerprint(name):
                raise InputError(
                    f"{folder} was trained on data with fingerprint {found}, but {self.data_path(name)} has "
                    f"{self._fingerprint(name)}. Give the data it was trained on with --data, or another --runs."
                )
        return True

    def command(self, run: Run) -> str:
        """What trains `run` from a shell."""
        return run.command(self.data_paths(run), self.folder(run))

    def seconds_per_update(self) -> dict[int, float]:
        """As measured by finished runs, by the width of the encoder."""
        found: dict[int, float] = {}
        for folder in self._known.values():
            training = RunFolder(folder).result().get("training")
            if training and "seconds" in training:  # imported weights were trained elsewhere
                config: dict[str, Any] = read_json(folder / "config.json")
                found[config["model"]["encoder"]["hidden_dim"]] = training["seconds"] / training["step"]
        return found

    @cached_property
    def _known(self) -> dict[str, Path]:
        # Where two folders hold one configuration, a finished one is found.
        found = dict(sorted(self._configs.items(), key=lambda each: _is_finished(each[0])))
        return {config_key(config): folder for folder, config in found.items()}

    @cached_property
    def _finished(self) -> dict[str, Path]:
        """Finished runs by what decides their weights."""
        return {weights_key(config): folder for folder, config in self._configs.items() if _is_finished(folder)}

    @cached_property
    def _configs(self) -> dict[Path, dict[str, Any]]:
        paths = sorted(self.root.glob("*/config.json")) if self.root.is_dir() else []
        found = {path.parent: read_json(path) for path in paths}
        return {folder: config for folder, config in found.items() if "objective" in config}

    def _fingerprint(self, task: str) -> str:
        if task not in self._fingerprints:
            with EpisodeStore.open(self.data_path(task)) as store:
                self._fingerprints[task] = store.fingerprint
        return self._fingerprints[task]


def _is_finished(folder: Path) -> bool:
    return (folder / "result.json").exists()
