"""Every fast path of a GPU beside its reference, on that GPU: the largest difference, and how much is allowed."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from alewm.capacity.support import polynomial_prior
from alewm.devices import find_device
from alewm.envs.two_room import TwoRoomVectorEnv
from alewm.errors import InputError
from alewm.kernels.raster import TriangleScene
from alewm.kernels.tiles import why_not_fused
from alewm.model.vit import ViTBlock, apply_blocks
from alewm.model.world_model import build_world_model
from alewm.planning.distilled import DistilledDynamics, DistilledModel, DynamicsConfig
from alewm.planning.planner import SearchSettings, plan_group
from alewm.planning.search import CEMConfig
from alewm.regularizers.quadrature import random_directions
from alewm.regularizers.sigreg import mix_sigreg
from alewm.shapes import Tensor
from alewm.training.acceleration import Chosen, GraphedUpdates, random_batch, updates_of
from alewm.training.presets import preset
from alewm.training.step import repeatable
from alewm_lab.benchmarks.drawing import MOST_FROM_A_CARD, compare_renderers
from alewm_lab.benchmarks.timing import print_line

_REPEATED_UPDATES = 50
_DRAWN_STATES = 200


class Difference(NamedTuple):
    """How far two ways of computing the same are apart."""

    what: str
    found: float
    allowed: float

    @property
    def is_fine(self) -> bool:
        """Whether it is small enough; NaN is not."""
        return self.found <= self.allowed


def bench_check(*, preset_name: str, batch: int, device: str, only: tuple[str, ...]) -> None:
    """Prints a table of differences and fails if one is too large."""
    where = find_device(device)
    if where.type != "cuda":
        raise InputError(f"The fast paths checked here are those of a GPU, but the device is a {where.type}.")
    differences = []
    print(f"{'':<58}{'difference':>12}{'allowed':>10}", flush=True)
    checks = [check for part in only or _CHECKS for check in _CHECKS[part]]
    for difference in (found for check in checks for found in check(preset_name, batch, where)):
        differences.append(difference)
        mark = "" if difference.is_fine else "  <- too large"
        print(f"{difference.what:<58}{difference.found:>12.1e}{difference.allowed:>10.0e}{mark}", flush=True)
    print_line("check", preset=preset_name, batch=batch, differences={d.what: list(d[1:]) for d in differences})
    if not all(difference.is_fine for difference in differences):
        raise InputError("A fast path differs from its reference by more than rounding explains; see the table above.")


def _regularizer(preset_name: str, batch: int, where: torch.device) -> Iterator[Difference]:
    config = preset(preset_name)
    support, generator = config.model.support, torch.Generator(where).manual_seed(0)
    s = torch.randn(4, batch, support.latent_dim, generator=generator, device=where).requires_grad_()
    logits = torch.randn(batch, len(support), generator=generator, device=where).requires_grad_()
    u = random_directions(support.latent_dim, config.objective.num_projections, generator=generator)
    prior = polynomial_prior(len(support), config.model.prior_degree).to(where)
    fast = mix_sigreg(s, logits.softmax(-1)[None], u[None], prior[None], support, path="gpu").mean()
    wide = (s.double(), logits.double().softmax(-1)[None], u.double()[None], prior.double()[None])
    exact = mix_sigreg(*wide, support, path="reference").mean()
    yield Difference("MixSIGReg: value, against float64", _relative(fast, exact), 1e-5)
    gradients = zip(torch.autograd.grad(fast, (s, logits)), torch.autograd.grad(exact, (s, logits)), strict=True)
    for name, (found, expected) in zip(("latents", "logits"), gradients, strict=True):
        yield Difference(f"MixSIGReg: gradient to {name}, against float64", _relative(found, expected), 1e-4)


def _fused_blocks(preset_name: str, batch: int, where: torch.device) -> Iterator[Difference]:
    from alewm.kernels.encoder_blocks import through_blocks

    config = preset(preset_name).model.encoder
    obstacle = why_not_fused(config)
    if obstacle is not None:
        print(f"fused blocks are not checked: {obstacle}")
        return
    model = build_world_model(preset(preset_name).model, torch.Generator().manual_seed(0))
    _liven(model)
    blocks = [block.to(where) for block in model.encoder.blocks[:2] if isinstance(block, ViTBlock)]
    generator = torch.Generator(where).manual_seed(7)
    shape = (batch, config.num_patches + 1, config.hidden_dim)
    x = torch.randn(shape, generator=generator, device=where).requires_grad_()
    direction = torch.randn(shape, generator=generator, device=where)
    # Adding a number to all scores of a query changes nothing, so the gradient of the keys' bias is rounding alone.
    named = [(name, parameter) for block in blocks for name, parameter in block.named_parameters()]
    leaves = (x, *(parameter for name, parameter in named if name != "attention.key.bias"))

    def gradients(y: Tensor) -> tuple[Tensor, ...]:
        return y, *torch.autograd.grad(y, leaves, direction)

    exact = gradients(apply_blocks(blocks, x))
    found, again = (gradients(through_blocks(blocks, x, torch.bfloat16)) for _ in range(2))
    yield Difference("fused blocks in bfloat16: values, against float32", _relative(found[0], exact[0]), 2e-2)
    worst = max(_relative(a, b) for a, b in zip(found[1:], exact[1:], strict=True))
    yield Difference("fused blocks in bfloat16: gradients, against float32", worst, 3e-2)
    changed = max(float((a - b).detach().abs().max()) for a, b in zip(found, again, strict=True))
    yield Difference("fused blocks, repeated: values and gradients", changed, 0.0)


def _updates(preset_name: str, batch: int, where: torch.device) -> Iterator[Difference]:
    num_updates = 8
    fast = _losses(preset_name, batch, where, num_updates, Chosen("graph", "compared"))
    plain = _losses(preset_name, batch, where, num_updates, Chosen("none", "compared"))
    worst = max(abs(a - b) / abs(b) for a, b in zip(fast, plain, strict=True))
    yield Difference(f"{num_updates} recorded bfloat16 updates: losses, against plain ones", worst, 3e-2)
    if why_not_fused(preset(preset_name).model.encoder) is None:
        fused = _losses(preset_name, batch, where, num_updates, Chosen("graph", "compared", fused=True))
        worst = max(abs(a - b) / abs(b) for a, b in zip(fused, plain, strict=True))
        yield Difference("the same with fused blocks", worst, 3e-2)


def _repeated(preset_name: str, batch: int, where: torch.device) -> Iterator[Difference]:
    """The weights of two deterministic runs of one seed."""
    with repeatable(True):
        first, second = (_weights(preset_name, batch, where) for _ in range(2))
    changed = max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))
    yield Difference("recorded updates with --deterministic, repeated: weights", changed, 0.0)


def _weights(preset_name: str, batch: int, where: torch.device) -> list[Tensor]:
    """What some updates of a new model lead to."""
    config = preset(preset_name)
    fused = why_not_fused(config.model.encoder) is None
    update = updates_of(config, Chosen("graph", "compared", fused), where)
    assert isinstance(update, GraphedUpdates)
    data = random_batch(config, batch, where)
    for _ in range(_REPEATED_UPDATES):
        update(*data)
    return [parameter.detach().clone() for parameter in update.plain.model.parameters()]


def _losses(preset_name: str, batch: int, where: torch.device, num_updates: int, chosen: Chosen) -> list[float]:
    config = preset(preset_name)
    config = replace(config, training=replace(config.training, precision="bfloat16"))
    update = updates_of(config, chosen, where)
    generator, size = torch.Generator().manual_seed(2), config.model.encoder.image_size
    losses = []
    for _ in range(num_updates):
        pixels = torch.randint(256, (batch, 4, size, size, 3), dtype=torch.uint8, generator=generator).to(where)
        actions = torch.randn(batch, 3, config.model.action_dim, generator=generator).to(where)
        losses.append(float(update(pixels, actions).total))
    return losses


@torch.no_grad()
def _planning(preset_name: str, batch: int, where: torch.device) -> Iterator[Difference]:
    from alewm.planning.gpu_search import FastImagination, FusedDistilled, GraphedSearch

    model = build_world_model(preset(preset_name).model, torch.Generator().manual_seed(0))
    _liven(model)
    model = model.to(where).eval()
    capacity, D = model.support.capacities[0], model.support.latent_dim
    generator = torch.Generator(where).manual_seed(3)
    z = torch.randn(batch, capacity, generator=generator, device=where)
    actions = torch.randn(batch, 5, model.config.action_dim, generator=generator, device=where)
    for dtype, allowed in ((torch.float32, 2e-3), (torch.bfloat16, 5e-2)):
        found = FastImagination(model, dtype).imagine_prefix(z, actions, D, 3)
        expected = model.imagine_prefix(z, actions, D, 3)
        worst = max(_relative(a, b) for a, b in zip(found, expected, strict=True))
        name = str(dtype).removeprefix("torch.")
        yield Difference(f"rollouts in {name}: latents, against plain float32", worst, allowed)
    B, cem = 3, CEMConfig(num_candidates=64, num_iterations=4, num_elites=8)
    now, goal = torch.randn(2, B, D, generator=generator, device=where)
    noise = torch.randn(4, B, 64, 5, model.config.action_dim, generator=generator, device=where)
    start = torch.zeros(B, 5, model.config.action_dim, device=where)
    settings = SearchSettings(capacity, cem)
    plain = plan_group(model, now, goal, noise, start, settings)
    recorded = GraphedSearch(model, torch.float32)
    whole = recorded(model, now, goal, noise, start, settings)
    yield Difference("recorded search in float32: predicted cost", _relative(whole.cost, plain.cost), 2e-2)
    twice = now.repeat(2, 1), goal.repeat(2, 1), noise.repeat(1, 2, 1, 1, 1), start.repeat(2, 1, 1)
    recorded(model, *twice, SearchSettings(D, cem))
    again = recorded(model, now, goal, noise, start, settings)
    yield Difference(
        "recorded search, repeated after a larger one: plans",
        float((whole.mean - again.mean).abs().max()),
        0.0,
    )
    network = DistilledDynamics(DynamicsConfig(capacity, model.config.action_dim)).to(where)
    for parameter in network.parameters():
        parameter.normal_(0, 0.1, generator=generator)
    network.mean.normal_(generator=generator)
    network.std.uniform_(0.5, 2, generator=generator)
    small = DistilledModel(model, {capacity: network})
    pairs = zip(FusedDistilled(small).imagine_prefix(z, actions, capacity, 3), network.imagine(z, actions), strict=True)
    worst = max(_relative(a, b) for a, b in pairs)
    yield Difference("distilled rollouts in one kernel, against plain float32", worst, 1e-4)
    plain = plan_group(small, now, goal, noise, start, settings)
    whole = GraphedSearch(small)(small, now, goal, noise, start, settings)
    yield Difference("recorded search, distilled dynamics: predicted cost", _relative(whole.cost, plain.cost), 2e-2)


@torch.no_grad()
def _liven(module: nn.Module) -> None:
    """Move parameters away from zero, where gates, modulations and biases begin: what is compared depends on them."""
    generator = torch.Generator().manual_seed(4)
    for parameter in module.parameters():
        parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))


def _environment(preset_name: str, batch: int, where: torch.device) -> Iterator[Difference]:
    generator = torch.Generator().manual_seed(5)
    positions = 21 + 182 * torch.rand(batch, 2, generator=generator)
    here, there = TwoRoomVectorEnv(batch), TwoRoomVectorEnv(batch, device=where)
    for envs in (here, there):
        envs.reset_to({"proprio": positions}, {"proprio": positions.flip(0)})
    for _ in range(20):
        actions = 3 * torch.randn(batch, 2, generator=generator)
        here.step(actions)
        there.step(actions)
    frames = (here.render().int() - there.render().cpu().int()).abs().max()
    states = (here.state()["proprio"] - there.state()["proprio"].cpu()).abs().max()
    yield Difference("Two-Room: levels of pixels, GPU against CPU", float(frames), 0.0)
    yield Difference("Two-Room: positions after 20 steps, GPU against CPU", float(states), 0.0)


def _precision(preset_name: str, batch: int, where: torch.device) -> Iterator[Difference]:
    config = preset(preset_name)
    config = replace(config, model=replace(config.model, predictor=replace(config.model.predictor, dropout=0.0)))
    size = config.model.encoder.image_size
    pixels = torch.randint(256, (2, 4, size, size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(6))
    model = build_world_model(config.model, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        here = model.encode(pixels).latents
        there = model.to(where).encode(pixels.to(where)).latents
    yield Difference("latents in float32, GPU against CPU", _relative(there.cpu(), here), 1e-3)


def _relative(found: Tensor, expected: Tensor) -> float:
    difference = (found.detach().double() - expected.detach().double()).abs().max()
    return float(difference / expected.detach().double().abs().max())


def _drawing(preset_name: str, batch: int, where: torch.device) -> Iterator[Difference]:
    """Frames of 200 recorded states beside those that MuJoCo draws on this machine, by the card's own OpenGL."""
    from alewm.kernels.raster_triton import TritonRenderer

    def on_gpu(scene: TriangleScene) -> Callable[[np.ndarray], np.ndarray]:
        renderer = TritonRenderer(scene, where)
        return lambda poses: renderer.draw(poses).cpu().numpy()

    for task in ("reacher", "cube"):
        for what, (found, allowed) in compare_renderers(task, _DRAWN_STATES, on_gpu, MOST_FROM_A_CARD[task]).items():
            yield Difference(what, found, allowed)


_CHECKS: dict[str, tuple[Callable[[str, int, torch.device], Iterator[Difference]], ...]] = {
    "model": (_regularizer, _fused_blocks, _precision),
    "planning": (_planning, _environment),
    "training": (_updates, _repeated),
    "drawing": (_drawing,),
}
