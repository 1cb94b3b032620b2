"""What was asked of an experiment, and the runs that follow from it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from alewm.config import overridden
from alewm.errors import InputError, unknown_name
from alewm.sweeps.run import Run
from alewm.sweeps.scale import TINY_PRESET, Scale
from alewm.tables import scientific
from alewm.training.config import RunConfig
from alewm.training.presets import CAPACITIES, LEWM_WEIGHT, as_alewm_sigreg, as_lewm, as_nested_dropout, preset

TASK_TITLES = {"two-room": "TwoRoom", "push-t": "PushT", "reacher": "Reacher", "cube": "OGBench-Cube"}
"""Tasks as tables call them, in the paper's order."""

WEIGHT, MULTIPLIER, DEGREE = "objective.regularizer_weight", "training.optim.selector_multiplier", "model.prior_degree"
GRIDS = {WEIGHT: (0.09, 0.15, 0.2, 0.3), MULTIPLIER: (1.0, 2.0, 3.0), DEGREE: (-1.0, -0.5, 0.0, 1.0, 2.0, 3.0)}
"""The paper's grids of λ, s_q and α."""


@dataclass(frozen=True)
class Choice:
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
        """Whether only the path is tried, with few of everything."""
        return self.scale.name == "smoke"

    @property
    def is_for_cpu(self) -> bool:
        """Whether there is one task and one size of model."""
        return self.scale.is_for_cpu

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
        if self.is_for_cpu:
            return ("two-room",)
        return self._asked(offered, set(TASK_TITLES))

    def widths(self, *offered: int) -> tuple[int, ...]:
        """Those of the `offered` widths that were asked for; scales for a CPU have one."""
        if self.is_for_cpu:
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
        """`text` and what everybody must know about its numbers."""
        seeds = ", ".join(map(str, self.seeds))
        widths = ", ".join(map(str, self.lewm_widths))
        fewer = f" LeWM's best width is among {widths} and the full one." if widths else ""
        return f"{text} {self.scale.note}{fewer} Seed{'s' if len(self.seeds) > 1 else ''} {seeds}."

    def command(self, name: str) -> str:
        """What makes the experiment called `name` at this scale, from a shell."""
        steps = f" --short-steps {self.scale.num_steps}" if self.scale.name == "short" else ""
        rate = "" if self.scale.learning_rate is None else f" --short-rate {scientific(self.scale.learning_rate)}"
        return f"alewm-lab experiment {name} --scale {self.scale.name}{steps}{rate}"

    def support(self, width: int) -> tuple[int, ...]:
        """The capacities of a width, which are also the widths among which LeWM's is chosen."""
        if self.is_smoke:
            return (8, 32)
        return preset(TINY_PRESET).model.capacities if self.is_for_cpu else CAPACITIES[width]

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

    def alewm(self, task: str, width: int, seed: int, changes: Mapping[str, Any] | None = None) -> Run:
        """ALeWM with the paper's hyperparameters for this task and width, or with some of them changed."""
        name, config = self.scale.base(task, width)
        return _run(name, overridden(config, changes or {}), seed)

    def lewm(self, task: str, width: int, latent_dim: int, seed: int, weight: float = LEWM_WEIGHT) -> Run:
        """LeWM of `latent_dim` with the encoder of `width`."""
        name, config = self.scale.base(task, width)
        suffix = "lewm" if self.is_for_cpu else f"lewm-{latent_dim}"
        return _run(f"{name}-{suffix}", as_lewm(config, latent_dim, weight), seed)

    def alewm_sigreg(self, task: str, width: int, seed: int, changes: Mapping[str, Any] | None = None) -> Run:
        """The ablation with SIGReg on masked latents."""
        name, config = self.scale.base(task, width)
        return _run(self._named(name, "alewm-sigreg"), overridden(as_alewm_sigreg(config), changes or {}), seed)

    def nested_dropout(self, task: str, width: int, seed: int, changes: Mapping[str, Any] | None = None) -> Run:
        """The baseline that draws capacities from the fixed prior."""
        name, config = self.scale.base(task, width)
        return _run(self._named(name, "nested-dropout"), overridden(as_nested_dropout(config), changes or {}), seed)

    def _named(self, name: str, method: str) -> str:
        return name if self.is_for_cpu else f"{name}-{method}"

    def over_seeds(self, make: Callable[..., Run], *arguments: Any, **options: Any) -> tuple[Run, ...]:
        """One run per seed, as `make(*arguments, seed=seed, **options)` says."""
        return tuple(make(*arguments, seed=seed, **options) for seed in self.seeds)

    def both_methods(self, tasks: Iterable[str], width: int) -> dict[tuple[str, str], tuple[Run, ...]]:
        """ALeWM's and LeWM's runs of one width, by task and method."""
        groups = {}
        for task in self.tasks(*tasks):
            groups[task, "ALeWM"] = self.over_seeds(self.alewm, task, width)
            groups[task, "LeWM"] = self.over_seeds(self.lewm, task, width, width)
        return groups


def _run(name: str, config: RunConfig, seed: int) -> Run:
    return Run(name, replace(config, training=replace(config.training, seed=seed)))
