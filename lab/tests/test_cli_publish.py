"""`alewm-lab publish` and the page made of what it keeps."""

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from alewm.evaluation.evaluate_run import evaluate_run
from alewm.evaluation.settings import EvaluationSettings
from alewm.planning.planner import PlanningConfig
from alewm.planning.search import CEMConfig
from alewm_lab.publishing.publication import read_publication
from alewm_lab.publishing.published import read_results
from command_line import SEARCH, contents


@pytest.fixture(scope="module")
def evaluated(trained, tmp_path_factory):
    """A run with its default result (of a small search) and two others."""
    run = shutil.copytree(trained, tmp_path_factory.mktemp("evaluated") / "tiny-0")
    planning = PlanningConfig(cem=CEMConfig.with_a_tenth_elite(*SEARCH[1::2]))
    usual = EvaluationSettings(planning=planning)
    for settings, out in (
        (usual, run),
        (replace(usual, planning=replace(planning, capacity="4")), None),
        (replace(usual, split="validation"), None),
    ):
        evaluate_run(run, settings, device=torch.device("cpu"), num_animations=0, out=out, is_silent=True)
    for path in (run / "provenance.json", *run.rglob("result.json")):
        set_commit(path, "0" * 40)  # whatever this checkout has changed
    return run


def set_commit(path, commit):
    content = json.loads(path.read_text())
    content.get("made_with", content)["commit"] = commit
    path.write_text(json.dumps(content))


def published_path(printed: str, folder: Path) -> Path:
    """The file that `alewm-lab publish` names in its last line."""
    return folder / printed.splitlines()[-1]


def test_what_is_published_is_small_and_says_nothing_of_this_machine(evaluated, alewm_here, tmp_path):
    printed = alewm_here("publish", evaluated, "--to", "results/tiny")
    path = published_path(printed, tmp_path)
    assert path.parent == tmp_path / "results/tiny"
    assert f"1 run, 3 evaluations, {path.stat().st_size:,} bytes" in printed
    assert path.stat().st_size < 20_000
    rows = read_publication(path)
    assert {row["table"] for row in rows} == {"run", "evaluation", "episode", "metric", "latent"}
    text = gzip.decompress(path.read_bytes()).decode()
    assert str(evaluated.parent) not in text
    assert "/tmp" not in text
    pairs = [row for row in rows if row["table"] == "episode"]
    assert pairs
    config = json.loads((evaluated / "config.json").read_text())
    for row in pairs:
        assert row["pair"] == f"{row['episode']}:{row['start_step']}-{row['goal_step']}"
        assert row["demonstration"] == row["episode"]
        assert row["seed"] == config["training"]["seed"]
        assert row["commit"] == "0" * 40


def test_publishing_again_adds_what_is_new_in_another_file(evaluated, alewm_here, tmp_path):
    run = shutil.copytree(evaluated, tmp_path / "runs/tiny-0")
    for later in run.glob("evaluations/*"):
        shutil.move(later, tmp_path / later.name)
    first = published_path(alewm_here("publish", run, "--out", "results/tiny"), tmp_path)
    before = contents(tmp_path / "results")
    assert "nothing new" in alewm_here("publish", run, "--out", "results/tiny")
    assert contents(tmp_path / "results") == before
    (later, *_) = [path for path in tmp_path.iterdir() if path.name.startswith(("capacity", "validation"))]
    shutil.move(later, run / "evaluations" / later.name)
    second = published_path(alewm_here("publish", run, "--out", "results/tiny"), tmp_path)
    assert {row["table"] for row in read_publication(second)} == {"evaluation", "episode"}
    assert {row["settings"] for row in read_publication(second)} == {later.name}
    assert contents(tmp_path / "results").items() > before.items()
    # Both files together are one run, whichever is read first.
    ((only,),) = [scale.runs for scale in read_results(tmp_path / "results").scales]
    assert only.run.folder == first
    assert later.name in only.evaluations
    assert len(only.evaluations) == 2
    # The same runs published elsewhere make the same file.
    elsewhere = published_path(alewm_here("publish", run, "--out", "results/other"), tmp_path)
    again = published_path(alewm_here("publish", run, "--out", "results/another"), tmp_path)
    assert elsewhere.name == again.name
    assert elsewhere.read_bytes() == again.read_bytes()


