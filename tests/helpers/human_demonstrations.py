"""Small files in the formats of the public Push-T demonstrations, written as the public one is."""

import itertools
import json
import tarfile
import zipfile
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np

from alewm.envs.push_t.env import sample_state
from alewm.envs.push_t.physics import PushTWorld

ZARR = "pusht_cchi_v7_replay.zarr"
INSIDE = {"states": "data/state", "actions": "data/action", "episode_ends": "meta/episode_ends"}
BLOSC = {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 2, "blocksize": 0}


def demonstrations(count: int = 10, seed: int = 0, shortest: int = 30) -> dict[str, np.ndarray]:
    """The arrays of demonstrations by somebody who drags the pusher through the block, of unequal lengths."""
    generator = np.random.default_rng(seed)
    states, targets, ends = [], [], [0]
    for number in range(count):
        # Whole pixels, which float32 holds exactly, as in the public file.
        start = sample_state(generator).round()
        world, target = PushTWorld(start), start[:2]
        for _ in range(shortest + number):
            way = world.state()[2:4] - target
            target = (target + 12 * way / max(1.0, np.linalg.norm(way)) + generator.normal(0, 4, 2)).round()
            states.append(world.state()[:5])
            targets.append(target)
            world.step(*((target - world.state()[:2]) / 100))
        ends.append(ends[-1] + shortest + number)
    return {
        "states": np.array(states, np.float32),
        "actions": np.array(targets, np.float32),
        "episode_ends": np.array(ends[1:], np.int64),
    }


def write_zarr(folder: Path, arrays: dict[str, np.ndarray], chunk_rows: int = 100, compressor=BLOSC) -> Path:
    """The arrays below `folder`, in zarr format 2, with a picture array that nobody needs."""
    root = folder / ZARR
    everything = {INSIDE[name]: array for name, array in arrays.items()}
    everything["data/img"] = np.zeros((3, 4, 4, 3), np.float32)
    for inside, array in everything.items():
        home = root / inside
        home.mkdir(parents=True)
        chunks = (chunk_rows, *array.shape[1:])
        described = {
            "zarr_format": 2,
            "shape": list(array.shape),
            "chunks": list(chunks),
            "dtype": array.dtype.str,
            "compressor": compressor,
            "fill_value": 0.0,
            "filters": None,
            "order": "C",
        }
        (home / ".zarray").write_text(json.dumps(described))
        for first in range(0, len(array), chunk_rows):
            chunk = np.zeros(chunks, array.dtype)
            part = array[first : first + chunk_rows]
            chunk[: len(part)] = part
            name = ".".join([str(first // chunk_rows), *itertools.repeat("0", array.ndim - 1)])
            (home / name).write_bytes(chunk.tobytes() if compressor is None else blosc(chunk))
    for group in (root, root / "data", root / "meta"):
        (group / ".zgroup").write_text('{"zarr_format": 2}')
    return root


def blosc(chunk: np.ndarray) -> bytes:
    """The Blosc buffer of a chunk: what HDF5's filter of that name stores."""
    with h5py.File("chunk", "w", driver="core", backing_store=False) as file:
        options = hdf5plugin.Blosc(cname="zstd", clevel=5, shuffle=hdf5plugin.Blosc.BITSHUFFLE)
        stored = file.create_dataset("chunk", data=chunk, chunks=chunk.shape, **options)
        mask, content = stored.id.read_direct_chunk((0,) * chunk.ndim)
    assert mask == 0, "compressed"
    return bytes(content)


def zipped(root: Path, path: Path) -> Path:
    """A zip of the folder `root`, inside a folder as in the public one."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(root.rglob("*")):
            archive.write(file, f"pusht/{root.name}/{file.relative_to(root)}")
    return path


def tarred(root: Path, path: Path) -> Path:
    """A compressed tar of the folder `root`."""
    with tarfile.open(path, "w:gz") as archive:
        archive.add(root, f"./{root.name}")
    return path
