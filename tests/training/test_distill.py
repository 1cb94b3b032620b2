"""Fitting distilled dynamics: windows are cut where they should be, and a known system is recovered."""

import math
import threading
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alewm.data.action_statistics import ActionStatistics
from alewm.data.store import EpisodeStore
from alewm.data.writer import StoreWriter
from alewm.errors import InputError
from alewm.evaluation.distill_run import evenly_spread
from alewm.training.distill import DistillConfig, LatentWindows, encode_windows, fit_dynamics, open_loop_errors
from small_models import our_model

QUICK = DistillConfig(hidden_dim=32, num_updates=600, batch_size=64)


def linear_system(num_episodes, seed, *, width=3, length=51):
    """Episodes of z' = A z + B a, a block of five actions at a time; rows between frames are NaN."""
    generator = torch.Generator().manual_seed(seed)
    turn = torch.tensor([[0.9, -0.3, 0.0], [0.3, 0.9, 0.1], [0.0, 0.0, 0.8]])
    push = torch.linspace(-0.4, 0.4, 3 * 10).view(3, 10)
    actions = torch.randn(num_episodes, length, 2, generator=generator)
    latents = torch.full((num_episodes, length, width), math.nan)
    latents[:, 0, :3] = torch.randn(num_episodes, 3, generator=generator)
    for row in range(5, length, 5):
        blocks = actions[:, row - 5 : row].flatten(1)
        latents[:, row, :3] = latents[:, row - 5, :3] @ turn.T + blocks @ push.T
    starts = [episode * length + row for episode in range(num_episodes) for row in range(0, length - 25, 5)]
    return LatentWindows(latents.flatten(0, 1), actions.flatten(0, 1), torch.tensor(starts), 5)


def test_a_window_has_the_blocks_between_its_latents():
    rows = torch.arange(60.0)
    windows = LatentWindows(rows[:, None].repeat(1, 3), torch.stack([rows, -rows], 1), torch.tensor([2, 30]), 4)
    z, a = windows.take(torch.tensor([1, 0]), 2)
    assert z[:, :, 0].tolist() == [[30, 35, 40, 45, 50], [2, 7, 12, 17, 22]]
    assert z.shape == (2, 5, 2)
    assert a.shape == (2, 4, 10)
    assert a[0, 1].tolist() == [35, -35, 36, -36, 37, -37, 38, -38, 39, -39]


@given(st.integers(1, 60), st.integers(1, 80))
def test_some_episodes_come_from_all_over_the_file(num_there, asked):
    """Where episodes are copies of demonstrations, the first ones would be those of a few."""
    there = [10 * episode for episode in range(num_there)]
    taken = evenly_spread(there, asked)
    assert len(set(taken)) == len(taken) == min(asked, num_there)
    places = [there.index(episode) for episode in taken]
    gaps = [b - a for a, b in pairwise([*places, num_there])]
    assert places[0] == 0
    assert max(gaps) - min(gaps) <= 1


def test_a_linear_system_is_recovered_over_the_whole_horizon():
    train, held_out = linear_system(200, 0), linear_system(40, 1)
    network = fit_dynamics(train, held_out, 3, QUICK)
    errors = open_loop_errors(network.imagine, held_out, 3)
    assert len(errors) == 5
    assert max(errors) < 0.01, "of the variance that is there to be explained"
    fresh = open_loop_errors(network.imagine, linear_system(40, 2), 3)
    assert max(fresh) < 0.01


