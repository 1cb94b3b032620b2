"""What was asked of an experiment: how much of everything, which seeds, tasks and widths, and the runs that follow.

The scales are the paper's budget, two shorter ones that say so, a laptop's, and one of seconds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from alewm.config import overridden
from alewm.errors import InputError, unknown_name
from alewm.evaluation.settings import EvaluationSettings, Split
from alewm.planning.planner import PlanningConfig
from alewm.planning.search import CEMConfig
from alewm.sweeps.grid import GRIDS
from alewm.sweeps.library import TrainingRun
from alewm.training.config import OptimConfig, RunConfig
from alewm.training.presets import (
    CAPACITIES,
    LEWM_WEIGHT,
    SEEDS,
    as_alewm_sigreg,
    as_lewm,
    as_nested_dropout,
    preset,
)
from alewm_lab.presentation import scientific

TINY_PRESET = "two-room-tiny"
"""ALeWM of the scales that need no GPU."""

TASK_TITLES = {"two-room": "Two-Room", "push-t": "Push-T", "reacher": "Reacher", "cube": "Cube"}
"""Tasks as tables call them, in the paper's order."""

ScaleName = Literal["smoke", "tiny", "short", "long", "paper"]

SHORT_STEPS = 10_000
"""Updates of a model at the short scale, unless asked otherwise."""

LONG_STEPS = 12_000
"""Updates of a model at the long scale: what one GPU trains in five minutes.

From so many on methods are worth ordering; shorter schedules order nothing (docs/dev/logbook.md).
"""


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
        return f"short-{self.num_steps}{rate}" if self.name == "short" else f"{self.name}{rate}"

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
        if self.name == "long":
            assert self.num_steps is not None
            peak = self.learning_rate or OptimConfig().learning_rate
            return (
                f"Scale long: {self.num_steps:,} updates per model with a learning rate of {scientific(peak)}. Updates "
                f"times learning rate is {self.num_steps * peak:.1f}; the paper's ten epochs have 2.8 (Two-Room), "
                f"7.6 (Push-T) and 6.9 (Reacher, Cube)."
            )
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
    """The scale called `name`; short takes `num_steps`, and both short and long take `learning_rate`."""
    if name == "paper":
        return Scale("paper", None, CEMConfig())
    if name == "short":
        return Scale("short", num_steps or SHORT_STEPS, CEMConfig(), learning_rate=learning_rate)
    if name == "long":
        return Scale("long", LONG_STEPS, CEMConfig(), learning_rate=learning_rate)
    if name == "tiny":
        steps = preset(TINY_PRESET).training.num_steps
        # The demonstration's episodes.
        own = OwnData(num_episodes=1000, seed=SEEDS[0])
        return Scale("tiny", steps, CEMConfig(num_iterations=10), num_pairs=100, own_data=own)
    cem = CEMConfig(num_candidates=20, num_iterations=2, num_elites=4)
    return Scale("smoke", 6, cem, seeds=SEEDS[:2], own_data=OwnData(num_episodes=20, seed=0))


