"""Tile sizes of the encoder's kernels (rows, chunk, warps, stages), and which encoders they support."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from alewm.model.vit import ViTConfig


def two_parts(width: int) -> tuple[int, int]:
    """`width` as a sum of two powers of two, the larger first; (0, 0) where it is none.

    >>> two_parts(192), two_parts(64), two_parts(80), two_parts(112)
    ((128, 64), (32, 32), (64, 16), (0, 0))
    """
    largest = 1 << (width.bit_length() - 1)
    left = largest if width > largest else largest // 2
    right = width - left
    return (left, right) if right and right & (right - 1) == 0 else (0, 0)


def why_not_fused(config: ViTConfig) -> str | None:
    """The reason the kernels cannot compute such an encoder's blocks, or None."""
    width, hidden, patches = config.hidden_dim, config.mlp_dim, config.num_patches
    if patches not in (64, 128, 256):
        return f"{patches} patches are not 64, 128 or 256"
    if width != 64 * config.num_heads:
        return f"heads are {width // config.num_heads} wide, not 64"
    if hidden % 64:
        return f"a hidden width of {hidden} is not a multiple of 64"
    if width > 256:
        return f"rows of {width} do not fit on the chip beside their sums"
    return None if all(two_parts(width)) else f"{width} is not the sum of two powers of two"


@dataclass(frozen=True)
class Tile:
    """Tile sizes of one kernel."""

    rows: int
    """Rows a program holds."""
    chunk: int
    """Columns of the wide matrix it takes at a time."""
    warps: int
    """Warps per program."""
    stages: int
    """Pipeline stages (`num_stages`)."""
    resident: int = 0
    """Persistent programs per multiprocessor that keep weights or sums while rows stream; 0 if they keep rows."""

    def __str__(self) -> str:
        return ",".join(map(str, vars(self).values()))


# Four warps multiply 64 rows at a time. Where weights stay, one or two programs fit on a processor of Hopper beside the
# blocks of rows under way, up to five without: then others compute while one waits. Where rows stay, every program of
# an MLP's kernels reads all weights, so that more rows ask less of the cache; two to five of these fit.
CANDIDATES: Mapping[str, tuple[Tile, ...]] = {
    "widen": (
        Tile(64, 64, 4, 3, resident=2),
        Tile(64, 64, 4, 1, resident=5),
        Tile(128, 64, 8, 1, resident=3),
        Tile(128, 64, 8, 2),
        Tile(64, 64, 4, 1),
    ),
    "narrow_backward": (
        Tile(128, 64, 8, 3, resident=1),
        Tile(64, 64, 4, 2, resident=2),
        Tile(128, 64, 8, 2),
        Tile(64, 64, 4, 1),
    ),
    "attention": (Tile(64, 64, 4, 3), Tile(64, 64, 4, 2), Tile(128, 64, 8, 2)),
    "attention_backward": (Tile(32, 128, 4, 3), Tile(64, 64, 4, 3), Tile(64, 128, 8, 3)),
    # One row, the first token's; patches a chunk at a time.
    "first_token_backward": (Tile(1, 32, 4, 3), Tile(1, 16, 4, 3), Tile(1, 64, 4, 1)),
    # Whole rows, one for each warp; backward, programs stay with their sums while rows come by.
    "add_norm": (Tile(4, 1, 4, 1), Tile(8, 1, 8, 1), Tile(2, 1, 2, 1)),
    "add_norm_backward": (
        Tile(4, 1, 4, 1, resident=8),
        Tile(4, 1, 4, 1, resident=7),
        Tile(4, 1, 4, 1, resident=16),
        Tile(2, 1, 2, 1, resident=16),
        Tile(8, 1, 8, 1, resident=4),
        Tile(16, 1, 16, 1, resident=2),
    ),
}
"""The first that the device can run and whose chunk divides the columns is used. On an H200 it was the fastest of those
tried, both where weights stay and where rows do, by `alewm-lab bench encoder-blocks`, which times them all; those of
`add_norm` were not timed by it yet."""


def tile_of(kernel: str, columns: int, *, resident: bool = False) -> Tile:
    """The tile of `kernel` for a wide matrix of so many columns; only `resident` ones if these can be run."""
    return fitting([tile for tile in CANDIDATES[kernel] if bool(tile.resident) == resident], columns)[0]


def fitting(tiles: Sequence[Tile], columns: int) -> list[Tile]:
    """The tiles whose chunks divide `columns`, or the first with a chunk that does."""
    found = [tile for tile in tiles if columns % tile.chunk == 0]
    return found or [replace(tiles[0], chunk=columns & -columns)]
