"""The study's measurements, on latents for which the answer is known."""

from itertools import pairwise

import pytest
import torch

from alewm_lab.oscillator.measures import WhitenedProcrustes, recovery_by_prefix, select


def test_a_linear_code_is_recovered_exactly_once_it_is_complete():
    state = torch.randn(2000, 4)
    latent = torch.cat((state @ torch.randn(4, 4), torch.randn(2000, 2)), 1)
    recovered = recovery_by_prefix(latent[:1500], state[:1500], latent[1500:], state[1500:])
    assert recovered[3] == pytest.approx(1, abs=1e-6)
    assert recovered[5] == pytest.approx(1, abs=1e-6)
    assert recovered[0] < 0.6
    assert all(b >= a - 0.01 for a, b in pairwise(recovered))


def test_noise_recovers_nothing():
    state, latent = torch.randn(4000, 4), torch.randn(4000, 3)
    assert abs(recovery_by_prefix(latent[:3000], state[:3000], latent[3000:], state[3000:])[-1]) < 0.01


def test_recovery_ignores_scale_and_shift():
    state, latent = torch.randn(500, 4), torch.randn(500, 3)
    latent[:, 0] += state[:, 1]
    plain = recovery_by_prefix(latent, state, latent, state)
    moved = recovery_by_prefix(100 * latent + 7, state, 100 * latent + 7, state)
    assert moved == pytest.approx(plain, abs=1e-4)


def invertible():
    """A random map that stretches no direction more than four times as much as another."""
    rotation, _ = torch.linalg.qr(torch.randn(4, 4))
    return rotation * torch.tensor([0.5, 1.0, 1.5, 2.0])


def test_procrustes_undoes_any_linear_map():
    state = torch.randn(3000, 4) @ invertible()
    latent = state @ invertible() + 3
    alignment = WhitenedProcrustes(latent[:2000], state[:2000])
    torch.testing.assert_close(alignment.rotation @ alignment.rotation.T, torch.eye(4, dtype=torch.float64))
    gap = alignment.align(latent[2000:]) - alignment.white_state(state[2000:])
    assert gap.abs().max() < 0.05


def test_selection_looks_at_validation_only_and_breaks_ties_by_the_smaller_weight():
    def record(weight, validation, test, seed=0, method="alewm"):
        return {
            "method": method,
            "latent_dim": 4,
            "lambda": weight,
            "alpha": 0.0,
            "seed": seed,
            "validation_r2_by_prefix": [0.0, 0.0, 0.0, validation],
            "r2_by_prefix": [0.0, 0.0, 0.0, test],
        }

    good_on_test = [record(0.1, 0.5, 0.99), record(0.1, 0.6, 0.99, seed=1)]
    good_on_validation = [record(0.2, 0.8, 0.1), record(0.2, 0.7, 0.1, seed=1)]
    assert select(good_on_test + good_on_validation)["ALeWM"] == good_on_validation
    tie = [record(0.3, 0.5, 0.0, method="lewm"), record(0.2, 0.5, 0.0, method="lewm")]
    assert select(tie)["LeWM d=4"][0]["lambda"] == 0.2
