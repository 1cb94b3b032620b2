"""What each method minimises, stated as equations."""

import dataclasses

import pytest
import torch

from alewm.capacity.support import gumbel_noise, prefix_masks
from alewm.errors import InputError
from alewm.model.world_model import build_world_model
from alewm.regularizers.sigreg import MixSIGReg, PrefixSIGReg, SIGReg
from alewm.training.config import ObjectiveConfig
from alewm.training.objective import Objective
from alewm.training.random_streams import RandomStreams, StepNoise
from memory_windows import LEWM, MODEL, MODEL_OF, NESTED, draw_windows

WINDOWS = draw_windows(12)
MASKS = prefix_masks(MODEL.support)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def a_model(config):
    """Gates opened and selector moved off the prior, so that every path carries a gradient."""
    model = build_world_model(config, generator())
    g = generator(1)
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=g))
    return model


def noise_for(config, seed: int = 5) -> StepNoise:
    return StepNoise(gumbel_noise(12, len(config.capacities), generator=generator(seed)), None)


def evaluate(config: ObjectiveConfig, model, noise=None, directions: int = 9):
    objective = Objective(config, model.config)
    return objective(model, *WINDOWS, noise or noise_for(model.config), generator(directions))


def chosen_masks(model, noise):
    features, s = model.encode(WINDOWS.pixels)
    logits = model.capacity_logits(features)
    index = (logits.log_softmax(-1) + noise.gumbel).argmax(-1)
    return s, logits.softmax(-1), torch.nn.functional.one_hot(index, logits.shape[-1]).float()


def expected_regularizer(method, s, q, choice, P):
    g = generator(9)
    if method == "alewm":
        return MixSIGReg(MODEL.support, MODEL.prior_degree, P)(s, q, sample_axis=0, generator=g)
    if method == "nested-dropout":
        return PrefixSIGReg(MODEL.support, P)(s, choice, sample_axis=0, generator=g)
    masked = s if method == "lewm" else s * (choice @ MASKS)[:, None]
    return SIGReg(P)(masked, sample_axis=0, generator=g)


@pytest.mark.parametrize("method", sorted(MODEL_OF))
def test_the_loss_is_the_prediction_error_of_the_sampled_prefix_plus_lambda_times_the_regularizer(method):
    model, noise = a_model(MODEL_OF[method]), noise_for(MODEL_OF[method])
    losses = evaluate(ObjectiveConfig(method=method, regularizer_weight=0.3, num_projections=32), model, noise)
    s, q, choice = chosen_masks(model, noise)
    masks = torch.ones(12, 8) if method == "lewm" else choice @ MASKS
    s_hat = model.predict(s[:, :3] * masks[:, None], WINDOWS.actions)
    prediction = torch.nn.functional.mse_loss(s_hat, s[:, 1:])
    regularizer = expected_regularizer(method, s, q, choice, 32)
    torch.testing.assert_close(losses.terms["prediction"], prediction.detach())
    torch.testing.assert_close(losses.terms["regularizer"], regularizer.detach())
    torch.testing.assert_close(losses.total, prediction + 0.3 * regularizer)


@pytest.mark.parametrize("method", sorted(MODEL_OF))
def test_every_parameter_learns(method):
    model = a_model(MODEL_OF[method])
    evaluate(ObjectiveConfig(method=method, num_projections=32), model).total.backward()
    # Softmax does not see a constant added to all its logits, so neither do the attention's key biases matter.
    still = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert not still


def test_gradients_flow_through_the_prediction_target_too():
    model = a_model(LEWM).eval()
    config = ObjectiveConfig(method="lewm", regularizer_weight=0.0, num_projections=4)
    (through_both,) = torch.autograd.grad(evaluate(config, model).total, [model.projector.narrow.weight])
    _, s = model.encode(WINDOWS.pixels)
    one_sided = (model.predict(s[:, :-1], WINDOWS.actions) - s[:, 1:].detach()).square().mean()
    (through_input,) = torch.autograd.grad(one_sided, [model.projector.narrow.weight])
    assert not torch.allclose(through_both, through_input, rtol=1e-2)


def test_marginal_prediction_is_the_expectation_over_capacities():
    model = a_model(MODEL).eval()
    config = ObjectiveConfig(marginalises_capacity=True, num_projections=4)
    losses = evaluate(config, model)
    s = model.encode(WINDOWS.pixels).latents
    expected = sum(
        losses.q[:, c] * (model.predict(s[:, :-1] * mask, WINDOWS.actions) - s[:, 1:]).square().mean((1, 2))
        for c, mask in enumerate(MASKS)
    )
    torch.testing.assert_close(losses.terms["prediction"], expected.mean().detach())


def test_sampling_estimates_the_marginal_prediction():
    model = a_model(MODEL).eval()
    marginal = evaluate(ObjectiveConfig(marginalises_capacity=True, num_projections=4), model).terms["prediction"]
    sampled = torch.stack(
        [
            evaluate(ObjectiveConfig(num_projections=4), model, noise_for(MODEL, seed)).terms["prediction"]
            for seed in range(60)
        ]
    )
    assert abs(sampled.mean() - marginal) < 4 * sampled.std() / 60**0.5


def test_a_prefix_target_counts_active_coordinates_only():
    model, noise = a_model(NESTED).eval(), noise_for(NESTED)
    config = ObjectiveConfig(method="nested-dropout", prediction_target="prefix", num_projections=4)
    losses = evaluate(config, model, noise)
    s, _, choice = chosen_masks(model, noise)
    masks = choice @ MASKS
    error = (model.predict(s[:, :3] * masks[:, None], WINDOWS.actions) - s[:, 1:]).square()
    per_window = [e[:, : int(m.sum())].mean() for e, m in zip(error, masks, strict=True)]
    torch.testing.assert_close(losses.terms["prediction"], torch.stack(per_window).mean().detach())