@dataclass(frozen=True)
class Request:
    """A scale, seeds, and which tasks and widths; `--only` names tasks and widths, and whatever it omits is out."""

    scale: Scale
    seeds: tuple[int, ...]
    only: tuple[str, ...] = ()
    searches: bool = False
    """Search the paper's grids on validation pairs instead of taking the rows it selected."""
    lewm_widths: tuple[int, ...] = ()
    """Widths among which LeWM's best is chosen, besides the full one; all of the grid if empty."""

    @property
    def is_smoke(self) -> bool:
        """Whether this is the scale of seconds, which only tries the code."""
        return self.scale.name == "smoke"

    def refuse_tiny(self, reason: str) -> None:
        """Refuses the scale that has Two-Room alone; at the smoke scale, whose numbers mean nothing, it stands in."""
        if self.scale.name == "tiny":
            raise InputError(f"{reason}; the scale tiny has Two-Room alone.")

    @property
    def folder(self) -> str:
        """The scale and, where only a part was asked for, that part: another part does not replace its tables."""
        return "-".join([self.scale.folder, *self.only])

    def tasks(self, *offered: str) -> tuple[str, ...]:
        """Those of the `offered` tasks that were asked for; scales for a CPU have one."""
        if self.scale.is_for_cpu:
            return ("two-room",)
        return self._asked(offered, set(TASK_TITLES))

    def widths(self, *offered: int) -> tuple[int, ...]:
        """Those of the `offered` widths that were asked for; scales for a CPU have one."""
        if self.scale.is_for_cpu:
            return (preset(TINY_PRESET).model.latent_dim,)
        return tuple(int(width) for width in self._asked([str(width) for width in offered], set(map(str, CAPACITIES))))

    def _asked(self, offered: Sequence[str], kind: set[str]) -> tuple[str, ...]:
        asked = [name for name in self.only if name in kind]
        for name in asked:
            if name not in offered:
                raise unknown_name("part of this experiment", name, offered)
        for name in self.only:
            if name not in set(TASK_TITLES) | set(map(str, CAPACITIES)):
                raise unknown_name("task or width", name, [*TASK_TITLES, *map(str, CAPACITIES)])
        return tuple(name for name in offered if not asked or name in asked)

    def caption(self, text: str) -> str:
        """`text`, the scale and the seeds."""
        seeds = ", ".join(map(str, self.seeds))
        widths = ", ".join(map(str, self.lewm_widths))
        fewer = f" LeWM's best width is among {widths} and the full one." if widths else ""
        return f"{text} {self.scale.note}{fewer} Seed{'s' if len(self.seeds) > 1 else ''} {seeds}."

    def command(self, name: str) -> str:
        """The shell command of the experiment called `name` at this scale."""
        steps = f" --short-steps {self.scale.num_steps}" if self.scale.name == "short" else ""
        rate = "" if self.scale.learning_rate is None else f" --short-rate {scientific(self.scale.learning_rate)}"
        return f"alewm-lab experiment {name} --scale {self.scale.name}{steps}{rate}"

    def support(self, width: int) -> tuple[int, ...]:
        """The capacities of a width, which are also the widths among which LeWM's is chosen."""
        if self.is_smoke:
            return (8, 32)
        return preset(TINY_PRESET).model.capacities if self.scale.is_for_cpu else CAPACITIES[width]

    def widths_of_lewm(self, width: int) -> tuple[int, ...]:
        """The widths among which LeWM's best is chosen in the block of `width`, the full one always among them."""
        grid = self.support(width)
        for asked in self.lewm_widths:
            if asked not in grid:
                raise unknown_name(f"width of LeWM in the block of {width}", str(asked), list(map(str, grid)))
        return tuple(each for each in grid if not self.lewm_widths or each in (*self.lewm_widths, width))

    def variations(self, *fields: str) -> list[dict[str, Any]]:
        """All combinations of the grids of `fields`, as changes to a configuration; of no fields, the one of none.

        The smoke scale takes the ends of each grid.
        """
        grids = [(GRIDS[name][0], GRIDS[name][-1]) if self.is_smoke else GRIDS[name] for name in fields]
        return [dict(zip(fields, values, strict=True)) for values in product(*grids)]

    def alewm(self, task: str, width: int, seed: int, changes: Mapping[str, Any] | None = None) -> TrainingRun:
        """ALeWM with the paper's hyperparameters for this task and width, or with some of them changed."""
        name, config = self.scale.base(task, width)
        return _run(name, overridden(config, changes or {}), seed)

    def lewm(self, task: str, width: int, latent_dim: int, seed: int, weight: float = LEWM_WEIGHT) -> TrainingRun:
        """LeWM of `latent_dim` with the encoder of `width`."""
        name, config = self.scale.base(task, width)
        suffix = "lewm" if self.scale.is_for_cpu else f"lewm-{latent_dim}"
        return _run(f"{name}-{suffix}", as_lewm(config, latent_dim, weight), seed)

    def alewm_sigreg(self, task: str, width: int, seed: int, changes: Mapping[str, Any] | None = None) -> TrainingRun:
        """The ablation with SIGReg on masked latents."""
        name, config = self.scale.base(task, width)
        return _run(self._named(name, "alewm-sigreg"), overridden(as_alewm_sigreg(config), changes or {}), seed)

    def nested_dropout(self, task: str, width: int, seed: int, changes: Mapping[str, Any] | None = None) -> TrainingRun:
        """The baseline that draws capacities from the fixed prior."""
        name, config = self.scale.base(task, width)
        return _run(self._named(name, "nested-dropout"), overridden(as_nested_dropout(config), changes or {}), seed)

    def _named(self, name: str, method: str) -> str:
        return name if self.scale.is_for_cpu else f"{name}-{method}"

    def over_seeds(self, make: Callable[..., TrainingRun], *arguments: Any, **options: Any) -> tuple[TrainingRun, ...]:
        """One run per seed, as `make(*arguments, seed=seed, **options)` says."""
        return tuple(make(*arguments, seed=seed, **options) for seed in self.seeds)

    def alewm_by_task(self, tasks: Iterable[str], width: int) -> dict[str, tuple[TrainingRun, ...]]:
        """ALeWM's runs of one width, as the paper selected it."""
        return {task: self.over_seeds(self.alewm, task, width) for task in self.tasks(*tasks)}

    def both_methods(self, tasks: Iterable[str], width: int) -> dict[tuple[str, str], tuple[TrainingRun, ...]]:
        """ALeWM's and LeWM's runs of one width, by task and method."""
        groups = {}
        for task in self.tasks(*tasks):
            groups[task, "ALeWM"] = self.over_seeds(self.alewm, task, width)
            groups[task, "LeWM"] = self.over_seeds(self.lewm, task, width, width)
        return groups


def _run(name: str, config: RunConfig, seed: int) -> TrainingRun:
    return TrainingRun(name, replace(config, training=replace(config.training, seed=seed)))
