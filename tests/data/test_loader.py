import threading
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from alewm.data.action_statistics import ActionStatistics
from alewm.data.codec import Inflate, fastest_inflater
from alewm.data.frame_sources import DecodedFrames, DownsampledFrames, MappedFrames, chunk_table
from alewm.data.loader import LoaderConfig, WindowLoader, Windows, frames_ahead
from alewm.data.store import EpisodeStore
from alewm.data.windows import WindowShape
from alewm.data.writer import StoreWriter
from alewm.errors import InputError
from alewm.resize import area_downsample
from toy_episodes import numbers, random_episodes, write_tape

LENGTHS = [30, 45, 19, 60, 25]
IDENTITY = ActionStatistics((0.0, 0.0), (1.0, 1.0))


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    return EpisodeStore.open(write_tape(tmp_path / "tape.h5", LENGTHS))


def first_rows(batches: list[Windows]) -> list[int]:
    return [int(row) for batch in batches for row in numbers(batch.pixels.numpy())[:, 0]]


@pytest.mark.parametrize("num_threads", [1, 3])
def test_an_epoch_shows_every_window_once_with_its_own_actions(store: EpisodeStore, num_threads: int) -> None:
    config = LoaderConfig(batch_size=5, num_threads=num_threads)
    with WindowLoader(store, range(5), IDENTITY, config) as loader:
        batches = list(loader)
        assert len(batches) == len(loader) == loader.num_windows // 5
    shape = WindowShape()
    for batch in batches:
        assert batch.pixels.dtype == torch.uint8
        assert batch.actions.dtype == torch.float32
        frames = numbers(batch.pixels.numpy())
        np.testing.assert_array_equal(frames, shape.frame_rows(frames[:, 0]))
        np.testing.assert_array_equal(batch.actions[:, :, ::2].reshape(5, -1), shape.action_rows(frames[:, 0]))
        np.testing.assert_array_equal(batch.actions[:, :, 1::2], -batch.actions[:, :, ::2])
    rows = first_rows(batches)
    possible = {int(o) + s for o, n in zip(store.offsets, LENGTHS, strict=True) for s in range(n - 19)}
    assert len(set(rows)) == len(rows) == len(possible) // 5 * 5
    assert set(rows) <= possible
    assert rows != sorted(rows)


def test_only_the_given_episodes_are_shown(store: EpisodeStore) -> None:
    with WindowLoader(store, [1, 4], IDENTITY, LoaderConfig(batch_size=4, shuffle=False)) as loader:
        rows = first_rows(list(loader))
    assert rows == [*range(30, 56), *range(154, 160)]


def test_the_order_depends_on_seed_and_epoch_only(store: EpisodeStore) -> None:
    def epochs(seed: int, num_threads: int) -> list[int]:
        config = LoaderConfig(batch_size=8, seed=seed, num_threads=num_threads)
        with WindowLoader(store, range(5), IDENTITY, config) as loader:
            return first_rows(list(loader) + list(loader))

    assert epochs(0, 1) == epochs(0, 2)
    assert epochs(0, 1) != epochs(1, 1)
    both = epochs(0, 1)
    assert both[: len(both) // 2] != both[len(both) // 2 :]


@pytest.mark.parametrize("done", [0, 3, 10, 11, 17])
def test_a_resumed_loader_continues_where_the_other_stopped(store: EpisodeStore, done: int) -> None:
    config = LoaderConfig(batch_size=8)
    with WindowLoader(store, range(5), IDENTITY, config) as loader:
        whole = first_rows(list(islice(loader.forever(), 25)))
    with WindowLoader(store, range(5), IDENTITY, config) as loader:
        seen = first_rows(list(islice(loader.forever(), done)))
        state = loader.state_dict()
    with WindowLoader(store, range(5), IDENTITY, config) as loader:
        loader.load_state_dict(state)
        rest = first_rows(list(islice(loader.forever(), 25 - done)))
    assert seen + rest == whole


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_the_batches_of_all_ranks_together_are_those_of_one_process(store: EpisodeStore, num_ranks: int) -> None:
    config = LoaderConfig(batch_size=8)
    with WindowLoader(store, range(5), IDENTITY, config) as loader:
        whole = list(loader)
    parts = []
    for rank in range(num_ranks):
        with WindowLoader(store, range(5), IDENTITY, config, rank=rank, num_ranks=num_ranks) as loader:
            parts.append(list(loader))
    for batch, *shares in zip(whole, *parts, strict=True):
        assert torch.equal(batch.pixels, torch.cat([share.pixels for share in shares]))
        assert torch.equal(batch.actions, torch.cat([share.actions for share in shares]))


def test_actions_are_normalised(store: EpisodeStore) -> None:
    statistics = ActionStatistics((10.0, 20.0), (2.0, 4.0))
    with WindowLoader(store, [0], statistics, LoaderConfig(batch_size=1, shuffle=False)) as loader:
        batch = next(iter(loader))
    assert batch.actions[0, 0, :4].tolist() == [-5.0, -5.0, -4.5, -5.25]


def test_released_memory_is_used_again_and_kept_memory_is_not_touched(store: EpisodeStore) -> None:
    with WindowLoader(store, range(5), IDENTITY, LoaderConfig(batch_size=8, prefetch_batches=0)) as loader:
        batches = loader.forever()
        kept = next(batches)
        before = kept.pixels.clone()
        released = next(batches)
        address = released.pixels.data_ptr()
        released.release()
        assert next(batches).pixels.data_ptr() == address
        assert kept.to(torch.device("cpu"))[0] is kept.pixels
        assert torch.equal(kept.pixels, before)
        address = kept.pixels.data_ptr()
        pixels, _ = kept.to(torch.device("meta"))  # stands for any device that copies
        assert pixels.shape == before.shape
        assert next(batches).pixels.data_ptr() == address


def noise_store(path: Path) -> EpisodeStore:
    with StoreWriter(path) as writer:
        for episode in random_episodes(3, range(4)):
            writer.append(episode)
    return EpisodeStore.open(path)


@pytest.mark.parametrize(("limit", "kind"), [(2**30, DecodedFrames), (0, DownsampledFrames)])
def test_smaller_frames_are_the_same_whether_kept_or_made_at_each_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, kind: type
) -> None:
    monkeypatch.setattr("alewm.data.frame_sources.DECODED_LIMIT_BYTES", limit)
    store = noise_store(tmp_path / "a.h5")
    config = LoaderConfig(batch_size=2, image_size=4, shuffle=False)
    full_config = LoaderConfig(batch_size=2, shuffle=False)
    with (
        WindowLoader(store, [1, 3], IDENTITY, config) as small,
        WindowLoader(store, [1, 3], IDENTITY, full_config) as full,
    ):
        assert isinstance(small.frames, kind)
        for few, many in zip(small, full, strict=True):
            assert torch.equal(few.pixels, area_downsample(many.pixels, 4))


