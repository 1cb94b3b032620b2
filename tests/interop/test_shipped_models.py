"""The models in the repository are the published ones, and reach what is published."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from alewm.evaluation.evaluate_run import evaluate_run
from alewm.evaluation.settings import EvaluationSettings
from alewm.evaluation.success import read_records, summarise
from alewm.interop.pretrained import SharedRun
from alewm_lab.publishing.publish import episode_columns
from alewm_lab.publishing.published import read_results

ROOT = Path(__file__).parents[2]
MODELS = sorted(path.parent for path in (ROOT / "pretrained").glob("*/config.json"))
NUM_PAIRS = 8


@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_what_is_published_of_a_model_is_what_lies_beside_its_weights(folder):
    (published,) = [
        run for scale in read_results(ROOT / "results").scales for run in scale.runs if run.run.name == folder.name
    ]
    result, records = json.loads((folder / "result.json").read_text()), read_records(folder / "episodes.jsonl")
    assert published.run.result == result
    support = result["support"] if len(result["support"]) > 1 else ()
    for row, record in zip(published.episodes[""], records, strict=True):
        assert row.items() >= episode_columns(record, support).items()
    assert {name: result[name] for name in summarise(records)} == summarise(records)


@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_the_card_says_what_the_files_beside_it_say(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / folder.name, ignore=shutil.ignore_patterns("evaluations"))
    assert (copy / "README.md").read_text() == SharedRun.of(copy).card(folder.name, copy)


def test_the_models_fit_into_a_repository():
    files = [path for path in (ROOT / "pretrained").rglob("*") if path.is_file() and "evaluations" not in path.parts]
    assert 0 < sum(path.stat().st_size for path in files) < 16_000_000
    assert not [path for path in files if path.name == "training.safetensors"]


@pytest.mark.slow
def test_the_shipped_model_plans_as_published(tmp_path):
    """On the first pairs only, which every episode's own random stream allows.

    Capacities, floors and starts must agree exactly. Whether a goal is reached may change with the rounding of another
    processor or library, since a search of thirty iterations amplifies it, so one episode may differ.
    """
    folder = shutil.copytree(ROOT / "pretrained" / "two-room-tiny", tmp_path / "two-room-tiny")
    settings = EvaluationSettings(num_episodes=NUM_PAIRS)
    again = evaluate_run(folder, settings, device=torch.device("cpu"), num_animations=0, is_silent=True)
    ours = read_records(again.path.parent / "episodes.jsonl")
    published = read_records(folder / "episodes.jsonl")[:NUM_PAIRS]
    for name in ("episode", "start_step", "goal_step", "capacity", "presolved", "random_success", "zero_success"):
        assert [getattr(record, name) for record in ours] == [getattr(record, name) for record in published], name
    for a, b in zip(ours, published, strict=True):
        assert a.q == pytest.approx(b.q, abs=1e-5)
    assert again.agreement is not None
    assert again.agreement.episodes == NUM_PAIRS
    assert again.agreement.same_outcome >= NUM_PAIRS - 1