def latent_gradients(target: str, model, noise: StepNoise) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of prediction alone, and its gradient to the next latents, which no prediction reads."""
    encode, given = model.encode, []

    def split_encode(pixels):
        encoded = encode(pixels)
        s = encoded.latents.detach()
        given.append(s[:, -1].clone().requires_grad_())
        return encoded._replace(latents=torch.cat([s[:, :-1], given[0][:, None]], 1))

    model.encode = split_encode
    try:
        config = ObjectiveConfig(prediction_target=target, regularizer_weight=0.0, num_projections=4)
        total = evaluate(config, model, noise).total
    finally:
        del model.encode
    (gradient,) = torch.autograd.grad(total, given)
    return total.detach(), gradient


def test_a_detached_target_has_no_gradient_beyond_the_prefix_and_the_full_one_within():
    model, noise = a_model(MODEL).eval(), noise_for(MODEL)
    active = (chosen_masks(model, noise)[2] @ MASKS).bool()
    assert active.any(0).all()
    (full_loss, full), (loss, detached) = (latent_gradients(target, model, noise) for target in ("full", "detached"))
    torch.testing.assert_close(loss, full_loss, rtol=0, atol=0)
    torch.testing.assert_close(detached[active], full[active], rtol=0, atol=0)
    assert full[~active].any()
    assert not detached[~active].any()


def test_the_marginal_variant_of_masked_sigreg_is_the_mixture_against_a_gaussian():
    model = a_model(MODEL)
    losses = evaluate(ObjectiveConfig(method="alewm-sigreg", masked_sigreg="marginal", num_projections=32), model)
    statistic = MixSIGReg(MODEL.support, 0.0, 32, target="gaussian")
    expected = statistic(losses.latents, losses.q, sample_axis=0, generator=generator(9))
    torch.testing.assert_close(losses.terms["regularizer"], expected)


def test_a_frozen_selector_gets_no_gradient_and_the_rest_does():
    model = a_model(MODEL)
    evaluate(ObjectiveConfig(freezes_selector=True, num_projections=4), model).total.backward()
    assert all(parameter.grad is None for parameter in model.selector.parameters())
    assert all(parameter.grad is not None for parameter in model.predictor.parameters())


def test_the_divergence_to_the_prior_is_zero_at_first_and_positive_later():
    config = ObjectiveConfig(prior_weight=2.0, num_projections=4)
    at_first = evaluate(config, build_world_model(MODEL, generator()))
    torch.testing.assert_close(at_first.terms["prior_divergence"], torch.tensor(0.0), atol=1e-6, rtol=0)
    later = evaluate(config, a_model(MODEL))
    terms = later.terms
    assert terms["prior_divergence"] > 0
    weighted = terms["prediction"] + 0.09 * terms["regularizer"] + 2 * terms["prior_divergence"]
    torch.testing.assert_close(later.total.detach(), weighted)


def test_nested_dropout_samples_from_the_prior():
    model = build_world_model(NESTED, generator())
    streams = RandomStreams(0, torch.device("cpu"))
    gumbel = streams.draw_step(model, 20_000, 3, drops=False).gumbel
    frequency = (model.log_prior + gumbel).argmax(-1).bincount() / 20_000
    torch.testing.assert_close(frequency, model.log_prior.exp(), atol=0.015, rtol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "lewm", "prior_weight": 0.1}, "prior_weight has no effect with the method 'lewm'"),
        ({"method": "nested-dropout", "freezes_selector": True}, "freezes_selector has no effect"),
        ({"method": "alewm", "masked_sigreg": "marginal"}, "masked_sigreg has no effect with the method 'alewm'"),
        ({"method": "alewm-sigreg", "directions": "prefixes"}, "directions has no effect with the method 'alewm-s"),
        ({"method": "lewm", "prediction_target": "detached"}, "prediction_target has no effect with the method 'lewm'"),
        ({"temperature": 0.0}, "temperature must be positive"),
    ],
)
def test_options_without_effect_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        ObjectiveConfig(**options)


@pytest.mark.parametrize(
    ("method", "model", "message"),
    [
        ("lewm", MODEL, "needs a model with no selector"),
        ("alewm", NESTED, "needs a model with a selector"),
        ("lewm", NESTED, r"its support is \(8,\), got \(2, 4, 8\)"),
    ],
)
def test_a_model_of_another_method_is_refused(method, model, message):
    with pytest.raises(InputError, match=message):
        Objective(ObjectiveConfig(method=method), model)


def test_lewm_is_alewm_without_a_choice():
    """With the support {D}, MixSIGReg is SIGReg and the mask is one."""
    single = dataclasses.replace(MODEL, capacities=(8,))
    model = a_model(single).eval()
    alewm = evaluate(ObjectiveConfig(num_projections=32), model)
    plain = build_world_model(LEWM, generator()).eval()
    plain.load_state_dict({n: t for n, t in model.state_dict().items() if not n.startswith("selector.")})
    lewm = evaluate(ObjectiveConfig(method="lewm", num_projections=32), plain)
    torch.testing.assert_close(alewm.total, lewm.total)


def test_q_is_not_rounded_by_mixed_precision():
    statistic = MixSIGReg(MODEL.support, 1.0, 32)
    s, q = torch.randn(64, 4, 8, generator=generator(1)), torch.rand(64, 3, generator=generator(2)).softmax(-1)
    plain = statistic(s, q, sample_axis=0, generator=generator(9))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = statistic(s, q, sample_axis=0, generator=generator(9))
    torch.testing.assert_close(mixed, plain)
