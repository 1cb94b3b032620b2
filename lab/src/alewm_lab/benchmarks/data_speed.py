"""Speed of recording and of reading data, and of Push-T's physics."""

import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from alewm.data.action_statistics import ActionStatistics
from alewm.data.codec import Compression, Inflate, fastest_inflater
from alewm.data.frame_sources import MappedFrames, chunk_table
from alewm.data.loader import LoaderConfig, WindowLoader
from alewm.data.store import EpisodeStore
from alewm.devices import find_device
from alewm.envs.collect_task import collect_task
from alewm.envs.push_t.demonstrations import read_demonstrations, relative_demonstrations, training_demonstrations
from alewm.envs.push_t.expert import Demonstration, demonstrate
from alewm.envs.push_t.physics import SUBSTEPS, ContactPoint, PushTWorld
from alewm.envs.push_t.render import PushTRenderer
from alewm.envs.registry import get_task
from alewm.errors import InputError
from alewm.evaluation.statistics import Proportion
from alewm.progress import Progress
from alewm.workers import WorkerPool, num_available_cores, num_processes
from alewm_lab.benchmarks.timing import print_line

_FRAMES = 200
_REPEATS = 5


class Encoded(NamedTuple):
    """One encoder on one core."""

    encoder: str
    frames_per_second: float
    bytes_per_frame: float


def compare_encoders(task_name: str, size: int) -> list[Encoded]:
    """Our encoder, where it can be compiled, and zlib at levels 6 and 1, on frames spread over a few episodes."""
    task = get_task(task_name)
    steps = 40 if task.drawing_is_slow else task.max_episode_steps
    made = task.collect_episodes(0, range(1 if task.drawing_is_slow else 4), image_size=size, max_steps=steps)
    frames = np.concatenate([episode["pixels"] for episode in made])
    frames = frames[np.unique(np.linspace(0, len(frames) - 1, _FRAMES).astype(np.int64))]
    choices = {way.encoder_in_words: way for way in (Compression(), Compression("zlib"), Compression("zlib", level=1))}
    return [_measure_encoder(way, frames) for way in choices.values()]


def _measure_encoder(compression: Compression, frames: np.ndarray) -> Encoded:
    best = float("inf")
    for _ in range(_REPEATS):
        began = time.thread_time()  # of this core alone, whatever else the machine does
        _, sizes = compression.compress_frames(frames)
        best = min(best, time.thread_time() - began)
    return Encoded(compression.encoder_in_words, len(frames) / best, float(sizes.mean()))


def bench_collect(*, task_name: str, episodes: int, image_size: int | None, jobs: int, device: str) -> None:
    """Prints the rates of drawing, of recording with and without the start of processes, and of compressing alone."""
    if episodes < 1:
        raise InputError(f"--episodes must be at least 1, got {episodes}.")
    task, where, processes = get_task(task_name), find_device(device), num_processes(jobs)
    size = image_size or task.image_size
    if where.type == "cuda":
        processes = 1
        _draw(task_name, size, range(min(episodes, 16)), device)
        drawn, seconds = _draw(task_name, size, range(episodes), device)
    else:
        drawn, seconds = _draw_in_processes(task_name, size, episodes, processes)
    print(f"{task_name}, {episodes:,} episodes of {size} x {size} pixels, {processes} processes on {where}")
    print(f"{'':<24}{'frames':>10}{'seconds':>10}{'frames/s':>12}")
    print(f"{'stepped and drawn':<24}{drawn:>10,}{seconds:>10.2f}{drawn / seconds:>12,.0f}")
    line: dict[str, Any] = {"frames": drawn, "drawn_frames_per_second": drawn / seconds}
    if where.type == "cpu":
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "episodes.h5"
            made = collect_task(task_name, file, num_episodes=episodes, seed=0, image_size=size, jobs=processes)
            num_bytes = file.stat().st_size
        rate, label = made.frames_per_second, "end to end into a file"
        print(f"{label:<24}{made.num_new_frames:>10,}{made.seconds:>10.2f}{rate:>12,.0f}")
        print(f"{num_bytes / made.num_new_frames:,.0f} bytes per frame in the file")
        encoders = compare_encoders(task_name, size)
        print(f"\n{'compressing, one core':<24}{'frames/s':>10}{'bytes/frame':>13}")
        for found in encoders:
            print(f"{found.encoder:<24}{found.frames_per_second:>10,.0f}{found.bytes_per_frame:>13,.0f}")
        line |= {
            "stored_frames_per_second": rate,
            "bytes_per_frame": num_bytes / made.num_new_frames,
            "encoders": {found.encoder: found._asdict() for found in encoders},
        }
    print_line(
        "collect", task=task_name, image_size=size, episodes=episodes, processes=processes, device=where.type, **line
    )


