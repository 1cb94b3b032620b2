"""Batches of several files: whose turn it is, how long an epoch is, where it goes on, what each rank holds."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alewm.data.action_statistics import ActionStatistics
from alewm.data.loader import LoaderConfig, WindowLoader
from alewm.data.store import EpisodeStore
from alewm.data.windows import WindowShape
from alewm.errors import InputError
from alewm.training.config import RunConfig
from alewm.training.mixture import MixedWindows, mean_q_of_sets, own_configs, rows_of_set, shares, take_turns
from toy_episodes import numbers, write_tape

CPU = torch.device("cpu")
LENGTHS = {"long": [60, 45, 80], "short": [30, 25]}
"""Rows of the episodes of two files: 41 + 26 + 61 = 128 and 11 + 6 = 17 windows."""
STATISTICS = {"long": ActionStatistics((10.0, 0.0), (2.0, 1.0)), "short": ActionStatistics((0.0, -5.0), (1.0, 4.0))}


@pytest.fixture
def stores(tmp_path):
    return {name: EpisodeStore.open(write_tape(tmp_path / f"{name}.h5", rows)) for name, rows in LENGTHS.items()}


def mixed(stores, batch_size=6, rank=0, num_ranks=1, names=("long", "short")):
    sizes = shares(batch_size, len(names), num_ranks)
    loaders = {}
    for name, size in zip(names, sizes, strict=True):
        config = LoaderConfig(batch_size=size, seed=7, num_threads=1)
        episodes = range(len(LENGTHS[name]))
        loaders[name] = WindowLoader(stores[name], episodes, STATISTICS[name], config, rank=rank, num_ranks=num_ranks)
    return MixedWindows(loaders)


def taken(windows, count):
    return [batch.to(CPU) for batch in islice(windows.forever(), count)]


@given(st.integers(1, 5), st.integers(0, 40))
def test_every_data_set_has_its_rows_and_shares_differ_by_one_at_most(num_sets, more):
    sizes = shares(num_sets + more, num_sets)
    assert sum(sizes) == num_sets + more
    assert sorted(sizes, reverse=True) == list(sizes)
    assert sizes[0] - sizes[-1] <= 1
    parts = [torch.arange(size)[:, None] + 100 * number for number, size in enumerate(sizes)]
    whole = take_turns(parts)
    assert (whole[:, 0] // 100).tolist() == [i % num_sets for i in range(len(whole))]
    for number, part in enumerate(parts):
        assert torch.equal(rows_of_set(whole, number, num_sets), part)


def test_batches_that_do_not_divide_are_refused():
    with pytest.raises(InputError, match="no window for each of 3 data sets"):
        shares(2, 3)
    with pytest.raises(
        InputError, match="over 2 data sets and 4 processes; choose a batch size that is a multiple of 8"
    ):
        shares(12, 2, num_ranks=4)
    assert shares(16, 2, num_ranks=4) == (8, 8)


def test_the_files_take_turns_and_actions_have_their_own_file_s_statistics(stores):
    shape = WindowShape()
    for pixels, actions in taken(mixed(stores, batch_size=7), 5):
        assert [len(part) for part in (pixels[::2], pixels[1::2])] == [4, 3]
        for number, name in enumerate(LENGTHS):
            rows = shape.frame_rows(numbers(rows_of_set(pixels, number, 2).numpy())[:, 0])
            expected = shape.action_blocks(STATISTICS[name].normalize(stores[name].actions), rows[:, 0])
            np.testing.assert_array_equal(rows_of_set(actions, number, 2), expected)


def test_an_epoch_has_the_batches_that_all_windows_fill_and_each_file_passes_by_itself(stores):
    windows = mixed(stores)
    assert len(windows) == (128 + 17) // 6 == 24
    batches = taken(windows, len(windows))
    seen = [[int(row) for p, _ in batches for row in numbers(p[number::2].numpy())[:, 0]] for number in range(2)]
    assert len(set(seen[0])) == 24 * 3  # of 128 windows, none twice
    # A pass of the short file is 5 batches of 3, its incomplete sixth dropped: four passes and four batches more.
    passes = [seen[1][start : start + 15] for start in range(0, 24 * 3, 15)]
    assert all(len(set(each)) == len(each) for each in passes)
    assert passes[0] != passes[1]
    assert windows.state_dict()["short"]["epoch"] == 4
    assert windows.state_dict()["long"]["epoch"] == 0


@pytest.mark.parametrize("done", [1, 5, 13])
def test_it_goes_on_where_it_stopped_in_the_middle_of_an_epoch(stores, done):
    whole = taken(mixed(stores), 20)
    first = mixed(stores)
    taken(first, done)
    second = mixed(stores)
    second.load_state_dict(first.state_dict())
    for here, there in zip(taken(second, 20 - done), whole[done:], strict=True):
        assert torch.equal(here[0], there[0])
        assert torch.equal(here[1], there[1])


def test_a_position_in_other_data_sets_is_refused(stores):
    with pytest.raises(InputError, match=r"in the data sets \['short', 'long'\], this run has \['long', 'short'\]"):
        mixed(stores).load_state_dict(mixed(stores, names=("short", "long")).state_dict())


def test_the_ranks_together_hold_the_batch_of_one_process(stores):
    whole = taken(mixed(stores, batch_size=8), 6)
    ranks = [taken(mixed(stores, batch_size=8, rank=rank, num_ranks=2), 6) for rank in range(2)]
    for one, *parts in zip(whole, *ranks, strict=True):
        for index in range(2):
            assert torch.equal(torch.cat([part[index] for part in parts]), one[index])


def test_a_batch_keeps_its_memory_while_the_next_are_read(stores):
    windows = mixed(stores).forever()
    pixels, actions = next(windows).to(CPU)
    before = pixels.clone(), actions.clone()
    for batch in islice(windows, 6):
        batch.to(CPU)
    assert torch.equal(pixels, before[0])
    assert torch.equal(actions, before[1])


def test_every_data_set_is_read_in_an_order_of_its_own():
    """Also where two files have equally many windows; the order is the run's seed's."""
    run = RunConfig(task="reacher+two-room")
    other = replace(run, training=replace(run.training, seed=run.training.seed + 1))
    seeds = [each.training.seed for config in (run, other) for each in own_configs(config).values()]
    assert len(set(seeds)) == 4


def test_q_is_averaged_over_the_rows_of_each_data_set():
    q = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.2, 0.8]])
    found = mean_q_of_sets(q, ["a", "b"])
    torch.testing.assert_close(found["q/a"], torch.tensor([0.75, 0.25]))
    torch.testing.assert_close(found["q/b"], torch.tensor([0.1, 0.9]))
    assert mean_q_of_sets(q, []) == {}
