"""Published configurations against LeWM of the same width, on the same pairs: who is ahead, and how sure that is.

`comparison_table` compares all of one scale. `long_table` has each method's best configuration of long schedules.
`distilled_table` compares each model with itself: distilled dynamics against its own predictor.

Here is also what configurations are called in tables and figures, and the columns that tell them apart.
"""

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any

from alewm.errors import InputError
from alewm.evaluation.statistics import PairedDifference, compare_paired
from alewm.tables import Row, Table
from alewm.training.presets import LEWM_WEIGHT
from alewm_lab.experiments.request import LONG_STEPS, TASK_TITLES
from alewm_lab.presentation import NONE, scientific
from alewm_lab.publishing.published import Configuration, PublishedRun, RunGroup, seeds_of

FINE = "5-per-episode"
"""The settings with 1,000 test pairs; where runs have no such evaluation, the 200 are compared."""

_TINY = "cem-300x10-30"
_COMPARED = (FINE, "", f"{FINE}_{_TINY}", f"100-episodes_{_TINY}")
"""Settings on which methods are compared, the first of those that most runs have; the last two are of tiny models."""

_VALIDATION = {"": (f"validation_{FINE}", "validation"), f"{FINE}_{_TINY}": (f"validation_{FINE}_{_TINY}",)}
"""Settings of test pairs, and of the validation pairs that choose configurations, more pairs first; the second are of
tiny models."""

_DISTILLED = "dynamics-distilled"

_HOW = (
    "The 95 % interval is a bootstrap over the seeds of each method and over {clusters}. p is of a sign-flip test over "
    "{clusters}, for these models alone. Undecided means that the interval holds zero. One seed says nothing about "
    "others, and with three the interval is rather too narrow."
)

_LEGEND = "Success minus that of LeWM, d = {width}, λ = {weight:g}, on the same test pairs. " + _HOW

_LONG_LEGEND = (
    "Each method's best configuration: of those with its name and d, the one with the highest success on validation "
    "pairs over the seeds that all have; ties go to the smaller λ, then to the smaller learning rate. Success in "
    "percent, ± is the standard error over seeds. Models other than ViT-Tiny plan with CEM 300 x 10. The paper's "
    "updates times rate are 2.8 (Two-Room), 7.6 (Push-T) and 6.9 (Reacher, Cube). " + _HOW
)


@dataclass(frozen=True)
class Compared:
    """Two configurations on the same test pairs."""

    found: PairedDifference
    ours: list[PublishedRun]
    theirs: list[PublishedRun]
    settings: str
    """The evaluation whose pairs they are."""
    num_pairs: int
    by_demonstration: bool
    """Whether pairs of one demonstration count together, since episodes are copies."""

    @property
    def difference(self) -> str:
        """In points, with its interval."""
        return _in_points(self.found)

    @property
    def reading(self) -> str:
        """Ahead, behind or undecided."""
        is_alone = 1 in self.found.num_seeds and self.found.verdict != "undecided"
        return self.found.verdict + (", one seed" if is_alone else "")


def compare(ours: Configuration, theirs: Configuration) -> Compared | None:
    """The difference on the test pairs that most of their runs met; None where there are none that both met.

    Of several such sets the 1,000 pairs come before the 200.
    """
    met = {
        settings: [[run for run in each.runs_with(settings) if run.episodes.get(settings)] for each in (ours, theirs)]
        for settings in _COMPARED
    }
    for settings in sorted(met, key=lambda settings: -sum(map(len, met[settings]))):
        first, second = met[settings]
        if first and second and len({tuple(_column(run, settings, "pair")) for run in (*first, *second)}) == 1:
            clusters = _column(first[0], settings, "demonstration")
            are_copies = len(set(clusters)) < len(set(_column(first[0], settings, "episode")))
            found = compare_paired(_successes(first, settings), _successes(second, settings), clusters)
            return Compared(found, first, second, settings, len(clusters), are_copies)
    return None


