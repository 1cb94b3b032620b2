"""Episodes depend on (seed, index) alone, obey the environment, and have the published data's statistics."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from alewm.envs import two_room
from alewm.envs.recording import episode_stream
from alewm.envs.two_room_behaviour import (
    collect_episodes,
    noisy_heuristic,
    simulate_episodes,
)
from alewm.errors import InputError


def assert_same(first, second):
    assert list(first) == list(second)
    for name in first:
        assert first[name].dtype == second[name].dtype
        assert first[name].tobytes() == second[name].tobytes(), name


@pytest.fixture(scope="module")
def many():
    return list(simulate_episodes(0, range(1500)))


def test_any_batching_and_order_gives_the_same_bytes():
    together = list(simulate_episodes(5, range(40)))
    for batch_size in (1, 7):
        for first, second in zip(simulate_episodes(5, range(40), episodes_at_once=batch_size), together, strict=True):
            assert_same(first, second)
    chosen = [31, 2, 17]
    for index, episode in zip(chosen, collect_episodes(5, iter(chosen), image_size=28), strict=True):
        assert_same({name: values for name, values in episode.items() if name != "pixels"}, together[index])


def test_frames_are_the_same_bytes_in_another_process_with_other_threads():
    code = (
        "import sys, torch, hashlib; from alewm.envs.two_room_behaviour import collect_episodes; "
        "torch.set_num_threads(int(sys.argv[1])); "
        "print([hashlib.sha256(e['pixels'].tobytes()).hexdigest() for e in collect_episodes(1, [4, 9])])"
    )
    outputs = [
        subprocess.run([sys.executable, "-c", code, threads], capture_output=True, text=True, check=True).stdout
        for threads in ("1", "2")
    ]
    assert outputs[0] == outputs[1]


def test_other_seeds_and_indices_give_other_episodes():
    starts = {tuple(episode["proprio"][0]) for seed in (0, 1) for episode in simulate_episodes(seed, range(5))}
    assert len(starts) == 10


def test_a_shorter_limit_cuts_the_same_walk():
    (long,), (short,) = simulate_episodes(2, [3]), simulate_episodes(2, [3], max_steps=20)
    assert len(short["action"]) == 21
    assert short["truncated"].tolist() == [False] * 20 + [True]
    np.testing.assert_array_equal(short["proprio"], long["proprio"][:21])


def test_columns_of_an_episode():
    episode = next(collect_episodes(0, [0]))
    rows = len(episode["action"])
    assert {name: (values.shape[1:], str(values.dtype)) for name, values in episode.items()} == {
        "pixels": ((224, 224, 3), "uint8"),
        "action": ((2,), "float32"),
        "proprio": ((2,), "float32"),
        "state": ((2,), "float32"),
        "goal_state": ((2,), "float32"),
        "observation": ((10,), "float32"),
        "distance_to_target": ((), "float32"),
        "reward": ((), "float32"),
        "terminated": ((), "bool"),
        "truncated": ((), "bool"),
        "step_idx": ((), "int64"),
    }
    assert {len(values) for values in episode.values()} == {rows}
    assert np.isnan(episode["reward"]).tolist() == [True] + [False] * (rows - 1)
    np.testing.assert_array_equal(episode["step_idx"], np.arange(rows))
    assert (episode["goal_state"] == episode["goal_state"][0]).all()


def test_actions_lead_from_their_row_to_the_next(many):
    for episode in many[:50]:
        position, action = torch.from_numpy(episode["proprio"]), torch.from_numpy(episode["action"])
        assert torch.equal(two_room.move(position[:-1], action[:-1]), position[1:])
        assert bool(action[-1].isnan().all())


def test_an_episode_ends_at_the_first_success_or_at_the_limit(many):
    for episode in many:
        reached = episode["distance_to_target"][1:] < 16
        assert not reached[:-1].any()
        assert episode["terminated"][-1] == reached[-1]
        assert episode["truncated"][-1] == (not reached[-1])
        assert reached[-1] or len(episode["action"]) == 101
        assert not episode["terminated"][:-1].any()
        assert not episode["truncated"][:-1].any()


def test_starts_and_targets_obey_the_constraints():
    for index in range(400):
        start, target = two_room.sample_start_and_target(episode_stream(9, index))
        for position in (start, target):
            assert position.dtype == np.float32
            assert 14 <= position.min() <= position.max() <= 209
            assert not 100 <= position[0] <= 124
        assert (start[0] < 112) != (target[0] < 112)
        door = np.array([112, 49])
        assert np.linalg.norm(start - door) + np.linalg.norm(target - door) >= 125


def walk(position, target, noise=(0.0, 0.0)):
    return noisy_heuristic(*(torch.tensor([pair]) for pair in (position, target, noise)))[0].tolist()


def test_the_heuristic_heads_for_the_door_then_for_the_target():
    assert walk([62.0, 49.0], [180.0, 150.0]) == [1, 0]
    assert walk([112.0, 99.0], [40.0, 150.0]) == [0, -1]
    # Within 10.5 pixels of the door's centre, and in the target's own room, the target is next.
    assert walk([102.0, 49.0], [142.0, 79.0]) == pytest.approx([0.8, 0.6])
    assert walk([101.0, 49.0], [141.0, 79.0]) == [1, 0]
    assert walk([150.0, 100.0], [150.0, 160.0]) == [0, 1]
    assert walk([150.0, 100.0], [150.0, 100.0]) == [0, 0]


def test_the_heuristic_adds_noise_of_two_and_clamps():
    assert walk([62.0, 49.0], [180.0, 150.0], (-0.75, 0.25)) == [-0.5, 0.5]
    assert walk([62.0, 49.0], [180.0, 150.0], (-3.0, 0.6)) == [-1, 1]


def test_the_statistics_are_those_of_the_published_data(many):
    """Mean length 92.08 in the published file; the rest as simulated for its generator. Bounds are about 4 sigma."""
    lengths = np.array([len(episode["action"]) for episode in many])
    assert lengths.mean() == pytest.approx(92.08, abs=2)
    assert np.mean([episode["truncated"][-1] for episode in many]) == pytest.approx(0.60, abs=0.05)
    actions = np.concatenate([episode["action"][:-1] for episode in many])
    assert actions.std(0) == pytest.approx([0.87, 0.87], abs=0.01)
    assert (np.abs(actions) == 1).mean() == pytest.approx(0.64, abs=0.01)
    pairs = [(episode["proprio"][:-25], episode["proprio"][25:]) for episode in many if len(episode["proprio"]) > 25]
    now, later = (np.concatenate(side) for side in zip(*pairs, strict=True))
    apart = np.linalg.norm(later - now, axis=1)
    assert np.median(apart) == pytest.approx(41.5, abs=1.5)
    assert (apart < 16).mean() == pytest.approx(0.086, abs=0.01)
    assert ((now[:, 0] < 112) != (later[:, 0] < 112)).mean() == pytest.approx(0.25, abs=0.015)


@pytest.mark.parametrize(("seed", "index"), [(-1, 0), (0, -1)])
def test_negative_keys_are_refused(seed, index):
    with pytest.raises(InputError, match="are not negative"):
        next(simulate_episodes(seed, [index]))


def test_empty_limits_are_refused():
    with pytest.raises(InputError, match="at least one step"):
        next(simulate_episodes(0, [0], max_steps=0))
