"""Every option of the objective written out: the same loss, and the same gradient to the selector and the encoder."""

import pytest
import torch

from alewm.capacity.support import gumbel_noise, prefix_masks
from alewm.model.world_model import build_world_model
from alewm.regularizers.sigreg import MixSIGReg, SIGReg
from alewm.training.config import ObjectiveConfig
from alewm.training.objective import Objective
from alewm.training.random_streams import StepNoise
from memory_windows import MODEL, draw_windows

WINDOWS, MASKS = draw_windows(12), prefix_masks(MODEL.support)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def written_out(config: ObjectiveConfig, model, gumbel: torch.Tensor) -> torch.Tensor:
    features, s = model.encode(WINDOWS.pixels)
    log_q = model.capacity_logits(features).log_softmax(-1)
    soft = ((log_q + gumbel) / config.temperature).softmax(-1)
    kept = MASKS[(log_q + gumbel).argmax(-1)]
    mask = kept + (soft - soft.detach()) @ MASKS
    target = s[:, 1:]
    if config.prediction_target == "detached":
        target = target * kept[:, None] + (target * (1 - kept[:, None])).detach()
    error = (model.predict(s[:, :3] * mask[:, None], WINDOWS.actions) - target).square()
    # Which coordinates are compared is no reason to prefer a prefix: their number has no gradient.
    share = kept / kept.sum(-1, keepdim=True) if config.prediction_target == "prefix" else torch.full_like(kept, 1 / 8)
    prediction = (error.mean(1) * share).sum(-1).mean()
    if config.method == "alewm":
        statistic = MixSIGReg(MODEL.support, MODEL.prior_degree, config.num_projections, directions=config.directions)
        regularizer = statistic(s, log_q.exp(), sample_axis=0, generator=generator(9))
    else:
        regularizer = SIGReg(config.num_projections)(s * mask[:, None], sample_axis=0, generator=generator(9))
    divergence = (log_q.exp() * (log_q - model.log_prior)).sum(-1).mean()
    return prediction + config.regularizer_weight * regularizer + config.prior_weight * divergence


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 2.0},
        {"prediction_target": "prefix"},
        {"prediction_target": "detached"},
        {"prior_weight": 2.0},
        {"directions": "prefixes"},
        {"method": "alewm-sigreg", "regularizer_weight": 1.0},
    ],
    ids=str,
)
def test_an_option_changes_what_its_equation_says_and_nothing_else(options):
    config = ObjectiveConfig(num_projections=32, **options)
    model = build_world_model(MODEL, generator()).eval()
    for parameter in model.parameters():  # gates opened, and the selector moved off the prior
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=generator(parameter.numel())))
    gumbel = gumbel_noise(12, 3, generator=generator(5))
    found = Objective(config, MODEL)(model, *WINDOWS, StepNoise(gumbel, None), generator(9)).total
    expected = written_out(config, model, gumbel)
    torch.testing.assert_close(found, expected)
    weights = [model.selector.head.weight, model.projector.narrow.weight]
    gradients = [torch.autograd.grad(loss, weights) for loss in (found, expected)]
    for ours, written in zip(*gradients, strict=True):
        assert written.abs().max() > 0
        torch.testing.assert_close(ours, written, rtol=1e-3, atol=1e-3 * float(written.abs().max()))
