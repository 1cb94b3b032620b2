"""Published runs in order: those of one scale beside each other, seeds of one configuration together."""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from alewm.capacity.support import CapacitySupport, polynomial_prior
from alewm.data.splits import held_out_counts
from alewm.data.windows import WindowShape
from alewm.envs.collect_task import DEFAULT_EPISODES
from alewm.errors import InputError
from alewm.evaluation.statistics import Spread
from alewm.files import natural_order
from alewm.report.gather import Run, flatten
from alewm.sweeps.library import OBSERVED
from alewm_lab.experiments.capacity_dynamics import Dynamics, starting_at
from alewm_lab.experiments.request import TASK_TITLES
from alewm_lab.presentation import scientific
from alewm_lab.publishing.publication import STAMP, SUFFIX, Part, PublishedPart, read_group

BOOKKEEPING = frozenset(f"training.{name}" for name in ("seed", "deterministic", *OBSERVED))
"""Fields that do not tell one configuration from another; `deterministic` decides in which order sums are added."""

_ROWS_WITHOUT_A_START = WindowShape().span - 1
"""The last rows of an episode, where no training window starts."""

_TELLING = (
    *("task", "model.latent_dim", "model.prior_degree", "model.has_selector", "model.encoder.hidden_dim"),
    *("objective.method", "objective.regularizer_weight"),
    *("training.seed", "training.batch_size", "training.optim.learning_rate", "training.optim.selector_multiplier"),
    *("data.fingerprint", "data.episodes", "data.frames"),
)
"""Fields of a configuration without which a run has no place in a table."""


