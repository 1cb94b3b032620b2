"""The GPU's rollout against the plain one; its kernels run in Triton's interpreter, so no GPU is needed."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm.errors import InputError
from alewm.kernels.predictor_blocks import short_attention
from alewm.model.predictor import PredictorConfig
from alewm.model.vit import ViTConfig
from alewm.model.world_model import WorldModelConfig, build_world_model
from alewm.planning.gpu_search import FastImagination

ENCODER = ViTConfig(image_size=28, patch_size=14, hidden_dim=24, num_blocks=1, num_heads=2, mlp_dim=16)
PREDICTOR = PredictorConfig(num_blocks=2, num_heads=2, head_dim=8, mlp_dim=32)


def world_model(latent_dim=24, predictor=PREDICTOR):
    """One whose modulations, gates and running moments are all in use."""
    config = WorldModelConfig(
        latent_dim=latent_dim,
        capacities=(4, latent_dim),
        action_dim=6,
        projector_dim=32,
        encoder=ENCODER,
        predictor=predictor,
        has_selector=False,
    )
    generator = torch.Generator().manual_seed(0)
    model = build_world_model(config, generator).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
        model.prediction_projector.norm.running_mean.normal_(generator=generator)
        model.prediction_projector.norm.running_var.uniform_(0.5, 2, generator=generator)
    return model


@settings(max_examples=12)
@given(
    latent_dim=st.sampled_from([24, 10]),
    capacity=st.sampled_from([1, 4, 10]),
    horizon=st.integers(1, 6),
    context=st.integers(1, 3),
    N=st.integers(1, 9),
)
def test_it_imagines_what_the_model_does(latent_dim, capacity, horizon, context, N):
    model = world_model(latent_dim)
    generator = torch.Generator().manual_seed(1)
    z, actions = torch.randn(N, capacity, generator=generator), torch.randn(N, horizon, 6, generator=generator)
    with torch.no_grad():
        expected = model.imagine_prefix(z, actions, latent_dim, context)
        found = FastImagination(model, torch.float32).imagine_prefix(z, actions, latent_dim, context)
    assert [tuple(latent.shape) for latent in found] == [(N, capacity)] * (horizon - 1) + [(N, latent_dim)]
    for latent, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(latent, exact, rtol=1e-4, atol=1e-4)


def test_later_changes_of_the_model_are_not_seen():
    model = world_model()
    fast = FastImagination(model, torch.float32)
    z, actions = torch.ones(2, 4), torch.ones(2, 2, 6)
    before = fast.imagine_prefix(z, actions, 4, 3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    for latent, earlier in zip(fast.imagine_prefix(z, actions, 4, 3), before, strict=True):
        assert torch.equal(latent, earlier)


@pytest.mark.parametrize(("num_known", "num_asked"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3)])
def test_attention_over_a_few_positions_is_causal_attention(num_known, num_asked):
    N, heads, head = 3, 2, 8
    generator = torch.Generator().manual_seed(2)
    qkv = torch.randn(N, num_known, 3 * heads * head, generator=generator)
    found = short_attention(list(qkv.unbind(1)), heads, num_asked=num_asked).reshape(N, num_asked, -1)
    query, key, value = qkv.view(N, num_known, 3, heads, head).permute(2, 0, 3, 1, 4)
    exact = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(found, exact.transpose(1, 2).flatten(2)[:, -num_asked:], rtol=1e-5, atol=1e-5)


def test_a_longer_memory_than_the_kernels_know_is_refused():
    with pytest.raises(InputError, match="reads at most 3 positions, the predictor 4"):
        FastImagination(world_model(predictor=replace(PREDICTOR, context_length=4)))
    with pytest.raises(ValueError, match="not 2 of 3"):
        short_attention([torch.zeros(1, 24)] * 3, 2, num_asked=2)
