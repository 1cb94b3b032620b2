"""One model on several files: trained, killed, shared by processes, evaluated on each, shown, refused."""

import json
import shutil
import sys

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from alewm.cli.main import main
from alewm.data.action_statistics import ActionStatistics
from alewm.data.splits import Splits
from alewm.data.store import EpisodeStore
from alewm.data.writer import StoreWriter
from alewm.errors import InputError
from alewm.evaluation.evaluate_run import evaluate_run
from alewm.evaluation.settings import EvaluationSettings
from alewm.interop.pretrained import save_pretrained
from alewm.planning.planner import PlanningConfig
from alewm.planning.search import CEMConfig
from alewm.report.gather import read_runs, with_evaluations
from alewm.training.checkpoint import data_set_of, data_sets_of, read_description
from alewm.training.config import RunConfig
from command_line import SEARCH, contents, run_alewm

SETS = ("two-room", "two-room-2")
TRAIN = ("train", "two-room-tiny", "--steps", 12, "--batch-size", 16, "--checkpoint-every", 5, "--log-every", 1)
EVALUATE = (*SEARCH, "--animations", 0)
PLANNING = PlanningConfig(cem=CEMConfig.with_a_tenth_elite(20, 2))


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    """Two files of Two-Room episodes; the second has fewer, and larger actions, so that statistics must differ."""
    other = tmp_path_factory.mktemp("two-files") / "other.h5"
    with EpisodeStore.open(data) as store, StoreWriter(other, attributes={"task": "two-room"}) as writer:
        for number in range(store.num_episodes - 3):
            episode = store.episode(number)
            writer.append({**episode, "action": 3 * episode["action"] + 1})
    return data, other


@pytest.fixture(scope="module")
def both(files):
    return [word for path in files for word in ("--data", path)]


