"""Training with fused blocks: the same update, and a run that says whether it has them."""

import copy
import dataclasses

import pytest
import torch

from alewm.errors import InputError
from alewm.model.vit import ViTConfig, first_token_after
from alewm.model.world_model import build_world_model
from alewm.training.acceleration import Chosen, accelerated, choose_acceleration
from alewm.training.data import RunWindows
from alewm.training.objective import Objective
from alewm.training.random_streams import RandomStreams
from alewm.training.step import PlainUpdates, build_optimizer
from alewm.training.trainer import Trainer
from memory_windows import MODEL, MemoryWindows, draw_windows, run_config

TINY = ViTConfig()
CPU, GPU = torch.device("cpu"), torch.device("cuda")
ROUNDING = 2.0**-24
SMALL = ViTConfig(image_size=16, patch_size=2, hidden_dim=64, num_blocks=2, num_heads=1, mlp_dim=64)


def test_a_training_update_is_the_same_with_fused_blocks():
    """As nearly as rounding leaves an update determined: each weight rounded once, plain blocks differ as much."""
    config = run_config()
    model = build_world_model(dataclasses.replace(MODEL, encoder=SMALL), torch.Generator().manual_seed(0)).train()
    windows = draw_windows(2)

    def updated(rounding=None, *, fused=False):
        trained = copy.deepcopy(model)
        if rounding is not None:
            with torch.no_grad():
                for parameter in trained.parameters():
                    parameter *= 1 + ROUNDING * torch.randn(parameter.shape, generator=rounding)
        plain = PlainUpdates(
            trained,
            Objective(config.objective, trained.config),
            build_optimizer(trained, config.training.optim),
            RandomStreams(0, CPU),
            config.training,
        )
        result = accelerated(plain, Chosen("none", "asked for", fused), CPU)(*windows)
        # Not the weights: Adam divides a gradient by its size, also one that is rounding alone, as that of a bias
        # before a batch normalisation. All gradients together have norm 1, to which they were clipped.
        gradients = {name: parameter.grad for name, parameter in trained.named_parameters()}
        return {"total": result.total, "norm": result.gradient_norm, **gradients}

    def apart(one, other):
        return {name: float((one[name] - other[name]).abs().max()) for name in one}

    exact = updated()
    rounded = [apart(updated(torch.Generator().manual_seed(seed)), exact) for seed in range(4)]
    for name, difference in apart(updated(fused=True), exact).items():
        assert difference <= 1e-6 + 4 * max(each[name] for each in rounded), name


def test_blocks_are_fused_where_they_can_be_and_the_reason_is_given():
    def said(asked="auto", acceleration="auto", encoder=TINY, device=GPU, dtype=torch.bfloat16):
        return str(choose_acceleration(acceleration, device).fusing(asked, encoder, device, dtype))

    recorded = "compiled and recorded as a CUDA graph (one GPU with Triton)"
    assert said("plain") == recorded
    assert said() == said("fused") == f"{recorded}, the encoder's blocks by fused kernels"
    assert said(dtype=None).endswith("the encoder's blocks plain (products are not in bfloat16)")
    small = dataclasses.replace(TINY, hidden_dim=384, num_heads=6)
    assert "the encoder's blocks plain (rows of 384 do not fit" in said(encoder=small)
    assert said(acceleration="none") == "not compiled (asked for)"
    for obstacle, options in (
        ("the device is a cpu", {"device": CPU}),
        ("products are not in bfloat16", {"dtype": None}),
        ("rows of 384 do not fit", {"encoder": small}),
    ):
        with pytest.raises(InputError, match=f"blocks cannot be fused: {obstacle}"):
            said("fused", **options)


def test_a_run_without_a_gpu_has_plain_blocks_and_is_refused_if_it_asks_for_others(tmp_path):
    windows = RunWindows(MemoryWindows(draw_windows(16), 16))
    with pytest.raises(InputError, match="The encoder's blocks cannot be fused: the device is a cpu"):
        Trainer(run_config(encoder_blocks="fused"), windows, folder=tmp_path, device=CPU)
    assert not any(tmp_path.iterdir())
    trainer = Trainer(run_config(num_steps=1), windows, folder=tmp_path, device=CPU)
    assert not trainer.acceleration.fused
    trainer.run()
    assert trainer.model.encoder.first_token is first_token_after
