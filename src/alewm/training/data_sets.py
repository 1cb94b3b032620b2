"""The data sets a run learns from or has learned from: which task each is of, and what its checkpoint says of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from alewm.data.checks import read_label
from alewm.data.normalize import ActionStatistics
from alewm.errors import InputError, unknown_name
from alewm.training.checkpoint import Description
from alewm.training.config import RunConfig

SPLITS = "splits.json"
"""The file in a run folder that says which episodes were held out."""
DATA_SETS = "data_sets"
"""Where a checkpoint of several data sets keeps what it says of each; that of one says it at the top."""


@dataclass(frozen=True)
class DataSet:
    """What a checkpoint says of one data set."""

    task: str
    """The task whose episodes it holds."""
    statistics: ActionStatistics
    """Of its training actions."""
    data: dict[str, Any]
    """Path and fingerprint of its file, and how it was made; empty for a model that no file was named for."""
    splits: str
    """The file in the run folder that says which of its episodes were held out."""

    @property
    def fingerprint(self) -> str | None:
        """Of its file; None for an imported model, whose data are unknown."""
        return self._known("fingerprint")

    @property
    def path(self) -> str | None:
        """Where its file was; None for a model that was imported without one."""
        return self._known("path")

    def _known(self, name: str) -> str | None:
        if name not in self.data:
            raise _foreign()
        found: str | None = self.data[name]
        return found


def data_sets_of(description: Description) -> dict[str, DataSet]:
    """What a checkpoint learned from, by name; the only data set of a run is called like its task."""
    extras, config = description.extras, description.config
    if DATA_SETS in extras:
        return {
            name: _data_set(extras[DATA_SETS][name], task, splits_name(name)) for name, task in config.data_sets.items()
        }
    return {config.task: _data_set(extras, config.task, SPLITS)}


def data_set_of(description: Description, name: str = "") -> DataSet:
    """The data set called `name`, which may be left out where there is only one."""
    found = data_sets_of(description)
    if not name and len(found) > 1:
        raise InputError(f"The model learned from several data sets, {', '.join(found)}; say which one is meant.")
    if name and name not in found:
        raise unknown_name("data set of this run", name, found)
    return found[name] if name else next(iter(found.values()))


def splits_name(data_set: str) -> str:
    """The file in the folder of a run of several data sets that says which episodes of one were held out."""
    return f"splits-{data_set}.json"


def named_tasks(config: RunConfig, paths: Sequence[Path]) -> RunConfig:
    """`config` for the data in `paths`: with several files and one task, the tasks that the files are labelled with."""
    names = list(config.data_sets)
    if len(names) == len(paths):
        return config
    if len(names) > 1:
        raise InputError(
            f"The configuration is for {len(names)} data sets, {', '.join(names)}, but {len(paths)} data files were "
            f"given. Give a --data FILE for each, in this order."
        )
    labels = [read_label(path).task for path in paths]
    for path, label in zip(paths, labels, strict=True):
        if label is None:
            raise InputError(
                f"{path} does not say which task its episodes are of. Name the tasks of all files in their order, for "
                f"example --set task={'+'.join(label or config.task for label in labels)}."
            )
    return replace(config, task="+".join(label for label in labels if label is not None))


def _data_set(values: dict[str, Any], task: str, splits: str) -> DataSet:
    if "action_statistics" not in values:
        raise _foreign()
    return DataSet(task, ActionStatistics.from_dict(values["action_statistics"]), values.get("data", {}), splits)


def _foreign() -> InputError:
    return InputError("The checkpoint does not say which data it learned from; it was not written by `alewm train`.")
