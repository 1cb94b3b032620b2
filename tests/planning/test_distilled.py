"""Distilled dynamics in the planner: what they compute, whose weights they accept, and what plans without them."""

import dataclasses
import json

import pytest
import torch
from torch.nn.functional import silu

from alewm.errors import InputError
from alewm.model.world_model import build_world_model
from alewm.planning.distilled import (
    DYNAMICS,
    DistilledDynamics,
    DistilledModel,
    DynamicsConfig,
    load_distilled,
)
from alewm.planning.gpu_search import FusedDistilled
from alewm.planning.noise import candidate_noise
from alewm.planning.planner import Planner, PlanningConfig, SearchSettings, plan_group
from alewm.planning.search import CEMConfig, solve
from alewm.training.presets import preset

CEM = CEMConfig(num_candidates=20, num_iterations=3, num_elites=5)
WEIGHTS = "0123abcd" * 8


@pytest.fixture(scope="module")
def model():
    return build_world_model(preset("two-room-tiny").model, torch.Generator().manual_seed(0)).eval()


def network(capacity=4, hidden_dim=16):
    made = DistilledDynamics(DynamicsConfig(capacity, 10, hidden_dim))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    made.mean.copy_(torch.linspace(-1, 1, capacity))
    made.std.copy_(torch.linspace(0.5, 2, capacity))
    return made.requires_grad_(requires_grad=False)


def one_step(net, z, a):
    """The definition, written for one latent and one block."""
    w = (z - net.mean) / net.std
    weight = torch.cat([net.state_layer.weight, net.action_layer.weight], 1)
    hidden = silu(weight @ torch.cat([w, a]) + net.action_layer.bias)
    hidden = silu(net.hidden_layer.weight @ hidden + net.hidden_layer.bias)
    return net.mean + net.std * (w + net.output_layer.weight @ hidden + net.output_layer.bias)


def test_a_rollout_repeats_one_step():
    net = network().double()
    z_first, actions = torch.randn(3, 4).double(), torch.randn(3, 5, 10).double()
    imagined = net.imagine(z_first, actions)
    for n in range(3):
        z = z_first[n]
        for step in range(5):
            z = one_step(net, z, actions[n, step])
            assert torch.allclose(imagined[step][n], z, atol=1e-12)


def test_the_planner_searches_by_the_reference_rollout(model):
    net, distilled = network().double(), DistilledModel(model, {4: network()})
    net.load_state_dict(distilled.dynamics["4"].state_dict())
    z_now, z_goal = torch.randn(2, 2, 32)
    noise = candidate_noise([(0, 0, 0), (0, 1, 0)], 3, 20, 5, 10, device="cpu")

    def score(candidates):
        ends = []
        for b, s in torch.cartesian_prod(torch.arange(2), torch.arange(candidates.shape[1])).tolist():
            z = z_now[b, :4].double()
            for block in candidates[b, s].double():
                z = one_step(net, z, block)
            ends.append((z - z_goal[b, :4]).square().mean())
        return torch.stack(ends).view(2, -1).float()

    start = torch.zeros(2, 5, 10)
    found = plan_group(distilled, z_now, z_goal, noise, start, SearchSettings(4, CEM))
    expected = solve(score, noise, CEM, start)
    assert torch.allclose(found.mean, expected.mean, atol=1e-5)
    assert torch.allclose(found.cost, expected.cost, atol=1e-5)


def test_two_images_in_actions_out(model):
    planner = Planner(DistilledModel(model, {4: network()}), [0, 0], [1, 1], PlanningConfig(cem=CEM, capacity="4"))
    image = torch.randint(0, 256, (28, 28, 3), dtype=torch.uint8)
    assert planner(image, image.flip(0)).shape == (25, 2)


def test_an_episode_without_a_network_is_planned_with_the_model_s_own_predictor_and_said_once(model, capsys):
    distilled = DistilledModel(model, {4: network()})
    own, mixed = (Planner(each, [0, 0], [1, 1], PlanningConfig(cem=CEM)) for each in (model, distilled))
    z_now, z_goal = torch.randn(2, 3, 32)
    keys = [(0, episode, 0) for episode in range(3)]
    expected = own.plan(z_now, z_goal, [(8,), (4,), (8,)], keys)
    found = mixed.plan(z_now, z_goal, [(8,), (4,), (8,)], keys)
    assert torch.equal(found.blocks[[0, 2]], expected.blocks[[0, 2]])
    assert not torch.allclose(found.blocks[1], expected.blocks[1])
    assert distilled.own_capacities == {8}
    assert capsys.readouterr().err.count("No dynamics were distilled for capacity 8 (there are 4)") == 1


