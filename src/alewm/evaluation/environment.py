"""The environment a run can be evaluated in; models of other people's robots have none here."""

from alewm.data.store import EpisodeStore
from alewm.envs.registration import get_task, task_names
from alewm.envs.task import Task
from alewm.errors import InputError
from alewm.training.data_sets import DataSet

_WITHOUT = "Planning from two images and PretrainedRun.save_pretrained need neither (docs/planning.md)."


class NoEnvironmentError(InputError):
    """What a run learned from cannot be acted out here."""


def task_of(learned: DataSet) -> Task:
    """The task of a data set, with its environment; a name that no environment has is refused."""
    if learned.task not in task_names():
        raise NoEnvironmentError(
            f"There is no environment for the task {learned.task!r}; there are {', '.join(task_names())}. Success is "
            f"measured in an environment, on recorded states: enter yours (docs/own-task.md). {_WITHOUT}"
        )
    return get_task(learned.task)


def state_columns_in(store: EpisodeStore, task: Task) -> tuple[str, ...]:
    """The columns from which the task's environment is put into a recorded state; a file without them is refused."""
    missing = [name for name in task.state_columns if name not in store.column_names]
    if missing:
        raise NoEnvironmentError(
            f"{store.path} lacks the columns {', '.join(missing)}, from which the environment of {task.name!r} is put "
            f"into a recorded state. Success is measured there: record them too. {_WITHOUT}"
        )
    return task.state_columns
