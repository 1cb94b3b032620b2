"""The human Push-T demonstrations: read in the forms people have them in, and copied with noise.

The public file is `pusht_cchi_v7_replay.zarr`, in zarr's second format: every array is a `.zarray` (JSON) beside chunk
files, compressed with Blosc. The folder, a zip or a tar archive of it are read, and a small npz with the same arrays.
Pictures are never looked at. zarr itself is not needed: HDF5's Blosc filter (package hdf5plugin) decodes the chunks.

The published training file is 185 of the 206 public demonstrations, each replayed 101 times. Its episodes start where
the demonstration did, have its length, and execute its actions with Gaussian noise of unpublished strength. The actions
are relative to wherever the pusher has come to, so nothing steers it back: in the published file it strays up to 212
pixels out of the arena, which noise on absolute targets cannot do.

`noise_levels` is our choice of the strengths. Its one parameter was set so that the standard deviation of all actions
is that of the published file (docs/push-t-data.md compares the rest). `training_demonstrations` says which 185.
"""

import hashlib
import importlib
import itertools
import math
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import h5py
import numpy as np
import torch

from alewm.envs.push_t import WHERE_DEMONSTRATIONS_ARE as WHERE
from alewm.envs.push_t import physics
from alewm.envs.push_t.behaviour import record_episode, with_small_frames
from alewm.envs.push_t.physics import ACTION_PIXELS, PushTWorld
from alewm.envs.recording import episode_stream
from alewm.errors import InputError, install_line
from alewm.files import parse_json
from alewm.shapes import Float, Int

_ARRAYS = {"states": "data/state", "actions": "data/action", "episode_ends": "meta/episode_ends"}
"""Names in the npz, and in the zarr."""

MOST_MEMBER_BYTES = 1 << 30
_MOST_CHUNK_BYTES = 1 << 30
_BLOSC_FILTER = 32001
_BLOSC_HEADER_BYTES = 16


@dataclass(frozen=True)
class DemonstrationFile:
    """All demonstrations, one after the other."""

    path: Path
    """Where they were read."""
    states: Float[np.ndarray, "rows 5"]
    """float32: pusher x, y; block x, y; block angle."""
    targets: Float[np.ndarray, "rows 2"]
    """float32: the point the pusher was drawn to, in pixels of the arena."""
    ends: Int[np.ndarray, " demonstrations"]
    """int64: the row behind the last of each demonstration."""

    @property
    def fingerprint(self) -> str:
        """Says whether two files hold the same demonstrations, in whatever form."""
        content = hashlib.sha256()
        for array in (self.states, self.targets, self.ends):
            content.update(array.tobytes())
        return content.hexdigest()[:16]

    def rows_of(self, demonstration: int) -> slice:
        return slice(int(self.ends[demonstration - 1]) if demonstration else 0, int(self.ends[demonstration]))


def read_demonstrations(path: Path) -> DemonstrationFile:
    """The demonstrations in the folder or file at `path`; whatever is no such file is refused."""
    if not path.exists():
        raise InputError(f"There is no {path}. {WHERE}")
    try:
        arrays = _arrays(path)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise _damaged(path, str(error) or type(error).__name__) from error
    return _checked(path, arrays)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if path.is_file() and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.removesuffix(".npy") in _ARRAYS:
                    _check_size(path, member.filename, member.file_size)
            if any(name.endswith(".npy") for name in archive.namelist()):
                return _npz_arrays(path)
    files = _zarr_files(path)
    return {name: _zarr_array(path, files, inside) for name, inside in _ARRAYS.items()}


def _check_size(path: Path, name: str, size: int) -> None:
    """Refuse a member that would take too much memory: some kilobytes of an archive can become any number of bytes."""
    if size > MOST_MEMBER_BYTES:
        raise _damaged(path, f"{name} would take {size:,} bytes, at most {MOST_MEMBER_BYTES:,} are read")


def _npz_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            if missing := [name for name in _ARRAYS if name not in file]:
                found = ", ".join(file) or "nothing"
                raise InputError(f"{path} lacks {', '.join(missing)}; found are {found}. {WHERE}")
            return {name: file[name] for name in _ARRAYS}
    except InputError:
        raise
    except ValueError as error:  # NumPy's word for a member that is no array
        raise _damaged(path, str(error)) from error


def _zarr_files(path: Path) -> dict[str, bytes]:
    """The files of the three arrays, by their names inside the zarr."""
    wanted = tuple(f"{inside}/" for inside in _ARRAYS.values())
    found: dict[str, dict[str, bytes]] = {}
    for name, content in _all_files(path, wanted):
        place = next(inside for inside in wanted if inside in name)
        root, _, rest = name.rpartition(place)
        found.setdefault(root, {})[place + rest] = content
    roots = [root for root, files in found.items() if f"{_ARRAYS['episode_ends']}/.zarray" in files]
    if len(roots) != 1:
        what = "no such file" if not roots else f"{len(roots)} of them: {', '.join(sorted(roots))}"
        raise InputError(
            f"{path} should be or hold one pusht_cchi_v7_replay.zarr (zarr format 2, with data/state, data/action and "
            f"meta/episode_ends), found {what}. {WHERE}"
        )
    return found[roots[0]]


