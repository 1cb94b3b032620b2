"""What a data file says of itself at a glance, before it is opened whole."""

from dataclasses import dataclass
from pathlib import Path

from alewm.data import schema
from alewm.data.checks import find_columns, open_file, read_texts


@dataclass(frozen=True)
class Label:
    """Whose episodes they are."""

    task: str | None
    """The task, where the collector recorded it; files from elsewhere do not say."""
    action_dim: int
    """Numbers in one action."""


def read_label(path: Path) -> Label:
    """The label of the file at `path`; one that is no data file is refused."""
    with open_file(path) as file:
        action = find_columns(path, file)[schema.ACTION]
        attributes, _ = read_texts(path, file)
        return Label(attributes.get("task"), int(action.shape[1]))
