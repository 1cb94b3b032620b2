"""The first updates of a run on noise, so that all that is compiled on first use is ready before the data is."""

import gc

import torch

from alewm.data.windows import WindowShape
from alewm.model.world_model import build_world_model
from alewm.shapes import Tensor
from alewm.training.acceleration import RECORDED, WARM_UPS, GraphedUpdates, UpdatePath, accelerated, acceleration_of
from alewm.training.config import RunConfig
from alewm.training.noise import RandomStreams
from alewm.training.objective import Objective
from alewm.training.optim import build_optimizer
from alewm.training.step import PlainUpdates, repeatable

_FRAMES = WindowShape().num_frames


def rehearse(config: RunConfig, device: torch.device) -> None:
    """Compile and record the updates of a run with a model that is thrown away; nothing where nothing is compiled."""
    chosen = acceleration_of(config, device)
    if chosen.path == "none":
        return
    update = updates_of(config, chosen.path, device, fused=chosen.fused)
    batch = random_batch(config, config.training.batch_size, device)
    with repeatable(config.training.deterministic):
        for _ in range(WARM_UPS + 1):  # the last of them is recorded
            update(*batch)
    torch.cuda.synchronize(device)
    del update, batch
    gc.collect()  # a recording and its model know each other
    torch.cuda.empty_cache()


def random_batch(config: RunConfig, batch: int, where: torch.device) -> tuple[Tensor, Tensor]:
    """Pixels and actions of windows that show nothing, as `config` expects them."""
    size, generator = config.model.encoder.image_size, torch.Generator().manual_seed(1)
    pixels = torch.randint(256, (batch, _FRAMES, size, size, 3), dtype=torch.uint8, generator=generator)
    actions = torch.randn(batch, _FRAMES - 1, config.model.action_dim, generator=generator)
    return pixels.to(where), actions.to(where)


def updates_of(
    config: RunConfig, path: UpdatePath, where: torch.device, *, fused: bool = False
) -> PlainUpdates | GraphedUpdates:
    """Updates of a new model, executed as `path` and `fused` say."""
    model = build_world_model(config.model, torch.Generator().manual_seed(0)).to(where).train()
    plain = PlainUpdates(
        model,
        Objective(config.objective, config.model).to(where),
        build_optimizer(model, config.training.optim, on_device=path in RECORDED),
        RandomStreams(0, where),
        clip_norm=config.training.optim.clip_norm,
        autocast_dtype=config.training.autocast_dtype(where),
    )
    return accelerated(plain, path, where, fused=fused)
