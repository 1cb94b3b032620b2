"""The encoder's blocks by kernels of our own equal the blocks as they are written, values and gradients."""

import torch

from alewm.model.fused.chain import through_blocks
from alewm.model.vit import ViT, ViTConfig


def test_a_chain_of_blocks_computes_what_the_blocks_do() -> None:
    torch.manual_seed(0)
    encoder = ViT(ViTConfig(image_size=16, patch_size=2, hidden_dim=64, num_blocks=2, num_heads=1, mlp_dim=64))
    blocks = list(encoder.blocks)
    for parameter in encoder.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    x, above = (torch.randn(1, 65, 64) for _ in range(2))
    x.requires_grad_()
    expected = x
    for block in blocks:
        expected = block(expected)
    found = through_blocks(blocks, x, torch.float32)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    inputs = (x, *(parameter for block in blocks for parameter in block.parameters()))
    gradients = (torch.autograd.grad(y, inputs, above) for y in (found, expected))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)
