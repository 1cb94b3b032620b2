"""How far a simulated state is from a goal state, for a planner that sees the state itself.

It is the environment's own `distance`, the number whose limit is success: Two-Room's pixels to the target; the larger
ratio of an error to its tolerance for Push-T (pusher and block together, block angle) and for Reacher (each joint).
Cube's distance is that of the cube alone, which no plan changes before the gripper touches it; there, as in a picture
of the goal, the arm counts too.
"""

from collections.abc import Callable
from functools import cache

from alewm.envs.contract import VectorGoalEnv
from alewm.envs.registration import get_task
from alewm.shapes import Float, Tensor

StateCost = Callable[[VectorGoalEnv], Tensor]
"""A batch of worlds with goals to a cost per world [B], lower is better."""

EFFECTOR_SHARE = 0.25
"""What a metre between the effector and where it is in the goal row costs, relative to a metre of the cube."""


def state_cost(task_name: str) -> StateCost:
    """The cost a planner in the true simulator of `task_name` minimises."""
    return _cube_and_effector if task_name == "cube" else _own_distance


def _own_distance(worlds: VectorGoalEnv) -> Float[Tensor, "B"]:
    return worlds.distance()


def _cube_and_effector(worlds: VectorGoalEnv) -> Float[Tensor, "B"]:
    """Metres of the cube from its goal, and a share of the effector's from where it is in the goal row."""
    goal = _goals("cube")
    goal.set_state({name: values[:1] for name, values in worlds.goal().items()})
    apart = worlds.columns()["proprio_effector_pos"] - goal.columns()["proprio_effector_pos"]
    return worlds.distance() + EFFECTOR_SHARE * apart.square().sum(-1).sqrt()


@cache
def _goals(task_name: str) -> VectorGoalEnv:
    """A world to load a goal into, one per process."""
    return get_task(task_name).make_vector_env(1)
