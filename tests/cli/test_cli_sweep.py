"""`alewm sweep` as a person meets it: real processes, real Ray, real kills."""

import csv
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import pytest

from alewm.cli.flags import assigned_values
from alewm.sweeps.grid import preset_sweep
from command_line import HELD, SEARCH, contents

# The configuration of the fixture `trained`, field by field.
FIELDS = ("training.batch_size=16", "training.checkpoint_every=4", "training.log_every=1")
STEPS = "training.num_steps=40"
SWEEP = ("sweep", "two-room-tiny", *SEARCH, "--device", "cpu", "--cpus-per-trial", 1)


def start(folder, *arguments, launcher=("-m", "alewm"), held_at=0, **options):
    """`alewm ...` in `folder`, running."""
    terminal = {"COLUMNS": "200", "LINES": "40", "TERM": "xterm"}
    return subprocess.Popen(
        [sys.executable, *launcher, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HELD_AT": str(held_at), **terminal},
        text=True,
        # A shell lets what it starts in the background ignore interrupts, tests and all that they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def runs_of(*grid):
    return preset_sweep(["two-room-tiny"], [3072], assigned_values([*grid, *FIELDS])).runs


def wait_for(condition, process):
    """Until `condition` holds, for as long as `process` runs."""
    while not condition() and process.poll() is None:
        time.sleep(0.01)
    assert condition(), f"the process ended with status {process.returncode} before"


def losses(run):
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if record["kind"] == "train"]


def family(process):
    """The number of `process` and those of all that it started, in any depth."""
    parents = {int(each.name): _parent(each) for each in Path("/proc").iterdir() if each.name.isdecimal()}
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _parent(process):
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


def listening(process):
    """The addresses at which `process` and its children wait for connections."""
    sockets = set()
    for member in family(process):
        with suppress(OSError):
            sockets |= {str(each.readlink()) for each in Path(f"/proc/{member}/fd").iterdir() if each.is_symlink()}
    found = []
    for kind in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                words = bytes.fromhex(local.partition(":")[0])  # of four bytes each, the last byte first
                found.append(b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4)))
    return [ip_address(each[-4:]) if each[:-4] in (b"", V4_IN_V6) else ip_address(each) for each in found]


V4_IN_V6 = bytes(10) + b"\xff\xff"


