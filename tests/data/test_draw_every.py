"""Files in which one of several rows was drawn: what is there is the same, and nobody gets what is not."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alewm.data.action_statistics import ActionStatistics
from alewm.data.collect import RecordedEpisodes, collect, collect_command
from alewm.data.frame_sources import open_frames, verify_frames
from alewm.data.inspection import contact_sheet, describe_episodes, find_problems
from alewm.data.loader import LoaderConfig, WindowLoader
from alewm.data.store import EpisodeStore
from alewm.data.windows import WindowIndex, WindowShape
from alewm.data.writer import StoreWriter
from alewm.errors import InputError
from toy_episodes import numbers, random_episodes, tape

LENGTHS = [30, 41, 19, 60, 26]
EVERY_FIFTH = {"draw_every": 5}
IDENTITY = ActionStatistics((0.0, 0.0), (1.0, 1.0))


def thinned(episode: dict[str, np.ndarray], every: int = 5) -> dict[str, np.ndarray]:
    return {**episode, "pixels": episode["pixels"][::every]}


def thinned_random_episodes(seed: int, episodes: Sequence[int]) -> Iterator[dict[str, np.ndarray]]:
    yield from map(thinned, random_episodes(seed, episodes))


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    path, first_row = tmp_path / "thin.h5", 0
    with StoreWriter(path, attributes=EVERY_FIFTH) as writer:
        for length in LENGTHS:
            writer.append(thinned(tape(first_row, length)))
            first_row += length
    return EpisodeStore.open(path)


@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=8), every=st.sampled_from([1, 2, 3, 6]))
def test_windows_are_those_of_a_whole_file_that_start_where_it_was_drawn(lengths: list[int], every: int) -> None:
    sizes, shape = np.array(lengths), WindowShape(3, 6)
    offsets = np.cumsum(sizes) - sizes
    whole, thin = WindowIndex(offsets, sizes, shape), WindowIndex(offsets, sizes, shape, every)
    starts = whole.starts(np.arange(len(whole)))
    steps = starts - offsets[np.searchsorted(offsets, starts, side="right") - 1]
    assert thin.starts(np.arange(len(thin))).tolist() == starts[steps % every == 0].tolist()


def test_frames_are_where_they_were_drawn_and_nowhere_else(store: EpisodeStore) -> None:
    drawn = store.drawn_rows()
    assert drawn[:8].tolist() == [0, 5, 10, 15, 20, 25, 30, 35]  # row 30 is the next episode's first
    np.testing.assert_array_equal(numbers(store.frames(drawn)), drawn)
    assert numbers(store.episode(1)["pixels"]).tolist() == [*range(30, 71, 5)]
    assert len(store.episode(1)["action"]) == LENGTHS[1]
    assert store.num_rows == sum(LENGTHS)
    assert store.pixels.id.get_num_chunks() == len(drawn) == store.num_frames
    with pytest.raises(InputError, match=r"Row 33 of .*thin.h5 was not drawn: one of 5 rows was"):
        store.frames(np.array([30, 33]))


def test_training_sees_the_windows_that_start_there(store: EpisodeStore) -> None:
    with WindowLoader(store, range(5), IDENTITY, LoaderConfig(batch_size=2, num_threads=2)) as loader:
        batches = list(loader)
    shape = WindowShape()
    frames = np.concatenate([numbers(batch.pixels.numpy()) for batch in batches])
    np.testing.assert_array_equal(frames, shape.frame_rows(frames[:, 0]))
    actions = np.concatenate([batch.actions.numpy() for batch in batches])
    np.testing.assert_array_equal(actions[:, :, ::2].reshape(len(frames), -1), shape.action_rows(frames[:, 0]))
    possible = {
        int(offset) + start
        for offset, length in zip(store.offsets, LENGTHS, strict=True)
        for start in range(0, length - 19, 5)
    }
    assert len(possible) // 2 * 2 == len(frames)
    assert set(frames[:, 0].tolist()) <= possible


def test_whoever_looks_at_a_file_finds_its_frames(store: EpisodeStore) -> None:
    assert contact_sheet(store).size[0] > 0
    described = describe_episodes(store)
    assert "one of 5 rows was drawn: 37 frames" in described
    assert "training windows of 4 frames" in described
    assert not any("equal the next one" in problem for problem in find_problems(store))
    assert verify_frames(store)
    small = open_frames(store, range(5), image_size=4)
    out = np.empty((2, 4, 4, 3), np.uint8)
    small.read(np.array([5, 35]), out)
    assert (out[0] != out[1]).any()


def test_a_file_of_one_kind_is_never_taken_for_the_other(tmp_path: Path, store: EpisodeStore) -> None:
    whole = collect(random_episodes, tmp_path / "whole.h5", num_episodes=4, seed=1)
    thin = collect(thinned_random_episodes, tmp_path / "b.h5", num_episodes=4, seed=1, attributes=EVERY_FIFTH)
    with h5py.File(whole) as all_drawn, h5py.File(thin) as some_drawn:
        assert (all_drawn.attrs["alewm_file_version"], some_drawn.attrs["alewm_file_version"]) == (3, 3)
    with EpisodeStore.open(whole) as first, EpisodeStore.open(thin) as second:
        assert first.fingerprint != second.fingerprint
        np.testing.assert_array_equal(first.actions, second.actions)
        np.testing.assert_array_equal(first.frames(second.drawn_rows()), second.frames(second.drawn_rows()))
        command = collect_command({"task": "reacher", **second.attributes}, "b.h5")
    assert command == "alewm collect reacher --episodes 4 --seed 1 --draw-every 5 --out b.h5"
    with pytest.raises(InputError, match="draw_every 1 instead of 5"):
        collect(thinned_random_episodes, whole, num_episodes=4, seed=1, attributes=EVERY_FIFTH)
    with pytest.raises(InputError, match="one for every 5 of the"):
        collect(random_episodes, tmp_path / "c.h5", num_episodes=1, seed=1, attributes=EVERY_FIFTH)
    with pytest.raises(InputError, match="were expected, as in 'action'"):
        collect(thinned_random_episodes, tmp_path / "d.h5", num_episodes=1, seed=1)


def test_it_is_collected_by_many_copied_and_continued_with_the_same_bytes(tmp_path: Path) -> None:
    made = {"num_episodes": 6, "seed": 2, "attributes": EVERY_FIFTH}
    one = collect(thinned_random_episodes, tmp_path / "one.h5", **made)
    two = collect(thinned_random_episodes, tmp_path / "two.h5", num_workers=2, episodes_per_task=1, **made)
    copy = collect(RecordedEpisodes(one), tmp_path / "copy.h5", **made)

    class PowerCutError(Exception): ...

    def cut(_: object) -> None:
        raise PowerCutError

    continued = tmp_path / "continued.h5"
    with pytest.raises(PowerCutError):
        collect(thinned_random_episodes, continued, on_progress=cut, **made)
    collect(thinned_random_episodes, continued, **made)
    assert one.read_bytes() == two.read_bytes() == copy.read_bytes() == continued.read_bytes()


def test_a_drawn_frame_that_is_missing_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        frames = file.create_dataset("pixels", (20, 4, 4, 3), np.uint8, chunks=(1, 4, 4, 3))
        for row in (0, 5, 15):
            frames[row] = 7
        file["action"] = np.zeros((20, 2), np.float32)
        file["ep_len"] = np.array([20], np.int32)
        file.attrs["alewm_attributes"] = json.dumps(EVERY_FIFTH)
    with pytest.raises(InputError, match=r"row 10.*never written"):
        EpisodeStore.open(path)


@pytest.mark.parametrize("every", ["5", 0, -5, 2.5, None])
def test_a_number_of_rows_that_is_none_is_refused(tmp_path: Path, store: EpisodeStore, every: object) -> None:
    store.close()
    with h5py.File(store.path, "a") as file:
        file.attrs["alewm_attributes"] = json.dumps({"draw_every": every})
        del file.attrs["alewm_texts_crc32"]
    with pytest.raises(InputError, match="which is no number of rows"):
        EpisodeStore.open(store.path)
    with pytest.raises(InputError, match="which is no number of rows"):
        StoreWriter(tmp_path / "new.h5", attributes={"draw_every": every})
    assert list(tmp_path.iterdir()) == [store.path]


def test_frames_between_those_that_were_drawn_cannot_be_trained_on(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a.h5", attributes={"draw_every": 3}) as writer:
        writer.append(thinned(tape(0, 40), 3))
    with (
        EpisodeStore.open(tmp_path / "a.h5") as store,
        pytest.raises(InputError, match="One of 3 rows was drawn, and windows have frames 5 rows apart"),
    ):
        store.windows([0])
