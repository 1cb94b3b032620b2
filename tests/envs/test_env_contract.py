"""What every registered environment promises; a new task is tested by being registered.

Same seed, same pixels. Setting a state and reading it back is the identity. The goal image is the image at the goal.
Success agrees with distance. A batch agrees with its members. What cannot be used is refused, and changes nothing.
"""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from alewm.envs.contract import GoalEnv, VectorGoalEnv
from alewm.envs.registry import OUR_TASKS, get_task
from alewm.envs.simulated import SimulatedVectorEnv
from alewm.envs.task import Task
from alewm.errors import InputError

TASKS = [get_task(name) for name in OUR_TASKS]
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


def make(task: Task, **options) -> GoalEnv:
    env = gymnasium.make(task.env_id, disable_env_checker=True, **options).unwrapped
    assert isinstance(env, GoalEnv)
    return env


def sampled_rows(task: Task, num_envs: int, seed: int = 0):
    """Batched start and goal rows from the environment's own start distribution."""
    generator, env = np.random.default_rng(seed), make(task)
    pairs = [env.sample_episode(generator) for _ in range(num_envs)]
    starts, goals = zip(*pairs, strict=True)
    return [{name: torch.tensor(np.stack([row[name] for row in rows])) for name in rows[0]} for rows in (starts, goals)]


def how_many(task: Task, usual: int, *, if_slow: int) -> int:
    """`usual`, or what a task can afford whose every frame takes tens of milliseconds or more."""
    return if_slow if task.drawing_is_slow else usual


def everything_seen(task: Task, envs: VectorGoalEnv) -> dict[str, torch.Tensor]:
    """All that can be read of the present states; without the frames where these are slow to draw."""
    frames = {} if task.drawing_is_slow else {"pixels": envs.render()}
    return {**envs.columns(), **envs.state(), "distance": envs.distance(), **frames}


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)


