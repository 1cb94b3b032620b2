"""Kernels of a rollout with few rows against plain torch; they run in Triton's interpreter, so no GPU is needed.

The interpreter multiplies float32 and float16, not bfloat16, which `alewm bench check` compares on a GPU.
"""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from alewm.benchmarks.rollout_tiles import time_rollout_tiles
from alewm.errors import InputError
from alewm.model.fast_imagination import FEW_ROWS, FastImagination, ManyRowsRollout
from alewm.model.few_rows.halves import Reader, Stream, attention_half, begin, encode_actions, mlp_half, project
from alewm.model.few_rows.launching import to_compile
from alewm.model.few_rows.rollout import FewRowsRollout
from alewm.model.fused.tiles import CANDIDATES, Tile, tile_of
from alewm.model.predictor import PredictorConfig
from alewm.model.prepared import Map, Norm
from alewm.model.vit import ViTConfig
from alewm.model.world_model import WorldModelConfig, build_world_model

CPU = torch.device("cpu")
N, W, HEADS, HEAD = 18, 48, 2, 16
INNER, HIDDEN = HEADS * HEAD, 32
IN_PARTS = Tile(rows=16, chunk=16, warps=1, stages=1, parts=2)
"""Two groups of rows, the second nearly empty, and sums in two parts."""

CONFIG = WorldModelConfig(
    latent_dim=W,
    capacities=(4, W),
    action_dim=6,
    projector_dim=HIDDEN,
    encoder=ViTConfig(image_size=28, patch_size=14, hidden_dim=W, num_blocks=1, num_heads=2, mlp_dim=16),
    predictor=PredictorConfig(num_blocks=2, num_heads=HEADS, head_dim=HEAD, mlp_dim=HIDDEN),
    has_selector=False,
)


@torch.no_grad()
def world_model(**changes):
    """One whose modulations, gates and running moments are all in use."""
    generator = torch.Generator().manual_seed(0)
    model = build_world_model(replace(CONFIG, **changes), generator).eval()
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    model.prediction_projector.norm.running_mean.normal_(generator=generator)
    model.prediction_projector.norm.running_var.uniform_(0.5, 2, generator=generator)
    return model


def draw(*shape, seed=0, factor=1.0):
    return factor * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def drawn_map(inputs, outputs, seed):
    return Map(draw(inputs, outputs, seed=seed, factor=inputs**-0.5), draw(outputs, seed=seed + 1))


def drawn_reader(num_positions, seed=10):
    """A norm, and gate, shift and scale that are slices of one tensor, as the rollout has them."""
    norm = Norm(1 + draw(W, seed=seed, factor=0.3), draw(W, seed=seed + 1, factor=0.3))
    gate, shift, scale = draw(N, 5, 3 * W, seed=seed + 2)[:, 1 : 1 + num_positions].chunk(3, -1)
    return gate, Reader(norm, shift, scale)


def read(x, reader):
    """What `reader` makes of x, in plain torch."""
    if reader.shift is not None:
        x = F.layer_norm(x, (W,), eps=1e-6) * (1 + reader.scale) + reader.shift
    return F.layer_norm(x, (W,), *reader.norm)


def counters():
    return torch.zeros(8, dtype=torch.int32)


