"""The published layouts, read back through everything training asks of a file."""

from pathlib import Path

import numpy as np
import pytest

from alewm.data.action_statistics import ActionStatistics
from alewm.data.collect import RecordedEpisodes, collect
from alewm.data.frame_sources import verify_frames
from alewm.data.inspection import file_figures
from alewm.data.loader import LoaderConfig, WindowLoader
from alewm.data.splits import load_or_draw_pairs, load_or_make_splits
from alewm.data.store import EpisodeStore
from alewm.data.windows import WindowShape
from published_files import LAYOUTS, write_published

every_layout = pytest.mark.parametrize("name", LAYOUTS)


@every_layout
def test_windows_show_what_was_recorded(tmp_path: Path, name: str) -> None:
    written = write_published(tmp_path / "a.h5", name)
    with EpisodeStore.open(tmp_path / "a.h5") as store:
        assert store.version is None
        assert [note for note in store.notes if "no checksums" not in note] == []
        assert store.lengths.tolist() == written["ep_len"].tolist()
        assert verify_frames(store)
        statistics, shape = ActionStatistics.fit(store.actions), WindowShape()
        taken = written["action"][~np.isnan(written["action"]).any(axis=1)].astype(np.float64)
        np.testing.assert_allclose(statistics.mean, taken.mean(axis=0))
        np.testing.assert_allclose(statistics.std, taken.std(axis=0))
        with WindowLoader(store, range(store.num_episodes), statistics, LoaderConfig(batch_size=7)) as loader:
            assert "decoded by blosc" in loader.frames.description
            assert loader.num_windows == sum(length - 19 for length in written["ep_len"])
            starts = []
            for batch in loader:
                rows = batch.pixels[..., 0, 0, 0].numpy().astype(int) + 256 * batch.pixels[..., 0, 0, 1].numpy().astype(
                    int
                )
                np.testing.assert_array_equal(batch.pixels.numpy(), written["pixels"][rows])
                np.testing.assert_array_equal(rows, shape.frame_rows(rows[:, 0]))
                actions = statistics.denormalize(batch.actions.numpy().reshape(7, 15, -1))
                np.testing.assert_allclose(actions, written["action"][shape.action_rows(rows[:, 0])], atol=1e-5)
                starts += rows[:, 0].tolist()
        assert len(set(starts)) == len(starts)


@every_layout
def test_splits_pairs_and_figures_can_be_made(tmp_path: Path, name: str) -> None:
    written = write_published(tmp_path / "a.h5", name)
    layout = LAYOUTS[name]
    with EpisodeStore.open(tmp_path / "a.h5") as store:
        splits = load_or_make_splits(store)
        assert bool(splits.families) == (layout.copies > 1)
        if splits.families:
            assert splits.families.startswith("6 families of copies, found by equal length and first 'state'")
            families = [{episode // layout.copies for episode in part} for part in (splits.train, splits.test)]
            assert not families[0] & families[1]
        pairs = load_or_draw_pairs(store, splits)
        assert [pair.episode for pair in pairs.test] == list(splits.test)
        for episode in range(store.num_episodes):
            columns = store.episode_columns(episode)
            rows = store.rows_of(episode)
            for column, values in columns.items():
                expected = written[column][rows]
                found = values.astype(str) if expected.dtype == object else values
                np.testing.assert_array_equal(found, expected)
        last_is_nan = np.isnan(store.actions[store.index.last_rows]).all()
        assert last_is_nan == layout.last_action_is_nan
        assert file_figures(store.episode_columns(e)["action"] for e in range(store.num_episodes))["rows"] == len(
            written["action"]
        )


@every_layout
def test_a_converted_file_has_the_same_content(tmp_path: Path, name: str) -> None:
    written = write_published(tmp_path / "a.h5", name, num_episodes=4)
    copy = collect(RecordedEpisodes(tmp_path / "a.h5"), tmp_path / "copy.h5", num_episodes=4, seed=0)
    with EpisodeStore.open(copy) as store:
        np.testing.assert_array_equal(store.frames(np.arange(store.num_rows)), written["pixels"])
        np.testing.assert_array_equal(store.actions, written["action"])
        assert set(store.column_names) == {
            column for column, (dtype, _) in LAYOUTS[name].columns.items() if dtype != "str"
        } | {"pixels", "action"}
