"""What the flags of a search mean, for the commands that have all of them."""

from dataclasses import replace

from alewm.planning.cem import CEMConfig
from alewm.planning.planner import PlanningConfig


def asked_planning(
    *, candidates: int, iterations: int, elites: int | None, horizon: int, executed: int | None, seed: int
) -> PlanningConfig:
    """The planner these flags ask for; if not given, a tenth of candidates are elites and a plan is executed whole."""
    cem = CEMConfig.with_a_tenth_elite(candidates, iterations)
    if elites is not None:
        cem = replace(cem, num_elites=elites)
    return PlanningConfig(
        cem=cem, horizon=horizon, executed_blocks=horizon if executed is None else executed, seed=seed
    )
