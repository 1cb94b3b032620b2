"""How fast and how faithfully frames of MuJoCo tasks are drawn in batches, beside MuJoCo's own on this machine."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from alewm.data.codec import Compression
from alewm.devices import find_device
from alewm.envs.batched_drawing import MujocoSimulator, poses_of, triangle_scene, triton_works
from alewm.envs.registry import get_task
from alewm.errors import InputError
from alewm.kernels.raster import CRenderer, TriangleScene
from alewm.shapes import Float, Tensor, UInt8
from alewm_lab.benchmarks.timing import check_has_kernels, kernel_table, print_line, wait_for

MOST_FROM_MESA = {"reacher": (0.02, 5e-4), "cube": (0.2, 5e-3)}
MOST_FROM_A_CARD = {"reacher": (0.2, 1e-2), "cube": (0.2, 5e-3)}
"""Limits of agreement: mean difference in grey levels, share of pixels off by over 8.

An NVIDIA card draws the edges of what moves otherwise than Mesa: there the two differ by as much as ours from the card
(docs/drawing.md), twice of which is allowed.
"""

_OFF = 8
_EPISODES = 4


class Seconds:
    """Time that passed inside of its blocks: on the clock, and of processors, which other programs do not stretch."""

    def __init__(self) -> None:
        self.clock = self.cores = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.clock += time.perf_counter() - self._began[0]
        self.cores += time.process_time() - self._began[1]


class RecordedStates:
    """States of simulated episodes, evenly spaced: MuJoCo's frames and the poses that a batch is drawn from."""

    def __init__(self, task_name: str, num_frames: int, shadow_size: int = 0) -> None:
        task = get_task(task_name)
        simulator: Any = getattr(task.vector_env_class, "simulator_class", None)
        if not task.has_renderers or not issubclass(simulator, MujocoSimulator):
            raise InputError(f"{task_name} is not drawn by MuJoCo; choose reacher or cube.")
        self.physics = Seconds()
        episodes = list(task.collect_episodes(0, range(1), draw_every=0))  # the first builds the model
        with self.physics:
            episodes += task.collect_episodes(0, range(1, _EPISODES), draw_every=0)
        rows = {name: np.concatenate([episode[name] for episode in episodes]) for name in task.state_columns}
        count = len(next(iter(rows.values())))
        self.num_timed_rows = count - len(next(iter(episodes[0].values())))
        self.scene, geoms = triangle_scene(simulator.camera(shadow_size))
        world, camera = simulator(), simulator.camera(shadow_size)
        frames, poses, self.mujoco = [], [], Seconds()
        for row in np.linspace(0, count - 1, num_frames).astype(int):
            world.load({name: column[row] for name, column in rows.items()})
            with self.mujoco:
                frames.append(camera(world.data))
            poses.append(poses_of(world.data, geoms))
        self.frames: UInt8[np.ndarray, "F Y X 3"] = np.stack(frames)
        self.poses: Float[np.ndarray, "F G 12"] = np.stack(poses)

    def difference(self, drawn: UInt8[np.ndarray, "F Y X 3"]) -> tuple[float, float]:
        """Mean difference from MuJoCo's frames in grey levels, and the share of pixels off by more than 8."""
        error = np.abs(drawn.astype(np.int16) - self.frames)
        return float(error.mean()), float((error.max(-1) > _OFF).mean())


def bench_drawing(
    *,
    task_name: str,
    frames: int,
    repeats: int,
    threads: tuple[int, ...],
    shadow_size: int,
    device: str,
    blocks: tuple[int, ...],
    edges: tuple[float, ...],
    tiles: tuple[int, ...],
    casting: tuple[int, ...],
    batches: tuple[int, ...],
    picture: Path | None = None,
    profile: bool = False,
) -> None:
    """Prints frames per second and agreement of every path that works here, and what compressing the frames costs.

    `picture` gets the first and the middle state: MuJoCo's frame, ours in C, and eight times their difference.
    """
    if min(frames, repeats, *threads, *blocks, *tiles, *casting, *batches) < 1:
        raise InputError("Frames, repeats, threads, blocks, --tiles, --casting and batches are 1 or more.")
    where = find_device(device)
    if profile:
        check_has_kernels(where)
    states = RecordedStates(task_name, frames, shadow_size)
    scene = states.scene
    print(f"{task_name}: {len(scene.triangles)} triangles, shadow map {scene.shadow_size}, {frames} recorded states")
    print(f"{'':<60}{'frames/s':>10}{'per core':>10}{'mean diff.':>12}{'off by > 8':>12}")
    rows = [_row("physics alone, rows", states.num_timed_rows, states.physics), _row("MuJoCo", frames, states.mujoco)]
    for count in threads:
        drawn, spent = _timed(CRenderer(scene, count).draw, states.poses, repeats)
        rows.append(_row(f"C, {count} thread{'s' if count > 1 else ''}", frames, spent, *states.difference(drawn)))
    if where.type == "cuda" and triton_works():
        sizes = _different_sizes(blocks, edges, tiles, casting)
        rows += [_row(*found) for found in _on_gpu(states, where, repeats, sizes, batches, profile)]
    else:
        print("Triton on a GPU: not measured, there is none here")
    for way in (Compression(), Compression(encoder="zlib")):
        (_, sizes), spent = _timed(way.compress_frames, states.frames, repeats)
        rows.append(_row(f"compressing, {way.encoder_in_words}, {sizes.mean():.0f} bytes", frames, spent))
    if picture is not None:
        _save_picture(picture, states)
    print_line("drawing", task=task_name, frames=frames, shadow_size=scene.shadow_size, rows=rows)


