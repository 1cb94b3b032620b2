"""Distilled dynamics by one kernel against the plain rollout; it runs in Triton's interpreter, so no GPU is needed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alewm.kernels import distilled_rollout
from alewm.kernels.distilled_rollout import pack, roll_out, why_no_fused_rollout
from alewm.planning.distilled import DistilledDynamics, DynamicsConfig

CPU = torch.device("cpu")


def network(capacity, action_dim=10, hidden_dim=128):
    """One whose rollout keeps its size and whose moments are in use."""
    made = DistilledDynamics(DynamicsConfig(capacity, action_dim, hidden_dim)).requires_grad_(requires_grad=False)
    for parameter in made.parameters():
        parameter.normal_(std=parameter.shape[-1] ** -0.5)
    made.mean.normal_()
    made.std.uniform_(0.5, 2)
    return made


def packed(net):
    return pack(net.mean, net.std, net.state_layer, net.action_layer, net.hidden_layer, net.output_layer)


def assert_agrees(net, num_candidates, horizon):
    z_first = torch.randn(num_candidates, net.config.capacity)
    actions = torch.randn(num_candidates, horizon, net.config.action_dim)
    found = roll_out(packed(net), z_first, actions)
    exact = torch.stack(net.double().imagine(z_first.double(), actions.double()))
    assert found.shape == exact.shape
    assert found.dtype == torch.float32
    assert (found - exact).abs().max() <= 1e-5 * exact.abs().max()


@pytest.mark.parametrize("capacity", [1, 4, 8, 30, 192])
@pytest.mark.parametrize(("num_candidates", "horizon"), [(1, 1), (1, 5), (17, 1), (17, 5)])
def test_every_prefix_is_that_of_the_plain_rollout(capacity, num_candidates, horizon):
    assert_agrees(network(capacity), num_candidates, horizon)


def test_an_episode_s_candidates():
    assert_agrees(network(8), 300, 5)


@settings(max_examples=15)
@given(
    capacity=st.integers(1, 70),
    action_dim=st.integers(1, 64),
    hidden_dim=st.sampled_from([1, 16, 20, 64, 256]),
    num_candidates=st.integers(1, 33),
    horizon=st.integers(1, 3),
)
def test_all_sizes(capacity, action_dim, hidden_dim, num_candidates, horizon):
    assert_agrees(network(capacity, action_dim, hidden_dim), num_candidates, horizon)


def test_weights_stay_on_the_chip_where_they_fit():
    for capacity, hidden_dim, chunk in ((8, 128, 128), (128, 128, 128), (192, 128, 32), (8, 256, 32), (256, 64, 64)):
        assert packed(network(capacity, hidden_dim=hidden_dim)).chunk == chunk
        assert why_no_fused_rollout(capacity, 10, hidden_dim, CPU) is None


def test_weights_read_in_every_step_give_the_same(monkeypatch):
    net = network(8)
    stays, z_first, actions = packed(net), torch.randn(20, 8), torch.randn(20, 3, 10)
    monkeypatch.setattr(distilled_rollout, "_MEMORY_OF_HOPPER", 64 * 1024)
    read = packed(net)
    assert (stays.chunk, read.chunk) == (128, 32)
    torch.testing.assert_close(roll_out(read, z_first, actions), roll_out(stays, z_first, actions))


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ((257, 10, 128), "at most 256 coordinates"),
        ((8, 10, 257), "at most 256 coordinates and hidden units"),
        ((8, 65, 128), "action blocks of 64 numbers"),
        ((192, 10, 256), "192 coordinates and 256 hidden units do not fit on the chip together"),
    ],
)
def test_sizes_that_do_not_fit_have_a_reason(sizes, reason):
    found = why_no_fused_rollout(*sizes, CPU)
    assert found is not None
    assert reason in found


def test_later_changes_of_the_network_are_not_seen():
    net = network(16, 16)  # sizes that need no padding
    z_first, actions = torch.randn(3, 16), torch.randn(3, 2, 16)
    before = packed(net)
    expected = roll_out(before, z_first, actions)
    for tensor in (*net.parameters(), net.mean, net.std):
        tensor.add_(1)
    assert torch.equal(roll_out(before, z_first, actions), expected)