def random_actions(task: Task, *leading: int, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return (2 * torch.rand(*leading, task.action_dim, generator=generator) - 1) * scale


@every_task
def test_gymnasium_accepts_the_environment(task):
    check_env(make(task, render_mode="rgb_array"), skip_render_check=True)


@every_task
def test_the_docstring_is_the_environments_page(task):
    page = task.env_class.__doc__
    for heading in ("Observation", "State", "Action", "Start", "Reward and success", "End", "Versions"):
        assert f"## {heading}\n" in page


@every_task
def test_the_same_seed_gives_the_same_pixels_and_another_seed_others(task):
    def episode(seed):
        env = make(task)
        observations = [env.reset(seed=seed)[0]]
        actions = random_actions(task, how_many(task, 5, if_slow=1))
        observations += [env.step(action.numpy())[0] for action in actions]
        return np.stack([[seen["pixels"], seen["goal"]] for seen in observations])

    once = episode(7)
    np.testing.assert_array_equal(once, episode(7))
    assert (once != episode(8)).any()


@every_task
def test_rows_given_at_reset_replace_the_drawn_ones(task):
    env = make(task)
    (start,), (goal,) = [[{n: v[0] for n, v in rows.items()}] for rows in sampled_rows(task, 1, seed=5)]
    env.reset(seed=0, options={"start": start, "goal": goal})
    for name in task.state_columns:
        np.testing.assert_array_equal(env.state()[name], start[name])
        np.testing.assert_array_equal(env.goal()[name], goal[name])
    with pytest.raises(InputError, match="Unknown reset option 'begin'; known: start, goal"):
        env.reset(options={"begin": start})


@every_task
def test_setting_then_reading_is_the_identity(task):
    starts, goals = sampled_rows(task, 4)
    envs = task.make_vector_env(4)
    envs.reset_to(starts, goals)
    for name in task.state_columns:
        assert torch.equal(envs.state()[name], starts[name])
        assert torch.equal(envs.goal()[name], goals[name])
    before = {name: values.clone() for name, values in starts.items()}
    envs.step(random_actions(task, 4))
    envs.state()[task.state_columns[0]].zero_()
    for name in task.state_columns:
        assert torch.equal(starts[name], before[name]), "stepping must not write into the rows it was given"
    assert bool(envs.state()[task.state_columns[0]].any()), "what is read is a copy"


@every_task
def test_rows_and_actions_may_be_arrays_that_nobody_may_write(task):
    starts, goals = ({n: v.numpy() for n, v in rows.items()} for rows in sampled_rows(task, 2))
    actions = random_actions(task, 2).numpy()
    for array in (*starts.values(), *goals.values(), actions):
        array.flags.writeable = False
    envs = task.make_vector_env(2)
    envs.reset_to(starts, goals)
    envs.step(actions)
    env = make(task)
    env.reset(
        seed=0, options={"start": {n: v[0] for n, v in starts.items()}, "goal": {n: v[0] for n, v in goals.items()}}
    )
    np.testing.assert_array_equal(env.step(actions[0])[0]["pixels"], envs.render()[0].numpy())


@every_task
def test_episodes_that_are_over_cost_no_physics_and_disturb_no_other(task):
    starts, goals = sampled_rows(task, 3)
    both, some = task.make_vector_env(3), task.make_vector_env(3)
    active = torch.tensor([True, False, True])
    for envs in (both, some):
        envs.reset_to(starts, goals)
    for action in random_actions(task, 2, 3):
        both.step(action)
        some.step(action, active)
    for name, values in both.state().items():
        assert torch.equal(some.state()[name][active], values[active])
        if issubclass(task.vector_env_class, SimulatedVectorEnv):
            assert torch.equal(some.state()[name][~active], starts[name][~active])


@every_task
def test_the_registered_facts_are_the_environments(task):
    assert task.action_dim == task.vector_env_class.action_dim
    assert make(task).episode.image_size == task.image_size
    assert task.make_vector_env(1).state()[task.state_columns[0]].dtype == task.vector_env_class.state_dtype


@pytest.mark.parametrize(
    "task", [task for task in TASKS if task.vector_env_class.restores_exactly], ids=lambda task: task.name
)
def test_a_state_read_in_mid_episode_continues_identically(task):
    starts, goals = sampled_rows(task, 3)
    first, second = task.make_vector_env(3), task.make_vector_env(3)
    actions = random_actions(task, 6, 3)
    first.reset_to(starts, goals)
    for action in actions[:3]:
        first.step(action)
    second.reset_to(first.state(), first.goal())
    for action in actions[3:]:
        first.step(action)
        second.step(action)
    assert torch.equal(first.render(), second.render())
    assert torch.equal(first.distance(), second.distance())


@every_task
def test_the_goal_image_is_the_image_at_the_goal(task):
    num_envs = how_many(task, 4, if_slow=2)
    starts, goals = sampled_rows(task, num_envs)
    envs = task.make_vector_env(num_envs)
    envs.reset_to(starts, goals)
    goal_images = envs.render_goal()
    assert not torch.equal(envs.render(), goal_images)
    envs.set_state(goals)
    assert torch.equal(envs.render(), goal_images)
    assert bool(envs.success().all())


@every_task
def test_success_is_a_distance_below_the_threshold(task):
    num_envs, num_steps = how_many(task, 64, if_slow=16), how_many(task, 30, if_slow=10)
    starts, goals = sampled_rows(task, num_envs)
    envs = task.make_vector_env(num_envs, image_size=8)
    envs.reset_to(starts, starts)
    seen = []
    for action in random_actions(task, num_steps, num_envs):
        assert torch.equal(envs.success(), envs.distance() < envs.success_distance)
        seen.append(envs.success())
        envs.step(action)
    assert bool(torch.stack(seen).any()), "starting at the goal, some must succeed"
    envs.set_goal(goals)
    assert torch.equal(envs.success(), envs.distance() < envs.success_distance)


@every_task
def test_one_environment_reports_what_the_batch_does(task):
    num_envs = how_many(task, 3, if_slow=2)
    starts, goals = sampled_rows(task, num_envs)
    envs, env = task.make_vector_env(num_envs), make(task)
    actions = random_actions(task, how_many(task, 4, if_slow=1), num_envs)
    envs.reset_to(starts, goals)
    seen_by_batch = []
    for action in actions:
        envs.step(action)
        seen_by_batch.append((envs.render(), envs.render_goal(), envs.columns(), envs.success(), envs.distance()))
    for member in range(num_envs):
        row, goal = ({n: v[member].numpy() for n, v in rows.items()} for rows in (starts, goals))
        env.reset(seed=0, options={"start": row, "goal": goal})
        for action, (frames, goal_frames, columns, success, distance) in zip(actions, seen_by_batch, strict=True):
            seen, reward, terminated, truncated, info = env.step(action[member].numpy())
            np.testing.assert_array_equal(seen["pixels"], frames[member].numpy())
            np.testing.assert_array_equal(seen["goal"], goal_frames[member].numpy())
            for name, values in columns.items():
                np.testing.assert_array_equal(info[name], values[member].numpy())
            assert (reward, truncated) == (0.0, False)
            assert terminated == info["success"] == env.success() == bool(success[member])
            assert env.distance() == distance[member].item()


@every_task
def test_regrouping_episodes_changes_nothing(task):
    num_envs = how_many(task, 9, if_slow=3)
    groups = [[1], [2, 0]] if task.drawing_is_slow else [[4], [8, 0], [3, 1, 7, 5, 2, 6]]
    starts, goals = sampled_rows(task, num_envs)
    actions = random_actions(task, 5, num_envs)

    def play(members):
        envs = task.make_vector_env(len(members))
        envs.reset_to(*({n: v[members] for n, v in rows.items()} for rows in (starts, goals)))
        for action in actions:
            envs.step(action[members])
        return envs.render(), envs.distance()

    frames, distances = play(list(range(num_envs)))
    for group in groups:
        regrouped_frames, regrouped_distances = play(group)
        assert torch.equal(regrouped_frames, frames[group])
        assert torch.equal(regrouped_distances, distances[group])


@every_task
def test_actions_out_of_range_are_clamped_where_the_task_says_so(task):
    starts, goals = sampled_rows(task, 16)
    actions = random_actions(task, 16, scale=3.0)
    wild, tame = task.make_vector_env(16), task.make_vector_env(16)
    for envs, taken in ((wild, actions), (tame, actions.clamp(-1, 1))):
        envs.reset_to(starts, goals)
        envs.step(taken)
    same = [torch.equal(wild.state()[name], tame.state()[name]) for name in task.state_columns]
    assert all(same) == wild.clamps_actions
    if wild.clamps_actions and not task.drawing_is_slow:
        assert torch.equal(wild.render(), tame.render())


@every_task
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_actions_that_are_no_numbers_are_refused_and_change_nothing(task, number):
    envs = task.make_vector_env(3)
    envs.reset_to(*sampled_rows(task, 3))
    before = everything_seen(task, envs)
    actions = random_actions(task, 3)
    actions[1, 0] = number
    with pytest.raises(InputError, match=rf"Actions must be finite numbers; episode 1 has \[{number}"):
        envs.step(actions)
    assert_same(everything_seen(task, envs), before)


@every_task
def test_actions_of_the_wrong_shape_are_refused(task):
    envs, env = task.make_vector_env(3), make(task)
    for shape in ((3, task.action_dim + 1), (2, task.action_dim), (task.action_dim,), (3, 1, task.action_dim)):
        with pytest.raises(InputError, match=rf"must have the shape \(3, {task.action_dim}\), got \("):
            envs.step(torch.zeros(shape))
    env.reset(seed=0)
    with pytest.raises(InputError, match=rf"must have the shape \({task.action_dim},\), got \(1, {task.action_dim}\)"):
        env.step(np.zeros((1, task.action_dim), np.float32))


@every_task
def test_rows_that_are_no_states_are_refused_and_change_nothing(task):
    envs = task.make_vector_env(2)
    starts, goals = sampled_rows(task, 2)
    envs.reset_to(starts, goals)
    before = everything_seen(task, envs)
    name = task.state_columns[0]
    with pytest.raises(InputError, match=f"The start lacks the column '{name}'; needed are .*, found other"):
        envs.reset_to({"other": starts[name]}, goals)
    with pytest.raises(InputError, match=f"Column '{name}' of the goal must have the shape"):
        envs.reset_to(goals, {**goals, name: goals[name][:1]})
    with pytest.raises(InputError, match=f"Column '{name}' of the state must have the shape"):
        envs.set_state({**starts, name: starts[name][:, :-1]})
    with pytest.raises(InputError, match=f"Column '{name}' of the state must be finite numbers; episode 0 has"):
        envs.set_state({**starts, name: torch.full_like(starts[name], torch.nan)})
    assert_same(everything_seen(task, envs), before)


@every_task
def test_smaller_images_show_the_same_states(task):
    rows = sampled_rows(task, 2)
    envs, small = task.make_vector_env(2), task.make_vector_env(2, image_size=56)
    for each in (envs, small):
        each.reset_to(*rows)
        each.step(random_actions(task, 2))
    assert small.render().shape == (2, 56, 56, 3)
    assert torch.equal(small.distance(), envs.distance())
    with pytest.raises(InputError, match=f"integer from 1 to {task.image_size}"):
        task.make_vector_env(2, image_size=task.image_size + 1)


@every_task
def test_collected_episodes_are_what_the_environment_does(task):
    """Replaying the recorded actions from the first row gives every recorded row and frame."""
    (episode,) = task.collect_episodes(3, [11], **({"max_steps": 6} if task.drawing_is_slow else {}))
    assert np.isnan(episode["action"][-1]).all()
    assert not np.isnan(episode["action"][:-1]).any()
    envs = task.make_vector_env(1)
    row = {name: torch.from_numpy(episode[name][:1]) for name in task.state_columns}
    envs.set_state(row)  # no goal, which might end a step early
    for step, action in enumerate(episode["action"]):
        np.testing.assert_array_equal(envs.render()[0].numpy(), episode["pixels"][step])
        for name in task.state_columns:
            np.testing.assert_array_equal(envs.state()[name][0].numpy(), episode[name][step])
        if step < len(episode["action"]) - 1:
            envs.step(torch.from_numpy(action)[None])
    np.testing.assert_array_equal(episode["step_idx"], np.arange(len(episode["action"])))


@every_task
def test_what_is_not_drawn_changes_nothing_else(task):
    for behaviour in task.behaviours:
        whole, thin, blind = (
            next(iter(task.collect_with(behaviour)(3, [11], max_steps=4, draw_every=every))) for every in (1, 2, 0)
        )
        np.testing.assert_array_equal(thin["pixels"], whole["pixels"][::2])
        assert "pixels" not in blind
        for name in whole.keys() - {"pixels"}:
            np.testing.assert_array_equal(thin[name], whole[name])
            np.testing.assert_array_equal(blind[name], whole[name])


def test_an_empty_batch_is_refused():
    for name in OUR_TASKS:
        with pytest.raises(InputError, match="needs at least one episode, got 0"):
            get_task(name).make_vector_env(0)