@pytest.fixture(scope="module")
def one_thread():
    """As many as the processes of the test under torchrun have: another number rounds sums otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def mixed(both, tmp_path_factory, one_thread):
    """A run on both files, without interruption; tests that write work on copies."""
    folder = tmp_path_factory.mktemp("mixed")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(sys, "argv", ["alewm", *map(str, (*TRAIN, *both)), "--out", "run"])
        main()
    return folder / "run"


def lines(run, kind):
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record for record in records if record["kind"] == kind]


def last_checkpoint(run):
    return sorted((run / "checkpoints").iterdir())[-1]


def test_names_of_data_sets_are_those_of_tasks_and_one_that_comes_again_is_numbered():
    assert RunConfig(task="cube").data_sets == {"cube": "cube"}
    assert RunConfig(task="reacher+two-room+reacher").data_sets == {
        "reacher": "reacher",
        "two-room": "two-room",
        "reacher-2": "reacher",
    }


def test_statistics_splits_and_fingerprints_are_kept_per_file(mixed, files):
    config = json.loads((mixed / "config.json").read_text())
    assert config["task"] == "two-room+two-room"
    found = data_sets_of(read_description(last_checkpoint(mixed)))
    assert tuple(found) == SETS
    for path, (name, each) in zip(files, found.items(), strict=True):
        with EpisodeStore.open(path) as store:
            splits = Splits.load(mixed / each.splits)
            assert splits.fingerprint == each.data["fingerprint"] == store.fingerprint
            assert config["data"][name]["fingerprint"] == store.fingerprint
            rows = np.concatenate([np.arange(s.start, s.stop) for s in map(store.rows_of, splits.train)])
            assert each.statistics == ActionStatistics.fit(store.actions[rows])
    assert found["two-room-2"].statistics.std[0] > 2 * found["two-room"].statistics.std[0]
    with pytest.raises(InputError, match="several data sets, two-room, two-room-2; say which one"):
        data_set_of(read_description(last_checkpoint(mixed)))


def test_metrics_say_q_and_validation_losses_of_each_data_set(mixed):
    for kind in ("train", "validation"):
        for entry in lines(mixed, kind):
            whole = [value for name, value in entry.items() if name.startswith("q/") and name.count("/") == 1]
            apart = [[value for name, value in entry.items() if name.startswith(f"q/{each}/")] for each in SETS]
            assert [sum(q) for q in apart] == pytest.approx([1, 1], abs=1e-5)
            # Equal shares: the mean over the batch is the mean of the means.
            assert np.mean(apart, axis=0) == pytest.approx(whole, abs=1e-5)
    last = lines(mixed, "validation")[-1]
    assert np.mean([last[f"prediction/{each}"] for each in SETS]) == pytest.approx(last["prediction"], rel=0.2)
    assert all(last[f"loss/{each}"] > 0 for each in SETS)


def test_moments_measured_anew_leave_the_weights_as_they_are(mixed, both, alewm_here, tmp_path):
    run = tmp_path / "run"
    alewm_here(*TRAIN, *both, "--out", run, "--set", "training.recalibration_batches=2")
    trailing, anew = (load_file(last_checkpoint(each) / "model.safetensors") for each in (mixed, run))
    differing = {name for name in anew if not torch.equal(anew[name], trailing[name])}
    moments = ("running_mean", "running_var", "num_batches_tracked")
    assert differing == {f"{part}.norm.{name}" for part in ("projector", "prediction_projector") for name in moments}
    assert lines(run, "train")[-1]["loss"] == lines(mixed, "train")[-1]["loss"]
    assert lines(run, "validation")[-1]["loss"] != lines(mixed, "validation")[-1]["loss"]


def test_without_its_last_checkpoint_and_repeated_it_ends_with_the_same_weights(mixed, both, alewm_here, tmp_path):
    """That is what a kill leaves; it falls into the middle of a pass over either file."""
    run = shutil.copytree(mixed, tmp_path / "run")
    shutil.rmtree(last_checkpoint(run))
    (run / "result.json").unlink()
    assert [state["step"] for state in read_description(last_checkpoint(run)).source_state.values()] == [10, 10]
    assert alewm_here(*TRAIN, *both, "--out", run).split() == [str(run)]
    for name in ("model.safetensors", "training.safetensors", "checkpoint.json"):
        assert (last_checkpoint(run) / name).read_bytes() == (last_checkpoint(mixed) / name).read_bytes()
    strip = {"windows_per_second": 0, "seconds": 0}
    assert [line | strip for line in lines(run, "train")] == [line | strip for line in lines(mixed, "train")]


@pytest.mark.slow
def test_two_processes_under_torchrun_have_the_statistics_of_one(mixed, both, tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "alewm")
    run_alewm(tmp_path, *TRAIN, *both, "--out", "run", launcher=launcher, GLOO_SOCKET_IFNAME="lo")
    one, two = lines(mixed, "train"), lines(tmp_path / "run", "train")
    for name in ("loss", "prediction", "regularizer", "gradient_norm", "q/two-room/8", "q/two-room-2/8"):
        # Rounding alone: sums over the batch are taken in another order.
        assert two[0][name] == pytest.approx(one[0][name], rel=1e-4)
        assert two[4][name] == pytest.approx(one[4][name], rel=1e-2)


@pytest.fixture(scope="module")
def evaluated(mixed, tmp_path_factory):
    """A copy of the run with results on both data sets."""
    run = shutil.copytree(mixed, tmp_path_factory.mktemp("evaluated") / "run")
    for name in SETS:
        found = evaluate_run(
            run,
            EvaluationSettings(planning=PLANNING, data_set=name),
            device=torch.device("cpu"),
            num_animations=0,
            is_silent=True,
        )
        assert found.path == run / f"evaluations/{name}_cem-20x2-2/result.json"
    return run


def alone(run, name, out):
    """The run as if it knew nothing but one of its data sets."""
    shutil.copytree(run, out, ignore=shutil.ignore_patterns("evaluations"))
    path = last_checkpoint(out) / "checkpoint.json"
    content = json.loads(path.read_text())
    content["config"]["task"] = "two-room"
    content["extras"] = content["extras"]["data_sets"][name]
    del content["sha256"]
    path.write_text(json.dumps(content))
    shutil.copy(out / f"splits-{name}.json", out / "splits.json")
    return out


@pytest.mark.parametrize("name", SETS)
def test_it_plans_on_a_data_set_like_a_run_that_knows_no_other(evaluated, alewm_here, name, tmp_path):
    alewm_here("evaluate", alone(evaluated, name, tmp_path / "alone"), *EVALUATE)
    one, several = tmp_path / "alone/evaluations/cem-20x2-2", evaluated / f"evaluations/{name}_cem-20x2-2"
    for file in ("episodes.jsonl", "actions.safetensors"):
        assert (one / file).read_bytes() == (several / file).read_bytes()
    found = json.loads((several / "result.json").read_text())
    assert found["evaluated"]["data_set"] == name
    assert (
        found["evaluated"]["fingerprint"]
        == data_sets_of(read_description(last_checkpoint(evaluated)))[name].data["fingerprint"]
    )
    assert {"random_success_rate", "zero_success_rate", "presolved_share"} <= found.keys()
    assert "data_set" not in json.loads((one / "result.json").read_text())["evaluated"]
    assert EvaluationSettings().name() == ""


def test_a_data_set_is_named_by_its_task_or_by_its_file(evaluated, files, alewm_here, refused, tmp_path):
    run = shutil.copytree(evaluated, tmp_path / "run", ignore=shutil.ignore_patterns("evaluations"))
    few = (*EVALUATE, "--episodes", 1)
    first, second = (f"{run}/evaluations/{each}_1-episodes_cem-20x2-2/result.json" for each in SETS)
    assert alewm_here("evaluate", run, "--data", files[1], *few).split()[-1] == second
    assert not (run / "evaluations/two-room_1-episodes_cem-20x2-2").exists()
    assert alewm_here("evaluate", run, "--task", "two-room", *few).split()[-1] == first
    said = alewm_here("evaluate", run, *few)
    assert said.split()[-2:] == [first, second]
    assert f"{run}, two-room-2" in said
    assert "Unknown data set of this run 'tworoom'" in refused("evaluate", run, "--task", "tworoom", *few)
    assert "was trained on data with fingerprint" in refused("evaluate", run, "--task", SETS[0], "--data", files[1])
    assert "name one with --task" in refused("evaluate", run, "--out", "elsewhere")
    assert "This command takes a model of one task" in refused("probe", run)
    foreign = shutil.copy(files[0], tmp_path / "foreign.h5")
    with h5py.File(foreign, "r+") as file:
        file["action"][0] = 0.125
        del file["action"].attrs["alewm_crc32"]
    assert "with the fingerprints two-room " in refused("evaluate", run, "--data", foreign)


def test_it_can_be_inspected_reported_and_shared(evaluated, files, alewm_here, tmp_path):
    said = alewm_here("inspect", evaluated)
    assert f"two-room-2: learned from {files[1]}" in said
    assert "success (two-room_cem-20x2-2)" in said
    run = shutil.copytree(evaluated, tmp_path / "run")
    for each in SETS:
        (run / f"evaluations/{each}_cem-20x2-2").rename(run / f"evaluations/{each}")
    shown = read_runs(with_evaluations([run]))
    assert [each.name for each in shown] == ["run", *SETS]
    assert set(shown[0].capacity_dynamics()) == {"", *SETS}
    assert all(each.records for each in shown[1:])
    assert with_evaluations([run, run / "evaluations/two-room"]) == [
        run,
        run / "evaluations/two-room-2",
        run / "evaluations/two-room",
    ]
    twice = shutil.copytree(run, tmp_path / "again")
    assert "again/two-room" in [each.name for each in read_runs(with_evaluations([run, twice]))]
    shared = save_pretrained(run, tmp_path / "shared")
    assert data_set_of(read_description(last_checkpoint(shared)), SETS[1]).data["path"] == "other.h5"
    assert "### two-room-2" in (shared / "README.md").read_text()
    for name, content in contents(shared).items():
        assert str(files[1].parent).encode() not in content, name
    assert "two-room-2_1-episodes" in alewm_here("evaluate", shared, "--data", files[1], *EVALUATE, "--episodes", 1)


def test_files_that_cannot_be_mixed_are_refused_and_leave_nothing(files, refused, tmp_path):
    first, second = files
    said = refused(*TRAIN, "--data", first, "--data", first, "--out", "run")
    assert "hold the same data. Name every data set once." in said
    said = refused("train", "reacher+two-room-192", "--data", first, "--out", "run")
    assert "for 2 data sets, reacher, two-room, but 1 data files were given" in said
    said = refused("train", "reacher+two-room-192", "--data", first, "--data", second, "--out", "run")
    assert "holds episodes of 'two-room', but the configuration is for 'reacher'" in said
    unlabelled, wide = (shutil.copy(second, tmp_path / name) for name in ("unlabelled.h5", "wide.h5"))
    with h5py.File(unlabelled, "r+") as file:
        del file.attrs["alewm_attributes"], file.attrs["alewm_texts_crc32"]
    said = refused(*TRAIN, "--data", first, "--data", unlabelled, "--out", "run")
    assert "unlabelled.h5 does not say which task" in said
    assert "--set task=two-room+two-room" in said
    with h5py.File(wide, "r+") as file:
        actions = file["action"][...]
        del file["action"]
        file["action"] = np.concatenate([actions, actions[:, :1]], axis=1)
    said = refused(*TRAIN, "--data", first, "--data", wide, "--out", "run")
    assert "the files differ in numbers per action" in said
    assert "wide.h5 has 3" in said
    assert "no window for each of 2 data sets" in refused(
        *TRAIN, "--batch-size", 1, "--data", first, "--data", second, "--out", "run"
    )
    assert not (tmp_path / "run").exists()
