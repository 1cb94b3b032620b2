"""The tasks by name, and their Gymnasium ids.

Adding a `Task` here adds its contract tests (`tests/envs/test_env_contract.py`), its Gymnasium id and its name on the
command line. Simulators are imported when a task is used, not when its name is listed: their packages are optional.
Other packages register tasks by an entry point in the group `alewm.tasks`; our names take precedence.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

import gymnasium

from alewm.envs.push_t import WHERE_DEMONSTRATIONS_ARE
from alewm.envs.task import Task, Visible, all_of
from alewm.errors import InputError, unknown_name

GROUP = "alewm.tasks"


@cache
def entered_tasks() -> dict[str, EntryPoint]:
    """Names to where their `Task` is; nothing of it is imported yet."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def load_entered(name: str) -> Task:
    """The task that was entered under `name`; anything else found there is refused, saying who entered it."""
    entry = entered_tasks()[name]
    origin = f"entered as {entry.value!r} by {entry.dist.name if entry.dist else 'an unnamed package'}"
    try:
        task = entry.load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"The task {name!r}, {origin}, cannot be loaded: {error}") from error
    if not isinstance(task, Task) or task.name != name:
        raise InputError(f"The task {name!r}, {origin}, must be a Task of that name, found {task!r}.")
    return task


_TASKS = {
    task.name: task
    for task in (
        Task(
            name="two-room",
            env_id="alewm/TwoRoom-v1",
            env_home="alewm.envs.two_room:TwoRoomEnv",
            vector_env_home="alewm.envs.two_room:TwoRoomVectorEnv",
            behaviours={"noisy-heuristic": "alewm.envs.two_room_behaviour:collect_episodes"},
            action_dim=2,
            image_size=224,
            max_episode_steps=100,
            visible=all_of("proprio", range(2)),
        ),
        Task(
            name="cube",
            env_id="alewm/Cube-v1",
            env_home="alewm.envs.cube:CubeEnv",
            vector_env_home="alewm.envs.cube:CubeVectorEnv",
            behaviours={
                "one-goal": "alewm.envs.cube:collect_one_goal",
                "new-goals": "alewm.envs.cube:collect_new_goals",
            },
            action_dim=5,
            image_size=224,
            max_episode_steps=200,
            visible=(
                # The arm up to the wrist, the hand's turn, the first of eight joints that open together, the cube.
                *all_of("qpos", range(4)),
                Visible("proprio_effector_yaw", alike_per_turn=2),
                Visible("qpos", 6),
                *all_of("qpos", range(14, 17)),
                Visible("privileged_block_0_yaw", alike_per_turn=4),
            ),
            extra="mujoco",
            has_renderers=True,
            drawing_is_slow=True,
        ),
        Task(
            name="push-t",
            env_id="alewm/PushT-v1",
            env_home="alewm.envs.push_t.env:PushTEnv",
            vector_env_home="alewm.envs.push_t.env:PushTVectorEnv",
            behaviours={"expert": "alewm.envs.push_t.behaviour:collect_episodes"},
            demonstrations_home="alewm.envs.push_t.demonstrations:copies_of_file",
            where_demonstrations=WHERE_DEMONSTRATIONS_ARE,
            demonstrations_note=(
                "Copies of the human demonstrations with noise of our choice: near the published file, not equal. "
                "Pairs of few demonstrations (20 of the full file) limit every interval."
            ),
            data_note=(
                "Data of our own expert, not the published demonstrations: not comparable with published figures."
            ),
            action_dim=2,
            image_size=224,
            max_episode_steps=200,
            visible=(*all_of("state", range(4)), Visible("state", 4, alike_per_turn=1)),
            extra="push-t",
        ),
        Task(
            name="reacher",
            env_id="alewm/Reacher-v1",
            env_home="alewm.envs.reacher:ReacherEnv",
            vector_env_home="alewm.envs.reacher:ReacherVectorEnv",
            behaviours={"uniform-random": "alewm.envs.reacher:collect_episodes"},
            action_dim=2,
            image_size=224,
            max_episode_steps=200,
            visible=all_of("qpos", range(2), alike_per_turn=1),
            extra="mujoco",
            has_renderers=True,
            drawing_is_slow=True,
        ),
    )
}


OUR_TASKS = tuple(sorted(_TASKS))
"""The names of the tasks that come with this package."""


def task_names() -> tuple[str, ...]:
    """The names of all tasks, also of other packages, sorted."""
    return tuple(sorted({*_TASKS, *entered_tasks()}))


def get_task(name: str) -> Task:
    """The task called `name`; an unknown name is refused, proposing the nearest."""
    if name in _TASKS:
        return _TASKS[name]
    if name in entered_tasks():
        return load_entered(name)
    raise unknown_name("task", name, task_names())


def register_envs() -> None:
    """Make every task of ours available to `gymnasium.make`; repeating it changes nothing."""
    for task in _TASKS.values():
        if task.env_id is not None and task.env_id not in gymnasium.registry:
            # By name rather than by class: the specification can be printed and saved, and nothing is imported yet.
            gymnasium.register(task.env_id, entry_point=task.env_home, max_episode_steps=task.max_episode_steps)


register_envs()