def _all_files(path: Path, wanted: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files in `path` whose names contain one of `wanted`."""
    if path.is_dir():
        for root in (path, *sorted(path.glob("*.zarr")), *sorted(path.glob("*/*.zarr"))):
            for file in (file for inside in wanted for file in sorted((root / inside).glob("*")) if file.is_file()):
                yield file.relative_to(path).as_posix(), file.read_bytes()
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if any(inside in name for inside in wanted) and not name.endswith("/"):
                    _check_size(path, name, archive.getinfo(name).file_size)
                    yield name, archive.read(name)
    elif tarfile.is_tarfile(path):
        with tarfile.open(path) as tar:
            for member in tar:
                if member.isfile() and any(inside in member.name for inside in wanted):
                    _check_size(path, member.name, member.size)
                    content = tar.extractfile(member)
                    assert content is not None
                    yield str(PurePosixPath(member.name)), content.read()
    else:
        with path.open("rb") as opened:
            is_cut_off = opened.read(4) == b"PK\x03\x04"
        found = "begins as a zip or npz file but is cut off" if is_cut_off else "is no folder, zip, tar or npz file"
        raise InputError(f"{path} {found}. {WHERE}")


def _zarr_array(path: Path, files: Mapping[str, bytes], inside: str) -> np.ndarray:
    """The array called `inside`, from its description and all of its chunks."""
    if f"{inside}/.zarray" not in files:
        raise InputError(f"{path} lacks {inside}/.zarray, the description of an array. {WHERE}")
    shape, chunks, dtype, compressor, separator = _description(path, inside, files[f"{inside}/.zarray"])
    grid = [range(-(-size // chunk)) for size, chunk in zip(shape, chunks, strict=True)]
    num_chunks = math.prod(map(len, grid))
    # zarr reads a chunk that is not there as zeros. Nobody pushed at zero: here it is a download that was cut.
    num_found = sum(name.startswith(f"{inside}/") and not PurePosixPath(name).name.startswith(".") for name in files)
    if num_found < num_chunks:
        raise _damaged(path, f"{inside} has {num_found} of {num_chunks} chunks")
    array = np.empty([len(cells) * chunk for cells, chunk in zip(grid, chunks, strict=True)], dtype)
    for cell in itertools.product(*grid):
        name = f"{inside}/{separator.join(map(str, cell))}"
        if name not in files:
            raise _damaged(path, f"the chunk {name} is missing")
        content = files[name]
        try:
            chunk = content if compressor is None else _from_blosc(content, math.prod(chunks), dtype)
            part = np.frombuffer(chunk, dtype).reshape(chunks)
        except (ValueError, OSError) as error:
            raise _damaged(path, f"the chunk {name} cannot be decoded ({error})") from error
        array[tuple(slice(i * size, (i + 1) * size) for i, size in zip(cell, chunks, strict=True))] = part
    return array[tuple(slice(size) for size in shape)]


def _description(path: Path, inside: str, text: bytes) -> tuple[list[int], list[int], np.dtype[Any], str | None, str]:
    """Shape, chunks, dtype, compressor and separator of an array; whatever this module cannot read is refused."""
    try:
        header = parse_json(text)
        shape, chunks = ([int(size) for size in header[name]] for name in ("shape", "chunks"))
        dtype, compressor = np.dtype(header["dtype"]), (header["compressor"] or {}).get("id")
        is_readable = (
            header["zarr_format"] == 2
            and header.get("order", "C") == "C"
            and not header.get("filters")
            and dtype.kind in "fiu"
            and len(shape) == len(chunks) > 0
            and min(shape) >= 0
            and min(chunks) > 0
            and math.prod(chunks) * dtype.itemsize <= _MOST_CHUNK_BYTES
        )
        separator = str(header.get("dimension_separator", "."))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, f"{inside}/.zarray is no description of an array ({error})") from error
    if not is_readable:
        raise _damaged(path, f"{inside}/.zarray describes no array of numbers in zarr format 2, C order, unfiltered")
    if compressor not in (None, "blosc"):
        raise InputError(f"{path}: {inside} is compressed with {compressor!r}, where blosc was expected. {WHERE}")
    if compressor == "blosc" and not h5py.h5z.filter_avail(_BLOSC_FILTER):
        try:
            importlib.import_module("hdf5plugin")  # importing it registers its filters
        except ImportError:
            raise InputError(
                f"{path} is compressed with Blosc, which needs the package 'hdf5plugin'. {install_line('push-t')}"
            ) from None
    return shape, chunks, dtype, compressor, separator


def _from_blosc(content: bytes, num_items: int, dtype: np.dtype[Any]) -> np.ndarray:
    """The numbers of a Blosc buffer, decoded by HDF5 as a chunk of a file in memory."""
    # The library trusts what the header says of sizes, so they are checked first.
    num_bytes = num_items * dtype.itemsize
    sizes = np.frombuffer(content, "<u4", 3, 4).tolist() if len(content) >= _BLOSC_HEADER_BYTES else [0, 0, 0]
    if (sizes[0], sizes[2]) != (num_bytes, len(content)):
        raise ValueError(f"{len(content)} bytes, where a Blosc buffer of {num_bytes} was expected")
    with h5py.File("chunk", "w", driver="core", backing_store=False) as file:
        options = {"compression": _BLOSC_FILTER, "compression_opts": (0,) * 7}  # decoding reads the buffer's header
        decoded = file.create_dataset("chunk", (num_items,), dtype, chunks=(num_items,), **options)
        decoded.id.write_direct_chunk((0,), content)
        return np.asarray(decoded[:])


def _checked(path: Path, arrays: Mapping[str, np.ndarray]) -> DemonstrationFile:
    """The arrays as what they should be: rows of finite numbers, and where demonstrations end."""
    states, targets, ends = (arrays[name] for name in _ARRAYS)
    expected = f"states [rows, 5], actions [rows, 2] and whole episode_ends, found {_shapes(arrays)}"
    if states.ndim != 2 or states.shape[1] != 5 or targets.shape != (len(states), 2) or ends.ndim != 1:
        raise InputError(f"{path} should hold {expected}. {WHERE}")
    if states.dtype.kind != "f" or targets.dtype.kind != "f" or ends.dtype.kind not in "iu":
        raise InputError(f"{path} should hold {expected}. {WHERE}")
    lengths = np.diff(ends.astype(np.int64), prepend=0)
    if len(ends) == 0 or lengths.min() < 2 or ends[-1] != len(states):
        raise _damaged(
            path, f"episode_ends should rise by 2 or more to the {len(states)} rows, found {ends[:3]} ... {ends[-1:]}"
        )
    for name, values in (("states", states), ("actions", targets)):
        bad = ~np.isfinite(values).all(1)
        if bad.any():
            raise _damaged(path, f"row {int(bad.argmax())} of {name} is {values[bad][0].tolist()}")
    return DemonstrationFile(path, states.astype("<f4"), targets.astype("<f4"), ends.astype("<i8"))


def _shapes(arrays: Mapping[str, np.ndarray]) -> str:
    return ", ".join(f"{name} {array.dtype} {list(array.shape)}" for name, array in arrays.items())


def _damaged(path: Path, problem: str) -> InputError:
    return InputError(f"{path} is damaged: {problem.rstrip('.')}. {WHERE}")


COPIES = 101
"""Episodes per demonstration, as in the published file: one exact, the others with noise."""

NOISE = 0.038
"""Mean standard deviation of the noise on each component of an action."""

_TRAINING_SHARE = 0.9
_SPLIT_SEED = 42
_MOST_ERROR = 1.0


@dataclass(frozen=True)
class HumanDemonstration:
    """What a person did, in the terms of the environment."""

    number: int
    """Its place in the public file; the family of its copies."""
    start: Float[np.ndarray, "7"]
    """The state it began in, at rest."""
    actions: Float[np.ndarray, "steps 2"]
    """float32: each target relative to the pusher, over 100 pixels."""
    error: float
    """Pixels between where the block ended and where it ends when the actions are replayed."""


def relative_demonstrations(file: DemonstrationFile, numbers: Sequence[int]) -> list[HumanDemonstration]:
    """The demonstrations `numbers` of `file`, replayed in our physics to make their targets relative.

    A file whose blocks do not end where they ended is none of Push-T demonstrations, and is refused.
    """
    made = [_relative(file, number) for number in numbers]
    error = float(np.median([demonstration.error for demonstration in made]))
    if error > _MOST_ERROR:
        raise InputError(
            f"{file.path} does not hold demonstrations of this Push-T: replaying its actions leaves the block "
            f"{error:.1f} pixels (median) from where it ended, where at most {_MOST_ERROR:g} was expected. Its states "
            f"and targets must be in pixels of a {physics.ARENA_SIZE}-pixel arena, ten per second."
        )
    return made


def _relative(file: DemonstrationFile, number: int) -> HumanDemonstration:
    rows = file.rows_of(number)
    states, targets = file.states[rows].astype(np.float64), file.targets[rows].astype(np.float64)
    start = np.array([*states[0], 0.0, 0.0])
    world, actions = PushTWorld(start), []
    for target in targets[:-1]:  # nothing follows the last one
        actions.append(((target - world.state()[:2]) / ACTION_PIXELS).astype(np.float32))
        world.step(*actions[-1].astype(np.float64))
    error = math.dist(world.state()[2:4], states[-1, 2:4])
    return HumanDemonstration(number, start, np.array(actions), error)


def training_demonstrations(num_demonstrations: int) -> list[int]:
    """Which demonstrations the published training file was made of, increasing: nine tenths, drawn with seed 42.

    Of 206 these are 185. That they are the published ones follows from three figures of the published files, which
    they match and hardly any other choice would: the 21 left out have 2,514 rows, every fifth row of each of the 185
    makes 4,698, and the mean of their relative actions is (-0.0078, 0.0068).
    """
    generator = torch.Generator().manual_seed(_SPLIT_SEED)
    order = torch.randperm(num_demonstrations, generator=generator).tolist()
    return sorted(order[: int(_TRAINING_SHARE * num_demonstrations)])


def noise_levels(copies: int, noise: float) -> Float[np.ndarray, " copies"]:
    """The standard deviation of the noise in each copy: 0, then rising quantiles of an exponential distribution.

    Its mean is `noise`. Many weak levels and a few strong ones are what the published file's figures ask for: a single
    level with the same standard deviation of actions keeps the pusher 90 to 170 pixels nearer to the arena.
    """
    middles = (np.arange(copies - 1) + 0.5) / max(1, copies - 1)
    return np.concatenate(([0.0], -noise * np.log1p(-middles)))


@dataclass(frozen=True)
class DemonstrationCopies:
    """An episode source: episode i is copy i % `copies` of demonstration i // `copies`.

    An episode's bytes are a function of the seed, its demonstration's number, its copy, `copies` and `noise`.
    """

    demonstrations: tuple[HumanDemonstration, ...]
    copies: int
    noise: float

    @property
    def num_episodes(self) -> int:
        return len(self.demonstrations) * self.copies

    def __call__(
        self,
        seed: int,
        episode_indices: Iterable[int],
        *,
        image_size: int = physics.IMAGE_SIZE,
        max_steps: int | None = None,
        draw_every: int = 1,
        device: torch.device | str = "cpu",
    ) -> Iterator[dict[str, np.ndarray]]:
        """The episodes, with frames unless `draw_every` is 0; cut after `max_steps` if that is given."""
        episodes = (self._episode(seed, index, max_steps, draw_every) for index in episode_indices)
        return with_small_frames(episodes, image_size, device) if draw_every else episodes

    def _episode(self, seed: int, index: int, max_steps: int | None, draw_every: int) -> dict[str, np.ndarray]:
        which, copy = divmod(index, self.copies)
        demonstration = self.demonstrations[which]
        generator = episode_stream(seed, 2, demonstration.number, copy)
        noise_std = float(noise_levels(self.copies, self.noise)[copy])

        def act(step: int, state: np.ndarray) -> np.ndarray:
            return np.asarray(demonstration.actions[step] + noise_std * generator.standard_normal(2))

        num_steps = min(len(demonstration.actions), max_steps or len(demonstration.actions))
        labels: dict[str, np.ndarray] = {
            "family": np.full(num_steps + 1, demonstration.number, np.int64),
            "noise_std": np.full(num_steps + 1, noise_std, np.float32),
        }
        return record_episode(demonstration.start, act, num_steps, labels, draw_every)


def copies_of_file(
    path: Path, *, copies: int = COPIES, noise: float = NOISE, held_out: bool = False
) -> tuple[DemonstrationCopies, dict[str, Any]]:
    """The episode source of the file at `path`, and what a data file made from it says of itself.

    Of the demonstrations that the published training file was made of, or, `held_out`, of the others.
    """
    if copies < 1:
        raise InputError(f"--copies is 1 or more (the first copy is exact), got {copies}.")
    if not (math.isfinite(noise) and noise >= 0):
        raise InputError(f"--noise is a standard deviation in units of actions, 0 or more, got {noise}.")
    file = read_demonstrations(path)
    training = training_demonstrations(len(file.ends))
    numbers = sorted(set(range(len(file.ends))) - set(training)) if held_out else training
    if not numbers:
        raise InputError(f"{path} has {len(file.ends)} demonstrations; 2 or more are needed to hold one out.")
    source = DemonstrationCopies(tuple(relative_demonstrations(file, numbers)), copies, noise)
    facts: dict[str, Any] = {"demonstrations": file.fingerprint, "copies": copies, "noise": noise}
    return source, facts | ({"held_out": True} if held_out else {})
