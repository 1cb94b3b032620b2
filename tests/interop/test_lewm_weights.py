"""LeWM checkpoints in and out: the same numbers on both sides, and refusals that say what to do.

The encoder is compared with transformers' own ViT, everything else with the documented architecture.
"""

import json
import pickle

import pytest
import torch

from alewm.errors import InputError
from alewm.interop.lewm import as_lewm_checkpoint, load_lewm
from alewm.interop.lewm_format import configuration_of
from alewm.model.world_model import WorldModelConfig
from alewm.planning.rollout import masked_roll_out
from documented_lewm import RELEASED, SMALL, DocumentedLeWM, named_by
from small_models import our_model, saved

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(scope="module")
def original():
    return DocumentedLeWM(SMALL)


def observed(original, seed=1):
    """Images as they are stored, the same normalised as LeWM is given them, and action blocks."""
    generator = torch.Generator().manual_seed(seed)
    size = original.sizes["image"]["image_size"]
    stored = torch.randint(0, 256, (2, 3, size, size, 3), generator=generator, dtype=torch.uint8)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    normalised = ((stored / 255 - mean) / std).movedim(-1, 2)
    return stored, normalised, torch.randn(2, 3, original.sizes["action_dim"], generator=generator)


def assert_agree(ours, original):
    stored, normalised, blocks = observed(original)
    features, latents = ours.encode(stored)
    torch.testing.assert_close(features.flatten(0, 1), original.features(normalised.flatten(0, 1)), **CLOSE)
    there = original.encode({"pixels": normalised})["emb"]
    torch.testing.assert_close(latents, there, **CLOSE)
    torch.testing.assert_close(ours.predict(there, blocks), original.predict(there, blocks), **CLOSE)


@pytest.mark.parametrize("generation", [4, 5])
def test_an_imported_model_computes_what_the_original_does(original, generation, tmp_path):
    assert_agree(load_lewm(saved(original, tmp_path / "lewm", generation)).requires_grad_(False), original)


def test_weights_of_the_released_size_need_no_config(tmp_path):
    """Their numbers of heads are the usual ones."""
    original = DocumentedLeWM(RELEASED)
    assert sum(parameter.numel() for parameter in original.parameters()) == 18_034_478
    folder = saved(original, tmp_path / "lewm", 4, config=False)
    ours = load_lewm(folder / "weights.pt").requires_grad_(False)
    assert ours.config == WorldModelConfig(capacities=(192,), has_selector=False)
    assert_agree(ours, original)


def test_names_of_a_compiled_model_are_understood(original, tmp_path):
    state = {f"_orig_mod.{name}": tensor for name, tensor in original.state_dict().items()}
    (tmp_path / "config.json").write_text(json.dumps(original.config()))
    torch.save(state, tmp_path / "weights_epoch_10.pt")
    assert_agree(load_lewm(tmp_path).requires_grad_(False), original)


def reloaded(model, **options):
    """`model` exported and loaded, strictly, into the documented architecture."""
    config, state, warnings = as_lewm_checkpoint(model, generation=5, **options)
    there = DocumentedLeWM(SMALL)
    there.load_state_dict(named_by(state, 5))
    assert config == {**there.config(), "predictor": {**there.config()["predictor"], "dropout": 0.1}}
    return there, " ".join(warnings)


def test_an_exported_model_computes_what_ours_does():
    ours = our_model(64, (64,))
    there, said = reloaded(ours)
    assert_agree(ours, there)
    assert "capacity network is left out" in said
    assert "full width" not in said


@pytest.mark.parametrize("generation", [4, 5])
def test_export_and_import_are_inverse(generation):
    ours = our_model(64, (8, 64))
    config, state, said = as_lewm_checkpoint(ours, generation=generation)
    assert "exported at its full width 64" in said[0]
    assert configuration_of(state, config) == WorldModelConfig(
        latent_dim=64,
        capacities=(64,),
        has_selector=False,
        projector_dim=56,
        encoder=ours.config.encoder,
        predictor=ours.config.predictor,
    )


@pytest.mark.parametrize("latent_dim", [64, 24])
@pytest.mark.parametrize("capacity", [8, None])
def test_rollouts_of_the_exported_model_are_ours_at_that_capacity(latent_dim, capacity):
    """Where the latent is narrower than the predictor, ours seen through the input map."""
    ours = our_model(latent_dim, (8, latent_dim))
    there, said = reloaded(ours, capacity=capacity)
    stored, normalised, _ = observed(there)
    candidates = torch.randn(2, 4, 5, 10, generator=torch.Generator().manual_seed(2))
    k = capacity or latent_dim
    z_first = ours.encode(stored[:, :1])[1][:, 0]
    expected = torch.stack(masked_roll_out(ours, z_first, candidates, k, last_width=k), 2)
    if latent_dim < 64:
        expected = ours.predictor.input_map(expected)
        assert "folded into both projectors" in said
    found = there.rollout({"pixels": normalised[:, None, :1].expand(-1, 4, -1, -1, -1, -1)}, candidates)
    torch.testing.assert_close(found["predicted_emb"][:, :, 1:], expected, **CLOSE)


def test_an_unsupported_capacity_is_refused():
    with pytest.raises(InputError, match=r"Capacity 9 is not supported; choose one of \(8, 64\)"):
        as_lewm_checkpoint(our_model(64, (8, 64)), capacity=9)


class Malicious:
    """Unpickling it would leave a trace."""

    def __reduce__(self):
        return open, ("executed", "w")


def test_pickled_objects_are_refused_and_nothing_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"model": Malicious()}, tmp_path / "weights.pt")
    (tmp_path / "old_object.ckpt").write_bytes(pickle.dumps(Malicious()))
    for path in (tmp_path, tmp_path / "old_object.ckpt"):
        with pytest.raises(InputError, match=r"pickled Python objects.*save its state dict"):
            load_lewm(path)
    assert not (tmp_path / "executed").exists()


def test_files_that_are_no_lewm_are_refused_by_name(original, tmp_path):
    state = original.state_dict()
    torch.save({**state, "decoder.weight": torch.zeros(2)}, tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"'decoder\.weight' is not the name of a LeWM parameter"):
        load_lewm(tmp_path / "a.pt")
    (tmp_path / "config.json").write_text(json.dumps(original.config()))
    torch.save({name: tensor for name, tensor in state.items() if "pos_embedding" not in name}, tmp_path / "b.pt")
    with pytest.raises(InputError, match=r"missing \['predictor\.position'\]"):
        load_lewm(tmp_path / "b.pt")
    torch.save([1, 2], tmp_path / "c.pt")
    with pytest.raises(InputError, match=r"must hold a plain state dict .* found list"):
        load_lewm(tmp_path / "c.pt")
    (tmp_path / "d.pt").write_bytes(b"not a file of tensors")
    with pytest.raises(InputError, match=r"d\.pt is not a PyTorch file\. Give weights\.pt"):
        load_lewm(tmp_path / "d.pt")
    with pytest.raises(InputError, match=r"exactly one \.pt file, found a\.pt, b\.pt, c\.pt, d\.pt"):
        load_lewm(tmp_path)
    with pytest.raises(InputError, match=r"does not exist; give a folder with config\.json"):
        load_lewm(tmp_path / "nowhere")


def test_a_config_of_other_weights_is_refused(original, tmp_path):
    folder = saved(original, tmp_path / "lewm")
    config = original.config()
    config["predictor"]["heads"] = 5
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="5 heads of 8 in the predictor, but its maps have 72 rows"):
        load_lewm(folder)
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match=r"describes heads of 64 .* Put the config.json of these weights beside them"):
        load_lewm(folder)