def killed(folder, data, grid, *options, look=lambda sweep: None):
    """A sweep over `grid` whose first trial was killed after its first checkpoint: folder, log, status, output.

    `look` is called while that trial runs.
    """
    sound = runs_of(*grid)[0]
    options = ("--data", data, "--seeds", 3072, "--retries", 1, *options)
    sweep = start(folder, *SWEEP, "--set", *grid, *FIELDS, *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    run = folder / "runs" / sound.name
    wait_for(lambda: list(run.glob("checkpoints/step-*")), sweep)
    look(sweep)
    (log,) = (folder / "runs/sweeps").glob(f"*/logs/{sound.name}.1.log")
    os.kill(int(re.search(r"process (\d+) on", log.read_text())[1]), signal.SIGKILL)
    assert not (run / "result.json").exists(), "killed too late to prove anything"
    printed, said = sweep.communicate()
    assert "attempt 1 failed; it is tried again: its process was killed" in said
    assert "Traceback" not in said
    assert "continuing" in log.with_name(f"{sound.name}.2.log").read_text()
    return run, log, sweep.returncode, printed, said


def check_same(run, unkilled):
    for name in ("model.safetensors", "training.safetensors"):
        last = "checkpoints/step-00000040"
        assert (run / last / name).read_bytes() == (unkilled / last / name).read_bytes()
    assert losses(run) == losses(unkilled)


def test_on_ray_a_killed_trial_ends_like_an_unkilled_one_and_one_that_always_fails_is_reported(trained, data, tmp_path):
    grid = (STEPS, "training.optim.learning_rate=0.002,1e30")
    heard, modes = [], set()

    def look(sweep):
        heard.extend(listening(sweep.pid))
        for member in family(sweep.pid) - {sweep.pid}:
            with suppress(OSError):
                modes.update(re.findall(rb"RAY_AUTH_MODE=(\w+)", Path(f"/proc/{member}/environ").read_bytes()))

    run, log, status, printed, said = killed(tmp_path, data, grid, look=look)
    assert heard, "Ray has sockets"
    assert all(address.is_loopback for address in heard), heard
    assert modes == {b"token"}
    check_same(run, trained)
    provenance = json.loads((run / "provenance.json").read_text())
    assert provenance["command"].startswith(f"alewm train two-room-tiny --data {data} --out runs/{run.name}")
    diverging = runs_of(*grid)[1]
    assert len(list(log.parent.glob(f"{diverging.name}.*.log"))) == 2
    assert status == 1
    assert "1 of 2 trials failed" in said
    assert f"{diverging.name}: Loss or gradient became infinite or NaN" in said
    assert printed.splitlines()[-1] == str(log.parents[1].relative_to(tmp_path) / "sweep.md")
    assert "raylet" not in printed
    assert "selected learning_rate=0.002 (" in printed
    assert "1 of 2 configurations are complete" in printed
    with (log.parents[1] / "trials.csv").open() as file:
        assert [row["state"] for row in csv.DictReader(file)] == ["finished", "failed"]


def test_in_processes_a_killed_trial_ends_like_an_unkilled_one(trained, data, tmp_path):
    run, log, status, printed, said = killed(tmp_path, data, [f"{STEPS},4"], "--jobs", 2)
    assert status == 0, said
    check_same(run, trained)
    assert "2 of 2 configurations are complete" in printed
    with (log.parents[1] / "trials.csv").open() as file:
        rates = [float(row["validation success (%)"]) for row in csv.DictReader(file)]
    assert len(rates) == 2
    assert rates == sorted(rates, reverse=True)
    assert not list((tmp_path / "runs").glob("*/episodes.jsonl")), "test pairs were planned to"
    assert {path.name for path in (tmp_path / "runs").glob("*/evaluations/*")} == {"validation_cem-20x2-2"}


def test_an_interrupted_sweep_showed_one_bar_and_is_continued_without_repeating(trained, data, tmp_path, alewm_here):
    mine = shutil.copytree(trained, tmp_path / "runs/under-my-own-name")
    arguments = (*SWEEP, "--set", *FIELDS, f"{STEPS},20", "--seeds", 3072, "--data", data)
    terminal, theirs = pty.openpty()
    held = {"launcher": (HELD,), "held_at": 20}
    sweep = start(tmp_path, *arguments, "--jobs", 1, stdout=subprocess.PIPE, stderr=theirs, **held)
    os.close(theirs)
    shown = bytearray()

    def watch():
        try:
            while part := os.read(terminal, 65536):
                shown.extend(part)
        except OSError:
            pass  # the terminal has no writer left

    def text():
        return re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", shown.decode(errors="replace"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    name = runs_of(f"{STEPS},20")[1].name
    wait_for(lambda: list((tmp_path / "runs" / name).glob("checkpoints/step-*")), sweep)
    wait_for(lambda: "1/2 trials" in text(), sweep)
    sweep.send_signal(signal.SIGINT)
    sweep.communicate()
    watcher.join()
    os.close(terminal)
    assert sweep.returncode == 130
    assert re.search(r"sweep \(logs in \S+\)", text())
    assert "repeat the command to continue" in text()

    before = contents(mine)
    assert [name for name in before if name.startswith("evaluations/validation")]
    printed = alewm_here(*arguments, "--jobs", 1)
    assert contents(mine) == before
    assert "2 of 2 configurations are complete" in printed
    (log,) = (tmp_path / "runs/sweeps").glob(f"*/logs/{name}.2.log")
    assert "continuing" in log.read_text()
    # Nothing is left to do, so that nothing is started, not even Ray.
    assert alewm_here(*arguments) == printed
    assert len(list(log.parent.iterdir())) == 3


def test_a_dry_run_prints_every_command_and_writes_nothing(alewm_here, tmp_path):
    grid = ("two-room-192", "--set", "objective.regularizer_weight=0.15,0.3", "--seeds", 3072, 3073)
    lines = alewm_here("sweep", *grid, "--episodes", 50, "--dry-run").splitlines()
    commands = [line for line in lines if not line.startswith("#")]
    assert sum(line.startswith("alewm train two-room-192 ") for line in commands) == 4
    assert (
        sum("--split validation --episodes 50" in line for line in commands if line.startswith("alewm evaluate ")) == 4
    )
    assert len(commands) == 8
    assert any("# 4 runs, 0 of them finished" in line for line in lines)
    whole = alewm_here("sweep", "--only", "two-room", "192", "--seeds", 3072, "--dry-run")
    # ALeWM: 4 λ x 3 s_q x 6 α; LeWM: 8 widths x 4 λ.
    assert f"# {4 * 3 * 6 + 8 * 4} runs, 0 of them finished" in whole
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("two-room-tinny",), "Did you mean 'two-room-tiny'?"),
        (("two-room-tiny",), "alewm collect two-room --out data/two-room.h5"),
        (("two-room-tiny", "--data", "rooms.h5"), "alewm collect two-room --out rooms.h5\n"),
        (("two-room-tiny", "--set", "objective.weight=1,2"), "Unknown ObjectiveConfig field 'weight'"),
        (("two-room-tiny", "--set", "objective.regularizer_weight"), "FIELD=VALUE or FIELD=VALUE,VALUE"),
        (("two-room-tiny", "--set", "model.prior_degree=1,1"), "takes different values"),
        (("two-room-tiny", "--set", "model.prior_degree=1", "model.prior_degree=2"), "is given twice"),
        (("two-room-tiny", "--set", "training.seed=1,2"), "is what --seeds is for"),
        (("two-room-tiny", "--set", "objective.num_projections=64,0"), "num_projections must be at least 1, got 0"),
        (("two-room-tiny", "--set", "model.predictor.context_length=2"), "context_length must be at least 3"),
        (("two-room-tiny", "--set", "model.has_selector=false"), "needs a model with a selector"),
        (("--set", "objective.regularizer_weight=-1"), "objective.regularizer_weight must be finite and not negative"),
        (("--set", "model.prior_degree=1,2"), "without a preset the grids are the paper's"),
        (("--only", "cubes"), "Did you mean 'cube'?"),
        (("two-room-tiny", "--set", "task=two-room+reacher"), "the validation pairs of one data set"),
        (("two-room-tiny", "--only", "192"), "--only chooses among the paper's grids"),
        (("--seeds", 1, 1), "Seeds must be distinct"),
        (("--jobs", 2, "--address", "auto"), "give one of the two"),
        (("--jobs", -1), "--jobs is a number of processes"),
        (("--retries", -1), "--retries is a number of 0 or more"),
        (("--gpus-per-trial", 1.5), "--gpus-per-trial is 0, 1 or a fraction of 1, got 1.5"),
        (("--cpus-per-trial", 0), "--cpus-per-trial is a number of cores"),
    ],
)
def test_what_cannot_be_done_is_refused(refused, arguments, message, tmp_path):
    assert message in refused("sweep", *arguments)
    assert not any(tmp_path.iterdir())


def test_a_cluster_that_does_not_answer_and_ray_that_is_missing_are_said(refused, data, monkeypatch):
    asked = ("sweep", "two-room-tiny", "--data", data, "--seeds", 1)
    assert "Nothing answers at 127.0.0.1:1 " in refused(*asked, "--address", "127.0.0.1:1")
    assert "--address is HOST:PORT or auto, got 'there'" in refused(*asked, "--address", "there")
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    said = refused(*asked)
    assert "Ray is not installed. Install it: pip install 'ray>=" in said
    assert "Or give --jobs N" in said
