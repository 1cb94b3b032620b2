"""From recorded episodes to plans: the trainer on the real loader, the planner on the real checkpoint."""

import dataclasses
from functools import partial

import pytest
import torch

from alewm.data.action_statistics import ActionStatistics
from alewm.data.collect import collect
from alewm.data.loader import LoaderConfig, WindowLoader
from alewm.data.store import EpisodeStore
from alewm.envs.registry import get_task
from alewm.model.checkpoint_files import checkpoints_in
from alewm.model.vit import ViTConfig
from alewm.planning.planner import Planner, PlanningConfig
from alewm.planning.search import CEMConfig
from alewm.training.checkpoint import load_world_model
from alewm.training.data import RunWindows, TrainingData
from alewm.training.trainer import Trainer
from memory_windows import run_config

CPU = torch.device("cpu")
ENCODER = ViTConfig(image_size=28, patch_size=14, hidden_dim=16, num_blocks=2, num_heads=2, mlp_dim=32)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    source = partial(get_task("two-room").collect_episodes, image_size=28)
    path = collect(source, tmp_path_factory.mktemp("data") / "two-room.h5", num_episodes=5, seed=0)
    with EpisodeStore.open(path) as opened:
        yield opened


def config(num_steps: int):
    base = run_config(num_steps=num_steps, checkpoint_every=6)
    return dataclasses.replace(base, model=dataclasses.replace(base.model, action_dim=10, encoder=ENCODER))


def train(store, folder, run):
    statistics = ActionStatistics.fit(store.actions)
    with (
        WindowLoader(store, [0, 1, 2, 3], statistics, LoaderConfig(batch_size=16, num_threads=1)) as source,
        WindowLoader(store, [4], statistics, LoaderConfig(batch_size=16, num_threads=1, shuffle=False)) as validation,
    ):
        extras = {"action_statistics": statistics.to_dict()}
        return Trainer(run, RunWindows(source, validation), folder=folder, device=CPU, extras=extras).run()


def test_a_run_interrupted_between_batches_reads_on_where_it_stopped(store, tmp_path):
    whole = train(store, tmp_path / "whole", config(12))
    train(store, tmp_path / "parts", config(12))
    last = checkpoints_in(tmp_path / "parts" / "checkpoints")[-1]
    for path in last.iterdir():
        path.unlink()
    last.rmdir()
    again = train(store, tmp_path / "parts", config(12))
    left, right = (load_world_model(result.checkpoint)[0].state_dict() for result in (whole, again))
    assert [name for name in left if not torch.equal(left[name], right[name])] == []
    assert whole.metrics["validation/loss"] == again.metrics["validation/loss"]


def test_the_checkpoint_is_all_the_planner_needs(store, tmp_path):
    result = train(store, tmp_path, config(6))
    model, description = load_world_model(result.checkpoint)
    statistics = ActionStatistics.from_dict(description.extras["action_statistics"])
    cem = CEMConfig(num_candidates=20, num_iterations=2, num_elites=4)
    planner = Planner(model, statistics.mean, statistics.std, PlanningConfig(cem=cem))
    frames = torch.from_numpy(store.episode(4)["pixels"])
    actions = planner(frames[0], frames[25])
    assert actions.shape == (25, 2)
    assert actions.isfinite().all()


@pytest.fixture(scope="module")
def data(store):
    opened = TrainingData.open(store.path, config(6))
    yield opened
    opened.store.close()


def with_training(**changes):
    run = config(6)
    return dataclasses.replace(run, training=dataclasses.replace(run.training, **changes))


def test_windows_of_a_part_are_cut_from_its_own_episodes(data):
    for part in ("train", "validation"):
        with data.loader(part, config(6), CPU, num_threads=1, batch_size=4) as loader:
            assert loader.index.offsets.tolist() == [data.store.offsets[episode] for episode in data.splits.part(part)]


def test_every_look_at_validation_meets_the_same_windows(data):
    windows = data.windows(with_training(validation_batches=2), CPU, num_threads=1).validation
    first, again = ([batch.actions for batch in windows] for _ in range(2))
    assert len(first) == 2
    assert not torch.equal(*first)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_a_batch_of_validation_is_as_large_as_in_training_or_as_there_are_windows(data):
    assert data.validation_batch_size(config(6)) == 16
    assert data.validation_batch_size(with_training(batch_size=10**6)) == data.num_windows("validation")
