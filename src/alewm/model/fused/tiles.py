"""How a kernel cuts its work: rows and columns of a tile, warps and stages, chosen by timing a few once."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

from alewm.errors import InputError


@dataclass(frozen=True)
class Tile:
    """One way to cut a kernel's work."""

    rows: int
    """Rows a program holds."""
    chunk: int
    """Columns of the wide matrix it takes at a time."""
    warps: int
    """Warps per program."""
    stages: int
    """Chunks of weights in flight."""
    parts: int = 1
    """Programs that share the columns of the same rows."""

    def __str__(self) -> str:
        return ",".join(map(str, vars(self).values()))


def tile_from(text: str) -> Tile:
    """The tile that `str` wrote: rows,chunk,warps,stages,parts, or the first four of them."""
    numbers = text.split(",")
    if len(numbers) not in (4, 5) or not all(number.strip().isdigit() for number in numbers):
        raise InputError(f"A tile is written rows,chunk,warps,stages,parts, for example 128,64,8,2,1; got {text!r}.")
    tile = Tile(*map(int, numbers))
    for name, value in vars(tile).items():
        if value < 1:
            raise InputError(f"The {name} of a tile must be at least 1, got {value} in {text!r}.")
        if name in ("rows", "chunk", "warps") and value & (value - 1):
            raise InputError(f"The {name} of a tile must be a power of two, got {value} in {text!r}.")
    return tile


# Four warps multiply 64 rows at a time. Every program of an MLP's kernels reads all weights of its columns, so that
# more rows ask less of the cache. Two to five of these programs fit on a processor of Hopper, so that one computes
# while another waits for memory; with several parts they are shorter, and the last of them end together.
CANDIDATES: Mapping[str, tuple[Tile, ...]] = {
    "widen": (
        *(Tile(128, 64, 8, 1), Tile(128, 32, 8, 1), Tile(128, 64, 8, 2), Tile(128, 64, 8, 1, 3)),
        *(Tile(256, 32, 16, 1), Tile(64, 64, 4, 1), Tile(64, 32, 4, 2)),
    ),
    "narrow_backward": (
        *(Tile(128, 32, 8, 1), Tile(128, 64, 8, 2), Tile(128, 32, 8, 2), Tile(128, 32, 8, 1, 3)),
        *(Tile(256, 32, 16, 1), Tile(64, 64, 4, 1), Tile(64, 32, 4, 2)),
    ),
    "image_attention": (Tile(64, 64, 4, 3),),
    "image_attention_backward": (Tile(64, 64, 4, 3), Tile(64, 64, 4, 4), Tile(32, 64, 4, 3), Tile(64, 128, 8, 3)),
}
"""What is tried before training, the likeliest first; where nothing was tried, the first is taken."""

_COMPILERS = 8
_chosen: dict[tuple[str, int, int], Tile] = {}


def tile_of(kernel: str, width: int, columns: int) -> Tile:
    """The tile of `kernel` for rows of `width` and a wide matrix of so many columns."""
    return _chosen.get((kernel, width, columns)) or fitting(CANDIDATES[kernel], columns)[0]


def use_tile(kernel: str, width: int, columns: int, tile: Tile) -> None:
    """Take `tile` from now on; kernels that were recorded keep theirs."""
    _chosen[kernel, width, columns] = tile


def fitting(tiles: Sequence[Tile], columns: int) -> list[Tile]:
    """The tiles whose chunks divide their part of `columns`, or the first with a chunk and a part that do."""
    found = [tile for tile in tiles if columns % (tile.chunk * tile.parts) == 0]
    return found or [replace(tiles[0], chunk=columns & -columns, parts=1)]


Key = TypeVar("Key")


def timed(calls: Mapping[Key, Callable[[], object]], device: torch.device, repeats: int = 10) -> dict[Key, float | str]:
    """Milliseconds of each call, or why the device could not run it."""
    if device.type == "cuda":
        # Compiling a kernel takes seconds, most of them outside Python, so several are compiled at once.
        with ThreadPoolExecutor(_COMPILERS) as pool:
            list(pool.map(partial(_warm_up, device), calls.values()))
    return {key: _milliseconds_or_why_not(call, device, repeats) for key, call in calls.items()}


def _warm_up(device: torch.device, call: Callable[[], object]) -> None:
    # What fails here fails again where it is timed, and there it is told.
    with suppress(Exception), torch.cuda.device(device):
        torch.cuda.synchronize()  # a thread's first word to the GPU, which gives it a context
        call()


def _milliseconds_or_why_not(call: Callable[[], object], device: torch.device, repeats: int) -> float | str:
    try:
        return _milliseconds(call, device, repeats)
    except (OutOfResources, PTXASError, CompilationError) as error:
        return " ".join(str(error).split())[:200]


def _milliseconds(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """The time of one of many calls in a row, so that launching them is not what is measured."""
    for num_calls in (2, repeats):
        _wait(device)
        began = time.perf_counter()
        for _ in range(num_calls):
            call()
        _wait(device)
    return 1e3 * (time.perf_counter() - began) / repeats


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def fastest(found: Mapping[Key, float | str]) -> Key | None:
    """The key of the least time, or None where nothing ran."""
    times = {key: time for key, time in found.items() if isinstance(time, float)}
    return min(times, key=lambda key: times[key]) if times else None