def test_the_same_seed_fits_the_same_network_and_draws_nothing_globally():
    train, held_out = linear_system(40, 0), linear_system(10, 1)
    config = DistillConfig(hidden_dim=8, num_updates=20, batch_size=16)
    before = torch.get_rng_state()
    first, second = (fit_dynamics(train, held_out, 3, config).state_dict() for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_network_with_the_lowest_validation_error_is_kept(monkeypatch):
    """Validation of another system: what is learned later is worse there, so an early network must win."""
    train, held_out = linear_system(40, 0), linear_system(10, 1)
    seen = []

    def worse_each_time(imagine, windows, capacity):
        seen.append({name: tensor.clone() for name, tensor in imagine.__self__.state_dict().items()})
        return [float(len(seen))]

    monkeypatch.setattr("alewm.training.distill.open_loop_errors", worse_each_time)
    kept = fit_dynamics(train, held_out, 3, DistillConfig(hidden_dim=8, num_updates=20, batch_size=16)).state_dict()
    assert len(seen) == 10
    assert all(torch.equal(kept[name], seen[0][name]) for name in kept)
    assert not torch.equal(kept["output_layer.weight"], seen[-1]["output_layer.weight"])


def test_an_error_of_one_is_no_better_than_the_mean():
    windows = linear_system(100, 3)
    z, _ = windows.take(torch.arange(len(windows)), 3)
    mean = z.flatten(0, 1).mean(0)
    errors = open_loop_errors(lambda first, a: [mean.expand_as(first)] * 5, windows, 3)
    assert sum(errors) / 5 == pytest.approx(1, abs=0.15)


def test_a_fit_that_diverges_is_refused():
    train, held_out = linear_system(40, 0), linear_system(10, 1)
    with pytest.raises(InputError, match="no validation error was finite"):
        fit_dynamics(train, held_out, 3, DistillConfig(num_updates=60, learning_rate=1e30))


def recorded(path, size, num_episodes=9, length=100):
    """A file of noise, in which no two frames are alike."""
    rng = np.random.default_rng(size)
    with StoreWriter(path) as writer:
        for _ in range(num_episodes):
            actions = rng.normal(size=(length, 2)).astype(np.float32)
            actions[-1] = np.nan
            writer.append({"pixels": rng.integers(0, 256, (length, size, size, 3), np.uint8), "action": actions})
    return EpisodeStore.open(path)


def encoded(model, store, episodes, **options):
    statistics = ActionStatistics((0.0, 0.0), (1.0, 1.0))
    return encode_windows(model, store, episodes, statistics, horizon=5, frame_skip=5, width=4, **options)


@pytest.mark.parametrize("num_ahead", [0, 4])
@pytest.mark.parametrize("size", [28, 42])
def test_every_frame_has_the_latent_that_planning_gives_it(tmp_path, monkeypatch, size, num_ahead):
    """Threads decode frames ahead, in batches, and larger frames are averaged down: each by itself is the same."""
    monkeypatch.setattr("alewm.data.loader._parts_ahead", lambda _: num_ahead)
    store, model, done = recorded(tmp_path / "noise.h5", size), our_model(8, (4, 8)), []
    windows = encoded(model, store, [0, 2, 3, 7, 8], advance=done.append)
    assert sum(done) == 500
    assert len(done) > 1
    rows = store.drawn_rows([0, 2, 3, 7, 8])
    alone = [model.encode(torch.as_tensor(store.frames(rows[[i]]))[:, None]).latents[0, :, :4] for i in range(500)]
    torch.testing.assert_close(windows.latents[rows], torch.cat(alone), atol=1e-5, rtol=1e-5)
    others = store.drawn_rows([1, 4, 5, 6])
    assert windows.latents[others].isnan().all()


@pytest.mark.parametrize("num_ahead", [0, 4])
def test_a_damaged_frame_is_named_and_leaves_no_thread(tmp_path, monkeypatch, num_ahead):
    monkeypatch.setattr("alewm.data.loader._parts_ahead", lambda _: num_ahead)
    store, model = recorded(tmp_path / "noise.h5", 28), our_model(8, (4, 8))
    chunk = store.pixels.id.get_chunk_info_by_coord((650, 0, 0, 0))
    with store.path.open("r+b") as file:
        file.seek(chunk.byte_offset + chunk.size // 2)
        file.write(b"\xa5\x5a\xa5\x5a")
    before, done = threading.active_count(), []
    with pytest.raises(InputError, match=r"noise\.h5, column 'pixels', row 650: the stored frame differs"):
        encoded(model, store, range(9), advance=done.append)
    assert 0 < sum(done) < 650
    assert threading.active_count() == before