def _save_picture(path: Path, states: RecordedStates) -> None:
    chosen = [0, len(states.poses) // 2]
    own, ours = states.frames[chosen], CRenderer(states.scene).draw(states.poses[chosen])
    difference = np.minimum(8 * np.abs(own.astype(np.int16) - ours), 255).astype(np.uint8)
    sheet = np.concatenate([np.concatenate(row, 1) for row in zip(own, ours, difference, strict=True)])
    Image.fromarray(sheet).save(path, optimize=True)


def _row(
    name: str, frames: int, spent: Seconds, mean: float | None = None, share: float | None = None
) -> dict[str, Any]:
    agreement = "" if mean is None or share is None else f"{mean:>12.4f}{share:>12.4%}"
    print(f"{name:<60}{frames / spent.clock:>10.1f}{frames / spent.cores:>10.1f}{agreement}", flush=True)
    rates = {"frames_per_second": frames / spent.clock, "frames_per_core_second": frames / spent.cores}
    return {"name": name, **rates, "mean_difference": mean, "share_off": share}


def _timed(call: Callable[[np.ndarray], Any], given: np.ndarray, repeats: int) -> tuple[Any, Seconds]:
    """What `call` gives, and the time of the fastest of `repeats` calls after it, by the time of processors."""
    made, spent = call(given), [Seconds() for _ in range(repeats)]
    for each in spent:
        with each:
            call(given)
    return made, min(spent, key=lambda each: each.cores)


def _different_sizes(
    blocks: Sequence[int], edges: Sequence[float], tiles: Sequence[int], casting: Sequence[int]
) -> list[tuple[int, float, int, int]]:
    """Every combination once; a program that draws the shadow map takes no more triangles than a block has."""
    asked = itertools.product(blocks, edges, tiles, casting)
    return list(dict.fromkeys((block, edge, tile, min(block, cast)) for block, edge, tile, cast in asked))


def _on_gpu(
    states: RecordedStates,
    where: torch.device,
    repeats: int,
    sizes: Iterable[tuple[Any, ...]],
    batches: Sequence[int],
    profile: bool,
) -> Iterator[tuple[str, int, Seconds, float, float]]:
    """One row for every batch and combination of sizes: of blocks, the longest edge, tiles, and blocks of casting.

    After the last, with `profile`, prints the kernels of its draw.
    """
    from alewm.kernels.raster_triton import Blocks, TritonRenderer

    for block, edge, tile, casting in sizes:
        renderer = TritonRenderer(states.scene, where, Blocks(block, tile, edge, casting=casting))
        agreement = states.difference(renderer.draw(states.poses).cpu().numpy())
        for batch in batches:
            poses = np.resize(states.poses, (batch, *states.poses.shape[1:]))

            def draw(given: np.ndarray, renderer: TritonRenderer = renderer) -> Tensor:
                drawn = renderer.draw(given)
                wait_for(where)
                return drawn

            _, spent = _timed(draw, poses, repeats)
            name = f"Triton, block {block}, edge {edge:g}, tile {tile}, casting {casting}, batch {batch}"
            yield name, batch, spent, *agreement
    if profile:
        print(f"one draw, {name}: {kernel_table(partial(draw, poses), where)}")


def compare_renderers(
    task_name: str,
    num_frames: int,
    draw: Callable[[TriangleScene], Callable[[np.ndarray], np.ndarray]],
    limits: tuple[float, float],
) -> dict[str, tuple[float, float]]:
    """What is found and what is allowed, by name: difference from MuJoCo's frames, and between two drawings."""
    states = RecordedStates(task_name, num_frames)
    renderer = draw(states.scene)
    frames = renderer(states.poses)
    mean, share = states.difference(frames)
    repeated = float((renderer(states.poses) != frames).any(-1).mean())
    return {
        f"{task_name} in batches: mean difference from MuJoCo": (mean, limits[0]),
        f"{task_name} in batches: pixels off by more than 8": (share, limits[1]),
        f"{task_name} in batches: pixels that a repeat changes": (repeated, 0.0),
    }
