"""Human demonstrations are read in every form, replay exactly, and are copied with noise as families."""

import json
import shutil
import sys

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alewm.data.collect import collect, collect_command
from alewm.data.splits import find_families, load_or_make_splits
from alewm.data.store import EpisodeStore
from alewm.envs.push_t.demonstrations import (
    DemonstrationFile,
    copies_of_file,
    noise_levels,
    read_demonstrations,
    relative_demonstrations,
    training_demonstrations,
)
from alewm.envs.push_t.physics import PushTWorld
from alewm.envs.push_t.render import shared_renderer
from alewm.errors import InputError
from alewm_lab.publishing.demonstration_sheet import sheet
from human_demonstrations import ZARR, demonstrations, tarred, write_zarr, zipped

# The beginning of demonstration 43 of the public file, in which the block is pushed from the first step on.
PUBLIC_STATES = [
    (374.0, 370.0, 399.55621337890625, 415.6956787109375, 1.4302376508712769),
    (380.5047912597656, 375.9134216308594, 410.0704040527344, 422.2750549316406, 1.591930627822876),
    (387.550048828125, 378.7701721191406, 418.021484375, 428.61773681640625, 1.7187098264694214),
    (391.471923828125, 376.10040283203125, 421.6052551269531, 432.1689453125, 1.7824749946594238),
]
PUBLIC_TARGETS = [(396.0, 390.0), (396.0, 378.0), (395.0, 369.0), (393.0, 367.0)]

HELD_OUT = [0, 8, 9, 16, 18, 43, 59, 69, 75, 86, 97, 102, 132, 137, 140, 144, 145, 155, 157, 163, 200]


@pytest.fixture(scope="module")
def arrays():
    return demonstrations()


@pytest.fixture(scope="module")
def npz(arrays, tmp_path_factory):
    path = tmp_path_factory.mktemp("npz") / "lowdim.npz"
    np.savez(path, **arrays)
    return path


def test_our_physics_is_that_of_the_public_file():
    world = PushTWorld(np.array([*PUBLIC_STATES[0], 0.0, 0.0]))
    for target, expected in zip(PUBLIC_TARGETS, PUBLIC_STATES[1:], strict=False):
        world.step(*((np.array(target) - world.state()[:2]) / 100))
        np.testing.assert_allclose(world.state()[:5], expected, rtol=0, atol=1e-4)


def test_every_form_of_the_file_reads_alike(arrays, npz, tmp_path):
    root = write_zarr(tmp_path / "found", arrays)
    plain = write_zarr(tmp_path / "plain", arrays, chunk_rows=1000, compressor=None)
    forms = [npz, root, root.parent, tmp_path / "found", plain]
    forms += [zipped(root, tmp_path / "pusht.zip"), tarred(root, tmp_path / "noimg.zarr.tar.gz")]
    for path in forms:
        read = read_demonstrations(path)
        np.testing.assert_array_equal(read.states, arrays["states"])
        np.testing.assert_array_equal(read.targets, arrays["actions"])
        np.testing.assert_array_equal(read.ends, arrays["episode_ends"])
        assert read.fingerprint == read_demonstrations(npz).fingerprint
    other = DemonstrationFile(npz, read.states + 1, read.targets, read.ends)
    assert other.fingerprint != read.fingerprint


def edit(root, inside, **changes):
    described = root / inside / ".zarray"
    described.write_text(json.dumps({**json.loads(described.read_text()), **changes}))


def cut(path, num_bytes):
    path.write_bytes(path.read_bytes()[:num_bytes])


