"""The data file a run learned from, with the episodes that were held out from it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alewm.data.splits import Splits, load_or_make_splits
from alewm.data.store import EpisodeStore
from alewm.errors import InputError
from alewm.training.data_sets import DataSet


def own_data_path(run: Path, learned: DataSet, moved_to: Path | None) -> Path:
    """The file `run` learned from; at `moved_to` if that is given."""
    if moved_to is not None:
        return moved_to
    if learned.path is None:
        raise InputError(f"{run} was imported without a data file. Say with --data which episodes to evaluate it on.")
    path = Path(learned.path)
    if not path.exists():
        raise InputError(
            f"{run} was trained on {path}, which is no longer there. Say where it is with --data"
            f"{_how_to_make(learned.data)}."
        )
    return path


@contextmanager
def open_own_data(run: Path, learned: DataSet, path: Path) -> Iterator[tuple[EpisodeStore, Splits]]:
    """The file at `path`, which must be the one `run` learned from, and its splits; any file for an imported model."""
    with EpisodeStore.open(path) as store:
        if learned.fingerprint is None:
            yield store, load_or_make_splits(store)
            return
        if store.fingerprint != learned.fingerprint:
            raise InputError(
                f"{run} was trained on data with fingerprint {learned.fingerprint}, but {path} has "
                f"{store.fingerprint}: what is held out there may have been trained on. Give the run's own data file"
                f"{_how_to_make(learned.data)}."
            )
        yield store, Splits.load(run / learned.splits)


def _how_to_make(data: dict[str, Any]) -> str:
    """How a file that `alewm collect` made is made again, as the end of a sentence; nothing for other files."""
    return f", or make it again: {data['made_with']}" if "made_with" in data else ""