def test_the_full_goal_cost_needs_coordinates_that_are_not_there(model):
    config = PlanningConfig(cem=CEM, goal_cost="full")
    planner = Planner(DistilledModel(model, {4: network(), 32: network(32)}), [0, 0], [1, 1], config)
    z_now, z_goal = torch.randn(2, 1, 32)
    with pytest.raises(InputError, match=r"compares 32 coordinates, but these distilled dynamics predict 4"):
        planner.plan(z_now, z_goal, [(4,)], [(0, 0, 0)])
    assert planner.plan(z_now, z_goal, [(32,)], [(0, 0, 0)]).capacities == (32,)


def test_the_gpu_s_rollout_is_the_model_s_and_leaves_to_it_what_the_kernel_cannot_hold(model, capsys):
    """The kernel runs in Triton's interpreter."""
    distilled = DistilledModel(model, {4: network(), 8: network(8, hidden_dim=257)})
    fused = FusedDistilled(distilled)
    assert [capacity for capacity, packed in fused.packed.items() if packed is not None] == [4]
    z, actions = torch.randn(3, 32), torch.randn(3, 5, 10)
    for capacity, tolerance in ((4, 1e-5), (8, 0), (32, 0)):
        expected = distilled.imagine_prefix(z[:, :capacity], actions, capacity, 3)
        found = fused.imagine_prefix(z[:, :capacity], actions, capacity, 3)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    assert "No dynamics were distilled for capacity 32" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"compares 32 coordinates, but these distilled dynamics predict 4"):
        fused.imagine_prefix(z[:, :4], actions, 32, 3)


def written(folder, net, **changes):
    description = {
        "format": 1,
        "config": dataclasses.asdict(net.config),
        "settings": {},
        "weights_sha256": WEIGHTS,
        "checkpoint": "step-00000040",
    }
    return DYNAMICS.write(folder / f"k{net.config.capacity}", net, description | changes)


def test_what_is_written_is_read(model, tmp_path):
    nets = {4: network(), 32: network(32)}
    for net in nets.values():
        written(tmp_path, net)
    found = load_distilled(model, WEIGHTS, tmp_path)
    assert found.capacities == (4, 32)
    assert found.fits.keys() == {"4", "32"}
    z, a = torch.randn(5, 32), torch.randn(5, 5, 10)
    for k, net in nets.items():
        for ours, theirs in zip(found.imagine_prefix(z[:, :k], a, k, 3), net.imagine(z[:, :k], a), strict=True):
            assert torch.equal(ours, theirs)


def test_networks_of_other_weights_or_shapes_are_refused(model, tmp_path):
    folder = written(tmp_path, network())
    with pytest.raises(InputError, match=r"fitted to other weights \(step-00000040, SHA-256 0123abcd0123\)"):
        load_distilled(model, "f" * 64, tmp_path)
    with pytest.raises(InputError, match="Capacity 5 is not supported"):
        DistilledModel(model, {5: network(5)})
    with pytest.raises(InputError, match="no distilled dynamics"):
        load_distilled(model, WEIGHTS, tmp_path / "nowhere")
    other = network(4, hidden_dim=8)
    written(tmp_path / "other", other)
    (folder / "model.safetensors").write_bytes((tmp_path / "other/k4/model.safetensors").read_bytes())
    with pytest.raises(InputError, match="cannot be read"):
        DYNAMICS.read(folder, WEIGHTS)
    (folder / "model.safetensors").write_bytes(b"half")
    with pytest.raises(InputError, match="cannot be read"):
        DYNAMICS.read(folder, WEIGHTS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"format": 2}, "has format 2; this version reads format 1"), ({"config": None}, "lacks config")],
)
def test_a_description_that_cannot_be_used_is_named(tmp_path, changes, message):
    folder = written(tmp_path, network())
    path = folder / "distilled.json"
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
    with pytest.raises(InputError, match=message):
        DYNAMICS.read(folder, WEIGHTS)
