"""How much of everything: the paper's budget, a shorter one that says so, a laptop's, or seconds."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from alewm.evaluation.settings import EvaluationSettings, Split
from alewm.planning.cem import CEMConfig
from alewm.planning.planner import PlanningConfig
from alewm.tables import scientific
from alewm.training.config import RunConfig
from alewm.training.presets import SEEDS, preset

ScaleName = Literal["smoke", "tiny", "short", "paper"]

TINY_PRESET = "two-room-tiny"
"""ALeWM of the scales that need no GPU; their other models are made from it."""

SHORT_STEPS = 10_000
"""Updates of a model at the short scale, unless asked otherwise."""


@dataclass(frozen=True)
class OwnData:
    """Episodes that an experiment records itself, in seconds: Two-Room, as small as the tiny models look at it."""

    num_episodes: int
    seed: int


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
    num_pairs: int | None = None
    """Test pairs, the first ones; None for all that are stored."""
    own_data: OwnData | None = None
    """What tiny models learn from; None where models and data are the paper's."""

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
        if self.name == "tiny":
            assert self.own_data is not None
            return (
                f"Scale tiny: {self.num_steps:,} updates of models small enough for a CPU on "
                f"{self.own_data.num_episodes:,} episodes of Two-Room in small images; the first {self.num_pairs} test "
                f"pairs, a search of {self.cem.num_iterations} iterations."
            )
        if self.name == "short":
            rate = "" if self.learning_rate is None else f" with a learning rate of {scientific(self.learning_rate)}"
            return f"Scale short: {self.num_steps:,} updates per model{rate} where the paper has ten epochs."
        return "Scale paper: ten epochs."

    @property
    def num_animations(self) -> int:
        """Episodes to film in an evaluation that is shown; drawing them takes longer than a smoke run."""
        return 0 if self.is_for_cpu else 4

    @property
    def is_for_cpu(self) -> bool:
        """Whether there is one task and one size of model, a CPU's, and data that it records itself."""
        return self.own_data is not None

    def base(self, task: str, width: int) -> tuple[str, RunConfig]:
        """The preset of ALeWM for a task and a width, at this budget."""
        name = TINY_PRESET if self.is_for_cpu else f"{task}-{width}"
        config = preset(name)
        training = replace(config.training, num_steps=self.num_steps)
        if self.learning_rate is not None:
            training = replace(training, optim=replace(training.optim, learning_rate=self.learning_rate))
        if self.name == "smoke":
            training = replace(training, batch_size=16, log_every=1, diagnose_every=self.num_steps or 1)
        return name, replace(config, training=training)

    def evaluation(self, split: Split = "test", **planning: Any) -> EvaluationSettings:
        """How models are evaluated: the pairs of `split` with this scale's search."""
        num_pairs = self.num_pairs if split == "test" else None
        return EvaluationSettings(
            split=split, num_episodes=num_pairs, planning=PlanningConfig(cem=self.cem, **planning)
        )


def make_scale(name: ScaleName, num_steps: int | None = None, learning_rate: float | None = None) -> Scale:
    """The scale called `name`; `num_steps` and `learning_rate` replace those of the short one."""
    if name == "paper":
        return Scale("paper", None, CEMConfig())
    if name == "short":
        return Scale("short", num_steps or SHORT_STEPS, CEMConfig(), learning_rate=learning_rate)
    if name == "tiny":
        steps = preset(TINY_PRESET).training.num_steps
        # The demonstration's episodes.
        own = OwnData(num_episodes=1000, seed=SEEDS[0])
        return Scale("tiny", steps, CEMConfig(num_iterations=10), num_pairs=100, own_data=own)
    cem = CEMConfig(num_candidates=20, num_iterations=2, num_elites=4)
    return Scale("smoke", 6, cem, seeds=SEEDS[:2], own_data=OwnData(num_episodes=20, seed=0))
