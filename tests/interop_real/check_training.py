"""Loggers hold what metrics.jsonl holds, and a trial on Ray is the run of the local process, byte for byte."""

import json
import os
import subprocess
import sys

import pytest

import alewm

STEPS = 12
SMALL = ("--set", "training.batch_size=8", f"training.num_steps={STEPS}", "training.log_every=2")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "two-room.h5"
    with alewm.collect("two-room", path, episodes=16, image_size=28, jobs=1):
        return path


def alewm_command(folder, *words, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "alewm", *map(str, words)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def scalars(run):
    """(name, step) to number, of all lines of metrics."""
    found = {}
    for record in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        kind, step = record.pop("kind"), record.pop("step")
        found |= {(f"{kind}/{name}", step): value for name, value in record.items() if isinstance(value, float)}
    return found


def in_tensorboard(run, _):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {(tag, each.step): each.value for tag in events.Tags()["scalars"] for each in events.Scalars(tag)}


def in_wandb(run, _):
    """From the file of an offline run: records in blocks of 32 KiB, each with a checksum, its length and its kind."""
    from wandb.proto import wandb_internal_pb2

    (path,) = run.glob("wandb/offline-run-*/*.wandb")
    content, place, parts, found = path.read_bytes(), 7, [], {}
    while place + 7 <= len(content):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        parts.append(content[place + 7 : place + 7 + length])
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record.FromString(b"".join(parts))
            parts = []
            line = {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
            step = json.loads(line.pop("_step", "null"))
            numbers = {name: json.loads(text) for name, text in line.items()}
            found |= {(name, step): value for name, value in numbers.items() if isinstance(value, float)}
    return found


def in_trackio(run, folder):
    code = "import json, sys; from trackio.sqlite_storage import SQLiteStorage as S; p, r = sys.argv[1:]; "
    code += "print(json.dumps(S.get_logs(p, r), default=str))"
    name = f"{run.name}-{(run / '.logger-id-trackio').read_text().strip()}"
    done = subprocess.run(
        [sys.executable, "-c", code, "alewm", name],
        env={**os.environ, "TRACKIO_DIR": str(folder / "trackio")},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = json.loads(done.stdout.splitlines()[-1])
    return {(name, line["step"]): v for line in lines for name, v in line.items() if isinstance(v, float)}


READERS = {"tensorboard": in_tensorboard, "wandb": in_wandb, "trackio": in_trackio}


@pytest.mark.parametrize("package", READERS)
def test_a_logger_holds_the_metrics(package, data, tmp_path, found):
    offline = {"WANDB_MODE": "offline", "TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    words = ("train", "two-room", "--width", "tiny", "--data", data, "--out", "run", "--log", package, *SMALL)
    assert f"logger {package}" not in alewm_command(tmp_path, *words, **offline)  # which would say that it failed
    expected, logged = scalars(tmp_path / "run"), READERS[package](tmp_path / "run", tmp_path)
    assert len(expected) > STEPS
    assert expected.keys() <= logged.keys()
    assert all(logged[key] == pytest.approx(value, rel=1e-6, nan_ok=True) for key, value in expected.items())
    found(f"`alewm train --log {package}`, offline", (package,), f"{len(expected)} numbers of metrics.jsonl, all equal")


def test_a_trial_on_ray_is_the_run_of_a_local_process(data, tmp_path, found):
    """With the same number of threads each, on which the order of sums depends."""
    weights = {}
    for executor, words in {"ray": (), "local": ("--jobs", 1)}.items():
        (tmp_path / executor).mkdir()
        grid = ("sweep", "two-room-tiny", "--seeds", 3072, "--data", data, "--no-evaluate", "--cpus-per-trial", 1)
        alewm_command(tmp_path / executor, *grid, *words, *SMALL, "objective.regularizer_weight=0.1,0.3")
        runs = sorted((tmp_path / executor / "runs").glob("*/checkpoints/*/model.safetensors"))
        weights[executor] = {path.parents[2].name: path.read_bytes() for path in runs}
    assert len(weights["ray"]) == 2
    assert weights["ray"] == weights["local"]
    found("`alewm sweep` on Ray against local processes", ("ray",), "weights of 2 trials byte for byte the same")
