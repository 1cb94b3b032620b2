"""Training with fused half-blocks: the same update, and a run that says whether it has them."""

import copy
import dataclasses

import pytest
import torch
from memory_windows import MODEL, MemoryWindows, draw_windows, run_config

from alewm.model.vit import Halves, ViTConfig
from alewm.model.world_model import build_world_model
from alewm.training.acceleration import choose_acceleration
from alewm.training.graphed import accelerated
from alewm.training.losses import Objective
from alewm.training.noise import RandomStreams
from alewm.training.optim import build_optimizer
from alewm.training.step import PlainUpdates
from alewm.training.trainer import Trainer

TINY = ViTConfig()
CPU, GPU = torch.device("cpu"), torch.device("cuda")
SMALL = ViTConfig(image_size=16, patch_size=8, hidden_dim=32, num_blocks=3, num_heads=2, mlp_dim=32)


def test_a_training_update_is_the_same_with_fused_blocks():
    config = run_config()
    model = build_world_model(dataclasses.replace(MODEL, encoder=SMALL), torch.Generator().manual_seed(0)).train()
    windows = draw_windows(4)
    results = {}
    for fused in ("none", "mlp"):
        trained = copy.deepcopy(model)
        plain = PlainUpdates(
            trained,
            Objective(config.objective, trained.config),
            build_optimizer(trained, config.training.optim),
            RandomStreams(0, CPU),
            clip_norm=config.training.optim.clip_norm,
        )
        result = accelerated(plain, "none", CPU, fused)(*windows)
        results[fused] = float(result.total), float(result.gradient_norm), dict(trained.named_parameters())
    assert results["mlp"][:2] == pytest.approx(results["none"][:2], rel=1e-5)
    # Not the weights: Adam divides a gradient by its size, also one that is rounding alone, as that of a bias before a
    # batch normalisation. All gradients together have norm 1, to which they were clipped.
    for name, parameter in results["none"][2].items():
        difference = (results["mlp"][2][name].grad - parameter.grad).abs().max()
        assert difference <= 2e-5 + 1e-3 * parameter.grad.abs().max(), name


def test_blocks_are_fused_where_they_can_be_and_the_reason_is_given():
    def said(asked="mlp", encoder=TINY, device=GPU, dtype=torch.bfloat16, **options):
        return str(choose_acceleration("auto", device, **options).fusing(asked, encoder, device, dtype, **options))

    recorded = "compiled and recorded as a CUDA graph (one GPU with Triton)"
    assert said("none") == recorded
    assert said("mlp") == f"{recorded}, MLP halves of blocks fused (asked for)"
    assert said(dtype=None).endswith("no half-blocks fused (products are not in bfloat16)")
    assert "no half-blocks fused (rows of 384 do not fit" in said(encoder=dataclasses.replace(TINY, hidden_dim=384))
    assert said(deterministic=True).endswith("fused (tiles are chosen by time, which does not repeat)")
    assert said(device=CPU).endswith("no half-blocks fused (the device is a cpu)")


def test_a_run_without_a_gpu_that_asks_for_them_trains_with_plain_blocks(tmp_path):
    config = run_config(num_steps=1, fused_blocks="mlp")
    trainer = Trainer(config, MemoryWindows(draw_windows(16), 16), folder=tmp_path, device=CPU)
    assert trainer.acceleration.fused == "none"
    trainer.run()
    assert all(block.halves == Halves() for block in trainer.model.encoder.blocks)
