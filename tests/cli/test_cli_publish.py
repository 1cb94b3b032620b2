"""`alewm publish` and the page made of what it keeps."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from conftest import SEARCH, contents

from alewm.evaluation.run import evaluate_run
from alewm.evaluation.settings import EvaluationSettings
from alewm.planning.cem import CEMConfig
from alewm.planning.planner import PlanningConfig


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


def test_what_is_published_is_small_and_says_nothing_of_this_machine(evaluated, alewm_here, tmp_path):
    printed = alewm_here("publish", evaluated, "--to", "results/tiny")
    assert printed.splitlines()[-1] == "results/tiny"
    published = contents(tmp_path / "results/tiny/tiny-0")
    assert set(published) >= {"config.json", "provenance.json", "result.json", "episodes.csv", "metrics.csv"}
    assert len([name for name in published if name.startswith("evaluations/")]) == 4
    assert f"1 runs, {sum(map(len, published.values())):,} bytes" in printed
    assert sum(map(len, published.values())) < 60_000
    for name, content in published.items():
        assert str(evaluated.parent).encode() not in content, name
        assert b"/tmp" not in content, name
    again = alewm_here("publish", evaluated, "--out", "results/tiny")
    assert again == printed
    assert contents(tmp_path / "results/tiny/tiny-0") == published


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
    alewm_here("publish", study, "--out", "results")
    published = contents(tmp_path / "results/oscillator-short")
    assert set(published) == {"config.json", "provenance.json", "result.json", "table.md"}
    (kept,), (record,) = json.loads(published["result.json"])["runs"], whole
    assert set(record) - set(kept) == {"procrustes", "q_by_epoch"}
    for name in ("r2_by_prefix", "masked_variance", "mean_q"):
        assert kept[name] == pytest.approx(record[name], abs=5e-7)
    assert kept["config"] == record["config"]
    alewm_here("report", "results", "--out", "docs/results.md")
    page = (tmp_path / "docs/results.md").read_text()
    assert published["table.md"].decode() in page
    assert f"--methods alewm-paper --seeds 0 --epochs 1 --jobs 1 --out {study}" in page
    assert "- [Two oscillators](#two-oscillators)" in page
    # Where runs are kept a study is found as well, whatever it is called.
    shutil.copytree(tmp_path / study, tmp_path / "runs/toy")
    alewm_here("publish", "runs/toy", "--out", "results/here")
    alewm_here("report", "results", "--out", "docs/results.md")
    assert (tmp_path / "docs/results.md").read_text().count(published["table.md"].decode()) == 2
    (tmp_path / study / "table.md").unlink()
    assert "has not finished: repeat its `alewm oscillator`" in refused("publish", study, "--out", "results")


@pytest.mark.parametrize("commit", ["0" * 40 + "+changes", None])
@pytest.mark.parametrize("made", ["provenance.json", "evaluations/*/result.json"])
def test_numbers_of_code_that_no_commit_has_are_refused_unless_told(
    evaluated, alewm_here, refused, tmp_path, commit, made
):
    run = shutil.copytree(evaluated, tmp_path / "run")
    set_commit(next(run.glob(made)), commit)
    assert f"no commit has (its commit is {commit or 'unknown'})" in refused("publish", run, "--out", "results")
    assert not (tmp_path / "results").exists()
    alewm_here("publish", run, "--out", "results", "--allow-changes")
    found = [json.loads(path.read_text()) for path in (tmp_path / "results").rglob("*.json")]
    assert commit in [each.get("made_with", each).get("commit", "") for each in found]


def test_another_run_of_the_same_name_is_refused(evaluated, alewm_here, refused, tmp_path):
    alewm_here("publish", evaluated, "--out", "results")
    other = shutil.copytree(evaluated, tmp_path / "other" / evaluated.name)
    config = json.loads((other / "config.json").read_text())
    config["training"]["seed"] = 1
    (other / "config.json").write_text(json.dumps(config))
    before = contents(tmp_path / "results")
    assert "training.seed: asked 1, found 3072" in refused("publish", other, "--out", "results")
    assert contents(tmp_path / "results") == before
