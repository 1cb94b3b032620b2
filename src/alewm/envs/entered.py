"""Tasks of other packages: those that an installed package enters in the group `alewm.tasks`."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

GROUP = "alewm.tasks"


@cache
def entered_tasks() -> dict[str, EntryPoint]:
    """Names to where their `Task` is; nothing of it is imported yet."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}
