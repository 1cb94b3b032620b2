"""Sizes the paper states, and what the composition promises."""

import dataclasses

import pytest
import torch

from alewm.config import from_dict, to_dict
from alewm.errors import InputError
from alewm.model.predictor import PredictorConfig
from alewm.model.vit import PixelNormaliser, ViTConfig
from alewm.model.world_model import SelectorConfig, WorldModel, WorldModelConfig, build_world_model
from alewm.resize import area_downsample

VIT_SMALL = ViTConfig(hidden_dim=384, num_heads=6, mlp_dim=1536)
TINY = WorldModelConfig(
    latent_dim=16,
    capacities=(2, 4, 16),
    prior_degree=1.0,
    action_dim=6,
    projector_dim=40,
    encoder=ViTConfig(image_size=16, patch_size=8, hidden_dim=32, num_blocks=2, num_heads=2, mlp_dim=48),
    predictor=PredictorConfig(num_blocks=2, num_heads=2, head_dim=8, mlp_dim=48),
    selector=SelectorConfig(num_blocks=1, num_heads=2, mlp_dim=16),
)
WIDE = dataclasses.replace(TINY, latent_dim=32, capacities=(4, 32))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def trained_like(config: WorldModelConfig) -> WorldModel:
    """A model in evaluation mode none of whose parameters or buffers is at its special initial value."""
    model = build_world_model(config, generator()).eval()
    g = generator(1)
    for tensor in (*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())):
        tensor.data.add_(0.1 * torch.rand(tensor.shape, generator=g))
    return model


def num_parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def lewm(latent_dim: int, encoder: ViTConfig, action_dim: int = 10) -> WorldModel:
    with torch.device("meta"):
        return WorldModel(
            WorldModelConfig(
                latent_dim=latent_dim,
                capacities=(latent_dim,),
                has_selector=False,
                action_dim=action_dim,
                encoder=encoder,
            )
        )


@pytest.mark.parametrize(
    ("latent_dim", "encoder", "action_dim", "total"),
    [
        (192, ViTConfig(), 10, 18_034_478),
        (192, ViTConfig(), 25, 18_034_628),
        (96, ViTConfig(), 10, 17_659_694),
        (32, ViTConfig(), 10, 17_385_134),
        (384, VIT_SMALL, 10, 49_610_222),
    ],
)
def test_lewm_has_the_published_number_of_parameters(latent_dim, encoder, action_dim, total):
    assert num_parameters(lewm(latent_dim, encoder, action_dim)) == total


def test_the_parts_of_lewm_have_their_published_sizes():
    model = lewm(192, ViTConfig())
    assert num_parameters(model.encoder) == 5_501_376
    assert num_parameters(model.predictor) == 10_791_360
    assert num_parameters(model.action_encoder) == 156_206
    assert num_parameters(lewm(192, ViTConfig(), 25).action_encoder) == 156_356
    assert num_parameters(model.projector) == num_parameters(model.prediction_projector) == 792_768
    assert len(model.state_dict()) == 303


@pytest.mark.parametrize(
    ("encoder", "capacities", "size"),
    [
        (ViTConfig(), (8, 16, 32, 64, 96), 1_780_805),
        (ViTConfig(), (8, 16, 32, 64, 96, 128, 160, 192), 1_781_384),
        (VIT_SMALL, (8, 16, 32, 64, 96, 128, 160, 192, 256, 320, 384), 4_740_491),
    ],
)
def test_the_selector_has_the_published_number_of_parameters(encoder, capacities, size):
    model = WorldModel(WorldModelConfig(latent_dim=capacities[-1], capacities=capacities, encoder=encoder))
    assert num_parameters(model.selector) == size


def test_encoding_keeps_the_axes_and_any_pixel_form_means_the_same():
    model = trained_like(TINY)
    stored = torch.randint(256, (2, 3, 16, 16, 3), dtype=torch.uint8, generator=generator())
    features, latents = model.encode(stored)
    assert features.shape == (2, 3, 32)
    assert latents.shape == (2, 3, 16)
    torch.testing.assert_close(model.encode(stored.movedim(-1, 2)).latents, latents)
    torch.testing.assert_close(model.encode(stored.float() / 255).latents, latents, atol=1e-5, rtol=1e-5)
    enlarged = stored.repeat_interleave(3, 2).repeat_interleave(3, 3)
    torch.testing.assert_close(model.encode(enlarged).latents, latents, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(32, 32), (40, 40), (24, 56)])
