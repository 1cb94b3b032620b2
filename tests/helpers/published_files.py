"""Small files in the layouts in which the field publishes its data, written the way they were written.

HDF5's latest format with paged allocation; frames in runs of 100 compressed by Blosc with LZ4; everything else in runs
of 1000, uncompressed. Frames are noise in a few levels with their row's number in the first pixel.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import h5py
import hdf5plugin
import numpy as np


class Layout(NamedTuple):
    """What one published file has besides pixels, `step_idx`, `ep_len` and `ep_offset`."""

    task: str
    action_dim: int
    columns: Mapping[str, tuple[str, tuple[int, ...]]]
    """dtype and row shape."""
    episode_column: str | None
    episode_dtype: str
    last_action_is_nan: bool
    copies: int = 1
    """Episodes that replay one demonstration: equal length, equal start."""


STEP = {"reward": ("f8", ()), "terminated": ("?", ()), "truncated": ("?", ()), "render_time": ("f8", ())}
CUBE = {
    "control": ("f8", (7,)),
    "id": ("i8", ()),
    "observation": ("f8", (28,)),
    "prev_qpos": ("f8", (21,)),
    "prev_qvel": ("f8", (20,)),
    "privileged_block_0_pos": ("f8", (3,)),
    "privileged_block_0_quat": ("f8", (4,)),
    "privileged_block_0_yaw": ("f8", (1,)),
    "privileged_target_block": ("i8", ()),
    "privileged_target_block_pos": ("f8", (3,)),
    "privileged_target_block_yaw": ("f8", (1,)),
    "privileged_target_task": ("str", ()),
    "proprio_effector_pos": ("f8", (3,)),
    "proprio_effector_yaw": ("f8", (1,)),
    "proprio_gripper_contact": ("f8", (1,)),
    "proprio_gripper_opening": ("f8", (1,)),
    "proprio_gripper_vel": ("f8", (1,)),
    "proprio_joint_pos": ("f8", (6,)),
    "proprio_joint_vel": ("f8", (6,)),
    "qpos": ("f8", (21,)),
    "qvel": ("f8", (20,)),
    "success": ("?", ()),
    "target": ("f8", (28,)),
    "time": ("f8", (1,)),
    **STEP,
}
REACHER = {
    "finger_pos": ("f8", (2,)),
    "id": ("i8", ()),
    "observation": ("f4", (6,)),
    "qpos": ("f8", (2,)),
    "qvel": ("f8", (2,)),
    "score": ("f8", ()),
    "success": ("f8", ()),
    "target_pos": ("f8", (2,)),
    **STEP,
}
LAYOUTS = {
    "pusht_expert_train": Layout(
        "push-t", 2, {"proprio": ("f4", (4,)), "state": ("f4", (7,))}, "episode_idx", "i8", False, copies=2
    ),
    "tworoom": Layout(
        "two-room", 2, {"proprio": ("f8", (2,)), "observation": ("f8", (10,)), **STEP}, "ep_idx", "i4", True
    ),
    "reacher": Layout("reacher", 2, REACHER, "ep_idx", "i4", True),
    "cube_single_expert": Layout("cube", 5, CUBE, "ep_idx", "i4", True),
    "reacher without episode numbers": Layout("reacher", 2, REACHER, None, "", True),
}


def write_published(path: Path, name: str, num_episodes: int = 12, size: int = 16) -> dict[str, np.ndarray]:
    """Writes the file and returns what is in it."""
    layout = LAYOUTS[name]
    lengths = [26 + episode // layout.copies for episode in range(num_episodes)]
    columns = _content(layout, lengths, size)
    with h5py.File(path, "w", libver="latest", fs_strategy="page", fs_page_size=4 * 2**20) as file:
        for column, values in columns.items():
            is_image = column == "pixels"
            chunks = (100 if is_image else 1000, *values.shape[1:])
            options = dict(hdf5plugin.Blosc(cname="lz4", clevel=5, shuffle=1)) if is_image else {}
            dtype = h5py.string_dtype() if values.dtype == object else values.dtype
            dataset = file.create_dataset(
                column, (0, *values.shape[1:]), dtype, maxshape=(None, *values.shape[1:]), chunks=chunks, **options
            )
            dataset.resize(len(values), axis=0)
            dataset[:] = values
    return columns


def _content(layout: Layout, lengths: Sequence[int], size: int) -> dict[str, np.ndarray]:
    rng, num_rows = np.random.default_rng(0), sum(lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    pixels = rng.integers(0, 4, (num_rows, size, size, 3), dtype=np.uint8)
    pixels[:, 0, 0, 0], pixels[:, 0, 0, 1] = np.arange(num_rows) % 256, np.arange(num_rows) // 256
    action = rng.normal(size=(num_rows, layout.action_dim)).astype(np.float32)
    if layout.last_action_is_nan:
        action[offsets + lengths - 1] = np.nan
    columns: dict[str, np.ndarray] = {"pixels": pixels, "action": action}
    for column, (dtype, shape) in layout.columns.items():
        if dtype == "str":
            columns[column] = np.array(["pick and place"] * num_rows, dtype=object)
        elif dtype == "?":
            columns[column] = np.zeros((num_rows, *shape), dtype=bool)
        else:
            columns[column] = (100 + 20 * rng.normal(size=(num_rows, *shape))).astype(dtype)
            # Copies share their start, and nothing else.
            for episode, offset in enumerate(offsets):
                columns[column][offset] = columns[column][offsets[episode // layout.copies * layout.copies]]
    if "reward" in columns:
        columns["reward"][offsets] = np.nan
    columns["step_idx"] = np.concatenate([np.arange(n, dtype=np.int64) for n in lengths])
    if layout.episode_column is not None:
        columns[layout.episode_column] = np.repeat(np.arange(len(lengths)), lengths).astype(layout.episode_dtype)
    columns["ep_len"] = np.array(lengths, dtype=np.int32)
    columns["ep_offset"] = offsets.astype(np.int64)
    return columns
