"""Tasks of other packages: those that an installed package enters in the group `alewm.tasks`."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from alewm.envs.task import Task
from alewm.errors import InputError

GROUP = "alewm.tasks"


@cache
def entered_tasks() -> dict[str, EntryPoint]:
    """Names to where their `Task` is; nothing of it is imported yet."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def load_entered(name: str) -> Task:
    """The task that was entered under `name`; anything else found there is refused, saying who entered it."""
    entry = entered_tasks()[name]
    origin = f"entered as {entry.value!r} by {entry.dist.name if entry.dist else 'an unnamed package'}"
    try:
        task = entry.load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"The task {name!r}, {origin}, cannot be loaded: {error}") from error
    if not isinstance(task, Task) or task.name != name:
        raise InputError(f"The task {name!r}, {origin}, must be a Task of that name, found {task!r}.")
    return task
