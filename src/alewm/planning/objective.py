"""How far a predicted terminal latent is from the goal: one cost per candidate, lower is better."""

from typing import Literal

from alewm.precision import at_least_float32
from alewm.shapes import Float, Tensor

GoalCost = Literal["active", "full"]
"""`active`: the k coordinates of the planned prefix, as the paper's main table. `full`: all D, last one unmasked."""


def compared_width(goal_cost: GoalCost, capacity: int, latent_dim: int) -> int:
    """How many coordinates of the terminal latent are compared with the goal."""
    return capacity if goal_cost == "active" else latent_dim


def prefix_distance(
    z_terminal: Float[Tensor, "*batch S width"], z_goal: Float[Tensor, "*batch D"]
) -> Float[Tensor, "*batch S"]:
    """The mean square difference over the coordinates `z_terminal` has: the paper's ‖ẑ_H - M_k s_g‖² / k.

    In float32 at least, whatever the model's precision: costs of the last CEM iterations differ by little.
    """
    goal = z_goal[..., None, : z_terminal.shape[-1]]
    return (at_least_float32(z_terminal) - at_least_float32(goal)).square().mean(-1)
