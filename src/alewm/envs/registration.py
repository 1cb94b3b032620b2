"""The tasks by name, and their Gymnasium ids.

Adding a `Task` here adds its contract tests (`tests/envs/test_env_contract.py`), its Gymnasium id and its name on the
command line. Simulators are imported when a task is used, not when its name is listed: their packages are optional.
Other packages enter theirs (`alewm.envs.entered`); a name of ours stays ours.
"""

import gymnasium

from alewm.envs.entered import entered_tasks, load_entered
from alewm.envs.push_t import WHERE_DEMONSTRATIONS_ARE
from alewm.envs.task import Task
from alewm.envs.visible import Visible, all_of
from alewm.errors import unknown_name

_TASKS = {
    task.name: task
    for task in (
        Task(
            name="two-room",
            env_id="alewm/TwoRoom-v1",
            env_home="alewm.envs.two_room.env:TwoRoomEnv",
            vector_env_home="alewm.envs.two_room.env:TwoRoomVectorEnv",
            behaviours={"noisy-heuristic": "alewm.envs.two_room.behaviour:collect_episodes"},
            statistics_home="alewm.envs.two_room.statistics:TwoRoomStatistics",
            action_dim=2,
            image_size=224,
            max_episode_steps=100,
            visible=all_of("proprio", range(2)),
        ),
        Task(
            name="cube",
            env_id="alewm/Cube-v1",
            env_home="alewm.envs.cube.env:CubeEnv",
            vector_env_home="alewm.envs.cube.env:CubeVectorEnv",
            behaviours={
                "one-goal": "alewm.envs.cube.behaviour:collect_one_goal",
                "new-goals": "alewm.envs.cube.behaviour:collect_new_goals",
            },
            statistics_home="alewm.envs.cube.statistics:CubeStatistics",
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
            drawing_is_slow=True,
        ),
        Task(
            name="push-t",
            env_id="alewm/PushT-v1",
            env_home="alewm.envs.push_t.env:PushTEnv",
            vector_env_home="alewm.envs.push_t.env:PushTVectorEnv",
            behaviours={
                "expert": "alewm.envs.push_t.behaviour:collect_episodes",
                "expert-101": "alewm.envs.push_t.behaviour:collect_episodes_of_101_replays",
                "weak": "alewm.envs.push_t.weak:collect_episodes",
            },
            statistics_home="alewm.envs.push_t.statistics:PushTStatistics",
            demonstrations_home="alewm.envs.push_t.copies:copies_of_file",
            where_demonstrations=WHERE_DEMONSTRATIONS_ARE,
            demonstrations_note=(
                "Copies of the human demonstrations with noise of our choice: near the published file, not equal to it."
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
            env_home="alewm.envs.reacher.env:ReacherEnv",
            vector_env_home="alewm.envs.reacher.env:ReacherVectorEnv",
            behaviours={"uniform-random": "alewm.envs.reacher.behaviour:collect_episodes"},
            statistics_home="alewm.envs.reacher.statistics:ReacherStatistics",
            action_dim=2,
            image_size=224,
            max_episode_steps=200,
            visible=all_of("qpos", range(2), alike_per_turn=1),
            extra="mujoco",
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
