"""`alewm demo`, the whole path in one command, and `alewm tasks`, what there is to plan for."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from alewm.cli.flags import Maybe
from alewm.errors import InputError

Scale = Literal["full", "smoke", "large"]
"""As in `alewm.demo`, which imports torch."""


@dataclass(frozen=True)
class Demo:
    """Record Two-Room, train ALeWM and LeWM on it, plan to held-out goals with both, and write a page about it.

    Runs on the CPU, one process per model; on a GPU with --scale large. Repeating the command continues where it
    stopped.
    """

    out: Path = Path("runs/demo")
    """Folder for the data, the runs and the report; made if it does not exist."""
    seed: int = 3072
    """Decides the episodes, the first weights and all noise of training."""
    scale: Scale = "full"
    """`full` takes minutes; `smoke` is the same path in seconds, and its numbers mean nothing; `large` is ALeWM at the
    paper's size with 10,000 episodes and a short schedule, for a GPU, where it takes minutes too."""

    WHEN_INTERRUPTED: ClassVar[str] = "Finished stages and saved checkpoints are kept; repeat the command to continue."

    def run(self) -> None:
        """Does what is missing, and prints the comparison."""
        from alewm.demo import run_demo
        from alewm.evaluation.evaluate_run import success_table
        from alewm.report.page import write_report

        demo = run_demo(self.out, scale=self.scale, seed=self.seed)
        page = write_report([self.out / name for name in demo.results], self.out / "report")
        print(success_table(demo.results))
        stages = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in demo.seconds.items())
        print(f"{stages}; {sum(demo.seconds.values()) / 60:.1f} minutes in all")
        print(page)


if TYPE_CHECKING:
    from alewm.envs.task import Task

FLOORS = {
    "two-room": (24.9, 7.3),
    "push-t": (1.0, 0.0),
    "reacher": (12.1, 0.8),
    "cube": (55.3, 49.3),
}
"""Percent of pairs that uniform random actions and no actions reach, with the default behaviour (docs/tasks.md)."""


@dataclass(frozen=True)
class Tasks:
    """List the tasks: extras to install, numbers per action, success without a model, behaviours that record data.

    The success of random actions and of no action is that of one pair per episode of the default behaviour, measured
    once. `alewm evaluate` measures both again on the very pairs that it plans to.
    """

    pictures: Maybe[Path] = None
    """Draw a start and a goal of each task into this folder, as TASK.png; it is made if it does not exist."""

    def run(self) -> None:
        """Prints the table, and the paths of the pictures if they were asked for."""
        from alewm.envs.registry import get_task, task_names

        row = "{:<10} {:<16} {:>7} {:>8} {:>8}   {}".format
        print(row("task", "needs", "actions", "random", "nothing", "recorded by"))
        for name in task_names():
            task = get_task(name)
            needs = f"extra {task.extra}" if task.extra else "-"
            floors = [f"{percent:.1f} %" for percent in FLOORS[name]] if name in FLOORS else ["-", "-"]
            recorded_by = [*task.behaviours, *(["demonstrations"] if task.demonstrations_home else [])]
            print(row(name, needs, task.action_dim, *floors, ", ".join(recorded_by) or "-"))
        if self.pictures is None:
            print("\n`alewm tasks --pictures FOLDER` draws a start and a goal of each.")
            return
        self.pictures.mkdir(parents=True, exist_ok=True)
        for name in task_names():
            print(_drawn(get_task(name), self.pictures))


def _drawn(task: "Task", folder: Path) -> str:
    """The path of the picture, or why there is none; a task that cannot be drawn does not keep others from it."""
    import gymnasium
    import numpy as np
    from PIL import Image

    if task.env_id is None:
        return f"{task.name}: no Gymnasium environment to draw"
    try:
        _ = task.env_class  # says which extra is missing
        env = gymnasium.make(task.env_id, disable_env_checker=True)
    except InputError as error:
        return f"{task.name}: {error}"
    seen, _ = env.reset(seed=0)
    env.close()
    path = folder / f"{task.name}.png"
    Image.fromarray(np.concatenate((seen["pixels"], seen["goal"]), axis=1)).save(path)
    return str(path)
