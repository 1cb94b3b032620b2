"""Recording a task's episodes into a file, with a bar for whoever waits."""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from alewm.data.codec import Compression
from alewm.data.collect import CollectionProgress, collect
from alewm.envs.registration import get_task
from alewm.errors import InputError
from alewm.progress import Progress
from alewm.workers import num_processes


@dataclass(frozen=True)
class Collected:
    """What a collection added to its file."""

    num_new_frames: int
    """Frames recorded now; 0 if the file was complete already."""
    seconds: float
    """Time it took."""
    num_processes: int
    """Processes that shared the work."""

    @property
    def frames_per_second(self) -> float:
        """Frames simulated, drawn, compressed and stored per second."""
        return self.num_new_frames / self.seconds


def collect_task(
    task_name: str,
    out: Path,
    *,
    num_episodes: int,
    seed: int,
    image_size: int | None = None,
    compression: Compression = Compression(),  # noqa: B008 (frozen)
    behaviour: str | None = None,
    max_steps: int | None = None,
    jobs: int = 0,
) -> Collected:
    """What was recorded now of the `num_episodes` episodes in `out`, by `jobs` processes (0 for one per core).

    `behaviour` names what acts (None for the task's default); a task that has a choice has it stored in the file.
    `max_steps` cuts episodes earlier than the task does.
    """
    task, processes = get_task(task_name), num_processes(jobs)
    if seed < 0 or num_episodes < 1:
        raise InputError(f"Expected a seed of 0 or more and 1 episode or more, got {seed} and {num_episodes}.")
    compression.check_installed()
    source = task.episode_source(image_size, behaviour)
    attributes: dict[str, str | int] = {"task": task.name, "image_size": image_size or task.image_size}
    if len(task.behaviours) > 1:
        attributes["behaviour"] = behaviour or task.default_behaviour
    if max_steps is not None:
        if not 1 <= max_steps <= task.max_episode_steps:
            raise InputError(
                f"--max-steps is from 1 to the {task.max_episode_steps} steps of {task.name}, got {max_steps}."
            )
        source, attributes["max_steps"] = partial(source, max_steps=max_steps), max_steps
    out.parent.mkdir(parents=True, exist_ok=True)
    began, num_new_frames = time.perf_counter(), 0
    with Progress(f"collecting {task.name}", num_episodes, "episodes") as bar:

        def show(now: CollectionProgress) -> None:
            nonlocal num_new_frames
            if num_new_frames == 0:
                bar.done = bar.before = now.num_done - 1  # what an interrupted run had finished
            num_new_frames = now.num_new_rows
            rate = num_new_frames / (time.perf_counter() - began)
            bar.advance(now.num_done - bar.done, f"{rate:,.0f} frames/s")

        collect(
            source,
            out,
            num_episodes=num_episodes,
            seed=seed,
            attributes=attributes,
            num_workers=processes,
            compression=compression,
            # Where an episode takes seconds, an interruption should not lose many, nor the last worker be alone.
            episodes_per_task=1 if task.drawing_is_slow else 16,
            on_progress=show,
        )
    return Collected(num_new_frames, time.perf_counter() - began, processes)
