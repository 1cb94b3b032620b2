import subprocess
import sys

import gymnasium
import pytest

from alewm.envs.registry import OUR_TASKS, get_task, register_envs
from alewm.envs.task import Task
from alewm.errors import InputError
from alewm_lab.publishing.environment_pages import page, picture


def test_an_unknown_task_proposes_the_nearest():
    with pytest.raises(InputError, match=r"Unknown task 'tworoom'\. Did you mean 'two-room'\?"):
        get_task("tworoom")


def test_two_room_is_described_as_the_data_files_need_it():
    task = get_task("two-room")
    assert (task.name, task.env_id) == ("two-room", "alewm/TwoRoom-v1")
    assert (task.action_dim, task.image_size, task.state_columns) == (2, 224, ("proprio",))


def test_reacher_is_described_as_the_data_files_need_it():
    task = get_task("reacher")
    assert (task.name, task.env_id, task.extra) == ("reacher", "alewm/Reacher-v1", "mujoco")
    assert (task.action_dim, task.image_size, task.state_columns) == (2, 224, ("qpos", "qvel"))


def test_cube_is_described_as_the_data_files_need_it():
    task = get_task("cube")
    assert (task.name, task.env_id, task.extra) == ("cube", "alewm/Cube-v1", "mujoco")
    assert (task.action_dim, task.image_size, task.state_columns) == (5, 224, ("qpos", "qvel"))
    assert tuple(task.behaviours) == ("one-goal", "new-goals")
    assert task.default_behaviour == "one-goal"


def test_an_unknown_behaviour_proposes_the_nearest():
    with pytest.raises(InputError, match=r"Unknown behaviour of reacher 'uniform'\. .*Known: uniform-random\."):
        get_task("reacher").episode_source(behaviour="uniform")


@pytest.mark.parametrize("name", OUR_TASKS)
def test_every_behaviour_can_be_loaded(name):
    task = get_task(name)
    for behaviour in task.behaviours:
        assert callable(task.collect_with(behaviour))


def test_a_task_that_neither_records_nor_speaks_gymnasium_says_so():
    task = Task("mine", vector_env_home="alewm.envs.two_room:TwoRoomVectorEnv", action_dim=2, image_size=224)
    assert task.make_vector_env(2).num_envs == 2
    with pytest.raises(InputError, match="'mine' comes without anything that records data"):
        task.episode_source()
    with pytest.raises(InputError, match="'mine' has no Gymnasium environment"):
        page(task)
    with pytest.raises(InputError, match="'mine' has no Gymnasium environment"):
        picture(task)


def test_the_registered_environment_is_cut_after_a_hundred_steps():
    env = gymnasium.make("alewm/TwoRoom-v1")
    env.reset(seed=0)
    still = env.action_space.sample() * 0
    assert [env.step(still)[3] for _ in range(100)] == [False] * 99 + [True]


def test_registering_twice_changes_nothing_and_the_specification_can_be_saved():
    before = gymnasium.spec("alewm/TwoRoom-v1").to_json()
    register_envs()
    assert gymnasium.spec("alewm/TwoRoom-v1").to_json() == before


def test_gymnasium_finds_the_environment_through_its_module():
    code = "import gymnasium; print(gymnasium.make('alewm.envs.registry:alewm/TwoRoom-v1').spec.id)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "alewm/TwoRoom-v1"


@pytest.mark.parametrize(
    ("task", "package"), [("push-t", "pymunk"), ("push-t", "cv2"), ("reacher", "mujoco"), ("cube", "ogbench")]
)
def test_without_its_extra_a_task_is_listed_and_says_what_to_install(task, package):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from alewm.envs.registry import get_task, task_names\n"
        "from alewm.errors import InputError\n"
        f"assert {task!r} in task_names()\n"
        "try:\n"
        f"    get_task({task!r}).make_vector_env(1)\n"
        "except InputError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    extra = get_task(task).extra
    assert f"The task {task!r} needs the package {package!r}, which is not installed" in done.stdout
    assert f"pip install '.[{extra}]' in a clone" in done.stdout
