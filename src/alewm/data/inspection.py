"""Describe a data file: its columns, episodes and statistics, its problems, and a picture of its frames."""

import io
from collections.abc import Iterable
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

from alewm.data import schema
from alewm.data.checks import open_file, read_by_hdf5
from alewm.data.splits import MIN_HELD_OUT_LENGTH, find_families
from alewm.data.store import EpisodeStore
from alewm.files import write_bytes

NUM_EPISODES = 6
NUM_FRAMES = 8
_TILE, _GAP = 96, 4
_PAPER = (51, 65, 85)  # a colour that few frames have at their edges


def contact_sheet(store: EpisodeStore, num_episodes: int = NUM_EPISODES, num_frames: int = NUM_FRAMES) -> Image.Image:
    """One row per episode, spread over the file; its frames from the first to the last, spread over the episode."""
    episodes = _spread(store.num_episodes, num_episodes)
    height, width, _ = store.frame_shape
    scale = _TILE / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    drawn = [store.drawn_rows([int(episode)]) for episode in episodes]
    columns = min(num_frames, max(map(len, drawn)))
    sheet = Image.new("RGB", (columns * (size[0] + _GAP) - _GAP, len(episodes) * (size[1] + _GAP) - _GAP), _PAPER)
    for y, rows in enumerate(drawn):
        for x, frame in enumerate(store.frames(rows[_spread(len(rows), columns)])):
            # Small frames are enlarged as they are, so that their pixels can be seen.
            way = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BOX
            sheet.paste(Image.fromarray(frame).resize(size, way), (x * (size[0] + _GAP), y * (size[1] + _GAP)))
    return sheet


def write_contact_sheet(store: EpisodeStore, path: Path) -> Path:
    """`path`, after the sheet was written there as PNG in one step."""
    picture = io.BytesIO()
    contact_sheet(store).save(picture, "png")
    write_bytes(path, picture.getvalue())
    return path


def _spread(count: int, wanted: int) -> np.ndarray:
    """At most `wanted` numbers from 0 to `count` - 1, the first and the last among them, evenly apart."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).round().astype(np.int64))


Figure = int | float | list[float]
"""One statistic: a number, or one per action dimension."""


def file_figures(episodes: Iterable[np.ndarray]) -> dict[str, Figure]:
    """Figures of a data file, from the actions `[T, A]` of its episodes; an action with a NaN does not count.

    These are `episodes`, `rows`, `length_*`; per dimension `action_*`; shares of components and rows at the bounds:
    `action_saturated_share` is the share of components at or beyond ±1, `action_outside_share` that of rows with a
    component strictly beyond. `action_autocorrelation` relates an action to the next of its episode.
    """
    lengths, taken_actions, is_followed = list[int](), list[np.ndarray](), list[np.ndarray]()
    for actions in episodes:
        lengths.append(len(actions))
        taken = ~np.isnan(actions).any(axis=1)
        taken_actions.append(actions[taken])
        # Whether the next action taken is the next one in time: not across a NaN, nor across episodes.
        is_followed.append(np.append(taken[1:], False)[taken])
    figures: dict[str, Figure] = {
        "episodes": len(lengths),
        "rows": sum(lengths),
        "length_mean": float(np.mean(lengths)),
        "length_min": min(lengths),
        "length_max": max(lengths),
    }
    every = np.concatenate(taken_actions).astype(np.float64)
    if len(every) == 0:
        return figures
    first = np.flatnonzero(np.concatenate(is_followed))
    size = np.abs(every)
    return figures | {
        "action_mean": every.mean(axis=0).tolist(),
        "action_std": every.std(axis=0).tolist(),
        "action_min": every.min(axis=0).tolist(),
        "action_max": every.max(axis=0).tolist(),
        "action_saturated_share": float((size >= 1).mean()),
        "action_outside_share": float((size > 1).any(axis=1).mean()),
        "action_autocorrelation": _correlation(every[first], every[first + 1]).tolist(),
    }


def _correlation(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Pearson's correlation of each column; 0 where one of them never moves."""
    if len(left) == 0:
        return np.zeros(left.shape[1])
    left, right = left - left.mean(axis=0), right - right.mean(axis=0)
    scale = np.sqrt((left**2).mean(axis=0) * (right**2).mean(axis=0))
    correlation: np.ndarray = (left * right).mean(axis=0) / np.where(scale > 0, scale, 1.0)
    return correlation


_NUM_LOOKED_AT = 64
"""Pairs of neighbouring frames that are compared."""

_FILTERS = {1: "gzip", 2: "shuffle", 32001: "blosc", 32015: "zstd", 32004: "lz4", 32000: "lzf"}


def describe_columns(path: Path) -> str:
    """A table of everything at the root of an HDF5 file: name, dtype, shape, chunk, filters, bytes.

    Asks nothing of the file but that it is HDF5, so that one that cannot be used can at least be looked at.
    """
    lines = [("column", "dtype", "shape", "chunk", "filters", "bytes")]
    with open_file(path) as file, read_by_hdf5(path):
        for name in file:
            try:
                lines.append(_describe_item(file, name))
            except (OSError, RuntimeError, KeyError, ValueError, TypeError):
                lines.append((_printable(name), "damaged", "", "", "", ""))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _describe_item(file: h5py.File, name: str) -> tuple[str, str, str, str, str, str]:
    link, shown = file.get(name, getlink=True), _printable(name)
    if not isinstance(link, h5py.HardLink):
        return shown, "link", "", "", "", ""
    item = file[name]
    if isinstance(item, h5py.Group):
        return shown, "group", f"{len(item)} entries", "", "", ""
    if not isinstance(item, h5py.Dataset):
        return shown, "type", "", "", "", ""
    chunk = "-" if item.chunks is None else _by(item.chunks)
    return shown, str(item.dtype), _by(item.shape), chunk, _filters(item), f"{item.id.get_storage_size():,}"