@dataclass(frozen=True)
class PublishedRun:
    """What `alewm-lab publish` kept of a run."""

    run: Run
    evaluations: dict[str, dict[str, Any]]
    """Results by the name of their settings; the default ones have the empty name."""
    measurements: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What experiments measured on the model, by their names."""
    episodes: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Evaluated pairs by the name of their settings."""
    latent: Sequence[dict[str, Any]] = ()
    """A row per coordinate: its variance under the mask at the end of training, the prior's survival there and, but for
    older records, its variance without a mask."""

    @property
    def config(self) -> dict[str, Any]:
        """What was asked."""
        return self.run.config

    @property
    def place(self) -> str:
        """The file and the name it is published under, for messages."""
        return f"{self.run.folder}, {self.run.name}"

    @property
    def seed(self) -> int:
        """Of first weights, shuffling and noise."""
        return int(self.config["training"]["seed"])

    @property
    def steps(self) -> int:
        """Updates it made."""
        return int(self.run.result["training"]["step"])

    @property
    def commands(self) -> list[str]:
        """What to type, in order, to have its numbers again."""
        results = [
            each[name] for each in (self.evaluations, self.measurements) for name in sorted(each, key=natural_order)
        ]
        made = [self.run.provenance, *(result.get("made_with", {}) for result in results)]
        commands = [self._collecting, *(each.get("command") for each in made)]
        return list(dict.fromkeys(command for command in commands if command))

    @property
    def copies_demonstrations(self) -> bool:
        """Whether its data are copies of human demonstrations."""
        return " --demonstrations " in (self.run.provenance.get("data", {}).get("made_with") or "")

    @property
    def other_data(self) -> str:
        """What its data are, in words, where they are not made as the paper's; else empty."""
        if self.config["task"] == "push-t":
            return "" if self.copies_demonstrations else "our expert"
        episodes = self.config["data"]["episodes"]
        return "" if episodes == DEFAULT_EPISODES else f"{episodes:,} episodes"

    @property
    def task_title(self) -> str:
        """Its task and data."""
        data = "human demonstrations" if self.copies_demonstrations else self.other_data
        return ", ".join([TASK_TITLES[self.config["task"]], *([data] if data else [])])

    @property
    def _collecting(self) -> str | None:
        """How its data are recorded, to where its training command looks for them; None if nobody knows."""
        command: str | None = self.run.provenance.get("data", {}).get("made_with")
        trained = shlex.split(self.run.provenance.get("command", ""))
        if command is None or "--data" not in trained:
            return command
        collect = shlex.split(command)
        collect[collect.index("--out") + 1] = trained[trained.index("--data") + 1]
        return shlex.join(collect)

    @property
    def epochs(self) -> float:
        """Times it met each training window, on average; estimated where the run did not note how many there are.

        Then episodes are taken to be longer than a window, and held-out ones as long as others.
        """
        data = self.config["data"]
        windows = self.run.provenance.get("data", {}).get("training_windows")
        if windows is None:
            held_out = sum(held_out_counts(data["episodes"])) / data["episodes"]
            windows = (data["frames"] - _ROWS_WITHOUT_A_START * data["episodes"]) * (1 - held_out)
        return self.steps * int(self.config["training"]["batch_size"]) / float(windows)

    @property
    def started(self) -> str:
        """When its training began."""
        return str(self.run.provenance.get("started", ""))

    @property
    def learning_rate(self) -> float:
        """Its largest."""
        return float(self.config["training"]["optim"]["learning_rate"])

    @property
    def scale(self) -> tuple[Any, ...]:
        """What runs must have in common to stand in one table."""
        model, data = self.config["model"], self.config["data"]
        encoder = tuple(sorted(model["encoder"].items()))
        task = list(TASK_TITLES).index(self.config["task"])
        schedule = -self.steps, self.config["training"]["batch_size"], -self.learning_rate
        return task, *schedule, data["fingerprint"], encoder

    @property
    def learns_q(self) -> bool:
        """Whether q moved while it trained."""
        return bool(self.config["model"]["has_selector"]) and not self.config["objective"].get("freezes_selector")

    def dynamics(self) -> Dynamics:
        """Mean q of each capacity over updates; at update 0 it is the prior."""
        model = self.config["model"]
        support = CapacitySupport(tuple(model["capacities"]))
        prior = polynomial_prior(len(support), model["prior_degree"]).tolist()
        logged = self.run.capacity_dynamics().get("", {})
        steps = [logged[k][0] if k in logged else [] for k in model["capacities"]]
        if not steps[0] or any(each != steps[0] for each in steps):
            raise InputError(f"{self.place}: metrics lack q of some capacities. Publish the run again.")
        return starting_at(prior, {k: logged[k] for k in model["capacities"]})

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The fields of its configuration that tell it from others of its scale."""
        return {name: value for name, value in flatten(self.config) if name not in BOOKKEEPING}


def seeds_of(runs: Iterable[PublishedRun]) -> str:
    """The seeds of `runs`, as tables list them."""
    return ", ".join(str(run.seed) for run in runs)


@dataclass(frozen=True)
class Configuration:
    """Runs that differ in their seed only, in its order.

    Of a seed that was trained several times, the run that started first is in `runs`, whatever it reached, so that
    tables over seeds count every seed once. The others are `repeats`: what one seed trained again differs by. With
    settings that the first was not evaluated with, the first that was counts.
    """

    runs: tuple[PublishedRun, ...]
    repeats: tuple[PublishedRun, ...] = ()

    @property
    def repeated(self) -> list[tuple[PublishedRun, ...]]:
        """All trainings of each seed that was trained several times, the first one first."""
        groups = [(run, *(other for other in self.repeats if other.seed == run.seed)) for run in self.runs]
        return [group for group in groups if len(group) > 1]

    @property
    def config(self) -> dict[str, Any]:
        """That of its first seed."""
        return self.runs[0].config

    @property
    def seeds(self) -> str:
        """Those of its runs."""
        return seeds_of(self.runs)

    def evaluated(self, settings: str = "") -> list[dict[str, Any]]:
        """The results of its runs with the settings of this name."""
        return [run.evaluations[settings] for run in self.runs_with(settings)]

    def runs_with(self, *settings: str) -> list[PublishedRun]:
        """Of each seed the first training that was evaluated with all of these settings."""
        found: dict[int, PublishedRun] = {}
        for run in (*self.runs, *self.repeats):
            if all(name in run.evaluations for name in settings):
                found.setdefault(run.seed, run)
        return [found[seed] for seed in sorted(found)]

    def spread(self, name: str, settings: str = "") -> Spread:
        """Mean and SEM over seeds of one number."""
        return Spread.of([float(result[name]) for result in self.evaluated(settings)])


@dataclass(frozen=True)
class RunGroup:
    """Configurations that were trained on the same data with the same schedule and encoder."""

    configurations: tuple[Configuration, ...]

    @property
    def example(self) -> PublishedRun:
        return self.configurations[0].runs[0]

    @property
    def runs(self) -> list[PublishedRun]:
        """All of its runs, repeats too."""
        return [run for each in self.configurations for run in (*each.runs, *each.repeats)]

    def only(self, has: Callable[[PublishedRun], bool]) -> list[Configuration]:
        """The configurations of which some runs have it, with these runs alone."""
        kept = (tuple(run for run in each.runs if has(run)) for each in self.configurations)
        return [Configuration(runs) for runs in kept if runs]

    @property
    def slug(self) -> str:
        """A short name, the same as long as the scale is."""
        example = self.example
        width, fingerprint = example.config["model"]["encoder"]["hidden_dim"], example.config["data"]["fingerprint"]
        return f"{example.config['task']}-{width}-{example.steps}-{scientific(example.learning_rate)}-{fingerprint[:6]}"


@dataclass(frozen=True)
class PublishedStudy:
    """What `alewm-lab publish` kept of an oscillator study."""

    name: str
    path: Path
    """The publication it is in."""
    provenance: dict[str, Any]
    markdown: str
    """Its table."""


@dataclass(frozen=True)
class PublishedResults:
    """Everything below a folder of results."""

    scales: list[RunGroup]
    """Its runs, the longest schedules of each task first."""
    studies: list[PublishedStudy]
    """Its oscillator studies by name."""


def read_results(results: Path) -> PublishedResults:
    """What the publications below `results` hold, whatever their groups are called."""
    if not results.is_dir():
        raise InputError(
            f"{results} is no folder; name the one that `alewm-lab publish --out results/NAME` writes below."
        )
    runs, studies = [], []
    for folder in sorted({path.parent for path in results.rglob(f"*{SUFFIX}")}):
        by_run: dict[str, dict[Part, PublishedPart]] = {}
        for part, published in read_group(folder).items():
            by_run.setdefault(part.run, {})[part] = published
        for name in sorted(by_run):
            if study := by_run[name].get(Part(name, "study")):
                studies.append(_study(name, study))
            else:
                runs.append(_run(name, by_run[name]))
    return PublishedResults(_scales(runs), sorted(studies, key=lambda study: study.name))


def _study(name: str, part: PublishedPart) -> PublishedStudy:
    found = [row for row in part.of("study") if {"provenance", "markdown"} <= row.keys()]
    if len(found) != 1:
        raise InputError(f"{part.path} lacks the table of the study {name}. Publish it again.")
    return PublishedStudy(name, part.path, found[0]["provenance"], found[0]["markdown"])


def _run(name: str, parts: Mapping[Part, PublishedPart]) -> PublishedRun:
    trained = parts.get(Part(name, "run"))
    if trained is None:
        path = next(iter(parts.values())).path
        raise InputError(f"{path} holds evaluations of {name}, and no publication beside it has the run itself.")
    place = f"{trained.path}, {name}"
    rows = trained.of("run")
    if len(rows) != 1 or not {"config", "provenance", "training"} <= rows[0].keys():
        raise InputError(f"{place}: expected one row with config, provenance and training. Publish the run again.")
    config, provenance = rows[0]["config"], rows[0]["provenance"]
    known = {field for field, _ in flatten(config)}
    if missing := [field for field in _TELLING if field not in known]:
        raise InputError(f"{place}: its config says nothing of {', '.join(missing)}. Publish the run again.")
    metrics = [_unstamped(row) for row in trained.numbers("metric", ["step"])]
    metrics.sort(key=lambda entry: int(entry["step"]))
    latent = trained.numbers("latent", ["masked_variance", "prior_survival"])
    evaluations = {part.name: _only_row(part, each) for part, each in parts.items() if part.kind == "evaluation"}
    measurements = {part.name: _only_row(part, each) for part, each in parts.items() if part.kind == "measurement"}
    if empty := [measured for measured, content in measurements.items() if "measured" not in content]:
        raise InputError(f"{place}: its measurement {empty[0]} holds nothing measured. Publish the run again.")
    result = {"training": rows[0]["training"], **evaluations.get("", {})}
    episodes = {part.name: each.of("episode") for part, each in parts.items() if part.kind == "evaluation"}
    run = Run(name, trained.path, config, provenance, metrics, result, [], [])
    return PublishedRun(run, evaluations, measurements, episodes, latent)


def _only_row(part: Part, published: PublishedPart) -> dict[str, Any]:
    """The row that is the part's result, without the columns that say whose it is."""
    found = published.of(part.kind)
    if len(found) != 1:
        raise InputError(f"{published.path} has {len(found)} rows for the {part}, expected one. Publish it again.")
    return _unstamped(found[0])