def test_an_evaluation_with_other_outcomes_is_refused(evaluated, alewm_here, refused, tmp_path):
    run = shutil.copytree(evaluated, tmp_path / "runs/tiny-0")
    alewm_here("publish", run, "--out", "results/tiny")
    before = contents(tmp_path / "results")
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(result | {"success_rate": 1.0}))
    message = refused("publish", run, "--out", "results/tiny")
    assert "holds another evaluation" in message
    assert "What is published is never replaced" in message
    assert contents(tmp_path / "results") == before


def test_what_cannot_be_published_is_refused_and_nothing_is_written(evaluated, trained, refused, tmp_path):
    assert "has not been evaluated" in refused("publish", evaluated, trained, "--out", "results")
    unfinished = shutil.copytree(evaluated, tmp_path / "unfinished")
    (unfinished / "result.json").unlink()
    assert "has not finished training" in refused("publish", unfinished, "--out", "results")
    assert "is no run folder" in refused("publish", tmp_path, "--out", "results")
    twice = shutil.copytree(evaluated, tmp_path / "elsewhere" / evaluated.name)
    assert "Two of the runs are called tiny-0" in refused("publish", evaluated, twice, "--out", "results")
    assert not (tmp_path / "results").exists()


def test_an_oscillator_study_is_published_with_its_numbers_and_shown(alewm, alewm_here, refused, tmp_path):
    study = "runs/oscillator-short"
    alewm("oscillator", "--methods", "alewm-paper", "--seeds", 0, "--epochs", 1, "--jobs", 1, "--out", study)
    whole = json.loads((tmp_path / study / "result.json").read_text())["runs"]
    set_commit(tmp_path / study / "provenance.json", "0" * 40)
    published, kept = read_publication(published_path(alewm_here("publish", study, "--out", "results/toy"), tmp_path))
    assert (published["table"], kept["table"], kept["run"]) == ("study", "oscillator", "oscillator-short")
    (record,) = whole
    assert set(record) - set(kept) == {"procrustes", "q_by_epoch"}
    for name in ("r2_by_prefix", "masked_variance", "mean_q"):
        assert kept[name] == pytest.approx(record[name], abs=5e-7)
    assert kept["config"] == record["config"]
    alewm_here("results", "results", "--out", "docs/results.md")
    page = (tmp_path / "docs/results.md").read_text()
    assert published["markdown"] in page
    assert f"--methods alewm-paper --seeds 0 --epochs 1 --jobs 1 --out {study}" in page
    assert "- [Two oscillators](#two-oscillators)" in page
    # Where runs are kept a study is found as well, whatever it is called.
    shutil.copytree(tmp_path / study, tmp_path / "runs/toy")
    alewm_here("publish", "runs/toy", "--out", "results/here")
    alewm_here("results", "results", "--out", "docs/results.md")
    assert (tmp_path / "docs/results.md").read_text().count(published["markdown"]) == 2
    (tmp_path / study / "table.md").unlink()
    assert "has not finished: repeat its `alewm-lab oscillator`" in refused("publish", study, "--out", "results")


@pytest.mark.parametrize("commit", ["0" * 40 + "+changes", None])
@pytest.mark.parametrize("made", ["provenance.json", "evaluations/*/result.json"])
def test_numbers_of_code_that_no_commit_has_are_refused_unless_told(
    evaluated, alewm_here, refused, tmp_path, commit, made
):
    run = shutil.copytree(evaluated, tmp_path / "run")
    set_commit(next(run.glob(made)), commit)
    assert f"no commit has (its commit is {commit or 'unknown'})" in refused("publish", run, "--out", "results")
    assert not (tmp_path / "results").exists()
    printed = alewm_here("publish", run, "--out", "results", "--allow-changes")
    assert commit in {row["commit"] for row in read_publication(published_path(printed, tmp_path))}


def test_another_run_of_the_same_name_is_refused(evaluated, alewm_here, refused, tmp_path):
    alewm_here("publish", evaluated, "--out", "results")
    other = shutil.copytree(evaluated, tmp_path / "other" / evaluated.name)
    config = json.loads((other / "config.json").read_text())
    config["training"]["seed"] = 1
    (other / "config.json").write_text(json.dumps(config))
    before = contents(tmp_path / "results")
    message = refused("publish", other, "--out", "results")
    assert "holds another run of tiny-0" in message
    assert "training.seed: asked 1, found 3072" in message
    assert contents(tmp_path / "results") == before
