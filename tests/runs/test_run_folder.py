"""A run folder is continued by the same config, refused to another, and never left half written."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from alewm.config import differences, from_dict, to_dict
from alewm.errors import InputError
from alewm.files import _new_draft, read_json, write_json
from alewm.runs.folder import RunFolder, load_tensors, save_tensors
from alewm_lab.oscillator.study import OscillatorRun


def test_the_same_config_continues_and_another_is_refused_with_the_difference(tmp_path):
    RunFolder(tmp_path / "run").open({"epochs": 3, "model": {"width": 8}})
    RunFolder(tmp_path / "run").open({"epochs": 3, "model": {"width": 8}})
    before = sorted(p.name for p in (tmp_path / "run").iterdir())
    with pytest.raises(InputError, match=r"model\.width: asked 16, found 8"):
        RunFolder(tmp_path / "run").open({"epochs": 3, "model": {"width": 16}})
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == before


def test_provenance_says_where_a_run_was_made(tmp_path):
    folder = RunFolder(tmp_path / "run").open({})
    recorded = read_json(folder.provenance_path)
    assert {"alewm", "commit", "command", "python", "packages", "cores", "processor", "accelerator"} <= recorded.keys()
    assert "torch" in recorded["packages"]


@pytest.mark.parametrize("begun", [".1f.alewm-partial", "provenance.json"])
def test_a_folder_whose_command_was_stopped_before_its_config_was_written_is_begun_again(tmp_path, begun):
    run = tmp_path / "run"
    run.mkdir()
    (run / begun).write_text("{")
    RunFolder(run).open({"epochs": 3})
    assert sorted(path.name for path in run.iterdir()) == ["config.json", "provenance.json"]
    assert read_json(run / "config.json") == {"epochs": 3}
    assert "commit" in read_json(run / "provenance.json")


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="it is not a run folder"):
        RunFolder(tmp_path).open({})
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_place_of_the_folder_is_reported(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(InputError, match="is a file; give a folder"):
        RunFolder(tmp_path / "run").open({})


def test_a_damaged_file_is_named_with_the_place(tmp_path):
    (tmp_path / "result.json").write_text('{"runs": [')
    with pytest.raises(InputError, match=r"result\.json is damaged: .*line 1 column"):
        read_json(tmp_path / "result.json")


def test_a_failed_write_keeps_the_old_file_and_leaves_no_litter(tmp_path):
    path = tmp_path / "result.json"
    write_json(path, {"kept": True})
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, {"bad": float("nan")})
    assert json.loads(path.read_text()) == {"kept": True}
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_drafts_of_the_killed_are_removed_and_those_of_the_living_stay(tmp_path):
    living = _new_draft(tmp_path)
    _new_draft(tmp_path).close()
    (tmp_path / ".result.json.swp").write_text("an editor's")
    write_json(tmp_path / "result.json", {})
    found = {path.name for path in tmp_path.iterdir()}
    assert found == {Path(living.name).name, ".result.json.swp", "result.json"}
    living.close()
    write_json(tmp_path / "result.json", {})
    assert {path.name for path in tmp_path.iterdir()} == {".result.json.swp", "result.json"}


def test_many_writers_of_one_file_never_lose_a_draft_or_mix(tmp_path):
    path = tmp_path / "splits.json"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: write_json(path, [each] * 1000), range(200)))
    assert len(set(read_json(path))) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["splits.json"]


def test_who_reads_while_a_file_is_replaced_reads_the_old_one_to_its_end(tmp_path):
    path = tmp_path / "result.json"
    write_json(path, {"old": list(range(5000))})
    with path.open() as reader:
        first = reader.read(10)
        write_json(path, {"new": True})
        assert json.loads(first + reader.read()) == {"old": list(range(5000))}
    assert json.loads(path.read_text()) == {"new": True}
    assert path.stat().st_mode & 0o777 == 0o644  # as other people's programs leave files, not as temporary ones


def test_a_config_survives_its_json():
    run = OscillatorRun("alewm", control="marginal", reg_weight=0.1)
    assert from_dict(OscillatorRun, json.loads(json.dumps(to_dict(run)))) == run


def test_a_mistyped_field_gets_the_nearest_name():
    with pytest.raises(InputError, match=r"Unknown OscillatorRun field 'reg_wieght'. Did you mean 'reg_weight'\?"):
        from_dict(OscillatorRun, {"method": "alewm", "reg_wieght": 1.0})
    with pytest.raises(InputError, match="lacks the field 'method'"):
        from_dict(OscillatorRun, {})


def test_differences_are_listed_field_by_field():
    assert differences({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}}) == ["b.c: asked 2, found 3"]
    assert differences({"a": 1}, {}) == ["a: asked 1, found '(absent)'"]


def test_a_field_that_an_older_config_lacks_is_named_with_its_default(tmp_path):
    older, defaults = {"model": {"width": 8}}, {"model": {"prior": "ranks"}}
    RunFolder(tmp_path / "run", defaults).open(older)
    with pytest.raises(InputError, match=r"model\.prior: asked 'smooth', found 'ranks'"):
        RunFolder(tmp_path / "run", defaults).check({"model": {"width": 8, "prior": "smooth"}})
    assert RunFolder(tmp_path / "run", defaults).check({"model": {"width": 8, "prior": "ranks"}})
    assert differences({}, {"prior": "smooth"}, {"prior": "ranks"}) == ["prior: asked 'ranks', found 'smooth'"]


def test_tensors_survive_their_file(tmp_path):
    tensors = {"weight": torch.randn(3, 2), "bias": torch.zeros(2)}
    save_tensors(tmp_path / "model.safetensors", tensors)
    found = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(found[name], value) for name, value in tensors.items())


def test_tensors_and_metadata_that_differ_from_their_digest_are_refused(tmp_path):
    tensors = {"a": torch.randn(3, 2), "k": torch.tensor(4), "h": torch.ones(5, dtype=torch.bfloat16)}
    path, metadata = tmp_path / "pairs.safetensors", {"fingerprint": "aa", "b": "c"}
    save_tensors(path, tensors, metadata)
    sound = path.read_bytes()
    found, said = load_tensors(path, "restore it.")
    assert said == metadata
    assert all(torch.equal(found[name], value) for name, value in tensors.items())
    save_tensors(path, found, said)
    assert path.read_bytes() == sound
    refused = 0
    for position in range(len(sound)):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        try:
            found, said = load_tensors(path, "restore it.")
        except InputError as error:
            assert re.search(r"pairs\.safetensors (is damaged|cannot be read) .*; restore it\.", str(error))  # noqa: PT017 (most are)
            refused += 1
            continue
        # Six letters are the name of the digest, and spaces fill the header.
        assert all(torch.equal(found[name], value) for name, value in tensors.items())
        assert metadata.items() <= said.items()
    assert refused >= len(sound) - 6 - 7
    save_file(tensors, path)  # as older versions wrote it
    assert load_tensors(path, "restore it.")[0].keys() == tensors.keys()


def test_a_digest_whose_name_is_damaged_is_not_taken_for_none(tmp_path: Path) -> None:
    path = tmp_path / "pairs.safetensors"
    save_tensors(path, {"state": torch.arange(3.0)}, {"fingerprint": "0" * 32})
    path.write_bytes(path.read_bytes().replace(b"sha256", b"sha356"))
    with pytest.raises(InputError, match=r"pairs\.safetensors is damaged"):
        load_tensors(path, "restore it.")


def test_half_a_character_is_refused_and_a_whole_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(r'{"variant": "\ud83d\ude00"}')
    assert read_json(path) == {"variant": "😀"}
    path.write_text(r'{"variant": "\ud800"}')
    with pytest.raises(InputError, match=r"config\.json is damaged"):
        read_json(path)
