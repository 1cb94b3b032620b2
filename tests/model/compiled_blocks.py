"""An encoder with fused blocks, compiled and not: `python compiled_blocks.py` prints how far they are apart as JSON."""

import json
import os

os.environ["TRITON_INTERPRET"] = "1"

import torch

from alewm.model.fused.blocks import fuse_blocks
from alewm.model.vit import ViT, ViTConfig


def gradients(vit: ViT, images: torch.Tensor) -> list[torch.Tensor]:
    """Of some function of the features, to every parameter."""
    return list(torch.autograd.grad(vit(images).sin().sum(), list(vit.parameters())))


def main() -> None:
    """Compiled as on a GPU, but for the last stage, which writes code for one."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    vit = ViT(ViTConfig(image_size=16, patch_size=8, hidden_dim=32, num_blocks=3, num_heads=2, mlp_dim=32))
    images = torch.randn(3, 16, 16, 3)
    fuse_blocks(vit, "mlp")
    expected = gradients(vit, images)
    for block in vit.blocks:
        block.compile(dynamic=False, backend="aot_eager", fullgraph=True)
    found = gradients(vit, images)
    difference = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
    num_programs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    print(json.dumps({"difference": difference, "num_programs": num_programs}))


if __name__ == "__main__":
    main()
