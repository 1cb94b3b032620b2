"""Statistics of collected files: comparable with what is published."""

from functools import partial

import h5py
import numpy as np
import pytest

from alewm.data.collect import collect
from alewm.data.store import EpisodeStore
from alewm.envs.registry import get_task
from alewm_lab.benchmarks.data_statistics import measure, presolved_share, statistics_table
from published_files import write_published

TWO_ROOM = get_task("two-room")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    source = partial(TWO_ROOM.collect_episodes, image_size=8)
    return collect(source, tmp_path_factory.mktemp("data") / "two-room.h5", num_episodes=40, seed=0)


def test_the_share_of_solved_pairs_is_that_of_the_distances(path):
    with EpisodeStore.open(path) as store:
        solved = []
        for episode in range(store.num_episodes):
            position = store.episode_columns(episode)["proprio"]
            solved += (np.linalg.norm(position[25:] - position[:-25], axis=1) < 16).tolist()
        assert presolved_share(store, TWO_ROOM) == np.mean(solved)
        assert presolved_share(store, TWO_ROOM, most_pairs=1500) == pytest.approx(np.mean(solved), abs=0.03)
        assert presolved_share(store, TWO_ROOM, goal_offset=101) is None


def test_the_table_has_the_published_figures_beside_ours(path):
    with EpisodeStore.open(path) as store:
        lines = statistics_table(measure(store, TWO_ROOM), TWO_ROOM).splitlines()
    row = next(line for line in lines if line.startswith("length mean"))
    assert row.split()[-1] == "92.08"
    assert "published" in lines[0]


def test_a_file_without_states_still_has_its_general_figures(path, tmp_path):
    other = tmp_path / "other.h5"
    other.write_bytes(path.read_bytes())
    with h5py.File(other, "r+") as file:
        del file["proprio"]
    with EpisodeStore.open(path) as whole, EpisodeStore.open(other) as store:
        found = measure(store, TWO_ROOM)
        assert found == {name: value for name, value in measure(whole, TWO_ROOM).items() if name in found}
        assert "presolved_share" not in found
        assert "action_std" in found


def test_a_published_file_without_our_columns_has_what_can_be_said_of_it(tmp_path):
    write_published(tmp_path / "a.h5", "pusht_expert_train")
    with EpisodeStore.open(tmp_path / "a.h5") as store:
        found = measure(store, get_task("push-t"))
    assert 0 <= found["presolved_share"] < 0.5
    assert "contact_share" not in found