DAMAGE = {
    "a chunk is missing": (lambda root: (root / "data/state/2.0").unlink(), r"data/state has \d+ of \d+ chunks"),
    "a chunk has another name": (
        lambda root: (root / "data/state/2.0").rename(root / "data/state/200.0"),
        "the chunk data/state/2.0 is missing",
    ),
    "a chunk is cut": (lambda root: cut(root / "data/action/0.0", 30), r"data/action/0\.0 cannot be decoded \(30 byte"),
    "a chunk is garbage": (lambda root: cut(root / "data/action/0.0", 3), r"cannot be decoded \(3 bytes"),
    "a description is cut": (lambda root: cut(root / "data/state/.zarray", 20), "no description of an array"),
    "an array is missing": (lambda root: shutil.rmtree(root / "data/action"), "lacks data/action/.zarray"),
    "no ends": (lambda root: shutil.rmtree(root / "meta"), "should be or hold one pusht_cchi_v7_replay.zarr"),
    "another codec": (lambda root: edit(root, "data/state", compressor={"id": "lz4"}), "compressed with 'lz4'"),
    "another format": (lambda root: edit(root, "data/state", zarr_format=3), "no array of numbers in zarr format 2"),
    "objects": (lambda root: edit(root, "data/state", dtype="|O"), "no array of numbers in zarr format 2"),
    "a giant": (lambda root: edit(root, "data/state", chunks=[10**12, 5]), "no array of numbers in zarr format 2"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_zarr_is_refused_by_what_is_wrong(arrays, tmp_path, name):
    root = write_zarr(tmp_path, arrays)
    damage, message = DAMAGE[name]
    damage(root)
    with pytest.raises(InputError, match=message) as refusal:
        read_demonstrations(root)
    assert "download diffusion-policy.cs.columbia.edu" in str(refusal.value)


def test_archives_that_were_cut_are_refused(arrays, tmp_path):
    root = write_zarr(tmp_path, arrays)
    for path in (zipped(root, tmp_path / "a.zip"), tarred(root, tmp_path / "a.tar.gz")):
        cut(path, path.stat().st_size // 2)
        with pytest.raises(InputError, match=f"{path.name} (begins as a zip or npz file but is cut off|is damaged)"):
            read_demonstrations(path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"states": np.zeros((9, 4), np.float32)}, r"states \[rows, 5\].*found states float32 \[9, 4\]"),
        ({"actions": np.zeros((9, 2), np.float32)}, r"actions float32 \[9, 2\]"),
        ({"episode_ends": np.array([3.0, 9.0])}, "episode_ends float64"),
        ({"episode_ends": np.array([3, 3, 345])}, "episode_ends should rise by 2 or more to the 345 rows"),
        ({"episode_ends": np.array([3, 9])}, r"found \[3 9\] ... \[9\]"),
        ({"episode_ends": np.array([], np.int64)}, "episode_ends should rise"),
        ({"actions": None}, "lacks actions; found are states, episode_ends"),
        ({"actions": np.array([{}], object)}, "is damaged: Object arrays cannot be loaded"),
    ],
)
def test_an_npz_of_something_else_is_refused(arrays, tmp_path, changed, message):
    path = tmp_path / "a.npz"
    np.savez(path, **{name: array for name, array in {**arrays, **changed}.items() if array is not None})
    with pytest.raises(InputError, match=message):
        read_demonstrations(path)


def test_numbers_that_are_none_are_named_by_their_row(arrays, tmp_path):
    states = arrays["states"].copy()
    states[5, 1] = np.nan
    np.savez(tmp_path / "a.npz", **{**arrays, "states": states})
    with pytest.raises(InputError, match=r"damaged: row 5 of states is \["):
        read_demonstrations(tmp_path / "a.npz")


def test_demonstrations_of_another_physics_are_refused(arrays, tmp_path):
    np.savez(tmp_path / "a.npz", **{**arrays, "actions": arrays["actions"] / 5})
    with pytest.raises(InputError, match=r"does not hold demonstrations of this Push-T: .* pixels \(median\)"):
        copies_of_file(tmp_path / "a.npz")


def test_relative_actions_replay_what_was_done(arrays, npz):
    file = read_demonstrations(npz)
    for demonstration in relative_demonstrations(file, range(len(file.ends))):
        expected = arrays["states"][file.rows_of(demonstration.number)]
        world, found = PushTWorld(demonstration.start), [demonstration.start]
        for action in demonstration.actions.astype(float):
            world.step(*action)
            found.append(world.state())
        np.testing.assert_allclose(np.array(found)[:, :5], expected, atol=0.01)
        assert demonstration.error < 0.01


def test_the_published_choice_of_185_demonstrations():
    training = training_demonstrations(206)
    assert len(training) == 185
    assert sorted(set(range(206)) - set(training)) == HELD_OUT


@given(copies=st.integers(1, 300), noise=st.floats(0, 1))
def test_levels_rise_from_none_and_have_the_mean_that_was_asked_for(copies, noise):
    levels = noise_levels(copies, noise)
    assert len(levels) == copies
    assert levels[0] == 0
    assert (np.diff(levels) >= 0).all()
    # Quantiles in the middle of equal shares miss a little of the exponential distribution's long end.
    assert levels.sum() <= noise * (copies - 1) + 1e-12
    if copies > 50:
        assert levels[1:].mean() == pytest.approx(noise, rel=0.01)


