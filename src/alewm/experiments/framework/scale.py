"""How much of everything: the paper's budget, a shorter one that says so, or seconds."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from alewm.evaluation.settings import EvaluationSettings, Split
from alewm.experiments.presets import SEEDS, preset
from alewm.planning.cem import CEMConfig
from alewm.planning.planner import PlanningConfig
from alewm.presentation.numbers import scientific
from alewm.training.config import RunConfig

ScaleName = Literal["smoke", "short", "paper"]

SHORT_STEPS = 10_000
"""Updates of a model at the short scale, unless asked otherwise."""


@dataclass(frozen=True)
class Scale:
    """A budget that all runs of an experiment share; two scales never meet in one table."""

    name: ScaleName
    num_steps: int | None
    """Updates of every model; None for the preset's ten passes over the data."""
    cem: CEMConfig
    """The search."""
    seeds: tuple[int, ...] = SEEDS
    """Model seeds, unless asked otherwise."""
    learning_rate: float | None = None
    """Peak learning rate of every model; None for the preset's."""

    @property
    def folder(self) -> str:
        """What the results of this scale are called."""
        rate = "" if self.learning_rate is None else f"-{scientific(self.learning_rate)}"
        return f"short-{self.num_steps}{rate}" if self.name == "short" else self.name

    @property
    def note(self) -> str:
        """What every caption says about it."""
        if self.name == "smoke":
            return (
                f"Scale smoke: {self.num_steps} updates of a tiny model on a few episodes of small images; these "
                f"numbers mean nothing."
            )
        if self.name == "short":
            rate = "" if self.learning_rate is None else f" with a learning rate of {scientific(self.learning_rate)}"
            return f"Scale short: {self.num_steps:,} updates per model{rate} where the paper has ten epochs."
        return "Scale paper: ten epochs."

    @property
    def num_animations(self) -> int:
        """Episodes to film in an evaluation that is shown; drawing them takes longer than a smoke run."""
        return 0 if self.name == "smoke" else 4

    def base(self, task: str, width: int) -> tuple[str, RunConfig]:
        """The preset of ALeWM for a task and a width, at this budget."""
        name = "two-room-tiny" if self.name == "smoke" else f"{task}-{width}"
        config = preset(name)
        training = replace(config.training, num_steps=self.num_steps)
        if self.learning_rate is not None:
            training = replace(training, optim=replace(training.optim, learning_rate=self.learning_rate))
        if self.name == "smoke":
            training = replace(training, batch_size=16, log_every=1, diagnose_every=self.num_steps or 1)
        return name, replace(config, training=training)

    def evaluation(self, split: Split = "test", **planning: Any) -> EvaluationSettings:
        """How models are evaluated: all pairs of `split` with this scale's search."""
        return EvaluationSettings(split=split, planning=PlanningConfig(cem=self.cem, **planning))


def make_scale(name: ScaleName, num_steps: int | None = None, learning_rate: float | None = None) -> Scale:
    """The scale called `name`; `num_steps` and `learning_rate` replace those of the short one."""
    if name == "paper":
        return Scale("paper", None, CEMConfig())
    if name == "short":
        return Scale("short", num_steps or SHORT_STEPS, CEMConfig(), learning_rate=learning_rate)
    return Scale("smoke", 6, CEMConfig(num_candidates=20, num_iterations=2, num_elites=4), seeds=SEEDS[:2])
