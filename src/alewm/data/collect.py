"""Collect episodes into a store: simulated and compressed in parallel processes, written in episode order."""

import shlex
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from alewm.data import schema
from alewm.data.codec import Compression
from alewm.data.journal import described_in, remove_finished_journal
from alewm.data.store import EpisodeStore
from alewm.data.writer import StoreWriter, journal_path, make_record, partial_path
from alewm.errors import InputError
from alewm.progress import Progress
from alewm.workers import WorkerPool

EpisodeSource = Callable[[int, Sequence[int]], Iterator[dict[str, np.ndarray]]]
"""(seed, episode numbers) -> those episodes, each determined by the seed and its number alone.

With more than one process it must be picklable: a function of a module, or a bound method of a picklable object.
"""


class RecordedEpisodes:
    """The source that repeats an existing file's numeric columns: collecting it converts the file to our layout."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __call__(self, seed: int, episodes: Sequence[int]) -> Iterator[dict[str, np.ndarray]]:
        """The recorded episodes; there is nothing for `seed` to decide."""
        with EpisodeStore.open(self.path) as store:
            for episode in episodes:
                columns = store.episode(episode)
                for name, values in columns.items():
                    if name != schema.PIXELS and schema.holds_frames(values.dtype, values.shape):
                        columns[name] = values[:: store.draw_every]  # other views were drawn when pixels were
                yield columns


class CollectionProgress(NamedTuple):
    """How far a collection has come."""

    num_done: int
    """Episodes in the file, those of an interrupted run included."""

    num_new_frames: int
    """Frames written by this run."""


def collect(
    source: EpisodeSource,
    path: str | Path,
    *,
    num_episodes: int,
    seed: int,
    attributes: Mapping[str, Any] | None = None,
    num_workers: int = 1,
    episodes_per_task: int = 16,
    compression: Compression = Compression(),  # noqa: B008 (frozen)
    on_progress: Callable[[CollectionProgress], None] | None = None,
) -> Path:
    """The path of a file with episodes 0 ... `num_episodes` - 1 of `source`.

    The same arguments give the same bytes, whatever `num_workers` and `episodes_per_task` are and however often the
    run was killed and repeated. A file that is complete already is left as it is; one that was made with other
    arguments is refused. `attributes` (the task's name, say) are stored in the file beside the seed. Where they say
    `draw_every`, the source must have frames for so many rows only.
    """
    path = Path(path)
    if num_episodes < 1 or num_workers < 1 or episodes_per_task < 1:
        raise InputError(
            f"Collecting needs at least one episode, worker and episode per task, got {num_episodes}, {num_workers} "
            f"and {episodes_per_task}."
        )
    described = {**(attributes or {}), "seed": seed, "num_episodes": num_episodes}
    if path.exists():
        _check_complete(path, described)
        remove_finished_journal(journal_path(path))  # left by a kill before cleanup
        return path
    with StoreWriter(path, attributes=described, compression=compression) as writer:
        recording = _Recording(source, seed, compression, writer.draw_every)
        remaining = range(writer.num_episodes, num_episodes)
        tasks = [remaining[i : i + episodes_per_task] for i in range(0, len(remaining), episodes_per_task)]
        num_new_frames = 0
        for record in _records(recording, tasks, min(num_workers, max(1, len(tasks)))):
            num_new_frames += writer.append_record(record)
            if on_progress is not None:
                on_progress(CollectionProgress(writer.num_episodes, num_new_frames))
    return path


_FLAGS = {
    "num_episodes": "--episodes",
    "seed": "--seed",
    "image_size": "--image-size",
    "behaviour": "--behaviour",
    "max_steps": "--max-steps",
    schema.DRAW_EVERY: "--draw-every",
    schema.FRAME_SKIP: "--frame-skip",
    schema.DRAWING: "--drawing",
    schema.SHADOW_SIZE: "--shadow-size",
}
"""What `alewm collect` stores of its flags, except how frames are compressed: that changes no frame."""

_COPY_FLAGS = {"copies": "--copies", "noise": "--noise"}
"""What it stores besides where it copied demonstrations: these, their fingerprint and whether they are held out."""


def collect_command(attributes: Mapping[str, Any], out: str) -> str | None:
    """The `alewm collect` command that makes a file with these attributes; None where no such command made it."""
    known = {"task", *_FLAGS, *_COPY_FLAGS, "demonstrations", "held_out"}
    if not {"task", "num_episodes", "seed"} <= attributes.keys() <= known:
        return None
    flags, command = {**_FLAGS, **_COPY_FLAGS}, f"alewm collect {attributes['task']}"
    if "demonstrations" in attributes:
        command += " --demonstrations PATH" + (" --held-out" if attributes.get("held_out") else "")
        del flags["num_episodes"], flags["behaviour"]  # they follow
    given = " ".join(f"{flag} {attributes[name]}" for name, flag in flags.items() if name in attributes)
    return f"{command} {given} --out {shlex.quote(out)}"


def begun_attributes(path: Path) -> dict[str, Any] | None:
    """The attributes of the file `path`, finished or only begun; None where there is nothing yet."""
    if path.exists():
        with EpisodeStore.open(path) as store:
            return dict(store.attributes)
    described = described_in(journal_path(path))
    return None if described is None else dict(described["attributes"])


def recipe_of(store: EpisodeStore) -> dict[str, Any]:
    """What a checkpoint says of how its data were made: the command, and who drew the frames, if the file says it."""
    command = collect_command(store.attributes, store.path.name)
    drawn = {name: store.attributes[name] for name in (schema.DRAWING, schema.SHADOW_SIZE) if name in store.attributes}
    return ({"made_with": command} if command else {}) | drawn


_WHERE_NOTHING_IS_SAID = {"filter": "gzip", schema.DRAW_EVERY: 1, schema.DRAWING: "mujoco", schema.SHADOW_SIZE: 0}
"""What a file has been made with if its attributes do not say."""


def _check_complete(path: Path, described: Mapping[str, Any]) -> None:
    with EpisodeStore.open(path) as store:
        found = {**_WHERE_NOTHING_IS_SAID, **store.attributes}
    wanted = {**_WHERE_NOTHING_IS_SAID, **described}
    wrong = [
        f"{name} {found.get(name)!r} instead of {wanted.get(name)!r}"
        for name in {**wanted, **found}
        if found.get(name) != wanted.get(name)
    ]
    if wrong:
        raise InputError(f"{path} exists already, with {', '.join(wrong)}. Delete it or write to another path.")


@dataclass(frozen=True)
class _Recording:
    """Settings that are sent to a worker."""

    source: EpisodeSource
    seed: int
    compression: Compression
    draw_every: int

    def records(self, episodes: Sequence[int]) -> Iterator[bytes]:
        num_made = 0
        for num_made, episode in enumerate(self.source(self.seed, episodes), 1):
            if num_made > len(episodes):  # not to be recorded under the number of another one
                break
            yield make_record(episode, self.compression, self.draw_every)
        if num_made != len(episodes):
            made = f"{num_made} episodes" if num_made < len(episodes) else "more episodes"
            raise InputError(f"The episode source made {made} when asked for {len(episodes)}.")

    def list_of_records(self, episodes: Sequence[int]) -> list[bytes]:
        return list(self.records(episodes))


def _records(recording: _Recording, tasks: Sequence[Sequence[int]], num_workers: int) -> Iterator[bytes]:
    if num_workers == 1:
        for task in tasks:
            yield from recording.records(task)
        return
    with WorkerPool(num_workers, "alewm.data.collect") as pool:
        pending: deque[Future[list[bytes]]] = deque()
        waiting = deque(tasks)
        while waiting or pending:
            # Two tasks per worker in flight keep all of them busy; more would only fill memory.
            while waiting and len(pending) < 2 * num_workers:
                pending.append(pool.submit(recording.list_of_records, waiting.popleft()))
            yield from pending.popleft().result()


@dataclass(frozen=True)
class Collected:
    """What a collection added to its file."""

    num_episodes: int
    """Episodes in the file."""
    num_new_frames: int
    """Frames recorded now; 0 if the file was complete already."""
    seconds: float
    """Time it took."""
    num_processes: int
    """Processes that shared the work."""

    @property
    def frames_per_second(self) -> float:
        """Frames made, compressed and stored per second."""
        return self.num_new_frames / self.seconds

    def in_words(self, path: Path) -> str:
        """A one-line summary."""
        size = f"{self.num_episodes:,} episodes in {path.stat().st_size / 1e6:,.1f} MB"
        if not self.num_new_frames:
            return f"complete already: {size}"
        rate = f"{self.frames_per_second:,.0f} frames/s with {self.num_processes} processes"
        return f"{self.num_new_frames:,} new frames in {self.seconds:.1f} s: {rate}; {size}"


_EPISODES_OF_AN_ESTIMATE = 32
"""New episodes after which the size of the whole file is estimated."""


def space_warning(out: Path, num_done: int, num_episodes: int) -> str:
    """What to tell the user if the disk will be full before `out` is complete; empty while there is room."""
    written = sum(path.stat().st_size for path in (partial_path(out), journal_path(out)))
    missing, free = written * (num_episodes / num_done - 1), shutil.disk_usage(out.parent).free
    if missing < free:
        return ""
    return (
        f"{out} will have about {(written + missing) / 1e9:.1f} GB. Another {missing / 1e9:.1f} GB will be written and "
        f"{free / 1e9:.1f} GB are free: make room, or interrupt, move {partial_path(out)} and {journal_path(out)} to a "
        f"larger disk and repeat the command there."
    )


def collect_watched(
    source: EpisodeSource, out: Path, title: str, *, num_episodes: int, num_workers: int, **options: Any
) -> Collected:
    """What was added to `out` now, by `alewm.data.collect.collect` with these `options`; its folder is made."""
    if out.is_dir():
        raise InputError(f"{out} is a folder. --out names the file to write, for example {out / 'data.h5'}.")
    out.parent.mkdir(parents=True, exist_ok=True)
    began, num_new_frames = time.perf_counter(), 0
    with Progress(title, num_episodes, "episodes") as bar:

        def show(now: CollectionProgress) -> None:
            nonlocal num_new_frames
            if num_new_frames == 0:
                bar.done = bar.before = now.num_done - 1  # what an interrupted run had finished
            if now.num_done == bar.before + _EPISODES_OF_AN_ESTIMATE and (
                note := space_warning(out, now.num_done, num_episodes)
            ):
                bar.say(note)
            num_new_frames = now.num_new_frames
            rate = num_new_frames / (time.perf_counter() - began)
            bar.advance(now.num_done - bar.done, f"{rate:,.0f} frames/s")

        collect(source, out, num_episodes=num_episodes, num_workers=num_workers, on_progress=show, **options)
    return Collected(num_episodes, num_new_frames, time.perf_counter() - began, num_workers)
