"""Checkpoints give back what was saved, or say what is wrong."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from alewm.errors import InputError
from alewm.model.checkpoint_files import check_digests, checkpoints_in, prune_checkpoints
from alewm.model.world_model import build_world_model
from alewm.training.checkpoint import Description, load_checkpoint, load_world_model, read_description, save_checkpoint
from alewm.training.objective import Objective
from alewm.training.random_streams import RandomStreams
from alewm.training.step import build_optimizer, update
from memory_windows import draw_windows, run_config

CONFIG = run_config()
CPU = torch.device("cpu")


class Session:
    """What a trainer holds."""

    def __init__(self, seed: int) -> None:
        self.model = build_world_model(CONFIG.model, torch.Generator().manual_seed(seed))
        self.optimizer = build_optimizer(self.model, CONFIG.training.optim)
        self.streams = RandomStreams(seed, CPU)
        self.objective = Objective(CONFIG.objective, CONFIG.model)

    @property
    def parts(self):
        return self.model, self.optimizer, self.streams

    def advance(self, num_steps: int) -> None:
        for step in range(num_steps):
            noise = self.streams.draw_step(self.model, 8, 3, drops=True)
            windows = draw_windows(8, seed=step)
            update(self.model, self.objective, self.optimizer, *windows, noise, self.streams.directions, clip_norm=1.0)


def describe(step: int) -> Description:
    return Description(step, CONFIG, {"passes": 1, "batches": 2}, {"action_mean": [0.5, 0.25]})


@pytest.fixture
def saved(tmp_path):
    session = Session(0)
    session.advance(3)
    return session, save_checkpoint(tmp_path, describe(3), *session.parts)


def test_training_goes_on_from_a_checkpoint_as_if_nothing_had_happened(saved):
    session, checkpoint = saved
    other = Session(1)
    assert load_checkpoint(checkpoint, *other.parts) == describe(3)
    session.advance(2)
    other.advance(2)
    for name, tensor in session.model.state_dict().items():
        assert torch.equal(tensor, other.model.state_dict()[name]), name


def test_planning_needs_only_the_checkpoint(saved):
    session, checkpoint = saved
    model, description = load_world_model(checkpoint)
    assert description.extras == {"action_mean": [0.5, 0.25]}
    assert not model.training
    pixels = draw_windows(3).pixels
    session.model.eval()
    features, latents = session.model.encode(pixels)
    assert torch.equal(model.encode(pixels).latents, latents)
    assert torch.equal(model.capacity_logits(features), session.model.capacity_logits(features))
    torch.testing.assert_close(model.log_prior, session.model.log_prior)


def test_checkpoints_are_found_in_order_and_the_oldest_go(tmp_path):
    session = Session(0)
    for step in (5, 100_000_000, 20_000_000):
        save_checkpoint(tmp_path, describe(step), *session.parts)
    steps = [read_description(path).step for path in checkpoints_in(tmp_path)]
    assert steps == [5, 20_000_000, 100_000_000]
    (tmp_path / ".step-00000030.partial").mkdir()
    prune_checkpoints(tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-100000000", "step-20000000"]


def test_a_half_written_checkpoint_does_not_count(saved):
    _, checkpoint = saved
    partial = checkpoint.with_name(".step-00000009.partial")
    checkpoint.rename(partial)
    assert checkpoints_in(partial.parent) == []


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    flushed, final = set(), tmp_path / "step-00000003"

    def note(descriptor):
        if not final.exists():
            flushed.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", note)
    assert save_checkpoint(tmp_path, describe(3), *Session(0).parts) == final
    assert {path.stat().st_ino for path in (final, *final.iterdir())} == flushed


def test_saving_again_replaces(saved):
    session, checkpoint = saved
    session.advance(1)
    assert save_checkpoint(checkpoint.parent, describe(3), *session.parts) == checkpoint
    assert [path.name for path in checkpoint.parent.iterdir()] == [checkpoint.name]
    model, _ = load_world_model(checkpoint)
    assert torch.equal(model.encoder.position, session.model.encoder.position)


def test_every_difference_is_listed(saved):
    session, checkpoint = saved
    path = checkpoint / "model.safetensors"
    tensors = load_file(path)
    tensors["stray"] = tensors.pop("encoder.norm.bias")
    tensors["predictor.position"] = torch.zeros(1, 5, 16)
    save_file(tensors, path)
    without_digests(checkpoint)
    before = session.model.encoder.position.clone()
    with pytest.raises(InputError) as caught:
        load_checkpoint(checkpoint, *session.parts)
    assert "missing: encoder.norm.bias" in str(caught.value)
    assert "unexpected: stray" in str(caught.value)
    assert "predictor.position: expected shape [1, 3, 16], found [1, 5, 16]" in str(caught.value)
    assert torch.equal(session.model.encoder.position, before)


@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors", "checkpoint.json"])
@pytest.mark.parametrize("damage", ["cut", "absent", "garbled"])
def test_damage_is_named(saved, name, damage):
    session, checkpoint = saved
    path = checkpoint / name
    content = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    if damage == "garbled":
        path.write_bytes(b"\xff" * len(content))
    with pytest.raises(InputError, match=name.replace(".", r"\.")) as refusal:
        load_checkpoint(checkpoint, *session.parts)
    assert f"There is no older checkpoint: delete the folder {checkpoint}," in str(refusal.value)
    save_checkpoint(checkpoint.parent, describe(2), *session.parts)
    with pytest.raises(InputError) as refusal:
        load_checkpoint(checkpoint, *session.parts)
    assert f"Delete the folder {checkpoint}, then repeat the command: it goes on from" in str(refusal.value)
    assert "step-00000002" in str(refusal.value)


def test_another_format_and_another_config_field_are_refused(saved):
    _, checkpoint = saved
    path = checkpoint / "checkpoint.json"
    content = json.loads(path.read_text())
    del content["sha256"]
    path.write_text(json.dumps({**content, "format": 7}))
    with pytest.raises(InputError, match="has format 7; this version reads format 1"):
        read_description(checkpoint)
    content["config"]["model"]["latent_width"] = 3
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="Unknown WorldModelConfig field 'latent_width'"):
        read_description(checkpoint)


def without_digests(checkpoint):
    """The checkpoint as older versions wrote it."""
    path = checkpoint / "checkpoint.json"
    content = json.loads(path.read_text())
    del content["sha256"]
    path.write_text(json.dumps(content, indent=2) + "\n")


def test_a_flipped_bit_in_any_file_is_refused_by_name(saved):
    session, checkpoint = saved
    rng = np.random.default_rng(0)
    assert check_digests(checkpoint)
    for name in ("model.safetensors", "training.safetensors", "checkpoint.json"):
        path = checkpoint / name
        sound = path.read_bytes()
        for position in rng.integers(len(sound), size=40):
            damaged = bytearray(sound)
            damaged[position] ^= 1 << rng.integers(8)
            path.write_bytes(damaged)
            try:
                found = load_checkpoint(checkpoint, *session.parts)
            except InputError as error:
                assert str(path) in str(error)  # noqa: PT017 (spaces in JSON may change)
            else:
                assert name == "checkpoint.json"
                assert found == describe(3)
        path.write_bytes(sound)
    assert load_checkpoint(checkpoint, *session.parts) == describe(3)


def test_weights_of_another_checkpoint_and_edited_statistics_are_refused(saved):
    session, checkpoint = saved
    session.advance(1)
    other = save_checkpoint(checkpoint.parent, describe(4), *session.parts)
    shutil.copy(other / "model.safetensors", checkpoint)
    with pytest.raises(InputError, match=r"step-00000003/model\.safetensors is damaged: its SHA-256 begins with"):
        load_world_model(checkpoint)
    path = other / "checkpoint.json"
    path.write_text(path.read_text().replace("0.25", "0.26"))
    with pytest.raises(InputError, match=r"differs from the SHA-256 in it.*If you edited it on purpose, delete"):
        read_description(other)


def test_older_checkpoints_load_without_a_word(saved, capsys):
    session, checkpoint = saved
    without_digests(checkpoint)
    assert not check_digests(checkpoint)
    assert load_checkpoint(checkpoint, *session.parts) == describe(3)
    assert capsys.readouterr() == ("", "")


def test_the_readable_half_is_readable(saved):
    content = json.loads((saved[1] / "checkpoint.json").read_text())
    assert content["step"] == 3
    assert content["config"]["model"]["capacities"] == [2, 4, 8]
    assert content["config"]["objective"]["method"] == "alewm"
    assert dataclasses.asdict(CONFIG)["training"]["seed"] == content["config"]["training"]["seed"]