def test_larger_frames_give_the_latents_of_the_frames_that_training_would_have_read(shape):
    model = trained_like(TINY)
    native = torch.randint(256, (2, 3, *shape, 3), dtype=torch.uint8, generator=generator())
    assert torch.equal(model.encode(native).latents, model.encode(area_downsample(native, 16)).latents)
    assert torch.equal(model.encode(native.movedim(-1, 2)).latents, model.encode(native).latents)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (torch.zeros(2, 16, 16, 3), r"Pixels are \[B, F, Y, X, 3\]"),
        (torch.zeros(2, 3, 16, 16, 4), r"Pixels are \[B, F, Y, X, 3\]"),
        (torch.zeros(2, 3, 32, 32, 3), "Float images must have the encoder's size, 16 x 16; got 32 x 32"),
        (torch.zeros(2, 3, 16, 32, 3), "got 16 x 32"),
        (torch.zeros(2, 3, 8, 8, 3, dtype=torch.uint8), "Frames of 8 x 8 cannot be averaged down to 16 x 16"),
        (torch.full((2, 3, 16, 16, 3), 255.0), "got floats from 255 to 255"),
        (torch.full((2, 3, 16, 16, 3), torch.nan), "got floats from nan"),
        (torch.zeros(2, 3, 16, 16, 3, dtype=torch.int64), r"uint8, or floats in \[0, 1\]"),
    ],
)
def test_pixels_the_encoder_cannot_read_are_refused(pixels, message):
    with pytest.raises(InputError, match=message):
        trained_like(TINY).encode(pixels)


def test_q_is_the_prior_at_first_whatever_the_frames():
    model = build_world_model(TINY, generator())
    logits = model.capacity_logits(torch.randn(5, 4, 32, generator=generator()))
    torch.testing.assert_close(logits.softmax(-1), torch.tensor([3.0, 2.0, 1.0]).div(6).expand(5, 3))
    without = build_world_model(dataclasses.replace(TINY, has_selector=False), generator())
    torch.testing.assert_close(without.capacity_logits(torch.zeros(5, 4, 32)).softmax(-1), logits.softmax(-1))


def test_the_selector_does_not_shape_the_encoder():
    model = trained_like(TINY)
    model.capacity_logits(model.encode(torch.rand(2, 4, 16, 16, 3, generator=generator())).features).sum().backward()
    assert all(parameter.grad is None for parameter in model.encoder.parameters())
    assert all(parameter.grad is not None for parameter in model.selector.parameters())


@pytest.mark.parametrize("config", [TINY, WIDE], ids=["with input map", "as wide as the predictor"])
def test_predictions_do_not_depend_on_the_future(config):
    model = trained_like(config)
    z = torch.randn(4, 3, config.latent_dim, generator=generator())
    a = torch.randn(4, 3, 6, generator=generator(2))
    predicted = model.predict(z, a)
    for t in range(1, 3):
        torch.testing.assert_close(model.predict(z[:, :t], a[:, :t]), predicted[:, :t])


@pytest.mark.parametrize("config", [TINY, WIDE], ids=["with input map", "as wide as the predictor"])
@pytest.mark.parametrize("capacity", [1, 4, 13, None])
@pytest.mark.parametrize("width", [1, 4, 16])
def test_a_sliced_prediction_is_the_masked_one(config, capacity, width):
    model = trained_like(config)
    z = torch.randn(4, 3, config.latent_dim, generator=generator())
    a = torch.randn(4, 3, 6, generator=generator(2))
    masked = z.clone()
    masked[..., capacity or config.latent_dim :] = 0
    sliced = model.predict_prefix(z[..., :capacity], a, width)
    torch.testing.assert_close(sliced, model.predict(masked, a)[:, -1, :width])


