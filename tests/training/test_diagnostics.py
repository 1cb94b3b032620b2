"""Rank and masked variance against cases whose answer is known."""

import torch

from alewm.capacity.support import CapacitySupport, polynomial_prior, survival
from alewm.training.validation import effective_rank, masked_variance, mean_entropy, precision_gap, variance


def test_an_isotropic_latent_has_full_rank_and_a_line_has_one():
    g = torch.Generator().manual_seed(0)
    s = torch.randn(5000, 4, 6, generator=g)
    assert abs(effective_rank(s) - 6) < 0.05
    assert abs(effective_rank(s + 10) - 6) < 0.05
    line = torch.randn(500, 4, 1, generator=g) * torch.randn(6, generator=g)
    assert abs(effective_rank(line) - 1) < 0.05
    assert torch.isfinite(effective_rank(torch.zeros(5, 2, 6)))


def test_a_gaussian_masked_by_the_prior_has_the_priors_survival_as_variance():
    support = CapacitySupport((1, 3, 6))
    prior = polynomial_prior(3, 1.0)
    s = torch.randn(40_000, 2, 6, generator=torch.Generator().manual_seed(0))
    found = masked_variance(s, prior.expand(40_000, 3), support)
    torch.testing.assert_close(found, survival(prior, support), atol=0.02, rtol=0)


def test_a_mask_takes_variance_away_and_a_mask_of_ones_none():
    support = CapacitySupport((1, 3, 6))
    s = 3 * torch.randn(500, 2, 6, generator=torch.Generator().manual_seed(0)) + torch.arange(6)
    torch.testing.assert_close(variance(s), s.flatten(0, 1).var(0, correction=0))
    certain = torch.tensor([0.0, 0, 1]).expand(500, 3)
    torch.testing.assert_close(masked_variance(s, certain, support), variance(s), rtol=1e-4, atol=1e-4)
    centred = s - s.mean((0, 1))
    assert (masked_variance(centred, polynomial_prior(3, 1.0).expand(500, 3), support) <= variance(s) + 1e-4).all()


def test_entropy_of_certainty_and_of_indifference():
    q = torch.tensor([[1.0, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    torch.testing.assert_close(mean_entropy(q), torch.tensor(4.0).log() / 2)


def test_a_shift_of_one_standard_deviation_is_a_precision_gap_of_one():
    exact = 3 * torch.randn(4000, 2, 5, generator=torch.Generator().manual_seed(0)) + 7 * torch.arange(5)
    assert precision_gap(exact, exact) == 0
    assert abs(precision_gap(exact + 3, exact) - 1) < 0.02
