"""`alewm evaluate` and `alewm report`: results that never replace each other, and a page about them."""

import json
import re
import shutil
from pathlib import Path

import pytest

from alewm.evaluation.settings import EvaluationSettings, results_folder
from alewm.evaluation.statistics import family_interval
from command_line import SEARCH, contents, run_alewm

KEYS = {
    "success_rate",
    "interval",
    "episodes",
    "success_rate_nontrivial",
    "random_success_rate",
    "replay_success_rate",
    "zero_success_rate",
    "presolved_share",
    "mean_capacity",
    "capacity_counts",
    "q_shift",
    "q_spread",
    "seconds",
}


@pytest.fixture(scope="module")
def evaluated(trained, tmp_path_factory):
    """A copy of the run with two evaluations: one in its own folder, one at a fixed capacity."""
    folder = tmp_path_factory.mktemp("evaluated")
    shutil.copytree(trained, folder / "run")
    done = run_alewm(folder, "evaluate", "run", *SEARCH, "--animations", 2, "--out", "run")
    assert done.stdout.splitlines()[-1] == "run/result.json"
    assert "95 % interval" in done.stdout
    done = run_alewm(folder, "evaluate", "run", *SEARCH, "--capacity", "best-of:2,32", "--goal-cost", "full")
    assert done.stdout.splitlines()[-1] == "run/evaluations/capacity-best-of-2-32_goal-full_cem-20x2-2/result.json"
    return folder / "run"


def test_a_result_has_everything_and_training_s_part_stays(evaluated):
    result = json.loads((evaluated / "result.json").read_text())
    assert result.keys() >= KEYS
    assert result["training"]["step"] == result["step"] == 40
    records = [json.loads(line) for line in (evaluated / "episodes.jsonl").read_text().splitlines()]
    held_out = json.loads((evaluated / "splits.json").read_text())["test"]
    assert [record["episode"] for record in records] == held_out
    assert result["episodes"] == len(held_out)
    assert sum(result["capacity_counts"].values()) == len(held_out)
    assert 1 <= len(list((evaluated / "animations").glob("episode-*.gif"))) <= 2


def test_another_setting_has_its_own_folder_and_the_same_pairs(evaluated):
    other = evaluated / "evaluations/capacity-best-of-2-32_goal-full_cem-20x2-2"
    a, b = (json.loads((folder / "result.json").read_text()) for folder in (evaluated, other))
    assert a["random_success_rate"] == b["random_success_rate"]
    assert {k for k, count in b["capacity_counts"].items() if count} <= {"2", "32"}
    assert json.loads((other / "config.json").read_text())["evaluated"]["planning"]["goal_cost"] == "full"


def test_repeating_an_evaluation_repeats_its_outcome(evaluated, tmp_path):
    """Bit for bit, in a process with as many threads: their number decides how sums are rounded."""
    again = shutil.copytree(evaluated, tmp_path / "run")
    run_alewm(tmp_path, "evaluate", "run", *SEARCH, "--out", "run")
    assert (again / "episodes.jsonl").read_bytes() == (evaluated / "episodes.jsonl").read_bytes()


def test_results_of_other_settings_are_not_replaced(refused, evaluated):
    before = contents(evaluated)
    said = refused("evaluate", evaluated, *SEARCH, "--capacity", 2, "--out", evaluated)
    assert "planning.capacity: asked '2', found 'modal'" in said
    assert contents(evaluated) == before


