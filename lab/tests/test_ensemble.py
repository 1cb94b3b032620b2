"""Training side by side changes nothing: every row of an ensemble is the model it would be alone."""

import pytest
import torch
from torch import nn

from alewm.errors import InputError
from alewm_lab.oscillator.measures import measure
from alewm_lab.oscillator.models import EnsembleBatchNorm, OscillatorModels, RowAdamW, clip_rows
from alewm_lab.oscillator.study import OscillatorRun
from alewm_lab.oscillator.training import train
from alewm_lab.oscillator.world import make_splits

SIZES = {"train": 96, "validation": 32, "test": 32}


def quick(method="alewm", **changes):
    return OscillatorRun(method, **{"epochs": 2, "batch_size": 32, "num_projections": 8, **changes})


def train_splits(*seeds):
    return {seed: make_splits(seed, sizes=SIZES)["train"] for seed in seeds}


def test_row_adamw_is_torch_s_adamw_on_every_row():
    rows = torch.randn(3, 7)
    rates = [1e-2, 3e-3, 1e-1]
    alone = [nn.Parameter(row.clone()) for row in rows]
    theirs = [torch.optim.AdamW([p], lr=rate, weight_decay=1e-2) for p, rate in zip(alone, rates, strict=True)]
    ours = RowAdamW(rows, torch.full((3,), 1e-2))
    for _ in range(25):
        gradient = torch.randn(3, 7)
        ours.step(gradient, torch.tensor(rates))
        for parameter, optimizer, row in zip(alone, theirs, gradient, strict=True):
            parameter.grad = row.clone()
            optimizer.step()
    torch.testing.assert_close(rows, torch.stack([p.detach() for p in alone]), rtol=1e-5, atol=1e-6)


def test_clipping_is_torch_s_for_every_model():
    gradients = [10 * torch.randn(3, 5), torch.randn(3, 2) * torch.tensor([[0.01], [1.0], [9.0]])]
    expected = []
    for model in range(3):
        parts = [nn.Parameter(torch.zeros_like(g[model])) for g in gradients]
        for part, gradient in zip(parts, gradients, strict=True):
            part.grad = gradient[model].clone()
        nn.utils.clip_grad_norm_(parts, 1.0)
        expected.append([part.grad for part in parts])
    clip_rows(gradients, torch.ones(3))
    for model in range(3):
        for gradient, exact in zip(gradients, expected[model], strict=True):
            torch.testing.assert_close(gradient[model], exact)


def test_batch_norm_is_torch_s_for_every_model():
    ours, theirs = EnsembleBatchNorm(2, 4), [nn.BatchNorm1d(4) for _ in range(2)]
    scale, shift = torch.ones(2, 4), torch.zeros(2, 4)

    def assert_equal(x, *, training):
        expected = torch.stack([norm.train(training)(row) for norm, row in zip(theirs, x, strict=True)])
        torch.testing.assert_close(ours(x, scale, shift, training=training), expected, rtol=1e-4, atol=1e-5)

    for _ in range(3):
        assert_equal(3 * torch.randn(2, 50, 4) + 1, training=True)
    assert_equal(torch.randn(2, 50, 4), training=False)