def comparison_table(scale: RunGroup, note: str) -> Table | None:
    """A row for every configuration that met the same pairs as LeWM of its width; None where there are none."""
    rival = rival_of(scale)
    if rival is None:
        return None
    width = rival.config["model"]["latent_dim"]
    others = [each for each in scale.configurations if each.config["model"]["latent_dim"] == width and each != rival]
    rows: list[Row] = []
    by_demonstration = False
    for named, each in with_columns(others):
        compared = compare(each, rival)
        if compared is not None:
            by_demonstration |= compared.by_demonstration
            seeds = [seeds_of(runs) for runs in (compared.ours, compared.theirs)]
            rows.append([*named, *seeds, str(compared.num_pairs), *_difference_cells(compared)])
    if not rows:
        return None
    weight = rival.config["objective"]["regularizer_weight"]
    head = [*COLUMNS, "seeds", "LeWM's seeds", "pairs", "minus LeWM (points)", "p", "reading"]
    clusters = "demonstrations" if by_demonstration else "episodes"
    caption = _LEGEND.format(width=width, weight=weight, clusters=clusters) + note
    return Table.of(f"{scale.slug}-comparison", caption, head, rows)


def distilled_table(scale: RunGroup, note: str) -> Table | None:
    """Success with distilled dynamics beside that of the model's own predictor; None where no run has both."""
    rows: list[Row] = []
    for named, each in with_columns(scale.configurations):
        for settings in _COMPARED:
            distilled = "_".join(part for part in (settings, _DISTILLED) if part)
            runs = each.runs_with(settings, distilled)
            pairs = {tuple(_column(run, name, "pair")) for run in runs for name in (settings, distilled)}
            if len(pairs) != 1:
                continue
            # A model has itself as its partner: outcomes of all models are resampled by episode together.
            clusters = [cluster for run in runs for cluster in _column(run, settings, "demonstration")]
            own, other = (list(chain.from_iterable(_successes(runs, name))) for name in (settings, distilled))
            found = compare_paired([other], [own], clusters)
            rates = [f"{100 * fmean(reached):.1f}" for reached in (own, other)]
            row = [*named, seeds_of(runs), settings or "default", str(len(own) // len(runs)), *rates]
            rows.append([*row, _in_points(found), f"{found.won}, {found.lost}"])
    if not rows:
        return None
    caption = (
        "The same models with distilled dynamics in place of their own predictor, on the same pairs. The 95 % interval "
        f"is a bootstrap over episodes (demonstrations where episodes are copies).{note}"
    )
    head = [*COLUMNS, "seeds", "settings", "pairs", "own (%)", "distilled (%)", "difference (points)"]
    return Table.of(f"{scale.slug}-distilled", caption, [*head, "pairs won, lost"], rows)


def long_comparisons(scales: Sequence[RunGroup]) -> list[dict[str, list[Configuration]]]:
    """Configurations of long schedules by method, for each task, data, model and schedule, whatever the rates."""
    found: dict[str, dict[str, list[Configuration]]] = {}
    for scale in scales:
        for each in scale.configurations:
            if each.runs[0].steps >= LONG_STEPS and _settings_of(each) is not None:
                config = each.config
                shared = [config["task"], each.runs[0].steps, config["training"]["batch_size"], config["data"]]
                place = json.dumps([*shared, config["model"]["encoder"], config["model"]["latent_dim"]])
                found.setdefault(place, {}).setdefault(method_of(each), []).append(each)
    return list(found.values())


def long_table(scales: Sequence[RunGroup]) -> Table | None:
    """A row per task and method of long schedules, whatever their learning rates; None where LeWM meets no other."""
    comparisons = long_comparisons(scales)
    rows: list[Row] = []
    for methods in comparisons:
        chosen = {name: best(candidates) for name, candidates in methods.items()}
        rival = chosen.get(TITLES["lewm"])
        for name, each in chosen.items():
            compared = compare(each, rival) if rival is not None and each != rival else None
            settings = _settings_of(each) or ""
            fine = settings or FINE
            rows.append(
                [
                    TASK_TITLES[each.config["task"]],
                    f"{backbone(each.config)}, d = {each.config['model']['latent_dim']}",
                    name,
                    f"{each.runs[0].steps:,}",
                    scientific(each.runs[0].learning_rate),
                    f"{each.config['objective']['regularizer_weight']:g}",
                    str(len(methods[name])),
                    each.seeds,
                    each.spread("success_rate", fine).percent(1) if each.evaluated(fine) else NONE,
                    each.spread("success_rate").percent(1) if each.evaluated() else NONE,
                    each.spread("mean_capacity", settings).shown(1),
                    *([NONE] * 3 if compared is None else _difference_cells(compared)),
                ]
            )
    if not any(TITLES["lewm"] in methods and len(methods) > 1 for methods in comparisons):
        return None
    head = [
        "task",
        "model",
        "method",
        "updates",
        "rate",
        "λ",
        "chosen from",
        "seeds",
        "1,000 pairs (%)",
        "200 pairs (%)",
    ]
    head += ["mean capacity", "minus LeWM (points)", "p", "reading"]
    clusters = "episodes (demonstrations where episodes are copies)"
    return Table.of("long", _LONG_LEGEND.format(clusters=clusters), head, rows)


def _settings_of(each: Configuration) -> str | None:
    """The settings it was evaluated with; None where it was with none of those that long schedules are compared on."""
    return next((settings for settings in _VALIDATION if each.evaluated(settings)), None)


def best(candidates: Sequence[Configuration]) -> Configuration:
    """The best on validation pairs; a lone one needs none."""
    if len(candidates) == 1:
        return candidates[0]
    for validation in _VALIDATION[_settings_of(candidates[0]) or ""]:
        validated = [{run.seed: run for run in each.runs_with(validation)} for each in candidates]
        if seeds := set.intersection(*(set(runs) for runs in validated)):
            break
    else:
        names = ", ".join(run.run.name for each in candidates for run in each.runs)
        raise InputError(
            f"No seed of these runs was evaluated on validation pairs in each configuration, so none can be chosen: "
            f"{names}. Evaluate them with --split validation and publish that."
        )

    def rank(place: int) -> tuple[float, float, float]:
        each, runs = candidates[place], validated[place]
        success = fmean(runs[seed].evaluations[validation]["success_rate"] for seed in seeds)
        return -success, each.config["objective"]["regularizer_weight"], each.runs[0].learning_rate

    return candidates[min(range(len(candidates)), key=rank)]


def rival_of(scale: RunGroup) -> Configuration | None:
    """LeWM of the largest width, preferably with its usual weight, then with most seeds."""
    known = [each for each in scale.configurations if each.config["objective"]["method"] == "lewm"]

    def rank(each: Configuration) -> tuple[int, bool, int]:
        is_usual = each.config["objective"]["regularizer_weight"] == LEWM_WEIGHT
        return int(each.config["model"]["latent_dim"]), is_usual, len(each.runs)

    return max(known, key=rank, default=None)


def _difference_cells(compared: Compared) -> list[str]:
    return [compared.difference, f"{compared.found.p_value:.2g}", compared.reading]


def _in_points(found: PairedDifference) -> str:
    low, high = (f"{100 * bound:+.1f}" for bound in found.interval)
    return f"{100 * found.difference:+.1f} ({low} to {high})".replace("-", "−")


def _column(run: PublishedRun, settings: str, name: str) -> list[Hashable]:
    return [row[name] for row in run.episodes[settings]]


def _successes(runs: Sequence[PublishedRun], settings: str) -> list[list[bool]]:
    return [[bool(success) for success in _column(run, settings, "success")] for run in runs]


TITLES = {"alewm": "ALeWM", "lewm": "LeWM", "alewm-sigreg": "ALeWM, SIGReg", "nested-dropout": "nested dropout"}
"""Methods as tables call them."""

COLUMNS = ("method", "d", "λ", "s_q", "α")
"""Heads of the columns that tell configurations apart."""

_BACKBONES = {(192, 12): "ViT-Tiny", (384, 12): "ViT-Small"}


def backbone(config: Mapping[str, Any]) -> str:
    """What the encoder is called, by its width and depth."""
    encoder = config["model"]["encoder"]
    named = _BACKBONES.get((encoder["hidden_dim"], encoder["num_blocks"]))
    return named or f"ViT of width {encoder['hidden_dim']} and {encoder['num_blocks']} blocks"


def method_names(configurations: Sequence[Configuration]) -> list[str]:
    """What each configuration is called: its method, and in what else it differs from what the other columns say."""
    named = [method_of(configuration) for configuration in configurations]
    shown = [(name, *_columns(each)) for name, each in zip(named, configurations, strict=True)]
    for index, row in enumerate(shown):
        alike = [each for each, other in zip(configurations, shown, strict=True) if other == row]
        if len(alike) > 1:
            fields = [each.runs[0].fields for each in alike]
            differing = [name for name in fields[0] if any(other.get(name) != fields[0][name] for other in fields)]
            own = configurations[index].runs[0].fields
            named[index] += "".join(f", {name.rpartition('.')[2]} {own.get(name)}" for name in differing)
    return named


def full_names(configurations: Sequence[Configuration]) -> list[str]:
    """The same with the width, and with λ and α where they tell configurations apart."""
    named = []
    for name, each in zip(method_names(configurations), configurations, strict=True):
        own = _columns(each)
        alike = [_columns(o) for o in configurations if (method_of(o), _columns(o)[0]) == (method_of(each), own[0])]
        telling = [
            f"{symbol} = {own[place]}"
            for symbol, place in (("λ", 1), ("s_q", 2), ("α", 3))
            if len({columns[place] for columns in alike}) > 1
        ]
        named.append(", ".join([name, f"d = {own[0]}", *telling]))
    return named


def with_columns(configurations: Sequence[Configuration]) -> list[tuple[list[str], Configuration]]:
    """Each with its cells below `COLUMNS`."""
    names = method_names(configurations)
    return [([name, *_columns(each)], each) for name, each in zip(names, configurations, strict=True)]


def method_of(configuration: Configuration) -> str:
    """Its method, with what was changed about it."""
    objective = configuration.config["objective"]
    prior = configuration.config["model"].get("prior", "ranks")
    target, is_nested = objective.get("prediction_target", "full"), objective["method"] == "nested-dropout"
    delay = configuration.config["training"]["optim"].get("selector_delay", 0.0)
    notes = {
        f"prior of {prior}": prior != "ranks",
        "q frozen at the prior": objective.get("freezes_selector"),
        f"q delayed by {100 * delay:g} %": delay,
        "exact marginalisation": objective.get("marginalises_capacity"),
        f"KL {objective.get('prior_weight', 0):g} to the prior": objective.get("prior_weight"),
        "marginal": objective["method"] == "alewm-sigreg" and objective.get("masked_sigreg") == "marginal",
        "directions in prefixes": objective.get("directions", "sphere") == "prefixes",
        "prefix as target": target == "prefix" and not is_nested,
        "full target": target == "full" and is_nested,
        "target detached beyond the prefix": target == "detached",
    }
    return ", ".join([TITLES[objective["method"]], *(note for note, is_true in notes.items() if is_true)])


def _columns(configuration: Configuration) -> list[str]:
    """d, λ, s_q and α; the last two where there is a selector or a prior."""
    config = configuration.config
    model, method = config["model"], config["objective"]["method"]
    s_q = f"{config['training']['optim']['selector_multiplier']:g}" if model["has_selector"] else NONE
    alpha = NONE if method == "lewm" else f"{model['prior_degree']:g}".replace("-", "−")
    return [str(model["latent_dim"]), f"{config['objective']['regularizer_weight']:g}", s_q, alpha]