def _draw_in_processes(task_name: str, size: int, episodes: int, processes: int) -> tuple[int, float]:
    with WorkerPool(processes, "alewm.data.collect") as pool:
        parts = [range(first, episodes, processes) for first in range(min(processes, episodes))]
        # Once for nothing, so that every process has started and drawn before the clock runs.
        list(pool.map(_warm_up, [task_name] * processes, [size] * processes))
        began = time.perf_counter()
        done = list(pool.map(_draw, [task_name] * len(parts), [size] * len(parts), parts))
        return sum(frames for frames, _ in done), time.perf_counter() - began


def _warm_up(task_name: str, size: int) -> None:
    for _ in get_task(task_name).collect_episodes(0, range(4), image_size=size, max_steps=2):
        pass


def _draw(task_name: str, size: int, episodes: range, device: str = "cpu") -> tuple[int, float]:
    began = time.perf_counter()
    made = get_task(task_name).collect_episodes(0, episodes, image_size=size, device=device)
    return sum(len(episode["pixels"]) for episode in made), time.perf_counter() - began


def bench_loader(
    *,
    data: Path | None,
    episodes: int,
    image_size: int | None,
    batch: int,
    batches: int,
    threads: int,
) -> None:
    """Prints windows per second; without `data`, Two-Room episodes are recorded for the occasion."""
    if batches < 1:
        raise InputError(f"--batches must be at least 1, got {batches}.")
    with tempfile.TemporaryDirectory() as folder:
        path = data or Path(folder) / "episodes.h5"
        if data is None:
            collect_task("two-room", path, num_episodes=episodes, seed=0, image_size=image_size)
        with EpisodeStore.open(path) as store:
            _measure_loader(store, batch, batches, threads or num_available_cores(), path.stat().st_size)


def _measure_loader(store: EpisodeStore, batch: int, batches: int, threads: int, num_bytes: int) -> None:
    statistics = ActionStatistics.fit(store.actions)
    config = LoaderConfig(batch_size=batch, num_threads=threads)
    rows = {}
    with WindowLoader(store, range(store.num_episodes), statistics, config) as loader:
        table, description = chunk_table(store.pixels), loader.frames.description
        rows["HDF5" if isinstance(table, str) else table.decoder.library] = _rate(loader, batches)
        if not isinstance(table, str) and table.decoder is fastest_inflater():
            loader.frames = MappedFrames(store, table, Inflate())
            rows[Inflate.library] = _rate(loader, batches)
    size = store.frame_shape[0]
    print(f"{store.num_episodes:,} episodes, windows of 4 frames of {size} x {size}, batch {batch}, {threads} threads")
    print(f"{'decoder':<12}{'windows/s':>12}{'frames/s':>12}")
    for library, rate in rows.items():
        reference = "  (reference)" if library == "zlib" else ""
        print(f"{library:<12}{rate:>12,.0f}{4 * rate:>12,.0f}{reference}")
    print(f"{description}; {num_bytes / 1e6:,.1f} MB, {num_bytes / store.num_frames:,.0f} bytes per frame")
    print_line(
        "loader",
        episodes=store.num_episodes,
        frame_size=size,
        batch=batch,
        threads=threads,
        windows_per_second=rows,
        file_bytes=num_bytes,
        bytes_per_frame=num_bytes / store.num_frames,
    )


def _rate(loader: WindowLoader, num_batches: int) -> float:
    batches = loader.forever()
    for _ in range(loader.config.prefetch_batches + 2):  # until all memory has been used once: fresh pages cost time
        next(batches).release()
    began = time.perf_counter()
    for _ in range(num_batches):
        next(batches).release()
    seconds = time.perf_counter() - began
    batches.close()
    return num_batches * loader.config.batch_size / seconds


_TIMED = 8  # demonstrations whose steps and frames are timed