def test_copies_are_families_with_the_noise_that_they_say(npz):
    source, facts = copies_of_file(npz, copies=6, noise=0.1)
    others, _ = copies_of_file(npz, copies=6, noise=0.1, held_out=True)
    numbers = [[each.number for each in part.demonstrations] for part in (source, others)]
    assert sorted(numbers[0] + numbers[1]) == list(range(10))
    assert numbers[0] == training_demonstrations(10)
    assert source.num_episodes == 9 * 6
    assert facts["copies"] == 6
    # The longer ones, whose noise can be measured.
    for which, demonstration in enumerate(source.demonstrations[-3:], start=6):
        episodes = list(source(0, range(which * 6, which * 6 + 6), draw_every=0))
        added = [episode["action"][:-1] - demonstration.actions for episode in episodes]
        assert (added[0] == 0).all()
        for episode, noise, level in zip(episodes, added, noise_levels(6, 0.1), strict=True):
            assert len(episode["action"]) == len(demonstration.actions) + 1
            assert set(episode["family"]) == {demonstration.number}
            assert set(episode["noise_std"]) == {np.float32(level)}
            np.testing.assert_array_equal(episode["state"][0], demonstration.start)
            # Root mean square over 2 n numbers: within four of its standard errors.
            assert np.sqrt((noise**2).mean()) == pytest.approx(level, rel=4 / np.sqrt(2 * noise.size))


def test_an_episode_is_a_function_of_its_number_and_a_cut_changes_nothing_before_it(npz):
    source, _ = copies_of_file(npz, copies=3)
    together = list(source(5, [7, 4], image_size=28))[1]
    (alone,) = source(5, [4], image_size=28)
    for name, values in alone.items():
        np.testing.assert_array_equal(values, together[name])
    (short,) = source(5, [4], max_steps=6, draw_every=0)
    np.testing.assert_array_equal(short["state"], alone["state"][:7])
    (other,) = source(6, [4], draw_every=0)
    assert (other["action"][:-1] != alone["action"][:-1]).all()


def test_an_interrupted_file_is_continued_to_the_same_bytes_and_split_by_demonstration(npz, tmp_path):
    source, facts = copies_of_file(npz, copies=3)

    class CutError(Exception):
        pass

    def interrupt(progress):
        if progress.num_done == 7:
            raise CutError

    settings = {"num_episodes": source.num_episodes, "seed": 0, "attributes": {"task": "push-t", **facts}}
    whole = collect(source, tmp_path / "whole.h5", **settings)
    with pytest.raises(CutError):
        collect(source, tmp_path / "cut.h5", on_progress=interrupt, **settings)
    assert collect(source, tmp_path / "cut.h5", **settings).read_bytes() == whole.read_bytes()
    with EpisodeStore.open(whole) as store:
        families, splits = find_families(store), load_or_make_splits(store)
        assert families.count == 9
        parts = [{int(families.of_episode[e]) for e in splits.part(p)} for p in ("train", "validation", "test")]
        assert sum(map(len, parts)) == 9, "no demonstration is on two sides"
        assert collect_command(store.attributes, "a.h5").startswith("alewm collect push-t --demonstrations PATH --seed")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"copies": 0}, "--copies is 1 or more"),
        ({"noise": -0.1}, "--noise is a standard deviation"),
        ({"noise": float("nan")}, "got nan"),
    ],
)
def test_impossible_copies_are_refused(npz, options, message):
    with pytest.raises(InputError, match=message):
        copies_of_file(npz, **options)


def test_what_is_no_such_file_is_told_where_to_get_it(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    for path in (tmp_path / "nothing", tmp_path / "notes.txt", tmp_path):
        with pytest.raises(InputError, match=ZARR):
            read_demonstrations(path)


def test_without_the_codec_the_message_has_the_install_line(arrays, tmp_path, monkeypatch):
    root = write_zarr(tmp_path, arrays)
    monkeypatch.setattr(h5py.h5z, "filter_avail", lambda code: False)
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    with pytest.raises(InputError, match=r"needs the package 'hdf5plugin'. Install it: pip install 'hdf5plugin>=5'"):
        read_demonstrations(root)


def test_a_sheet_shows_where_demonstrations_begin_and_where_they_lead(npz):
    file = read_demonstrations(npz)
    picture = sheet(file)
    assert picture.shape == (3 * 232 - 8, 4 * 232 - 8, 3)
    world = PushTWorld(np.array([*file.states[0], 0.0, 0.0]))
    first = shared_renderer()(world.state(), world.contacts())
    changed = (picture[:224, :224] != first).any(-1)
    assert 0.002 < changed.mean() < 0.2
    assert (picture[-224:, -224:] == 255).all(), "ten demonstrations leave two tiles empty"
