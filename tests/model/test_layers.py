"""Every layer against a plain statement of what it computes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from alewm.errors import InputError
from alewm.model.predictor import AdaLNBlock, PredictorConfig
from alewm.model.vit import PatchMap, PixelNormaliser, ViT, ViTConfig, map_with_rounded_gradient
from alewm.model.world_model import BatchNorm

CONFIG = ViTConfig(image_size=12, patch_size=4, hidden_dim=24, num_blocks=3, num_heads=3, mlp_dim=40)


def perturbed(module: nn.Module) -> nn.Module:
    g = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        parameter.data.add_(0.2 * torch.randn(parameter.shape, generator=g))
    return module


def plain_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


def plain_vit(model: ViT, images):
    """The encoder in textbook form: a convolution, all tokens in every block, one product per map."""
    W, heads, p = CONFIG.hidden_dim, CONFIG.num_heads, CONFIG.patch_size
    x = F.conv2d(
        images.movedim(-1, 1), model.patch_map.weight.view(W, 3, p, p), model.patch_map.bias, stride=p
    ).flatten(2)
    x = torch.cat([model.cls_token.expand(len(x), -1, -1), x.transpose(1, 2)], 1) + model.position
    for block in model.blocks:
        h = block.norm_attention(x)
        split = lambda m: m(h).view(*h.shape[:2], heads, -1).transpose(1, 2)  # noqa: B023, E731
        attention = block.attention
        mixed = plain_attention(split(attention.query), split(attention.key), split(attention.value))
        x = x + attention.output(mixed.transpose(1, 2).flatten(2))
        x = x + block.mlp.narrow(F.gelu(block.mlp.widen(block.norm_mlp(x))))
    return model.norm(x)[:, 0]


def test_what_the_blocks_read_does_not_depend_on_the_arithmetic_of_the_blocks():
    model = perturbed(ViT(CONFIG))
    white = PixelNormaliser(CONFIG.image_size)(torch.full((2, 1, 12, 12, 3), 255, dtype=torch.uint8)).flatten(0, 1)
    assert not torch.equal(white.bfloat16().float(), white)  # a background that bfloat16 has no number for
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = model.embed(white)
    torch.testing.assert_close(mixed, model.embed(white), rtol=0, atol=0)


def test_an_encoder_trained_with_rounded_pixels_can_be_given_them_again():
    ours, theirs = PatchMap(48, 24, in_bfloat16=True), nn.Linear(48, 24)
    ours.load_state_dict(theirs.state_dict())
    patches = torch.randn(2, 9, 48, generator=torch.Generator().manual_seed(5)) + 2.2489
    with torch.autocast("cpu", dtype=torch.bfloat16):
        trained = theirs(patches)
    torch.testing.assert_close(ours(patches), trained.float(), rtol=0, atol=0)
    assert not torch.equal(theirs(patches), trained.float())


def test_the_gradient_of_the_patch_map_is_that_of_a_linear_map():
    g = torch.Generator().manual_seed(4)
    patches, weight, bias = (torch.randn(shape, generator=g) for shape in ((3, 4, 6), (5, 6), (5,)))
    weight.requires_grad_(), bias.requires_grad_()
    way = torch.randn(3, 4, 5, generator=g)
    ours, plain = map_with_rounded_gradient(patches, weight, bias), F.linear(patches, weight, bias)
    torch.testing.assert_close(ours, plain)
    gradients = (torch.autograd.grad(y, (weight, bias), way) for y in (ours, plain))
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)
    assert torch.get_float32_matmul_precision() == "highest"  # what it needs, it asks for itself alone


def test_the_vit_is_the_textbook_one_in_value_and_gradient():
    model = perturbed(ViT(CONFIG)).double()
    images = torch.randn(5, 12, 12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parameters = list(model.parameters())
    ours, plain = model(images), plain_vit(model, images)
    torch.testing.assert_close(ours, plain)
    weight = torch.randn(ours.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    for a, b in zip(
        torch.autograd.grad((ours * weight).sum(), parameters),
        torch.autograd.grad((plain * weight).sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("change", "message"), [({"patch_size": 5}, "do not tile"), ({"num_heads": 5}, "do not divide")]
)
def test_a_vit_that_does_not_add_up_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        ViTConfig(**{"image_size": 12, "patch_size": 4, "hidden_dim": 24, **change})


def test_a_dropout_of_one_is_refused():
    with pytest.raises(InputError, match=r"share in \[0, 1\)"):
        PredictorConfig(dropout=1.0)


@pytest.mark.parametrize("dropped", [None, 0, 1, 2, 3], ids=["nothing", "weights", "attended", "hidden", "output"])
def test_the_conditioned_block_is_the_textbook_one_with_dropout_in_four_places(dropped):
    block = perturbed(AdaLNBlock(width=12, num_heads=2, head_dim=5, mlp_dim=20)).double()
    g = torch.Generator().manual_seed(0)
    x, c = (torch.randn(4, 3, 12, dtype=torch.float64, generator=g) for _ in range(2))
    kept = [float(place != dropped) for place in range(4)]  # all entries of one place are dropped, or none
    shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = block.modulation(F.silu(c)).chunk(6, -1)
    h = block.attention.norm(F.layer_norm(x, (12,), eps=1e-6) * (1 + scale_a) + shift_a)
    q, k, v = (part.view(4, 3, 2, 5).transpose(1, 2) for part in block.attention.qkv(h).chunk(3, -1))
    mixed = kept[0] * plain_attention(q, k, v, torch.ones(3, 3, dtype=torch.bool).tril())
    y = x + gate_a * kept[1] * block.attention.output(mixed.transpose(1, 2).flatten(2))
    h = block.mlp.norm(F.layer_norm(y, (12,), eps=1e-6) * (1 + scale_m) + shift_m)
    y = y + gate_m * kept[3] * block.mlp.narrow(kept[2] * F.gelu(block.mlp.widen(h)))
    keep = torch.cat([torch.full((4, n), bool(kept[place])) for place, n in enumerate(block.dropout_draws(3))], 1)
    torch.testing.assert_close(block(x, c, None if dropped is None else keep), y)


def test_a_new_conditioned_block_is_the_identity():
    x = torch.randn(2, 3, 12, generator=torch.Generator().manual_seed(0))
    assert torch.equal(AdaLNBlock(12, 2, 5, 20)(x, x), x)


def test_batch_norm_is_the_library_layer_in_one_process():
    ours, library = BatchNorm(7), nn.BatchNorm1d(7)
    library.load_state_dict(ours.state_dict())
    g = torch.Generator().manual_seed(0)
    for _ in range(3):
        x = 2 + 3 * torch.randn(16, 7, generator=g)
        torch.testing.assert_close(ours(x), library(x))
    for name, tensor in library.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], tensor)
    torch.testing.assert_close(ours.eval()(x), library.eval()(x))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_pixels_are_normalised_in_a_copy(dtype):
    pixels = torch.full((2, 1, 12, 12, 3), 1, dtype=dtype)
    PixelNormaliser(12)(pixels)
    assert (pixels == 1).all()