def _unstamped(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in STAMP}


def _scales(runs: Iterable[PublishedRun]) -> list[RunGroup]:
    by_scale: dict[str, list[PublishedRun]] = {}
    for run in sorted(runs, key=lambda run: run.scale):
        by_scale.setdefault(json.dumps(run.scale), []).append(run)
    return [RunGroup(tuple(_configurations(group))) for group in by_scale.values()]


def _configurations(runs: Sequence[PublishedRun]) -> list[Configuration]:
    found: dict[str, list[PublishedRun]] = {}
    for run in sorted(runs, key=lambda run: (run.seed, run.started)):
        found.setdefault(json.dumps(run.fields, sort_keys=True), []).append(run)
    return sorted(map(_configuration, found.values()), key=_order)


def _configuration(runs: Sequence[PublishedRun]) -> Configuration:
    """Runs of one configuration, by seed and then by when they started; one training in two files is refused."""
    first: dict[int, PublishedRun] = {}
    repeats = []
    for run in runs:
        if first.setdefault(run.seed, run) is not run:
            repeats.append(run)
    trainings = [(run.seed, run.started) for run in runs]
    if twice := [run.place for run in runs if trainings.count((run.seed, run.started)) > 1]:
        raise InputError(f"One training is published twice: {'; '.join(twice)}. Remove one file.")
    return Configuration(tuple(first.values()), tuple(repeats))


def _order(configuration: Configuration) -> tuple[Any, ...]:
    """ALeWM first, then LeWM by width, then the rest; of each what has most seeds."""
    config = configuration.config
    model, objective = config["model"], config["objective"]
    rank = {"alewm": 0, "lewm": 1}.get(objective["method"], 2)
    seeds, weight = len(configuration.runs), objective["regularizer_weight"]
    rest = json.dumps(configuration.runs[0].fields, sort_keys=True)
    return rank, objective["method"], -model["latent_dim"], -seeds, weight, -model["prior_degree"], rest