def test_every_inflater_returns_the_same_frames(tmp_path: Path) -> None:
    store = noise_store(tmp_path / "a.h5")
    table = chunk_table(store.pixels)
    assert not isinstance(table, str)
    rows = np.arange(store.num_rows)
    expected = store.pixels[:]
    inflaters = [fastest_inflater(), Inflate()]
    assert inflaters[-1].library == "zlib"
    for inflater in inflaters:
        out = np.empty_like(expected)
        MappedFrames(store, table, inflater).read(rows, out)
        np.testing.assert_array_equal(out, expected)


def test_impossible_requests_are_refused(store: EpisodeStore) -> None:
    with pytest.raises(InputError, match="hold 11 windows of 20 rows, fewer than one batch of 128"):
        WindowLoader(store, [0], IDENTITY)
    with pytest.raises(InputError, match="cannot be shared equally by 3"):
        WindowLoader(store, range(5), IDENTITY, LoaderConfig(batch_size=8), num_ranks=3)
    with pytest.raises(InputError, match="actions of 1 numbers"):
        WindowLoader(store, range(5), ActionStatistics((0.0,), (1.0,)), LoaderConfig(batch_size=8))
    with pytest.raises(InputError, match="cannot be averaged down to 13 x 13"):
        WindowLoader(store, range(5), IDENTITY, LoaderConfig(batch_size=8, image_size=13))
    with pytest.raises(InputError, match="has episodes 0 to 4, not 5"):
        WindowLoader(store, [0, 5], IDENTITY)
    with WindowLoader(store, range(5), IDENTITY, LoaderConfig(batch_size=8)) as loader:
        state = loader.state_dict() | {"seed": 5}
        with pytest.raises(InputError, match="saved loader position has seed 5"):
            loader.load_state_dict(state)


@pytest.mark.parametrize("num_ahead", [0, 1, 3])
def test_frames_read_ahead_come_in_order_and_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_ahead: int
) -> None:
    monkeypatch.setattr("alewm.data.loader._parts_ahead", lambda _: num_ahead)
    store = EpisodeStore.open(write_tape(tmp_path / "long.h5", [700, 300, 1000]))
    rows = np.r_[store.drawn_rows([0, 2]), [5, 5, 3]]  # rows may come again, and in any order
    seen = np.zeros_like(rows)
    for part, pixels in frames_ahead(store, rows, torch.device("cpu")):
        assert len(pixels) <= 256
        seen[part] = numbers(pixels.numpy())
    np.testing.assert_array_equal(seen, rows)


def test_memory_of_frames_read_ahead_is_used_again_and_threads_end_with_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alewm.data.loader._parts_ahead", lambda _: 3)
    store = EpisodeStore.open(write_tape(tmp_path / "long.h5", [6000]))
    before = threading.active_count()
    for device in ("cpu", "meta"):  # meta stands for any device that copies
        frames = frames_ahead(store, store.drawn_rows(), torch.device(device))
        addresses = [pixels.data_ptr() for _, pixels in islice(frames, 20)]
        assert device == "meta" or len(set(addresses)) < 10
        assert threading.active_count() > before
        frames.close()
        assert threading.active_count() == before