def _printable(name: str) -> str:
    return name.encode(errors="backslashreplace").decode()


def describe_episodes(store: EpisodeStore) -> str:
    """Episodes, lengths, windows, actions and attributes of a sound file, a line each."""
    lengths, shape = store.lengths, store.window_shape
    short, middle, long = np.percentile(lengths, [5, 50, 95])
    height, width, _ = store.frame_shape
    lines = [
        f"{store.num_episodes:,} episodes, {store.num_rows:,} rows, frames of {height} x {width}",
        f"lengths {lengths.min()} to {lengths.max()}, mean {lengths.mean():.1f}, 5 % {short:.0f}, median {middle:.0f}, "
        f"95 % {long:.0f}",
        f"{len(store.windows(range(store.num_episodes), shape)):,} training windows of {shape.num_frames} frames, "
        f"{shape.frame_skip} rows apart",
        f"fingerprint {store.fingerprint}",
        _describe_version(store),
    ]
    if store.draw_every > 1:
        lines.append(f"one of {store.draw_every} rows was drawn: {store.num_frames:,} frames")
    lines += [f"{name}: {value}" for name, value in sorted(store.attributes.items())]
    if store.encoder is not None:
        lines.append(f"frames compressed by {store.encoder}")
    families = find_families(store)
    if families is not None:
        lines.append(f"{families.count} families of copies, {families.origin}")
    return "\n".join([*lines, "", _describe_actions(store)])


def _describe_version(store: EpisodeStore) -> str:
    made = "no file version: made elsewhere" if store.version is None else f"file version {store.version}"
    if store.frame_checksums() is None:
        return f"{made}; no checksums"
    missing = [name for name in store.columns_without_checksums if name != schema.PIXELS]
    if store.version == schema.FILE_VERSION and not missing:
        return f"{made}; every column has checksums"
    return f"{made}; frames have checksums, without them: {', '.join(missing)}"


def find_problems(store: EpisodeStore) -> list[str]:
    """What does not keep a file from being read, but may spoil what is learned from it."""
    actions = store.actions[~np.isnan(store.actions).any(axis=1)]
    found = list(store.notes)
    if len(actions) == 0:
        return [*found, "No row has an action: there is nothing to condition predictions on."]
    still = np.flatnonzero(actions.std(axis=0) == 0)
    found += [f"Action dimension {i} never moves: it is always {actions[0, i]:g}." for i in still]
    span = store.window_shape.span
    num_short = int((store.lengths < span).sum())
    if num_short:
        found.append(f"{num_short} of {store.num_episodes} episodes are under {span} rows and give no training window.")
    num_long = int((store.lengths >= MIN_HELD_OUT_LENGTH).sum())
    if num_long < 3:
        found.append(
            f"Only {num_long} episodes have {MIN_HELD_OUT_LENGTH} rows or more; training needs 3, one each to train, "
            f"validate and test."
        )
    return found + _problems_of_frames(store)


def _problems_of_frames(store: EpisodeStore) -> list[str]:
    height, width, _ = store.frame_shape
    found = []
    if height != width:
        found.append(f"Frames are {height} x {width}: training averages them to squares, changing their proportions.")
    drawn = [store.drawn_rows([episode]) for episode in range(store.num_episodes)]
    starts = np.concatenate([rows[:-1] for rows in drawn])
    if len(starts) == 0:
        return [*found, "Every episode has a single frame: nothing happens in any of them."]
    rows = starts[np.unique(np.linspace(0, len(starts) - 1, _NUM_LOOKED_AT).astype(np.int64))]
    here, there = store.frames(rows), store.frames(rows + store.draw_every)
    is_blank = (here == here[:, :1, :1]).all(axis=(1, 2, 3))
    if is_blank.any():
        row = rows[is_blank.argmax()]
        found.append(f"{is_blank.sum()} of {len(rows)} frames looked at are of one colour, for example row {row}.")
    num_same = int((here == there).all(axis=(1, 2, 3)).sum())
    if 2 * num_same > len(rows):
        found.append(
            f"{num_same} of {len(rows)} frames looked at equal the next one: the recording stands still, or frames "
            f"were repeated."
        )
    return found


def _describe_actions(store: EpisodeStore) -> str:
    figures = file_figures(store.actions[store.rows_of(episode)] for episode in range(store.num_episodes))
    lines: list[tuple[str, ...]] = [("action", "mean", "std", "min", "max", "lag-1 corr.")]
    keys = ("action_mean", "action_std", "action_min", "action_max", "action_autocorrelation")
    for i in range(store.action_dim if keys[0] in figures else 0):
        lines.append((str(i), *(f"{_at(figures[key], i):.4g}" for key in keys)))
    table = "\n".join("".join(f"{cell:>14}" for cell in line) for line in lines)
    if keys[0] not in figures:
        return table
    beyond = f"{figures['action_outside_share']:.1%} of rows have a component beyond ±1"
    return f"{table}\n{beyond}"


def _at(figure: object, i: int) -> float:
    assert isinstance(figure, list)
    return float(figure[i])


def _by(shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "empty"
    return " x ".join(map(str, shape)) or "scalar"


def _filters(dataset: h5py.Dataset) -> str:
    pipeline = dataset.id.get_create_plist()
    codes = [pipeline.get_filter(i)[0] for i in range(pipeline.get_nfilters())]
    return ", ".join(_FILTERS.get(code, f"filter {code}") for code in codes) or "-"
