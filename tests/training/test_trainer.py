"""The loop as a person meets it: it learns, logs, resumes, refuses."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from alewm.capacity.support import polynomial_prior, survival
from alewm.errors import InputError
from alewm.model.checkpoint_files import checkpoints_in
from alewm.training.checkpoint import load_world_model
from alewm.training.config import OptimConfig
from alewm.training.data import RunWindows
from alewm.training.step import learning_rate_factor
from alewm.training.trainer import NonFiniteUpdateError, Trainer
from alewm.training.validation import masked_variance
from memory_windows import MODEL_OF, MemoryWindows, Windows, draw_windows, run_config

CPU = torch.device("cpu")
HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


def trainer(folder: Path, config, windows: Windows | None = None, *, validation=(), **arguments) -> Trainer:
    source = MemoryWindows(windows or draw_windows(80), config.training.batch_size)
    return Trainer(config, RunWindows(source, validation), folder=folder, device=CPU, **arguments)


def records(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    return load_world_model(checkpoint)[0].state_dict()


def assert_same_weights(a: Path, b: Path) -> None:
    left, right = weights(a), weights(b)
    assert left.keys() == right.keys()
    assert [name for name in left if not torch.equal(left[name], right[name])] == []


@pytest.mark.parametrize("method", sorted(MODEL_OF))
def test_every_method_trains_and_says_how_it_goes(tmp_path, method):
    config = run_config(method)
    seen = []
    result = trainer(tmp_path, config, validation=[draw_windows(16, seed=5)]).run(
        lambda step, metrics: seen.append((step, metrics["train/loss"]))
    )
    assert result.step == 12
    assert checkpoints_in(tmp_path / "checkpoints")[-1] == result.checkpoint
    assert [step for step, _ in seen] == [2, 4, 6, 8, 10, 12]
    lines = records(tmp_path)
    train = [line for line in lines if line["kind"] == "train"]
    assert {"loss", "prediction", "regularizer", "gradient_norm", "q_entropy", "windows_per_second"} < set(train[0])
    assert sum(train[-1][f"q/{k}"] for k in config.model.capacities) == pytest.approx(1, abs=1e-5)
    assert [line["step"] for line in lines if line["kind"] == "latent"] == [4, 8, 12]
    assert [line["step"] for line in lines if line["kind"] == "validation"] == [6, 12]
    latent = [line for line in lines if line["kind"] == "latent"][-1]
    assert len(latent["masked_variance"]) == len(latent["prior_survival"]) == len(latent["variance"]) == 8
    assert 1 <= latent["effective_rank"] <= 8
    assert result.metrics["validation/prediction"] == lines[-1]["prediction"]


def test_the_time_of_a_run_is_that_of_its_updates_in_whichever_process_they_were_made(tmp_path):
    class StopError(Exception):
        """As a kill between two checkpoints."""

    def linger(step: int, _: object) -> None:
        time.sleep(0.3 if step in (2, 6) else 0)
        if step == 6:  # two updates after a checkpoint: lost, and their time with them
            raise StopError

    began = time.perf_counter()
    with pytest.raises(StopError):
        trainer(tmp_path, run_config()).run(linger)
    result = trainer(tmp_path, run_config()).run()
    assert 0.3 < result.seconds < time.perf_counter() - began - 0.3


def test_latent_lines_are_about_the_latents_and_q_of_their_update_beside_the_prior(tmp_path):
    config = run_config(optim=OptimConfig(learning_rate=2e-3, selector_multiplier=50.0))
    support, seen = config.model.support, []
    run = trainer(tmp_path, config)
    run.objective.register_forward_hook(lambda _, __, losses: seen.append(losses))
    run.run()
    line, last = [line for line in records(tmp_path) if line["kind"] == "latent"][-1], seen[-1]
    prior = polynomial_prior(len(support), config.model.prior_degree)
    assert (last.q.mean(0) - prior).abs().max() > 0.01
    assert line["masked_variance"] == pytest.approx(masked_variance(last.latents, last.q, support).tolist())
    assert line["prior_survival"] == pytest.approx(survival(prior, support).tolist())


def test_windows_per_second_are_those_of_all_updates_since_the_last_line(tmp_path, monkeypatch):
    clock = SimpleNamespace(perf_counter=partial(next, count()))  # a second passes between two looks at it
    monkeypatch.setattr("alewm.training.trainer.time", clock)
    trainer(tmp_path, run_config(batch_size=16, log_every=3, checkpoint_every=12)).run()
    assert [line["windows_per_second"] for line in records(tmp_path) if line["kind"] == "train"] == [48] * 4


def test_in_mixed_precision_a_run_says_how_far_latents_are_from_float32(tmp_path):
    gaps = {}
    for precision in ("float32", "bfloat16"):
        config = run_config(precision=precision)
        found = trainer(tmp_path / precision, config, validation=[draw_windows(16, seed=5)]).run()
        gaps[precision] = found.metrics.get("validation/precision_gap")
    assert gaps["float32"] is None
    assert 0 < gaps["bfloat16"] < 1


def test_the_loss_falls_and_a_latent_does_not_collapse(tmp_path):
    config = run_config(num_steps=100, checkpoint_every=100, log_every=20, batch_size=32)
    trainer(tmp_path, config, draw_windows(640)).run()
    lines = [line for line in records(tmp_path) if line["kind"] == "train"]
    assert lines[-1]["loss"] < 0.7 * lines[0]["loss"]
    assert [line for line in records(tmp_path) if line["kind"] == "latent"][-1]["effective_rank"] > 2


def test_a_delayed_selector_keeps_to_the_prior_and_then_learns(tmp_path):
    optim = OptimConfig(learning_rate=2e-3, selector_multiplier=5.0, selector_delay=0.5)
    config = run_config(optim=optim, num_steps=24, log_every=1)
    trainer(tmp_path, config).run()
    prior = polynomial_prior(len(config.model.support), config.model.prior_degree).tolist()
    drift = {}
    for entry in records(tmp_path):
        if entry["kind"] == "train":
            q = [entry[f"q/{k}"] for k in config.model.capacities]
            drift[entry["step"]] = max(abs(a - b) for a, b in zip(q, prior, strict=True))
    # A line has q as its update met it: the 13th is the first that changes it.
    assert max(drift[step] for step in drift if step <= 13) < 1e-6
    assert drift[14] > 1e-5
    assert drift[24] > 1e-3


def test_a_line_has_the_learning_rate_of_its_update(tmp_path):
    config = run_config(optim=OptimConfig(learning_rate=2e-3, warmup_fraction=0.3))
    trainer(tmp_path, config).run()
    found = {line["step"]: line["learning_rate"] for line in records(tmp_path) if line["kind"] == "train"}
    assert found == pytest.approx({step: 2e-3 * learning_rate_factor(step - 1, 12, 0.3) for step in range(2, 13, 2)})


def test_first_weights_are_those_of_the_seed(tmp_path):
    first, again, other = (trainer(tmp_path, run_config(seed=seed)).model.encoder.position for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path):
    first = trainer(tmp_path / "a", run_config()).run()
    again = trainer(tmp_path / "b", run_config()).run()
    other = trainer(tmp_path / "c", run_config(seed=1)).run()
    assert_same_weights(first.checkpoint, again.checkpoint)
    assert not torch.equal(weights(first.checkpoint)["encoder.position"], weights(other.checkpoint)["encoder.position"])


def start(folder: Path, *batches: str) -> subprocess.Popen:
    paths = os.pathsep.join([str(SOURCE), str(HERE), str(HERE.parent / "helpers")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, str(HERE / "run_squares.py"), str(folder), *batches], env=environment)


def kill_after_line(folder: Path, count: int) -> None:
    process = start(folder, "28")
    metrics = folder / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= count):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_a_run_that_was_killed_ends_like_one_that_was_not(tmp_path):
    whole = start(tmp_path / "whole")
    kill_after_line(tmp_path / "killed", 14)
    left = checkpoints_in(tmp_path / "killed" / "checkpoints")
    assert left
    assert left[-1].name < "step-00000030"
    assert start(tmp_path / "killed").wait() == 0
    assert whole.wait() == 0
    ends = [checkpoints_in(tmp_path / name / "checkpoints")[-1] for name in ("whole", "killed")]
    assert [end.name for end in ends] == ["step-00000030"] * 2
    assert_same_weights(*ends)

    def comparable(name: str) -> list[dict]:
        return [line | {"windows_per_second": 0, "seconds": 0} for line in records(tmp_path / name)]

    assert comparable("whole") == comparable("killed")


def test_repeating_a_finished_run_changes_nothing(tmp_path):
    first = trainer(tmp_path, run_config()).run()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    again = trainer(tmp_path, run_config()).run()
    assert again == first
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_another_config_in_the_same_folder_is_refused_with_the_difference(tmp_path):
    trainer(tmp_path, run_config()).run()
    changed = dataclasses.replace(
        run_config(), objective=dataclasses.replace(run_config().objective, num_projections=8)
    )
    with pytest.raises(InputError, match=r"objective\.num_projections: asked 8, found 16"):
        trainer(tmp_path, changed).run()
    with pytest.raises(InputError, match=r"training\.encoder_blocks: asked 'plain', found 'auto'"):
        trainer(tmp_path, run_config(encoder_blocks="plain")).run()


def test_a_non_finite_loss_stops_with_the_last_good_checkpoint_named(tmp_path):
    poisoned = draw_windows(16 * 12)
    order = torch.randperm(16 * 12, generator=torch.Generator().manual_seed(0))
    poisoned.actions[order[16 * 9]] = torch.nan
    with pytest.raises(NonFiniteUpdateError, match=r"NaN by step 10; .*last good checkpoint is .*step-00000008"):
        trainer(tmp_path, run_config(log_every=5), poisoned).run()
    (last, *_) = checkpoints_in(tmp_path / "checkpoints")[::-1]
    assert last.name == "step-00000008"
    assert all(tensor.isfinite().all() for tensor in weights(last).values())


def test_epochs_count_passes(tmp_path):
    config = run_config(num_steps=None, num_epochs=2)
    assert trainer(tmp_path, config).run().step == 2 * 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_steps": 0}, "num_steps must be at least 1"),
        ({"num_steps": None, "num_epochs": 0}, "num_epochs must be at least 1"),
        ({"log_every": 0}, "log_every must be at least 1"),
    ],
)
def test_counts_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        run_config(**options)


def test_too_little_data_and_compiling_on_a_cpu_are_refused(tmp_path):
    with pytest.raises(InputError, match="do not fill one batch of 16"):
        trainer(tmp_path, run_config(num_steps=None), draw_windows(10))
    with pytest.raises(InputError, match="Updates cannot be compiled: the device is a cpu"):
        trainer(tmp_path, run_config(acceleration="graph"))


def test_bfloat16_networks_keep_float32_statistics(tmp_path):
    config = run_config(precision="bfloat16", optim=OptimConfig(learning_rate=1e-3))
    result = trainer(tmp_path, config).run()
    exact = trainer(tmp_path / "exact", run_config(optim=OptimConfig(learning_rate=1e-3))).run()
    assert result.metrics["train/regularizer"] == pytest.approx(exact.metrics["train/regularizer"], rel=0.1)
    assert all(t.dtype == torch.float32 for t in weights(result.checkpoint).values() if t.is_floating_point())