@pytest.mark.parametrize("method", ["lewm", "alewm", "alewm-sigreg", "nested-dropout"])
def test_a_model_trained_in_company_is_the_model_trained_alone(method):
    runs = [quick(method, seed=0), quick(method, seed=1, reg_weight=0.1), quick(method, seed=0, reg_weight=1.0)]
    _, together = train(runs, train_splits(0, 1))
    for row, run in enumerate(runs):
        _, alone = train([run], train_splits(run.seed))
        # Losses, not weights: where a gradient is only rounding, Adam's first steps turn its sign into a full step.
        torch.testing.assert_close(together.prediction[row], alone.prediction[0], rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(together.regularizer[row], alone.regularizer[0], rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(together.mean_q[row], alone.mean_q[0], rtol=1e-3, atol=1e-5)


def test_training_is_deterministic():
    first, second = (train([quick()], train_splits(0)) for _ in range(2))
    assert torch.equal(first[0].model_rows, second[0].model_rows)
    assert torch.equal(first[1].mean_q, second[1].mean_q)


def test_q_starts_at_the_prior_and_a_frozen_selector_stays_there():
    run = quick(prior_degree=-1.5, control="prior-frozen")
    _, history = train([run], train_splits(0))
    reverse_rank = torch.arange(8, 0, -1.0)
    prior = reverse_rank**-1.5 / (reverse_rank**-1.5).sum()
    torch.testing.assert_close(history.mean_q[0], prior.expand(2, 8), rtol=1e-4, atol=1e-6)
    models = OscillatorModels([quick(prior_degree=-1.5)])
    features, _ = models.encode(torch.randn(1, 5, 9, 10), training=True)
    torch.testing.assert_close(
        models.capacity_logits(features).softmax(-1)[0], prior.expand(5, 8), rtol=1e-4, atol=1e-6
    )


def test_a_delayed_selector_holds_the_prior_until_its_time():
    run = quick(selector_delay=0.5, selector_rate=30.0, epochs=4)
    _, history = train([run], train_splits(0))
    prior = torch.arange(8, 0, -1.0) ** run.prior_degree
    torch.testing.assert_close(history.mean_q[0, :2], (prior / prior.sum()).expand(2, 8), rtol=1e-4, atol=1e-6)
    assert (history.mean_q[0, 3] - prior / prior.sum()).abs().max() > 0.01


def test_the_selector_s_gradient_does_not_reach_the_encoder():
    models = OscillatorModels([quick()])
    features, _ = models.encode(torch.randn(1, 5, 9, 10), training=True)
    gradient = torch.autograd.grad(models.capacity_logits(features).sum(), models.model_rows, allow_unused=True)[0]
    assert gradient is None


def test_exact_marginalisation_is_the_expectation_of_the_sampled_loss():
    """The sampled prediction loss, averaged over many draws of capacity, is the marginal one."""
    from alewm.capacity.support import gumbel_noise, log_polynomial_prior
    from alewm_lab.oscillator.training import Batch, EnsembleObjective

    sampled, marginal = quick(), quick(control="marginal")
    models = OscillatorModels([sampled])
    log_prior = log_polynomial_prior(8, sampled.prior_degree)[None]
    generator = torch.Generator().manual_seed(0)
    observation, action = torch.randn(1, 16, 9, 10, generator=generator), torch.randn(1, 16, 8, 2, generator=generator)
    u = torch.nn.functional.normalize(torch.randn(1, 8, 4, generator=generator), dim=1)

    def prediction(run):
        batch = Batch(observation, action, u, gumbel_noise(1, 16, 8, generator=generator))
        return EnsembleObjective(run, log_prior)(models, batch).prediction.detach()

    draws = torch.cat([prediction(sampled) for _ in range(150)])
    standard_error = float(draws.std() / 150**0.5)
    assert abs(float(draws.mean() - prediction(marginal))) < 5 * standard_error


def test_runs_of_different_kinds_are_not_mixed():
    with pytest.raises(InputError, match="one method, width and schedule"):
        train([quick("lewm"), quick("alewm")], train_splits(0))


def test_too_few_trajectories_for_a_batch_are_reported():
    with pytest.raises(InputError, match="96 training trajectories do not fill a batch of 256"):
        train([quick(batch_size=256)], train_splits(0))


def test_records_have_what_the_report_needs():
    runs = [quick(seed=0), quick(seed=1)]
    splits = {seed: make_splits(seed, sizes=SIZES) for seed in (0, 1)}
    models, history = train(runs, {seed: split["train"] for seed, split in splits.items()})
    for record in measure(runs, models, history, splits):
        assert len(record["r2_by_prefix"]) == len(record["masked_variance"]) == len(record["prior_survival"]) == 8
        assert sum(record["mean_q"]) == pytest.approx(1, abs=1e-5)
        assert len(record["q_by_epoch"]) == 2


def test_unknown_methods_and_misplaced_controls_are_refused():
    with pytest.raises(InputError, match="belongs to alewm, not to lewm"):
        OscillatorRun("lewm", control="marginal")
