"""Record a task's episodes into a file, with a progress bar."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from alewm.data import schema
from alewm.data.codec import Compression
from alewm.data.collect import Collected, begun_attributes, collect_watched
from alewm.envs.registry import get_task
from alewm.envs.simulated import Drawing, DrawingChoice
from alewm.envs.task import Task
from alewm.errors import InputError
from alewm.shapes import FRAME_SKIP
from alewm.workers import num_processes

DEFAULT_EPISODES = 10_000


@dataclass(frozen=True)
class Demonstrations:
    """Which demonstrations to record copies of, in place of a behaviour."""

    path: Path
    """The file that people gave."""
    copies: int | None = None
    """Episodes per demonstration; None for as many as the published file has."""
    noise: float | None = None
    """Strength of the noise on actions; None for the task's own choice."""
    held_out: bool = False
    """Those that the published training file leaves out, in place of those it is made of."""

    def options(self) -> dict[str, Any]:
        """What was said, as arguments of a task's `copy_demonstrations`."""
        said = {"copies": self.copies, "noise": self.noise}
        return {"held_out": self.held_out, **{name: value for name, value in said.items() if value is not None}}


def collect_task(
    task_name: str,
    out: Path,
    *,
    num_episodes: int | None = None,
    seed: int,
    image_size: int | None = None,
    behaviour: str | None = None,
    demonstrations: Demonstrations | None = None,
    max_steps: int | None = None,
    draw_every: int = 1,
    frame_skip: int | None = None,
    drawing: DrawingChoice = "auto",
    shadow_size: int = 0,
    jobs: int = 0,
) -> Collected:
    """What was recorded now of the `num_episodes` episodes in `out`, by `jobs` processes (0 for one per core).

    `behaviour` names what acts (None for the task's default); a task that has a choice has it stored in the file. With
    `demonstrations` their copies are recorded, all of them, and nothing else acts.
    `max_steps` cuts episodes earlier than the task does. `draw_every` leaves out the frames of the rows between those
    where windows may start. `frame_skip` is stored in the file, and training takes it from there. `drawing` and
    `shadow_size` (0 for the model's own) are for tasks with a choice of renderers, whose files say what was chosen;
    auto goes on as a file at `out` was begun.
    """
    task, processes = get_task(task_name), num_processes(jobs)
    copied = None
    if demonstrations is not None:
        if num_episodes is not None or behaviour is not None:
            raise InputError(
                "--demonstrations are copied as often as --copies says, and nothing else acts: leave out --episodes "
                "and --behaviour."
            )
        copied, facts = task.copy_demonstrations(demonstrations.path, **demonstrations.options())
    if num_episodes is None:
        num_episodes = DEFAULT_EPISODES if copied is None else copied.num_episodes
    if num_episodes < 1:
        raise InputError(f"--episodes must be at least 1, got {num_episodes}.")
    if seed < 0:
        raise InputError(f"--seed must not be negative, got {seed}.")
    if frame_skip is not None and frame_skip < 1:
        raise InputError(f"--frame-skip is a number of environment steps, 1 or more; got {frame_skip}.")
    apart = frame_skip or FRAME_SKIP
    if draw_every < 1 or apart % draw_every:
        raise InputError(f"--draw-every is 1 or {apart}: windows have frames {apart} steps apart; got {draw_every}.")
    drawn = _drawing(task, out, drawing, shadow_size)
    # Rendered scenes have texture, which zlib makes smaller than our encoder does. It takes as long as drawing in
    # batches, so only where MuJoCo draws, which takes longer, it costs nothing.
    is_drawn_slowly = task.drawing_is_slow and (drawn is None or drawn.renderer == "mujoco")
    source = task.episode_source(image_size, behaviour, draw_every, copied, drawn)
    attributes: dict[str, str | int] = {"task": task.name, "image_size": image_size or task.image_size}
    if copied is not None:
        attributes |= {"behaviour": "demonstrations", **facts}
    elif len(task.behaviours) > 1 or task.demonstrations_home is not None:
        attributes["behaviour"] = behaviour or task.default_behaviour
    if max_steps is not None:
        if not 1 <= max_steps <= task.max_episode_steps:
            raise InputError(
                f"--max-steps is from 1 to the {task.max_episode_steps} steps of {task.name}, got {max_steps}."
            )
        source, attributes["max_steps"] = partial(source, max_steps=max_steps), max_steps
    if drawn is not None:
        attributes |= drawn.attributes()
    if draw_every > 1:
        attributes[schema.DRAW_EVERY] = draw_every
    if frame_skip is not None:
        attributes[schema.FRAME_SKIP] = frame_skip
    return collect_watched(
        source,
        out,
        f"collecting {task.name}",
        num_episodes=num_episodes,
        num_workers=processes,
        seed=seed,
        attributes=attributes,
        compression=Compression("zlib" if is_drawn_slowly else "alewm"),
        # Where an episode takes seconds, an interruption should not lose many, nor the last worker be alone.
        episodes_per_task=1 if task.drawing_is_slow else 16,
    )


def _drawing(task: Task, out: Path, choice: DrawingChoice, shadow_size: int) -> Drawing | None:
    """How the frames of `task` are drawn; None where it has no choice of renderers, and where it draws as ever.

    Files from before there was a choice say nothing, and what was begun is continued as it was begun.
    """
    if not task.has_renderers:
        if choice != "auto" or shadow_size:
            raise InputError(f"{task.name} has one way to draw its frames: leave out --drawing and --shadow-size.")
        return None
    if shadow_size and not _SHADOW_SIZES[0] <= shadow_size <= _SHADOW_SIZES[1]:
        low, high = _SHADOW_SIZES
        raise InputError(f"--shadow-size is from {low} to {high} texels, got {shadow_size}.")
    if choice == "auto" and (begun := begun_attributes(out)) is not None:
        return Drawing.of(begun) if schema.DRAWING in begun else None
    return task.resolve_drawing(choice, shadow_size)


_SHADOW_SIZES = (16, 16384)