def bench_push_t(*, demonstrations: int, seed: int) -> None:
    """Prints the rates and the share of demonstrations that reach their first pose."""
    if demonstrations < 1:
        raise InputError(f"--demonstrations must be at least 1, got {demonstrations}.")
    made, began = [], time.perf_counter()
    with Progress("demonstrating", demonstrations, "demonstrations") as bar:
        for index in range(demonstrations):
            made.append(demonstrate(seed, index))
            bar.advance()
    seconds = (time.perf_counter() - began) / demonstrations
    reached = Proportion.of([one.first_reached is not None for one in made])
    steps = [one.first_reached for one in made if one.first_reached is not None]
    fulfilled = sum(one.poses_pursued - 1 for one in made)
    low, high = reached.interval
    share = f"{100 * (reached.rate or 0):.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
    print(f"{'expert':<10}{reached.successes} of {reached.trials} reach their pose, {share}", end="")
    print(f", after {np.median(steps):.0f} steps (median)" if steps else "")
    print(f"{'':<10}{fulfilled / len(made):.2f} poses fulfilled and {seconds:.2f} s per demonstration")

    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    physics, drawing = _rates(made[:_TIMED])
    cv2.setNumThreads(threads)
    print(f"{'physics':<10}{physics:,.0f} environment steps/s, {physics * SUBSTEPS:,.0f} substeps/s, one core")
    print(f"{'drawing':<10}{drawing:,.0f} frames/s, one core")
    print_line(
        "push-t",
        demonstrations=demonstrations,
        seed=seed,
        expert_success=reached.rate,
        expert_success_interval=reached.interval,
        seconds_per_demonstration=seconds,
        env_steps_per_second=physics,
        substeps_per_second=physics * SUBSTEPS,
        frames_per_second=drawing,
    )


def bench_human_demonstrations(path: Path) -> None:
    """Prints how far from where it ended the block ends when every demonstration in `path` is replayed."""
    file = read_demonstrations(path)
    replayed = relative_demonstrations(file, range(len(file.ends)))
    errors = np.array([demonstration.error for demonstration in replayed])
    training = set(training_demonstrations(len(file.ends)))
    actions = np.concatenate([each.actions for each in replayed if each.number in training])
    mean, std = actions.mean(0), actions.std(0)
    lengths = np.diff(file.ends, prepend=0)
    held_out_rows = sum(int(rows) for number, rows in enumerate(lengths) if number not in training)
    print(f"{len(errors)} demonstrations, {len(file.states):,} rows, {lengths.min()} to {lengths.max()} each")
    print(
        f"block after a replay, pixels from where it ended: median {np.median(errors):.2g}, mean {errors.mean():.2g}, "
        f"at most {errors.max():.2g}; {(errors < 1).sum()} below 1"
    )
    print(
        f"training file: {len(training)} of them; the others have {held_out_rows:,} rows; actions of mean "
        f"{mean[0]:.5f}, {mean[1]:.5f} and std {std[0]:.5f}, {std[1]:.5f} without noise"
    )
    print_line(
        "push-t",
        human=str(path),
        fingerprint=file.fingerprint,
        demonstrations=len(errors),
        rows=len(file.states),
        error_median=float(np.median(errors)),
        error_mean=float(errors.mean()),
        error_max=float(errors.max()),
        held_out_rows=held_out_rows,
    )


def _rates(demonstrations: list[Demonstration]) -> tuple[float, float]:
    """Environment steps and frames per second of processor time, over whole demonstrations: medians of repetitions.

    Processor time, because one core's work is asked for and others may be using the machine.
    """
    physics, drawing, draw = [], [], PushTRenderer()
    for _ in range(_REPEATS):
        seen: list[tuple[np.ndarray, list[ContactPoint]]] = []
        num_steps = sum(len(one.actions) for one in demonstrations)
        stepping = 0.0
        for one in demonstrations:
            world, actions = PushTWorld(one.start), one.actions.astype(np.float64).tolist()
            for action_x, action_y in actions:
                began = time.process_time()
                world.step(action_x, action_y)
                stepping += time.process_time() - began
                seen.append((world.state(), world.contacts()))
        began = time.process_time()
        for state, contacts in seen:
            draw(state, contacts)
        drawing.append(len(seen) / (time.process_time() - began))
        physics.append(num_steps / stepping)
    return float(np.median(physics)), float(np.median(drawing))