def test_results_are_not_written_over_something_else(refused, trained, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.jpg").write_text("meow")
    assert "it is not a run folder" in refused("evaluate", trained, *SEARCH, "--out", "photos")
    other = shutil.copytree(trained, tmp_path / "other")
    before = contents(other)
    assert "holds a run with another configuration" in refused("evaluate", trained, *SEARCH, "--out", "other")
    assert contents(other) == before


def test_default_settings_of_a_finished_run_belong_in_its_folder(tmp_path):
    assert results_folder(tmp_path, EvaluationSettings(), 40, is_finished=True) == tmp_path
    unfinished = results_folder(tmp_path, EvaluationSettings(), 40, is_finished=False)
    assert unfinished == tmp_path / "evaluations/step-00000040"
    few = results_folder(tmp_path, EvaluationSettings("validation", 3), 40, is_finished=True)
    assert few == tmp_path / "evaluations/validation_3-episodes"


def test_several_pairs_per_episode_have_results_of_their_own(evaluated, alewm_here, refused, tmp_path):
    run = shutil.copytree(evaluated, tmp_path / "run")
    other = shutil.copytree(evaluated, tmp_path / "other")
    before = contents(run)
    said = alewm_here("evaluate", "run", "other", *SEARCH, "--pairs-per-episode", 3, "--animations", 2).splitlines()
    place = "evaluations/3-per-episode_cem-20x2-2"
    assert said[-2:] == [f"run/{place}/result.json", f"other/{place}/result.json"]
    assert "run minus other: +0.0 points (+0.0 to +0.0; p = 1), by 3 episodes; 0 pairs won, 0 lost" in said
    assert {name: content for name, content in contents(run).items() if not name.startswith(place)} == before
    result = json.loads((run / place / "result.json").read_text())
    records = [json.loads(line) for line in (run / place / "episodes.jsonl").read_text().splitlines()]
    held_out = json.loads((run / "splits.json").read_text())["test"]
    assert [record["episode"] for record in records] == [episode for episode in held_out for _ in range(3)]
    assert len({(record["episode"], record["start_step"]) for record in records}) == result["episodes"] == 9
    assert result["different_episodes"] == 3
    successes = [sum(record["success"] for record in records[first : first + 3]) for first in (0, 3, 6)]
    assert result["interval"] == list(family_interval([(part, 3) for part in successes]))
    assert any("by 3 episodes" in line for line in said if "95 % interval" in line)
    assert len(list((run / place / "animations").glob("episode-*-from-*.gif"))) == 2
    assert (other / place / "episodes.jsonl").read_bytes() == (run / place / "episodes.jsonl").read_bytes()
    assert "--pairs-per-episode must be at least 1, got 0" in refused("evaluate", run, "--pairs-per-episode", 0)
    both = alewm_here("evaluate", "run", "other", *SEARCH, "--pairs-per-episode", 1, 3, "--animations", 0).splitlines()
    compared = [line.partition(":")[0] for line in both if " minus " in line]
    assert compared == [f"run, {count} per episode minus other, {count} per episode" for count in (1, 3)]
    assert "--out holds one result" in refused("evaluate", "run", "--pairs-per-episode", 1, 3, "--out", "elsewhere")


def test_data_that_moved_is_asked_for_and_other_data_is_refused(refused, alewm_here, trained, data, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    for path in (run / "checkpoints").glob("*/checkpoint.json"):
        content = json.loads(path.read_text().replace(str(data), "/gone/two-room.h5"))
        del content["sha256"]
        path.write_text(json.dumps(content))
    assert "Say where it is with --data" in refused("evaluate", "run", *SEARCH)
    alewm_here("collect", "two-room", "--episodes", 4, "--image-size", 28, "--jobs", 1, "--out", "other.h5")
    assert "fingerprint" in refused("evaluate", "run", *SEARCH, "--data", "other.h5")
    said = alewm_here(
        "evaluate", "run", *SEARCH, "--data", data, "--split", "train", "--episodes", 2, "--animations", 0
    )
    assert said.splitlines()[-1] == "run/evaluations/train_2-episodes_cem-20x2-2/result.json"
    assert not (run / "evaluations/train_2-episodes_cem-20x2-2/animations").exists()


def test_looking_after_every_block_plans_as_often(alewm_here, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    often = ("--horizon", 3, "--executed", 1, "--budget", 20, "--animations", 0)
    place = Path(alewm_here("evaluate", "run", *SEARCH, *often).splitlines()[-1]).parent
    assert place == Path("run/evaluations/budget-20_cem-20x2-2_horizon-3-1")
    records = [json.loads(line) for line in (tmp_path / place / "episodes.jsonl").read_text().splitlines()]
    plans = [len(record["predicted_costs"]) for record in records]
    assert plans == [-(-record["steps"] // 5) for record in records]
    assert max(plans) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--capacity", "3"), "3"),
        (("--capacity", "model"), "Did you mean 'modal'?"),
        (("--capacity", "best-of:"), "names no capacities"),
        (("--capacity", "best-of:4,4"), "names a capacity twice"),
        (("--seed", -1), "seed must not be negative, got -1"),
        (("--episodes", 99), "has 3 pairs"),
        (("--episodes", 0), "--episodes must be at least 1"),
        (("--candidates", 1), "CEM needs at least 2 elites"),
        (("--iterations", 0), "num_iterations must be at least 1, got 0"),
        (("--executed", 6), "Only planned blocks can be executed: 6 executed, but 5 planned"),
        (("--executed", 0), "executed_blocks must be at least 1, got 0"),
        (("--animations", -1), "--animations must not be negative"),
        (("--device", "gpu"), "Unknown device"),
    ],
)
def test_bad_input_gets_a_message_and_changes_nothing(refused, trained, arguments, message):
    before = contents(trained)
    assert message in refused("evaluate", trained, *arguments)
    assert contents(trained) == before


def test_what_is_no_run_is_refused(refused, trained, tmp_path):
    assert "no run folder" in refused("evaluate", "nowhere")
    assert "no run folder" in refused("report", "nowhere")
    assert "named twice" in refused("report", trained, trained)
    run = shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(run / "checkpoints")
    assert "no checkpoint yet" in refused("evaluate", "run")
    assert not (tmp_path / "report").exists()


def test_a_damaged_checkpoint_is_named(refused, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    weights = sorted((run / "checkpoints").iterdir())[-1] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert f"{weights.relative_to(tmp_path)} is damaged" in refused("evaluate", "run")


def test_a_report_shows_runs_and_evaluations_side_by_side(alewm_here, evaluated, tmp_path):
    other = next((evaluated / "evaluations").iterdir())
    assert alewm_here("report", evaluated, other, "--out", "page").splitlines()[-1] == "page/index.html"
    page = (tmp_path / "page/index.html").read_text()
    for word in ("Success", "Capacity", "Masked variance", "Films", "two-room-tiny", "validation"):
        assert word in page
    assert list((tmp_path / "page/figures").glob("dynamics-*.svg"))


def test_what_was_taken_for_a_run_is_named(trained, data, refused, tmp_path):
    assert "it is a file" in refused("evaluate", data, *SEARCH)
    assert "there is no such folder" in refused("evaluate", "nowhere", *SEARCH)
    shutil.copytree(trained, tmp_path / "damaged")
    (tmp_path / "damaged/config.json").write_text("[]")
    assert "config.json must hold a JSON object, found list" in refused("evaluate", "damaged", *SEARCH)


def test_too_little_memory_is_a_message_and_leaves_nothing(trained, refused, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    before = contents(run)
    said = refused("evaluate", "run", "--candidates", 10**13, "--iterations", 2, "--device", "cpu")  # no machine has it
    assert re.search(r"out of memory\. [\d,]+\.\d GB were asked for at once\.", said)
    assert "fewer candidates (--candidates)" in said
    assert contents(run) == before