def test_a_new_predictor_passes_the_latent_through_its_norm():
    model = build_world_model(WIDE, generator())
    z = torch.randn(4, 3, 32, generator=generator())
    hidden = model.predictor(z, torch.randn(4, 3, 32, generator=generator(2)))
    torch.testing.assert_close(hidden, torch.nn.functional.layer_norm(z + model.predictor.position, (32,)))


def test_dropout_decides_for_each_sample_alone():
    model = trained_like(TINY)
    z, a = torch.randn(6, 3, 16, generator=generator()), torch.randn(6, 3, 6, generator=generator(2))
    keep = torch.rand(6, model.predictor.dropout_draws(3), generator=generator(3)) < 0.9
    whole = model.predict(z, a, keep=keep)
    assert not torch.allclose(whole, model.predict(z, a))
    torch.testing.assert_close(model.predict(z[2:4], a[2:4], keep=keep[2:4]), whole[2:4])


def test_dropout_keeps_the_mean():
    from alewm.model.predictor import drop

    keep = torch.rand(4000, 6, generator=generator()) < 0.75
    torch.testing.assert_close(drop(torch.ones(4000, 2, 3), keep, 0.25).mean(), torch.tensor(1.0), atol=0.02, rtol=0)


def test_first_weights_come_from_the_generator_and_leave_the_global_one_alone():
    before = torch.random.get_rng_state()
    first, again, other = (build_world_model(TINY, generator(seed)).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["encoder.position"], other["encoder.position"])


def test_the_config_survives_json():
    assert from_dict(WorldModelConfig, to_dict(TINY)) == TINY


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latent_dim": 8}, "ends in 16, but the latent has 8"),
        ({"latent_dim": 64, "capacities": (64,)}, "must not be wider than the encoder"),
    ],
)
def test_widths_that_do_not_fit_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(TINY, **change)


def test_more_positions_than_the_context_are_refused():
    with pytest.raises(InputError, match="sees 1 to 3 positions, got 4"):
        trained_like(TINY).predict(torch.zeros(1, 4, 16), torch.zeros(1, 4, 6))


@pytest.mark.parametrize("config", [TINY, WIDE], ids=["with input map", "as wide as the predictor"])
@pytest.mark.parametrize("context", [1, 2, 3])
@pytest.mark.parametrize(("capacity", "last_width"), [(1, 1), (4, 16), (16, 4)])
def test_imagining_at_once_is_predicting_step_by_step(config, context, capacity, last_width):
    model = trained_like(config).eval()
    actions = torch.randn(7, 5, 6, generator=generator(2))
    latents = [torch.randn(7, capacity, generator=generator())]
    for t in range(5):
        seen = slice(max(0, t + 1 - context), t + 1)
        width = last_width if t == 4 else capacity
        latents.append(model.predict_prefix(torch.stack(latents[seen], 1), actions[:, seen], width))
    imagined = model.imagine_prefix(latents[0], actions, last_width, context)
    torch.testing.assert_close(imagined, latents[1:])


def test_rows_are_imagined_in_parts_that_do_not_matter(monkeypatch):
    from alewm.model import world_model

    model = trained_like(TINY).eval()
    z, actions = torch.randn(7, 4, generator=generator()), torch.randn(7, 5, 6, generator=generator(2))
    whole = model.imagine_prefix(z, actions, 4, 3)
    monkeypatch.setattr(world_model, "ROWS_IN_CACHE", 3)
    torch.testing.assert_close(model.imagine_prefix(z, actions, 4, 3), whole)


def test_imagining_with_more_context_than_the_predictor_sees_is_refused():
    with pytest.raises(InputError, match="sees 1 to 3 positions, got 4"):
        trained_like(TINY).imagine_prefix(torch.zeros(1, 16), torch.zeros(1, 5, 6), 16, 4)


@pytest.mark.parametrize("change", [lambda x: x * 255, lambda x: (x - 0.5) / 0.2, lambda x: x * torch.nan])
def test_float_pixels_beyond_0_to_1_are_refused(change):
    pixels = torch.linspace(0, 1, 8 * 8 * 3).view(1, 1, 8, 8, 3)
    PixelNormaliser(8)(pixels)
    with pytest.raises(InputError, match=r"floats in \[0, 1\]; got floats from"):
        PixelNormaliser(8)(change(pixels))
