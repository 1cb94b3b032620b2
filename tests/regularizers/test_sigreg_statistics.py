"""What SIGReg and MixSIGReg measure.

Claims: MixSIGReg with support {D} is SIGReg; its target is the mixture's characteristic function; its expectation under
exact matching is a known noise floor that does not depend on the batch; it is smallest at the target and sees collapse,
shift, scale and a wrong order of coordinates; all paths agree in value and gradient, to q as well.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm import CapacitySupport, MixSIGReg, SIGReg
from alewm.capacity.support import polynomial_prior, prefix_masks
from alewm.kernels.characteristic_function import accumulated_prefix_projections, masked_prefix_projections
from alewm.regularizers.quadrature import (
    EPPS_PULLEY,
    gaussian_cf,
    prefix_mixture_target,
    random_directions,
    reach_of_directions,
    within_reach,
)
from alewm.regularizers.sigreg import PrefixSIGReg, mix_sigreg, prefix_sigreg, sigreg

WIDTH, DEGREE = 8, -1.5
SUPPORT = CapacitySupport.every(WIDTH)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=generator(seed), dtype=dtype)


def test_the_quadrature_is_the_appendix_s():
    knots, weights = (f(torch.zeros(1, dtype=torch.float64)) for f in (EPPS_PULLEY.knots, EPPS_PULLEY.weights))
    h = 3 / 16
    expected = torch.tensor([3 * j / 16 for j in range(17)], dtype=torch.float64)
    torch.testing.assert_close(knots, expected)
    ends = torch.tensor([h if j in (0, 16) else 2 * h for j in range(17)], dtype=torch.float64)
    torch.testing.assert_close(weights, ends * torch.exp(-(expected**2) / 2))


def test_directions_are_unit_vectors_in_every_direction():
    u = random_directions(5, 20_000, generator=generator())
    torch.testing.assert_close(u.square().sum(0), torch.ones(20_000))
    torch.testing.assert_close(u @ u.T / 20_000, torch.eye(5) / 5, atol=0.01, rtol=0)


def test_directions_inside_prefixes_are_uniform_there_with_equal_shares():
    support = CapacitySupport((1, 3, 5))
    reach = reach_of_directions(support, 60_000)
    u = within_reach(random_directions(5, 60_000, generator=generator()), reach)
    torch.testing.assert_close(u.square().sum(0), torch.ones(60_000))
    for place, k in enumerate(support.capacities):
        inside = u[:, place::3]
        assert (inside[k:] == 0).all()
        expected = torch.eye(5) * (torch.arange(5) < k) / k
        torch.testing.assert_close(inside @ inside.T / 20_000, expected, atol=0.01, rtol=0)


def test_directions_inside_prefixes_see_what_those_of_the_sphere_overlook():
    """The first sixteen of 192 coordinates are four numbers, each repeated: twelve dimensions short of the target."""
    support, width, num = CapacitySupport((16, 192)), 192, 512
    q = torch.tensor([0.9, 0.1]).expand(num, 2)
    exact = gaussian(num, 1, width)
    short = torch.cat((exact[..., :4].repeat(1, 1, 4), exact[..., 16:]), -1)
    excess = {}
    for directions in ("sphere", "prefixes"):
        regularizer = MixSIGReg(support, prior_degree=3.17, num_projections=512, directions=directions)
        torch.testing.assert_close(regularizer.prior, q[0], atol=0.01, rtol=0)
        found = [regularizer(s, q, sample_axis=0, generator=generator(1)) for s in (exact, short)]
        assert found[0] < 1.2  # the noise of 512 samples
        excess[directions] = float(found[1] - found[0])
    assert excess["prefixes"] > 5 * excess["sphere"] > 0


@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 100))
@settings(max_examples=20)
def test_with_one_capacity_mix_sigreg_is_sigreg(num_samples, width, seed):
    s, u = gaussian(3, num_samples, width, seed=seed), random_directions(width, 16, generator=generator(seed))
    mixed = mix_sigreg(s, torch.ones(1, num_samples, 1), u[None], torch.ones(1, 1), CapacitySupport.full(width))
    torch.testing.assert_close(mixed, sigreg(s, u[None]), rtol=1e-4, atol=1e-5)


def test_the_target_is_the_characteristic_function_of_the_mixture():
    """Against a Monte Carlo estimate from 400,000 draws of z = M_K ε, within five standard errors."""
    num = 400_000
    prior = polynomial_prior(WIDTH, DEGREE, dtype=torch.float64)
    capacity = torch.multinomial(prior, num, replacement=True, generator=generator(1))
    z = prefix_masks(SUPPORT, dtype=torch.float64)[capacity] * gaussian(num, WIDTH, seed=2, dtype=torch.float64)
    u = random_directions(WIDTH, 4, generator=generator(3), dtype=torch.float64)
    knots = EPPS_PULLEY.knots(u)
    estimate = torch.stack([(tau * (z @ u)).cos().mean(0) for tau in knots])
    target = prefix_mixture_target(knots, u, prior, SUPPORT)
    assert (estimate - target).abs().max() < 5 / num**0.5


@pytest.mark.parametrize("support", [SUPPORT, CapacitySupport((3, 20, 24))])
def test_paths_agree_in_value_and_gradient_also_to_q(support):
    num, width = 33, support.latent_dim
    s = gaussian(2, num, width, seed=4, dtype=torch.float64).requires_grad_()
    logits = gaussian(num, len(support), seed=5, dtype=torch.float64).requires_grad_()
    u = random_directions(width, 7, generator=generator(6), dtype=torch.float64)[None]
    prior = polynomial_prior(len(support), 0.7, dtype=torch.float64)[None]

    def run(path, dtype):
        q = logits.to(dtype).softmax(-1)[None]
        loss = mix_sigreg(s.to(dtype), q, u.to(dtype), prior.to(dtype), support, path=path).mean()
        return [loss, *torch.autograd.grad(loss, (s, logits))]

    exact = run("reference", torch.float64)
    for path, dtype, tolerance in [
        ("recurrence", torch.float64, 1e-10),
        ("auto", torch.float32, 1e-5),
        ("recurrence", torch.float32, 1e-5),
    ]:
        for actual, expected in zip(run(path, dtype), exact, strict=True):
            assert (actual - expected).abs().max() <= tolerance * expected.abs().max()


def test_the_gradient_passes_finite_differences_to_latents_and_to_q():
    s = gaussian(1, 6, 3, dtype=torch.float64).requires_grad_()
    logits = gaussian(6, 3, seed=1, dtype=torch.float64).requires_grad_()
    u = random_directions(3, 4, generator=generator(2), dtype=torch.float64)[None]
    prior = polynomial_prior(3, 1.0, dtype=torch.float64)[None]
    support = CapacitySupport.every(3)
    assert torch.autograd.gradcheck(lambda s, x: mix_sigreg(s, x.softmax(-1)[None], u, prior, support), (s, logits))


def test_accumulating_blocks_equals_masking():
    support = CapacitySupport((2, 5, 30))
    s, u = gaussian(2, 3, 11, 30, dtype=torch.float64), gaussian(2, 1, 30, 6, seed=1, dtype=torch.float64)
    torch.testing.assert_close(accumulated_prefix_projections(s, u, support), masked_prefix_projections(s, u, support))


def noise_floor(u: torch.Tensor, prior: torch.Tensor, support: CapacitySupport) -> float:
    """Σ_j w_j (E|f|² - φ_0²), with E|f|² = Σ_kl π_k π_l exp(-τ² |(M_k - M_l) u|² / 2), averaged over directions."""
    masks = prefix_masks(support, dtype=u.dtype)
    knots, weights = EPPS_PULLEY.knots(u), EPPS_PULLEY.weights(u)
    apart = (masks[:, None] - masks[None]).square() @ u.square()
    pairs = prior[:, None, None] * prior[None, :, None]
    square = torch.stack([(pairs * torch.exp(-(tau**2) / 2 * apart)).sum((0, 1)) for tau in knots])
    target = prefix_mixture_target(knots, u, prior, support)
    return float((weights[:, None] * (square - target.square())).sum(0).mean())


@pytest.mark.parametrize("num_samples", [16, 64, 256])
@pytest.mark.parametrize("support", [CapacitySupport.full(WIDTH), SUPPORT])
def test_under_exact_matching_the_expectation_is_the_noise_floor_whatever_the_batch(num_samples, support):
    """Mean over 4,096 independent batches of standard normal latents with q equal to the prior."""
    batches = 4096
    u = random_directions(WIDTH, 8, generator=generator(9), dtype=torch.float64)
    prior = polynomial_prior(len(support), DEGREE, dtype=torch.float64)
    s = gaussian(batches, num_samples, WIDTH, seed=num_samples)
    q = prior.float().expand(1, num_samples, -1)
    statistic = mix_sigreg(s, q, u.float()[None], prior.float()[None], support)
    standard_error = float(statistic.std() / batches**0.5)
    assert abs(float(statistic.mean()) - noise_floor(u, prior, support)) < 5 * standard_error


def test_the_noise_floors_at_width_eight():
    """About 1.05 for SIGReg and 0.76 for MixSIGReg, averaged over directions."""
    u = random_directions(WIDTH, 4000, generator=generator(), dtype=torch.float64)
    full = CapacitySupport.full(WIDTH)
    assert noise_floor(u, torch.ones(1, dtype=torch.float64), full) == pytest.approx(1.05, abs=0.01)
    prior = polynomial_prior(WIDTH, DEGREE, dtype=torch.float64)
    assert noise_floor(u, prior, SUPPORT) == pytest.approx(0.76, abs=0.02)


BAD_LATENTS = {
    "collapsed": lambda s: 0.01 * s,
    "constant": lambda s: torch.zeros_like(s),
    "shifted": lambda s: s + 1,
    "too wide": lambda s: 2 * s,
    "one coordinate repeated": lambda s: s[..., :1].expand_as(s),
    "not Gaussian": lambda s: s.sign(),
}


@pytest.mark.parametrize("name", BAD_LATENTS)
def test_latents_away_from_the_target_score_worse(name):
    good = gaussian(512, 2, WIDTH)
    bad = BAD_LATENTS[name](good)
    q = polynomial_prior(WIDTH, DEGREE).expand(512, WIDTH)
    mixed, plain = MixSIGReg(SUPPORT, DEGREE, 256), SIGReg(256)

    def mixed_score(s):
        return mixed(s, q, sample_axis=0, generator=generator())

    def plain_score(s):
        return plain(s, sample_axis=0, generator=generator())

    assert mixed_score(bad) > 1.5 * mixed_score(good)
    assert plain_score(bad) > 1.5 * plain_score(good)


def test_the_order_of_coordinates_matters_exactly_when_it_should():
    """Mixture draws with q all on D score worse reversed; isotropic latents with constant q do not care."""
    num = 4096
    capacity = torch.multinomial(polynomial_prior(WIDTH, 0.5), num, replacement=True, generator=generator(1))
    z = prefix_masks(SUPPORT)[capacity] * gaussian(num, WIDTH, seed=2)
    everything = torch.zeros(num, WIDTH).index_fill_(1, torch.tensor([WIDTH - 1]), 1.0)
    mixed = MixSIGReg(SUPPORT, 0.5, 256)

    def score(latents, q):
        return float(mixed(latents, q, sample_axis=0, generator=generator(3)))

    assert score(z.flip(-1), everything) > 10 * score(z, everything)
    isotropic, q = gaussian(num, WIDTH, seed=4), polynomial_prior(WIDTH, 0.5).expand(num, WIDTH)

    def mean_score(latents):
        scores = [mixed(latents, q, sample_axis=0, generator=generator(seed)) for seed in range(8)]
        return float(torch.stack(scores).mean())

    assert mean_score(isotropic.flip(-1)) == pytest.approx(mean_score(isotropic), rel=0.5)


def test_the_gaussian_target_is_the_ablation_s():
    """With that target and all of q on D, MixSIGReg is SIGReg on the whole latent."""
    s, u = gaussian(1, 64, WIDTH), random_directions(WIDTH, 32, generator=generator(1))[None]
    everything = torch.zeros(1, 64, WIDTH).index_fill_(2, torch.tensor([WIDTH - 1]), 1.0)
    prior = polynomial_prior(WIDTH, 1.0)[None]
    torch.testing.assert_close(
        mix_sigreg(s, everything, u, prior, SUPPORT, target="gaussian"), sigreg(s, u), rtol=1e-4, atol=1e-5
    )


def test_frames_are_averaged_and_directions_shared():
    s = gaussian(64, 3, WIDTH)
    whole = SIGReg(32)(s, sample_axis=0, generator=generator(5))
    each = [SIGReg(32)(s[:, frame], sample_axis=0, generator=generator(5)) for frame in range(3)]
    torch.testing.assert_close(whole, torch.stack(each).mean())


def test_bfloat16_latents_are_measured_in_float32():
    s = gaussian(256, 2, 16).bfloat16()
    value = SIGReg(64)(s, sample_axis=0, generator=generator())
    torch.testing.assert_close(value, SIGReg(64)(s.float(), sample_axis=0, generator=generator()))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(SIGReg(64)(s, sample_axis=0, generator=generator()), value)


@pytest.mark.parametrize("size_of_second", [13, 1])
def test_prefix_sigreg_is_one_sigreg_per_group(size_of_second):
    """Against the definition, group by group, with directions renormalised to the active coordinates."""
    support, num = CapacitySupport((2, 5)), 40
    s, u = gaussian(num, 5, dtype=torch.float64), random_directions(5, 6, generator=generator(1), dtype=torch.float64)
    index = (torch.arange(num) < size_of_second).long()
    expected = 0.0
    for position, k in enumerate(support.capacities):
        group = s[index == position, :k]
        active = u[:k] / u[:k].norm(dim=0)
        expected += len(group) / num * float(sigreg(group[None], active[None], path="reference")[0])
    choice = torch.eye(2, dtype=torch.float64)[index][None]
    assert float(prefix_sigreg(s[None], choice, u[None], support)[0]) == pytest.approx(expected)


def test_prefix_sigreg_ignores_inactive_coordinates_and_empty_groups():
    support = CapacitySupport((2, 4, 6))
    s, choice = gaussian(32, 6), torch.eye(3)[torch.zeros(32, dtype=torch.long)]
    changed = torch.cat((s[:, :2], 100 * s[:, 2:]), -1)
    regularizer = PrefixSIGReg(support, 16)
    value = regularizer(s, choice, sample_axis=0, generator=generator())
    assert value.isfinite()
    torch.testing.assert_close(regularizer(changed, choice, sample_axis=0, generator=generator()), value)


def test_the_feature_axis_cannot_be_the_sample_axis():
    with pytest.raises(ValueError, match="sample_axis -1 is the feature axis"):
        SIGReg(4)(gaussian(8, 4), sample_axis=-1, generator=generator())


def test_the_gaussian_characteristic_function_is_the_textbook_s():
    tau = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(gaussian_cf(tau), torch.exp(-(tau**2) / 2))
