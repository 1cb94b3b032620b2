"""How a kernel cuts its work: rows and columns of a tile, warps and stages, chosen by timing a few once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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

    def __str__(self) -> str:
        return f"{self.rows},{self.chunk},{self.warps},{self.stages}"


def tile_from(text: str) -> Tile:
    """The tile that `str` wrote: rows,chunk,warps,stages."""
    numbers = text.split(",")
    if len(numbers) != 4 or not all(number.strip().isdigit() for number in numbers):
        raise InputError(f"A tile is written rows,chunk,warps,stages, for example 64,32,4,3; got {text!r}.")
    tile = Tile(*map(int, numbers))
    for name, value in vars(tile).items():
        if name != "stages" and (value < 1 or value & (value - 1)):
            raise InputError(f"The {name} of a tile must be a power of two, got {value} in {text!r}.")
    return tile


# Compiled for compute capability 9.0 all of these spill nothing in their loops; two programs of four warps, or one of
# eight, fill a processor's registers.
CANDIDATES: Mapping[str, tuple[Tile, ...]] = {
    "mlp_forward": (Tile(64, 32, 4, 3), Tile(128, 64, 8, 2), Tile(64, 64, 4, 1)),
    "mlp_backward": (Tile(64, 64, 8, 2), Tile(64, 32, 4, 2), Tile(128, 64, 8, 2)),
    "qkv_forward": (Tile(64, 64, 4, 3), Tile(128, 64, 8, 3), Tile(64, 64, 4, 1)),
    "qkv_backward": (Tile(64, 64, 4, 2), Tile(128, 64, 8, 2), Tile(64, 64, 8, 2)),
    "project_forward": (Tile(64, 64, 4, 2), Tile(128, 64, 8, 2), Tile(64, 64, 4, 1)),
    "project_backward": (Tile(64, 64, 4, 2), Tile(128, 64, 8, 2), Tile(64, 64, 4, 1)),
}
"""What is tried before training, the likeliest first; where nothing was tried, the first is taken."""

_chosen: dict[tuple[str, int, int], Tile] = {}


def tile_of(kernel: str, width: int, columns: int) -> Tile:
    """The tile of `kernel` for rows of `width` and a wide matrix of so many columns."""
    return _chosen.get((kernel, width, columns)) or fitting(CANDIDATES[kernel], columns)[0]


def use_tile(kernel: str, width: int, columns: int, tile: Tile) -> None:
    """Take `tile` from now on; kernels that were recorded keep theirs."""
    _chosen[kernel, width, columns] = tile


def fitting(tiles: Sequence[Tile], columns: int) -> list[Tile]:
    """The tiles whose chunks divide `columns`, or the first with its chunk shortened until it does."""
    found = [tile for tile in tiles if columns % tile.chunk == 0]
    if found:
        return found
    chunk = columns & -columns
    return [Tile(tiles[0].rows, chunk, tiles[0].warps, tiles[0].stages)]


def timed(tiles: Sequence[Tile], call: Callable[[Tile], object]) -> dict[Tile, float | str]:
    """Milliseconds of `call` with each tile, or why the GPU could not run it."""
    from triton.runtime.errors import OutOfResources, PTXASError
    from triton.testing import do_bench

    found: dict[Tile, float | str] = {}
    for tile in tiles:
        try:
            found[tile] = float(do_bench(lambda tile=tile: call(tile), warmup=2, rep=8, return_mode="median"))
        except (OutOfResources, PTXASError) as error:
            found[tile] = str(error).splitlines()[0]
    return found


def fastest(found: Mapping[Tile, float | str]) -> Tile | None:
    """The tile of the least time, or None where none ran."""
    times = {tile: time for tile, time in found.items() if isinstance(time, float)}
    return min(times, key=lambda tile: times[tile]) if times else None
