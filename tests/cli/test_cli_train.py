"""`alewm train`: a run folder that survives kills, counts its processes exactly and refuses what does not fit."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import h5py
import pytest
import torch

from alewm.training import train_run as run_module
from alewm.training.checkpoint import read_description
from alewm.training.presets import preset, preset_flags, preset_names
from alewm.training.train_run import train_run
from command_line import HELD, TRAIN, contents, run_alewm
from older_files import remove_checksums


def lines(run, kind):
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record for record in records if record["kind"] == kind]


def last_checkpoint(run):
    return sorted((run / "checkpoints").iterdir())[-1]


def test_a_run_folder_holds_all_that_evaluation_needs(trained, data):
    assert {path.name for path in trained.iterdir() if path.name != ".lock"} == {
        "config.json",
        "provenance.json",
        "metrics.jsonl",
        "checkpoints",
        "splits.json",
        "result.json",
    }
    provenance = json.loads((trained / "provenance.json").read_text())
    assert provenance["command"].startswith("alewm train two-room-tiny")
    assert provenance["preset"] == "two-room-tiny"
    config = json.loads((trained / "config.json").read_text())
    assert config["data"]["fingerprint"] == provenance["data"]["fingerprint"]
    extras = read_description(last_checkpoint(trained)).extras
    assert extras["data"]["path"] == str(data)
    assert len(extras["action_statistics"]["mean"]) == 2
    held_out = {*extras["held_out"]["validation"], *extras["held_out"]["test"]}
    assert held_out
    assert not held_out & set(json.loads((trained / "splits.json").read_text())["train"])
    assert json.loads((trained / "result.json").read_text())["training"]["step"] == 40
    assert lines(trained, "validation")
    assert sum(value for name, value in lines(trained, "train")[-1].items() if name.startswith("q/")) == pytest.approx(
        1
    )


def test_a_model_whose_latents_depend_on_the_arithmetic_is_warned_of(data, tmp_path, monkeypatch, capsys):
    config = preset("two-room-tiny")
    training = replace(config.training, precision="bfloat16", num_steps=1, batch_size=8, validation_batches=1)
    for largest, is_warned_of in ((1e9, False), (0.0, True)):
        monkeypatch.setattr(run_module, "LARGEST_PRECISION_GAP", largest)
        train_run(replace(config, training=training), data, tmp_path / str(largest), device=torch.device("cpu"))
        assert ("differ from those in float32 by" in capsys.readouterr().err) == is_warned_of


def test_killed_and_repeated_it_ends_with_the_same_weights(trained, data, tmp_path):
    command = [*map(str, TRAIN), "--data", str(data), "--out", "run"]
    process = subprocess.Popen(
        [sys.executable, HELD, *command],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HELD_AT": "40"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not list(tmp_path.glob("run/checkpoints/step-*")) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = run_alewm(tmp_path, *command)
    assert "continuing run after update" in done.stderr
    for name in ("model.safetensors", "training.safetensors"):
        assert (last_checkpoint(tmp_path / "run") / name).read_bytes() == (last_checkpoint(trained) / name).read_bytes()
    strip = {"windows_per_second": 0, "seconds": 0}
    assert [line | strip for line in lines(tmp_path / "run", "train")] == [
        line | strip for line in lines(trained, "train")
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_writes_a_checkpoint_and_goes_on_to_the_same_weights(trained, data, tmp_path, number):
    command = [*map(str, TRAIN), "--checkpoint-every", "1000", "--log-every", "10", "--data", str(data), "--out", "run"]
    done = run_alewm(tmp_path, *command, check=False, launcher=(HELD,), INTERRUPTED_AT="17", SIGNAL=str(int(number)))
    assert done.returncode == 128 + number
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-00000017"]
    assert done.stderr.endswith(
        "\nInterrupted: finishing this update and writing a checkpoint. Interrupt again to stop at once.\n"
        "\nalewm: interrupted. The last good checkpoint is run/checkpoints/step-00000017. No update is lost. "
        "Repeat the command to continue.\n"
    )
    assert "continuing run after update 17" in run_alewm(tmp_path, *command).stderr
    for name in ("model.safetensors", "training.safetensors"):
        assert (last_checkpoint(tmp_path / "run") / name).read_bytes() == (last_checkpoint(trained) / name).read_bytes()
    assert [line["step"] for line in lines(tmp_path / "run", "train")] == [10, 17, 20, 30, 40]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_twice_it_stops_at_once_and_names_what_is_lost(data, tmp_path, number):
    process = subprocess.Popen(
        [sys.executable, HELD, *map(str, TRAIN), "--data", str(data), "--out", "run"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HELD_AT": "39", "INTERRUPTED_AT": "39", "SIGNAL": str(int(number))},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "Interrupt again" in line:
            break
    process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    assert re.search(
        r"alewm: interrupted\. The last good checkpoint is run/checkpoints/step-00000036\. Updates after it, 37 to 39, "
        r"are lost\. Repeat the command to continue\.",
        said,
    )


@pytest.mark.slow
def test_one_interrupted_process_of_torchrun_stops_both_with_one_checkpoint(data, tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", HELD)
    command = [*map(str, TRAIN), "--checkpoint-every", "1000", "--log-every", "5", "--data", str(data), "--out", "run"]
    interrupt = {"INTERRUPTED_AT": "17", "INTERRUPTED_RANK": "1", "SIGNAL": str(int(signal.SIGTERM))}
    done = run_alewm(tmp_path, *command, check=False, launcher=launcher, GLOO_SOCKET_IFNAME="lo", **interrupt)
    assert done.returncode != 0
    assert "alewm: interrupted. The last good checkpoint is run/checkpoints/step-00000020. No update" in done.stderr
    assert done.stderr.count("alewm: interrupted.") == 1
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-00000020"]


@pytest.mark.slow
def test_two_processes_under_torchrun_have_the_statistics_of_one(trained, data, tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "alewm")
    done = run_alewm(tmp_path, *TRAIN, "--data", data, "--out", "run", launcher=launcher, GLOO_SOCKET_IFNAME="lo")
    assert done.stdout.split() == ["run"]
    one, two = lines(trained, "train"), lines(tmp_path / "run", "train")
    assert len(two) == len(one)
    for name in ("loss", "prediction", "regularizer", "gradient_norm"):
        # Rounding alone: sums over the batch are taken in another order.
        assert two[0][name] == pytest.approx(one[0][name], rel=1e-4)
        assert two[4][name] == pytest.approx(one[4][name], rel=1e-2)
    assert json.loads((tmp_path / "run/provenance.json").read_text())["processes"] == 2


def test_a_finished_run_is_not_repeated_and_another_configuration_is_refused(refused, alewm_here, trained, data):
    before = contents(trained)
    assert alewm_here(*TRAIN, "--data", data, "--out", trained).split() == [str(trained)]
    assert "training.seed: asked 7, found" in refused(*TRAIN, "--seed", 7, "--data", data, "--out", trained)
    said = refused(*TRAIN, "--set", "objective.directions=prefixes", "--data", data, "--out", trained)
    assert "objective.directions: asked 'prefixes', found 'sphere'" in said
    assert contents(trained) == before


@pytest.mark.parametrize("leaves_older", [True, False])
def test_a_damaged_checkpoint_is_left_behind_by_what_the_message_says(
    refused, alewm_here, trained, data, tmp_path, leaves_older
):
    run = shutil.copytree(trained, tmp_path / "run")
    last, weights = last_checkpoint(run), (last_checkpoint(run) / "model.safetensors").read_bytes()
    for other in run.glob("checkpoints/step-*"):
        if other != last and not leaves_older:
            shutil.rmtree(other)
    (last / "model.safetensors").write_bytes(weights[:1000])
    command = (*TRAIN, "--data", data, "--out", "run")
    doomed = re.search(r"[Dd]elete the folder (\S+), then repeat", refused(*command))[1]
    assert (tmp_path / doomed) == last
    shutil.rmtree(tmp_path / doomed)
    alewm_here(*command)
    assert (last / "model.safetensors").read_bytes() == weights


def test_a_diverging_run_names_its_last_good_checkpoint(refused, data, tmp_path):
    said = refused(*TRAIN, "--checkpoint-every", 1, "--learning-rate", 1e30, "--data", data, "--out", "run")
    assert "became infinite or NaN" in said
    assert f"The last good checkpoint is {last_checkpoint(tmp_path / 'run').relative_to(tmp_path)}" in said


def test_a_file_from_elsewhere_is_checked_whole_before_training(refused, data, tmp_path):
    foreign = shutil.copy(data, tmp_path / "foreign.h5")
    remove_checksums(foreign)
    with h5py.File(foreign, "r+") as file:
        del file.attrs["alewm_attributes"]
        row = 777  # not among the frames that opening the file looks at
        where = file["pixels"].id.get_chunk_info_by_coord((row, 0, 0, 0))
    with foreign.open("r+b") as file:
        file.seek(where.byte_offset + 2)
        file.write(bytes(where.size - 2))
    said = refused(*TRAIN, "--data", foreign, "--out", "run")
    assert "column 'pixels'" in said
    assert "row 7" in said
    assert not (tmp_path / "run").exists()


def test_unusable_data_files_are_named(refused, data, tmp_path):
    (tmp_path / "empty.h5").touch()
    (tmp_path / "cut.h5").write_bytes(data.read_bytes()[:5000])
    for name, message in (("missing.h5", "does not exist"), ("empty.h5", "is empty"), ("cut.h5", "cut short")):
        said = refused(*TRAIN, "--data", name, "--out", "run")
        assert name in said
        assert message in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("two-room-tinny",), "Did you mean 'two-room-tiny'?"),
        ((), "Name a task"),
        (("two-room-tiny", "--batch-size", 5000), "fewer than one batch"),
        (("two-room-tiny", "--steps", 0), "num_steps must be at least 1"),
        (("two-room-tiny", "--acceleration", "graph"), "Updates cannot be compiled: the device is a cpu"),
        (("two-room-tiny", "--encoder-blocks", "fused"), "blocks cannot be fused: the device is a cpu"),
        (("two-room-tiny", "--device", "gpu"), "Unknown device 'gpu'"),
        (("push-t-192",), "holds episodes of 'two-room'"),
        (("two-room-192",), "Record at 224 pixels or more, or train the size tiny, which reads 28 x 28."),
        (("two-room-tiny", "--seed", -1), "seed must not be negative, got -1"),
        (("two-room-tiny", "--threads", -1), "--threads must not be negative, got -1"),
        (("two-room-tiny", "--learning-rate", "nan"), "learning_rate must be positive and finite, got nan"),
        (("two-room-tiny", "--set", "model.predictor.num_blocks=-1"), "model.predictor.num_blocks must be at least 1"),
        (("two-room-tiny", "--set", "model.predictor.context_length=2"), "context_length must be at least 3"),
    ],
)
def test_bad_input_gets_a_message_and_leaves_nothing(refused, data, tmp_path, arguments, message):
    device = () if "--device" in arguments else ("--device", "cpu")
    assert message in refused("train", *arguments, "--data", data, "--out", "run", *device)
    assert not (tmp_path / "run").exists()


def test_event_files_are_asked_for_and_a_missing_logger_is_named_with_its_install_line(
    refused, alewm_here, data, tmp_path, monkeypatch
):
    few = ("train", "two-room-tiny", "--steps", 2, "--batch-size", 4, "--device", "cpu", "--threads", 1, "--data", data)
    monkeypatch.setitem(sys.modules, "trackio", None)  # as if it were not installed
    said = refused(*few, "--out", "run", "--log", "tensorboard", "--log", "trackio")
    assert "--log trackio needs the package 'trackio', which is not installed. Install it: pip install trackio" in said
    assert not (tmp_path / "run").exists()
    alewm_here(*few, "--out", "run", "--log", "tensorboard")
    assert list((tmp_path / "run/tensorboard").glob("events.out.tfevents.*"))


def test_data_must_be_named(refused):
    assert "--data FILE is needed" in refused("train", "two-room-tiny")


def test_the_list_names_every_task_width_and_method_of_the_presets(alewm_here):
    listed = alewm_here("train", "--list")
    words = set(re.findall(r"[\w+-]+", listed))
    for name in preset_names():
        task, *flags = preset_flags(name).split()
        assert {task, *flags} <= words | {str(latent) for latent in range(385)}, name
    name, command = listed.splitlines()[-2].split()[-2], listed.splitlines()[-1]
    assert command == f"alewm train {preset_flags(name)}"


def test_a_folder_of_something_else_is_not_touched(refused, data, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.jpg").write_text("meow")
    assert "it is not a run folder" in refused(*TRAIN, "--data", data, "--out", "photos")
    assert contents(tmp_path) == {"photos/cat.jpg": b"meow"}
