"""A shared folder is a run folder: saved, loaded, evaluated and pushed without a network."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from alewm.api import load
from alewm.cli.share import Share
from alewm.errors import InputError
from alewm.evaluation.settings import EvaluationSettings
from alewm.interop.hub import push_to_hub
from alewm.interop.pretrained import save_pretrained
from alewm.planning.planner import PlanningConfig
from alewm.planning.search import CEMConfig
from alewm.runs.folder import load_tensors, save_tensors
from command_line import COLLECT, SEARCH, contents, run_alewm


def few_candidates(**asked) -> EvaluationSettings:
    return EvaluationSettings(planning=PlanningConfig(cem=CEMConfig.with_a_tenth_elite(*SEARCH[1::2])), **asked)


@pytest.fixture(scope="module")
def evaluated_run(trained, tmp_path_factory):
    """A copy of the run with a result."""
    folder = tmp_path_factory.mktemp("evaluated-run")
    shutil.copytree(trained, folder / "run")
    run_alewm(folder, "evaluate", "run", *SEARCH, "--animations", 0, "--out", "run")
    return folder / "run"


@pytest.fixture(scope="module")
def shared(evaluated_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared") / "two-room-small"
    return save_pretrained(evaluated_run, folder)


def test_the_folder_holds_no_pickle_no_optimizer_and_no_path_of_this_machine(shared, data):
    names = set(contents(shared))
    assert {"README.md", "config.json", "result.json", "splits.json", "metrics.jsonl", "episodes.jsonl"} <= names
    assert [Path(name).name for name in names if name.startswith("checkpoints")].count("model.safetensors") == 1
    assert not any("training.safetensors" in name or name.endswith((".pt", ".bin", ".pkl")) for name in names)
    for name, content in contents(shared).items():
        if name.endswith((".json", ".jsonl", ".md")):
            assert str(data.parent).encode() not in content, name


def test_the_loaded_model_is_the_trained_one(shared, evaluated_run):
    loaded, original = load(shared), load(evaluated_run)
    ours, theirs = loaded.model.state_dict(), original.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert loaded.description.extras["action_statistics"] == original.description.extras["action_statistics"]
    planning = PlanningConfig(cem=CEMConfig(8, 1, 2))
    now, goal = torch.randint(0, 256, (2, 28, 28, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    plan = loaded.planner(planning)(now, goal)
    assert plan.shape == (25, 2)
    assert torch.equal(plan, original.planner(planning)(now, goal))


def test_the_card_says_what_the_run_s_files_say(shared, evaluated_run):
    card, result = ModelCard.load(shared / "README.md"), json.loads((evaluated_run / "result.json").read_text())
    assert card.data.library_name == "alewm"
    assert card.data.license == "unknown"
    assert "| licence | not stated |" in card.text
    assert card.data.pipeline_tag == "robotics"
    (measured,) = card.data.eval_results
    assert measured.metric_value == round(100 * result["success_rate"], 2)
    assert (shared / "actions.safetensors").read_bytes() == (evaluated_run / "actions.safetensors").read_bytes()
    films = sorted(path.name for path in (evaluated_run / "animations").glob("*.gif"))
    assert sorted(path.name for path in shared.glob("animations/*.gif")) == films
    text = card.text
    assert ("![An episode planned with it](animations/" in text) == bool(films)
    low, high = (f"{100 * bound:.1f} %" for bound in result["interval"])
    assert f"{100 * result['success_rate']:.1f} % (95 % interval {low} to {high})" in text
    assert f"| uniform random actions, same pairs | {100 * result['random_success_rate']:.1f} % |" in text
    fingerprint = json.loads((evaluated_run / "config.json").read_text())["data"]["fingerprint"]
    assert fingerprint in text
    for k, count in result["capacity_counts"].items():
        assert f"| {k} | {count} | " in text
    assert 'alewm.load("two-room-small")' in text
    assert "alewm collect two-room --episodes 16 --seed 0 --image-size 28 --out two-room.h5" in text
    assert "*Adaptive Latent Capacity for World Models* (Idan Achituve" in text


def test_it_is_evaluated_with_its_own_pairs_and_says_how_many_ended_as_published(shared, alewm_here, tmp_path):
    folder = shutil.copytree(shared, tmp_path / "pretrained")
    before = contents(folder)
    printed = alewm_here("evaluate", "pretrained", *SEARCH, "--episodes", 2, "--animations", 0)
    assert "2 of 2 episodes ended as published." in printed
    (result,) = (folder / "evaluations").glob("*/result.json")
    assert json.loads(result.read_text())["as_published"] == {"episodes": 2, "same_outcome": 2}
    assert {name: contents(folder)[name] for name in before} == before


def test_without_pairs_it_is_evaluated_on_data_made_again_by_the_command_in_the_card(
    shared, evaluated_run, refused, tmp_path
):
    folder = shutil.copytree(shared, tmp_path / "pretrained")
    (folder / "pairs.safetensors").unlink()
    said = refused("evaluate", folder, *SEARCH)
    assert "or make it again: alewm collect two-room --episodes 16" in said
    run_alewm(tmp_path, *COLLECT, "--out", "two-room.h5")
    run_alewm(tmp_path, "evaluate", "pretrained", *SEARCH, "--animations", 0, "--out", "pretrained")
    assert (folder / "episodes.jsonl").read_bytes() == (evaluated_run / "episodes.jsonl").read_bytes()


def test_pairs_of_other_data_are_refused(shared, refused, tmp_path):
    folder = shutil.copytree(shared, tmp_path / "pretrained")
    (pairs,) = folder.glob("pairs.safetensors")
    fingerprint = json.loads((folder / "config.json").read_text())["data"]["fingerprint"]
    tensors, metadata = load_tensors(pairs, "")
    assert metadata == {"fingerprint": fingerprint}
    save_tensors(pairs, tensors, {"fingerprint": "0" * len(fingerprint)})
    assert "may have been trained on" in refused("evaluate", folder, *SEARCH)
    pairs.write_bytes(b"not a file of tensors")
    assert "pairs.safetensors cannot be read" in refused("evaluate", folder, *SEARCH)


def test_a_shared_model_has_the_success_of_its_stored_weights(
    trained, alewm_here, refused, monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr("alewm.interop.pretrained.EvaluationSettings", few_candidates)
    run = shutil.copytree(trained, tmp_path / "run")
    share = ("share", run, "--out", "small", "--device", "cpu", "--animations", 1)
    assert alewm_here(*share, "--weights", "bfloat16").splitlines()[-1] == "small"
    assert "\nlicense: unknown\n" in (tmp_path / "small/README.md").read_text()
    again = Share(run, tmp_path / "small", weights="bfloat16", device="cpu")
    again.run()
    assert "the card states no licence" in capsys.readouterr().err
    assert "by its identifier" in refused(*share, "--weights", "bfloat16", "--license", "do as you like")
    alewm_here(*share, "--weights", "bfloat16", "--license", "mit")
    assert "\nlicense: mit\n" in (tmp_path / "small/README.md").read_text()
    assert "| licence | mit |" in (tmp_path / "small/README.md").read_text()
    before = contents(tmp_path / "small")
    again.run()
    assert "licence" not in capsys.readouterr().err
    assert "exists already" in refused(*share, "--weights", "float32")
    assert contents(tmp_path / "small") == before
    sent = {}
    monkeypatch.setattr("alewm.interop.hub.push_to_hub", lambda folder, name: sent.setdefault(name, contents(folder)))
    alewm_here(*share, "--weights", "bfloat16", "--hub", "someone/small")
    assert b'alewm.load("someone/small")' in sent["someone/small"]["README.md"]
    assert sent["someone/small"].keys() == before.keys()
    assert "OWNER/NAME, got 'small'" in refused(*share, "--weights", "bfloat16", "--hub", "small")
    alewm_here(*share, "--weights", "bfloat16")
    assert contents(tmp_path / "small") == before
    result = json.loads((tmp_path / "small/result.json").read_text())
    assert result["weights"] == "bfloat16"
    assert result["training"] == json.loads((run / "result.json").read_text())["training"]
    card = (tmp_path / "small/README.md").read_text()
    assert "before the matrices were rounded" not in card
    assert "`alewm evaluate small` repeats the evaluation" in card
    assert len(list((tmp_path / "small/animations").glob("*.gif"))) == 1
    assert "3 of 3 episodes ended as published." in alewm_here("evaluate", "small", *SEARCH, "--animations", 0)
    (run / "result.json").write_text("{}")
    assert "is no finished run" in refused("share", run, "--out", "other")
    (tmp_path / "begun").mkdir()
    shutil.copy(run / "config.json", tmp_path / "begun")  # of a training that has no checkpoint yet
    assert "begun exists already and is not empty. Give a new folder." in refused("share", run, "--out", "begun")


def test_bfloat16_halves_the_matrices_and_stays_near(evaluated_run, shared, tmp_path):
    small = save_pretrained(evaluated_run, tmp_path / "small", "bfloat16")
    whole, half = (load_file(next(folder.rglob("model.safetensors"))) for folder in (shared, small))
    for name, tensor in whole.items():
        is_matrix = tensor.ndim > 1
        assert half[name].dtype == (torch.bfloat16 if is_matrix else tensor.dtype)
        torch.testing.assert_close(half[name].to(tensor.dtype), tensor, atol=0, rtol=2**-8 if is_matrix else 0)
    loaded = load(small).model
    assert {tensor.dtype for tensor in loaded.parameters()} == {torch.float32}
    assert "before the matrices were rounded to bfloat16" in (small / "README.md").read_text()


def test_a_folder_in_use_is_never_written_over(shared, evaluated_run):
    before = contents(evaluated_run)
    with pytest.raises(InputError, match="exists already and is not empty"):
        save_pretrained(shared, evaluated_run)
    assert contents(evaluated_run) == before


def test_the_card_of_a_repository_names_it_with_its_owner(evaluated_run, tmp_path):
    text = (save_pretrained(evaluated_run, tmp_path / "small", name="someone/two-room") / "README.md").read_text()
    assert 'alewm.load("someone/two-room")' in text
    assert "`alewm evaluate someone/two-room` repeats the evaluation" in text
    (entry,) = ModelCard(text).data.eval_results
    assert ModelCard(text).data.model_name == "someone/two-room"
    assert entry.dataset_type == "two-room"


def test_only_an_id_with_its_owner_is_sent(shared):
    with pytest.raises(InputError, match="OWNER/NAME, got 'two-room'"):
        push_to_hub(shared, "two-room")


def test_without_the_extra_the_rest_works_and_the_message_names_it():
    code = (
        "import sys\nsys.modules['huggingface_hub'] = None\n"
        "import alewm\n"
        "import alewm.interop.pretrained, alewm.interop.lewm, alewm.interop.stable_worldmodel\n"
        "from alewm.errors import InputError\n"
        "try:\n    alewm.load('someone/two-room')\n"
        "except InputError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # The metadata of an installed package writes its requirements with a dash or with an underscore.
    assert "pip install 'huggingface-hub>=0.30'" in done.stdout.replace("huggingface_hub>", "huggingface-hub>")
