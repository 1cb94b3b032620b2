"""Our files in the tools of other packages, and their formats in ours."""

import subprocess
import sys
import tracemalloc

import lance
import numpy as np
import pyarrow
import pytest
import torch
from stable_worldmodel.data import convert as swm_convert
from stable_worldmodel.data import load_dataset
from stable_worldmodel.policy import PlanConfig, WorldModelPolicy
from stable_worldmodel.world import World

import alewm
from alewm.data.conversion.convert import open_source
from alewm.data.store import EpisodeStore
from alewm.interop.stable_worldmodel import ActionScaler, PlanningCost

try:
    from stable_worldmodel import solver as solvers
except ImportError:  # where the main branch has them
    from stable_worldmodel.planning import solver as solvers

PACKAGES = ("stable-worldmodel",)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two-Room episodes at a size at which JPEG and video can be compared."""
    path = tmp_path_factory.mktemp("data") / "two-room.h5"
    with alewm.collect("two-room", path, episodes=12, image_size=112, jobs=1):
        return path


@pytest.fixture(scope="module")
def lance_table(data, tmp_path_factory):
    """The same episodes as their own conversion writes them to their default format."""
    path = tmp_path_factory.mktemp("lance") / "two-room.lance"
    swm_convert(data, path, dest_format="lance")
    return path


def episodes_of(path):
    with EpisodeStore.open(path) as store:
        return [(store[i].pixels, store[i].columns) for i in range(store.num_episodes)]


def alewm_command(*arguments):
    done = subprocess.run([sys.executable, "-m", "alewm", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_their_reader_takes_our_file(data, found):
    pixels, columns = episodes_of(data)[0]
    dataset = load_dataset(str(data), num_steps=4, frameskip=5)
    window = dataset[0]
    assert torch.equal(window["pixels"].movedim(1, -1), torch.as_tensor(pixels[:20:5]))
    assert np.array_equal(window["action"].reshape(20, -1).numpy(), columns["action"][:20])
    assert [name for name in dataset.column_names if name.startswith("pixels")] == ["pixels"]
    outcome = "frames and actions equal; `pixels` is the only image column"
    found("our HDF5 file in their `load_dataset`", PACKAGES, outcome)


def test_their_evaluation_runs_on_our_file_with_our_model(data, shipped, found):
    """Starts and goals from our file, their environment, pool, policy and solver, our model behind its adapter."""
    ours = alewm.load(shipped["two-room-tiny"], device="cpu")
    solver = solvers.CEMSolver(PlanningCost(ours.model), batch_size=8, num_samples=100, n_steps=10, topk=10)
    config = PlanConfig(horizon=5, receding_horizon=5, action_block=ours.frame_skip)
    world = World("swm/TwoRoom-v1", num_envs=8, image_shape=(112, 112), max_episode_steps=100)
    world.set_policy(WorldModelPolicy(solver, config, process={"action": ActionScaler.of(ours.description)}))
    state = {"method": "_set_state", "args": {"state": {"value": "proprio"}}}
    goal = {"method": "_set_goal_state", "args": {"goal_state": {"value": "goal_proprio"}}}
    result = world.evaluate(
        dataset=load_dataset(str(data), num_steps=1),
        episodes_idx=list(range(8)),
        start_steps=[0] * 8,
        goal_offset=25,
        eval_budget=50,
        callables=[state, goal],
    )
    reached = int(result["episode_successes"].sum())
    assert reached >= 6, result
    found("their `World.evaluate` on our file, with our model", PACKAGES, f"{reached} of 8 goals")


@pytest.mark.parametrize("format", ["lance", "folder", "video"])
def test_their_conversions_of_our_file_come_back(format, data, lance_table, tmp_path, found):
    """Their formats keep JPEG or video, so frames are near; numbers are exact in float32."""
    path = lance_table if format == "lance" else tmp_path / "theirs"
    if format != "lance":
        swm_convert(data, path, dest_format=format)
    alewm_command("convert", path, "--out", tmp_path / "back.h5", "--image-size", "None")
    ours, back = episodes_of(data), episodes_of(tmp_path / "back.h5")
    assert len(ours) == len(back)
    worst = 0.0
    for (pixels, columns), (again, others) in zip(ours, back, strict=True):
        assert columns.keys() == others.keys()
        for name in columns.keys() - {"pixels"}:
            before, after = (values[name].reshape(len(pixels), -1) for values in (columns, others))
            assert np.array_equal(before.astype(np.float32), after.astype(np.float32), equal_nan=True), name
        worst = max(worst, float(np.abs(pixels.astype(int) - again).mean()))
    assert worst < 4
    packages = (*PACKAGES, *(["pylance"] if format == "lance" else []))
    outcome = f"numbers equal; frames off by {worst:.2g} of 255 levels in the mean, which is its compression"
    found(f"their `{format}` format of our file in `alewm convert`", packages, outcome)


def test_our_reader_decodes_lance_as_theirs_does(lance_table, tmp_path, found):
    alewm_command("convert", lance_table, "--out", tmp_path / "ours.h5", "--image-size", "None")
    dataset = load_dataset(str(lance_table))
    largest = 0
    with EpisodeStore.open(tmp_path / "ours.h5") as store:
        for episode in (0, store.num_episodes - 1):
            theirs = dataset.load_episode(episode)["pixels"].movedim(1, -1).numpy()
            largest = max(largest, int(np.abs(theirs.astype(int) - store[episode].pixels).max()))
    assert largest == 0
    found("their Lance table, decoded by both", (*PACKAGES, "pylance"), f"frames to {largest} levels")


def test_a_lance_table_is_inspected_and_trained_on(lance_table, tmp_path, found):
    assert "12 episodes (lance)" in alewm_command("inspect", lance_table)
    alewm_command(
        "train", "two-room", "--width", "tiny", "--data", lance_table, "--steps", 5, "--out", tmp_path / "run"
    )
    assert (lance_table.parent / "two-room.h5").is_file()
    outcome = "12 episodes; 5 updates on the data file that is made of the table once"
    found("a Lance table in `alewm inspect` and `alewm train --data`", ("pylance",), outcome)


def test_a_long_lance_table_is_read_batch_by_batch(tmp_path, found):
    """Episodes go over the ends of batches, and the column of their numbers is never held whole."""
    lengths = np.random.default_rng(0).integers(50, 150, 4000)
    num_rows = int(lengths.sum())
    columns = {
        "episode_idx": np.repeat(np.arange(len(lengths)), lengths),
        "step_idx": np.concatenate([np.arange(length) for length in lengths]),
        "action": pyarrow.FixedSizeListArray.from_arrays(np.zeros(2 * num_rows, np.float32), 2),
        "pixels": pyarrow.array([b""] * num_rows, pyarrow.binary()),
    }
    lance.write_dataset(pyarrow.table(columns), str(tmp_path / "long.lance"))
    source = open_source(tmp_path / "long.lance")
    assert source.cameras == ["pixels"]
    tracemalloc.start()
    read = source.lengths
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(read, lengths)
    assert peak < columns["episode_idx"].nbytes / 3, peak
    outcome = (
        f"{num_rows:,} rows; at most {peak / 1e6:.1f} MB for the index, of a column of {8 * num_rows / 1e6:.1f} MB"
    )
    found("the index of a long Lance table", ("pylance",), outcome)
    columns["episode_idx"][num_rows // 2] = 0
    lance.write_dataset(pyarrow.table(columns), str(tmp_path / "disordered.lance"))
    with pytest.raises(alewm.errors.InputError, match=rf"row {num_rows // 2}: episode_idx decreases"):
        _ = open_source(tmp_path / "disordered.lance").lengths
