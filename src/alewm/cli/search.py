"""What the flags of a search mean, for the commands that have all of them."""

from dataclasses import replace
from typing import Protocol, runtime_checkable

from alewm.planning.cem import CEMConfig
from alewm.planning.planner import PlanningConfig


@runtime_checkable
class SearchFlags(Protocol):
    """A command with these flags."""

    @property
    def candidates(self) -> int:
        """Plans per iteration."""

    @property
    def iterations(self) -> int:
        """Times the best are refitted."""

    @property
    def elites(self) -> int | None:
        """How many are the best; None is a tenth."""

    @property
    def horizon(self) -> int:
        """Blocks planned ahead."""

    @property
    def executed(self) -> int | None:
        """Blocks executed of a plan; None is all."""

    @property
    def seed(self) -> int:
        """Of the search's noise."""


def asked_planning(flags: SearchFlags) -> PlanningConfig:
    """The planner `flags` ask for; if not given, a tenth of candidates are elites and a plan is executed whole."""
    cem = CEMConfig.with_a_tenth_elite(flags.candidates, flags.iterations)
    if flags.elites is not None:
        cem = replace(cem, num_elites=flags.elites)
    executed = flags.horizon if flags.executed is None else flags.executed
    return PlanningConfig(cem=cem, horizon=flags.horizon, executed_blocks=executed, seed=flags.seed)
