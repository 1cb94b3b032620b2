"""The encoder's blocks by kernels of our own equal the blocks as they are written, values and gradients."""

import dataclasses

import pytest
import torch
from triton.runtime.errors import OutOfResources

from alewm.kernels import encoder_blocks as chain
from alewm.kernels.encoder_blocks import first_token_by_kernels_or_plain, fuse_blocks, why_kernels_fail
from alewm.kernels.tiles import why_not_fused
from alewm.model.vit import ViT, ViTConfig, first_token_after

SMALL = ViTConfig(image_size=16, patch_size=2, hidden_dim=64, num_blocks=3, num_heads=1, mlp_dim=64)


def _encoder() -> ViT:
    vit = ViT(SMALL)
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return vit


def test_an_encoder_computes_the_same_with_fused_blocks() -> None:
    vit, images = _encoder(), torch.randn(1, 16, 16, 3)
    names, parameters = zip(*vit.named_parameters(), strict=True)

    def computed() -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        features = vit(images)
        return features.detach(), torch.autograd.grad(features.sin().sum(), parameters)

    (expected, gradients), kept = computed(), list(vit.state_dict())
    fuse_blocks(vit)
    assert list(vit.state_dict()) == kept
    found, found_gradients = computed()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for name, one, other in zip(names, found_gradients, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_products_that_the_kernels_cannot_compute_here_are_the_plain_ones(dtype: torch.dtype) -> None:
    blocks, x = list(_encoder().to(dtype).blocks), torch.randn(1, 65, 64, dtype=dtype)
    assert torch.equal(first_token_by_kernels_or_plain(blocks, x), first_token_after(blocks, x))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"patch_size": 4}, "16 patches are not 64, 128 or 256"),
        ({"num_heads": 2}, "heads are 32 wide, not 64"),
        ({"mlp_dim": 96}, "a hidden width of 96 is not a multiple of 64"),
        ({"hidden_dim": 384, "num_heads": 6}, "rows of 384 do not fit on the chip"),
    ],
)
def test_what_the_kernels_do_not_fit_is_said(change: dict[str, int], reason: str | None) -> None:
    found = why_not_fused(dataclasses.replace(SMALL, **change))
    assert (found is None) == (reason is None)
    assert reason is None or reason in str(found)


def test_a_chip_too_small_for_the_kernels_is_found_out_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def runs_out(*_: object) -> None:
        raise OutOfResources(300_000, 101_376, "shared memory")

    monkeypatch.setattr(chain, "through_blocks", runs_out)
    assert "shared memory, Required: 300000" in str(why_kernels_fail(SMALL, torch.device("cpu")))
