"""The study's world is the paper's: its dynamics, its unit variances, an invertible strong part."""

import torch

from alewm_lab.oscillator.world import ObservationMap, OscillatorDynamics, make_splits


def test_states_follow_the_semi_implicit_euler_equations():
    """With the noise switched off, every recorded transition satisfies the appendix's two equations."""
    quiet = OscillatorDynamics(velocity_noise=0.0, position_noise=0.0)
    state, action = quiet.simulate(50, torch.Generator().manual_seed(0))
    assert state.shape == (50, 9, 4)
    assert action.shape == (50, 8, 2)
    p, v = state[..., 0::2].double(), state[..., 1::2].double()
    expected_v = v[:, :-1] + 0.2 * (-0.25 * v[:, :-1] - 1.03887957 * (p[:, :-1] - action.double()))
    torch.testing.assert_close(v[:, 1:], expected_v, atol=1e-5, rtol=0)
    torch.testing.assert_close(p[:, 1:], p[:, :-1] + 0.2 * v[:, 1:], atol=1e-5, rtol=0)


def test_actions_are_held_for_four_transitions_within_their_bound():
    _, action = OscillatorDynamics().simulate(500, torch.Generator().manual_seed(0))
    assert (action[:, :4] == action[:, :1]).all()
    assert (action[:, 4:] == action[:, 4:5]).all()
    assert (action[:, 0] != action[:, 4]).all()
    assert action.abs().max() <= 1.36524771
    assert action.abs().max() > 1.3


def test_noise_has_the_stated_size():
    """Residuals of the equations over 5,000 trajectories."""
    state, action = OscillatorDynamics().simulate(5000, torch.Generator().manual_seed(0))
    p, v = state[..., 0::2].double(), state[..., 1::2].double()
    epsilon = v[:, 1:] - v[:, :-1] - 0.2 * (-0.25 * v[:, :-1] - 1.03887957 * (p[:, :-1] - action))
    eta = p[:, 1:] - p[:, :-1] - 0.2 * v[:, 1:]
    assert abs(float(epsilon.std()) / 0.02730495 - 1) < 0.01
    assert abs(float(eta.std()) / 0.01365248 - 1) < 0.01


def test_the_stationary_variance_is_about_one():
    state, _ = OscillatorDynamics().simulate(20_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(state.flatten(0, 1).var(0), torch.ones(4), atol=0.05, rtol=0)


def test_the_wave_map_is_invertible():
    """Each step is a shear, so the Jacobian has determinant one everywhere."""
    x = 2 * torch.randn(1000, 4)
    world = ObservationMap(wave_rounds=3)
    jacobian = torch.stack([torch.func.jacrev(world.strong)(each) for each in x[:100].double()])
    torch.testing.assert_close(jacobian.det(), torch.ones(100, dtype=torch.float64), atol=1e-4, rtol=0)
    assert (world.strong(x) - x).abs().mean() > 0.1


def test_weak_coordinates_mix_all_four_factors():
    _, direction, _ = ObservationMap()._constants()
    assert torch.linalg.matrix_rank(direction) == 4
    assert (direction.abs() > 1e-3).all()


def test_observation_noise_is_stronger_on_weak_coordinates():
    world, x = ObservationMap(), torch.randn(50_000, 4)
    noise = world.observe(x, torch.Generator().manual_seed(0)) - torch.cat((world.strong(x), world.weak(x)), -1)
    torch.testing.assert_close(noise.std(0), torch.tensor([0.05] * 4 + [0.3] * 6), rtol=0.03, atol=0)


def test_splits_are_disjoint_draws_and_reproducible():
    sizes = {"train": 20, "validation": 10, "test": 10}
    one, same, other = (make_splits(seed, sizes=sizes) for seed in (0, 0, 1))
    assert torch.equal(one["train"].observation, same["train"].observation)
    assert not torch.equal(one["train"].observation, other["train"].observation)
    assert not torch.equal(one["train"].state[:10], one["test"].state)
    assert one["validation"].observation.shape == (10, 9, 10)
