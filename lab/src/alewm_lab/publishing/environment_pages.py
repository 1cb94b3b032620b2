"""A page per environment, made from its docstring, with a picture that the environment draws itself.

`make docs` makes the pages. `python -m alewm_lab.publishing.environment_pages` writes the committed pictures,
`docs/images/envs/TASK.png`, for every registered task (or for those named).
"""

import inspect
import sys
from pathlib import Path

import gymnasium
import numpy as np

from alewm.envs.registry import OUR_TASKS, get_task
from alewm.envs.task import Task
from alewm.errors import InputError
from alewm.training.presets import CAPACITIES
from alewm_lab.benchmarks.data_statistics import in_words, published_figures

PICTURE_SEEDS = (0, 1, 2)
"""Episodes shown in a picture, one per column."""

_GAP = 8

_THIN = (
    "Drawing takes most of the time: `--draw-every 5` leaves out the frames that training does not need, and four "
    "times as many episodes take as long ([how](../data.md#record-episodes)).",
    "",
)


def page(task: Task) -> str:
    """The Markdown page of `task`."""
    environment = task.env_class
    home = f"{environment.__module__}.{environment.__qualname__}"
    widths = ", ".join(f"`{task.name}-{width}`" for width in CAPACITIES)
    source, length = "", f" of at most {task.max_episode_steps} steps"
    if task.demonstrations_home is not None:
        source, length = " --demonstrations PATH", ""
    needs = f", extra `{task.extra}`" if task.extra else ""
    return "\n".join(
        (
            f"# {task.env_id}",
            "",
            f"Task `{task.name}` of the command line{needs}; `{home}`.",
            "",
            f"![Three episodes of {task.name}](../images/envs/{task.name}.png)",
            "",
            f"Three episodes (seeds {', '.join(map(str, PICTURE_SEEDS))}): the start above, the goal below.",
            "",
            inspect.cleandoc(environment.__doc__ or ""),
            "",
            "## Recorded and published data",
            f"`alewm collect {task.name}{source} --out data/{task.name}.h5` records episodes{length}. "
            f"`alewm-lab bench data data/{task.name}.h5` prints the figures of the file beside these, which are known "
            f"of the published file ([what they mean](../data.md#statistics)):",
            "",
            *_published(task),
            "",
            *(_THIN if task.drawing_is_slow else ()),
            f"Presets for `alewm train`: {widths} and their baselines (`alewm train --list`).",
            "",
        )
    )


def picture(task: Task) -> np.ndarray:
    """Starts above goals, uint8 [Y, X, 3], white between them."""
    if task.env_id is None:
        raise InputError(f"The task {task.name!r} has no Gymnasium environment, so there is no episode to show.")
    env = gymnasium.make(task.env_id, disable_env_checker=True)
    columns = []
    for seed in PICTURE_SEEDS:
        seen, _ = env.reset(seed=seed)
        across = np.full((_GAP, seen["pixels"].shape[1], 3), 255, np.uint8)
        columns += [np.concatenate((seen["pixels"], across, seen["goal"]))]
    env.close()
    between = np.full((len(columns[0]), _GAP, 3), 255, np.uint8)
    return np.concatenate([part for column in columns for part in (between, column)][1:], axis=1)


def write_pictures(folder: Path, names: tuple[str, ...]) -> list[Path]:
    """The pictures of the tasks called `names`, written into `folder`; their paths."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names:
        path = folder / f"{name}.png"
        Image.fromarray(picture(get_task(name))).save(path, optimize=True)
        written.append(path)
    return written


def _published(task: Task) -> list[str]:
    rows = [f"| {name.replace('_', ' ')} | {in_words(figure)} |" for name, figure in published_figures(task).items()]
    return ["| figure | published |", "|---|---|", *rows]


if __name__ == "__main__":
    for made in write_pictures(Path("docs/images/envs"), tuple(sys.argv[1:]) or OUR_TASKS):
        print(made)