@pytest.mark.parametrize(
    ("num_new", "num_past", "num_asked"), [(1, 0, 1), (1, 1, 1), (1, 2, 1), (2, 0, 1), (2, 0, 2), (3, 0, 1), (3, 0, 3)]
)
def test_the_attention_half_is_causal_attention_gated_onto_x_and_read(num_new, num_past, num_asked):
    stream = Stream(draw(N, num_new, W, seed=1), draw(N, num_new, W, seed=2))
    qkv, output = draw(W, 3 * INNER, seed=3, factor=W**-0.5), drawn_map(INNER, W, seed=4)
    past = [draw(N, 2 * INNER, seed=6 + i) for i in range(num_past)]
    gate, reader = drawn_reader(num_asked)
    arrived = counters()
    after, known = attention_half(stream, qkv, output, HEADS, past, gate, reader, arrived, IN_PARTS)

    query, key, value = (stream.read @ qkv).chunk(3, -1)
    if num_new == 1:
        torch.testing.assert_close(known, torch.cat([key, value], -1)[:, 0])
    else:
        assert known is None
    keys = torch.cat([*(p[:, None, :INNER] for p in past), key], 1)
    values = torch.cat([*(p[:, None, INNER:] for p in past), value], 1)
    future = torch.ones(num_new, num_past + num_new, dtype=torch.bool).triu(1 + num_past)
    heads = (tensor.unflatten(-1, (HEADS, HEAD)).transpose(1, 2) for tensor in (query, keys, values))
    mixed = F.scaled_dot_product_attention(*heads, attn_mask=~future).transpose(1, 2).flatten(2)[:, -num_asked:]
    x = stream.x[:, -num_asked:] + gate * (mixed @ output.weight + output.bias)
    torch.testing.assert_close(after.x, x, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(after.read, read(x, reader), rtol=1e-4, atol=1e-4)
    assert not arrived.any(), "the counters are left as the next kernel needs them"


@pytest.mark.parametrize("num_positions", [1, 3])
@pytest.mark.parametrize("is_modulated", [True, False])
def test_the_mlp_half_is_an_mlp_gated_onto_x_and_read(num_positions, is_modulated):
    stream = Stream(draw(N, num_positions, W, seed=1), draw(N, num_positions, W, seed=2))
    widen, narrow = drawn_map(W, HIDDEN, seed=3), drawn_map(HIDDEN, W, seed=5)
    gate, reader = drawn_reader(num_positions)
    reader = reader if is_modulated else Reader(reader.norm)
    arrived = counters()
    after = mlp_half(stream, widen, narrow, gate, reader, arrived, IN_PARTS)
    x = stream.x + gate * (F.gelu(stream.read @ widen.weight + widen.bias) @ narrow.weight + narrow.bias)
    torch.testing.assert_close(after.x, x, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(after.read, read(x, reader), rtol=1e-4, atol=1e-4)
    assert not arrived.any()


def test_half_precision_rounds_products_and_parts_but_not_the_residual_stream():
    stream = Stream(draw(N, 1, W, seed=1), draw(N, 1, W, seed=2))
    maps, (gate, reader) = (drawn_map(W, HIDDEN, seed=3), drawn_map(HIDDEN, W, seed=5)), drawn_reader(1)
    exact = mlp_half(stream, *maps, gate, reader, counters(), IN_PARTS)
    halved = (Map(*(tensor.half() for tensor in m)) for m in maps)
    found = mlp_half(Stream(stream.x, stream.read.half()), *halved, gate, reader, counters(), IN_PARTS)
    assert (found.x.dtype, found.read.dtype) == (torch.float32, torch.float16)
    torch.testing.assert_close(found.x, exact.x, rtol=5e-3, atol=5e-3)
    torch.testing.assert_close(found.read.float(), exact.read, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("width", [5, 32])
def test_the_projection_gives_the_coordinates_asked_for(width):
    rows, widen, narrow = draw(N, W, seed=1), drawn_map(W, HIDDEN, seed=3), drawn_map(HIDDEN, 40, seed=5)
    found = project(rows, widen, narrow, width, counters(), IN_PARTS)
    exact = F.gelu(rows @ widen.weight + widen.bias) @ narrow.weight + narrow.bias
    torch.testing.assert_close(found, exact[:, :width], rtol=1e-4, atol=1e-4)


def test_actions_are_encoded_for_their_modulations():
    actions, widen, narrow = draw(37, 10, seed=1), drawn_map(10, 192, seed=2), drawn_map(192, W, seed=4)
    hidden = F.silu(actions @ widen.weight + widen.bias)
    exact = F.silu(hidden @ narrow.weight + narrow.bias)
    torch.testing.assert_close(encode_actions(actions, widen, narrow), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("num_positions", [1, 2, 3])
def test_the_stream_begins_with_latents_where_they_stand(num_positions):
    k = 7
    latents = [draw(1, k, seed=1).expand(N, k), draw(N, k, seed=2), draw(N, k, seed=3)][:num_positions]
    position, (_, reader) = draw(num_positions, W, seed=4), drawn_reader(num_positions)
    stream = begin(latents, position, reader, torch.float32)
    x = F.pad(torch.stack(latents, 1), (0, W - k)) + position
    torch.testing.assert_close(stream.x, x)
    torch.testing.assert_close(stream.read, read(x, reader), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("latent_dim", "capacity", "horizon", "context", "num_candidates"),
    [(W, 4, 5, 3, 3), (20, 4, 3, 2, 2), (20, 20, 2, 1, 1), (W, W, 1, 3, 17)],
)
def test_it_imagines_what_the_model_does(latent_dim, capacity, horizon, context, num_candidates):
    model = world_model(latent_dim=latent_dim, capacities=(4, latent_dim))
    fast = FastImagination(model, torch.float32)
    assert isinstance(fast.rollout_for(num_candidates), FewRowsRollout)
    z, actions = draw(num_candidates, capacity, seed=1), draw(num_candidates, horizon, 6, seed=2)
    with torch.no_grad():
        expected = model.imagine_prefix(z, actions, latent_dim, context)
        found = fast.imagine_prefix(z, actions, latent_dim, context)
    for latent, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(latent, exact, rtol=1e-4, atol=1e-4)


def test_the_number_of_candidates_chooses_the_rollout_and_the_description_says_where():
    model = world_model()
    fast = FastImagination(model)
    assert isinstance(fast.rollout_for(FEW_ROWS), FewRowsRollout)
    assert isinstance(fast.rollout_for(FEW_ROWS + 1), ManyRowsRollout)
    assert fast.description == (f"kernels for few rows up to {FEW_ROWS} candidates at once, library products beyond")
    without = FastImagination(model, few_rows=0)
    assert isinstance(without.rollout_for(1), ManyRowsRollout)
    assert without.description == "library products, since kernels for few rows were not asked for"


@pytest.mark.parametrize(
    ("predictor", "encoder_width", "reason"),
    [
        (CONFIG.predictor, 40, "40 is not the sum of two powers of two from 16 to 128"),
        (replace(CONFIG.predictor, head_dim=24), W, "heads of 24 are not powers of two of at least 16"),
        (replace(CONFIG.predictor, mlp_dim=40), W, "hidden widths of 40 are not multiples of 32"),
    ],
)
def test_sizes_that_the_kernels_do_not_take_are_left_to_the_library(predictor, encoder_width, reason):
    encoder = replace(CONFIG.encoder, hidden_dim=encoder_width)
    fast = FastImagination(world_model(latent_dim=32, capacities=(4, 32), predictor=predictor, encoder=encoder))
    assert isinstance(fast.rollout_for(1), ManyRowsRollout)
    assert fast.description == f"library products, since {reason}"


def test_a_rollout_says_which_kernels_it_is_going_to_need_and_computes_nothing():
    rollout = FastImagination(world_model(), torch.float32).rollout_for(3)
    launched = to_compile(lambda: rollout.imagine_prefix(draw(3, 4, seed=1), draw(3, 5, 6, seed=2), 4, 3))
    # One for actions and one to project; to begin with one or three positions; attention with one, two or three known
    # positions, of three at once the last or all; MLPs of one position or three, and the last before the plain norm.
    assert len(launched) == 1 + 1 + 2 + 5 + 3


def test_tiles_are_timed_and_the_fastest_is_taken(monkeypatch, capsys):
    model = world_model()
    found = time_rollout_tiles(model, 2, 1, CPU)
    kernels = {name for name in CANDIDATES if name.startswith("few_rows")}
    assert {name.split()[0] for name in found} == kernels
    for kernel in kernels:
        times = {name: time for name, time in found.items() if name.startswith(kernel)}
        assert f"{kernel} {tile_of(kernel, 32)}" == min(times, key=lambda name: times[name])
    assert capsys.readouterr().out.count("*") == 1 + len(kernels)
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(InputError, match="the device is a cpu; set TRITON_INTERPRET=1"):
        time_rollout_tiles(model, 2, 1, CPU)
