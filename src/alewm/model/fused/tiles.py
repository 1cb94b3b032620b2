"""How a kernel cuts its work: rows and columns of a tile, warps and stages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
        Tile(128, 64, 8, 2),
        Tile(128, 64, 8, 1),
        Tile(128, 32, 8, 1),
        Tile(128, 64, 8, 1, 3),
        Tile(64, 64, 4, 1),
    ),
    "narrow_backward": (Tile(128, 64, 8, 2), Tile(64, 64, 4, 1), Tile(128, 32, 8, 2), Tile(64, 32, 4, 2)),
    "attention": (Tile(64, 64, 4, 3), Tile(64, 64, 4, 2), Tile(128, 64, 8, 2)),
    "attention_backward": (Tile(64, 64, 4, 3), Tile(32, 128, 4, 3), Tile(64, 128, 8, 3), Tile(32, 64, 4, 3)),
}
"""The first is used: on an H200 the fastest of those tried, but for attention's way back, where 32,128,4,3 took 5 %
less and 64,64,4,3 had been compared with float32 more often. `alewm bench encoder-blocks` times them all."""


def tile_of(kernel: str, columns: int) -> Tile:
    """The tile of `kernel` for a wide matrix of so many columns."""
    return fitting(CANDIDATES[kernel], columns)[0]


def fitting(tiles: Sequence[Tile], columns: int) -> list[Tile]:
    """The tiles whose chunks divide their part of `columns`, or the first with a chunk and a part that do."""
    found = [tile for tile in tiles if columns % (tile.chunk * tile.parts) == 0]
    return found or [replace(tiles[0], chunk=columns & -columns, parts=1)]
