"""Published configurations against LeWM of the same width, on the same pairs: who is ahead, and how sure that is."""

from collections.abc import Hashable, Sequence

from alewm.evaluation.statistics import PairedDifference, compare_paired
from alewm.tables import NONE, Row, Table
from alewm.training.presets import LEWM_WEIGHT
from alewm_lab.publishing.configuration_names import COLUMNS, named_columns
from alewm_lab.publishing.published import Configuration, PublishedRun, Scale

FINE = "5-per-episode"
"""The settings with 1,000 test pairs; where runs have no such evaluation, the 200 are compared."""

_LEGEND = (
    "Success minus that of LeWM, d = {width}, λ = {weight:g}, on the same test pairs. The 95 % interval is a bootstrap "
    "over the seeds of each method and over {clusters}. p is of a sign-flip test over {clusters}, for these models "
    "alone. Undecided means that the interval holds zero. One seed says nothing about others, and with three the "
    "interval is rather too narrow."
)


def comparison_table(scale: Scale, note: str) -> Table | None:
    """A row for every configuration that met the same pairs as LeWM of its width; None where there are none."""
    rival = _rival(scale)
    if rival is None:
        return None
    width = rival.config["model"]["latent_dim"]
    others = [each for each in scale.configurations if each.config["model"]["latent_dim"] == width and each != rival]
    rows: list[Row] = []
    are_copies = False
    for named, each in zip(named_columns(others), others, strict=True):
        for settings in (FINE, ""):
            ours, theirs = (_evaluated(one, settings) for one in (each, rival))
            if ours and theirs and len({tuple(_pairs(run, settings)) for run in (*ours, *theirs)}) == 1:
                found = _compare(ours, theirs, settings)
                are_copies |= found.num_clusters < len(set(_column(ours[0], settings, "episode")))
                rows.append([*named, *_cells(found, ours, theirs, settings)])
                break
    if not rows:
        return None
    clusters = "demonstrations" if are_copies else "episodes"
    weight = rival.config["objective"]["regularizer_weight"]
    head = [*COLUMNS, "seeds", "LeWM's seeds", "pairs", "minus LeWM (points)", "p", "reading"]
    caption = _LEGEND.format(width=width, weight=weight, clusters=clusters) + note
    return Table.of(f"{scale.slug}-comparison", caption, head, rows)


def _rival(scale: Scale) -> Configuration | None:
    """LeWM of the largest width, preferably with its usual weight, then with most seeds."""
    known = [each for each in scale.configurations if each.config["objective"]["method"] == "lewm"]

    def rank(each: Configuration) -> tuple[int, bool, int]:
        config = each.config
        return (
            int(config["model"]["latent_dim"]),
            config["objective"]["regularizer_weight"] == LEWM_WEIGHT,
            len(each.runs),
        )

    return max(known, key=rank, default=None)


def _evaluated(configuration: Configuration, settings: str) -> list[PublishedRun]:
    return [run for run in configuration.runs if run.episodes.get(settings)]


def _column(run: PublishedRun, settings: str, name: str) -> list[Hashable]:
    return [row[name] for row in run.episodes[settings]]


def _pairs(run: PublishedRun, settings: str) -> list[Hashable]:
    return _column(run, settings, "pair")


def _compare(ours: Sequence[PublishedRun], theirs: Sequence[PublishedRun], settings: str) -> PairedDifference:
    first, second = (
        [[bool(success) for success in _column(run, settings, "success")] for run in runs] for runs in (ours, theirs)
    )
    return compare_paired(first, second, _column(ours[0], settings, "demonstration"))


def _cells(
    found: PairedDifference, ours: Sequence[PublishedRun], theirs: Sequence[PublishedRun], settings: str
) -> list[str]:
    low, high = (f"{100 * bound:+.1f}" for bound in found.interval)
    seeds = [", ".join(str(run.seed) for run in runs) or NONE for runs in (ours, theirs)]
    difference = f"{100 * found.difference:+.1f} ({low} to {high})".replace("-", "−")
    reading = found.verdict + (", one seed" if 1 in found.num_seeds and found.verdict != "undecided" else "")
    return [*seeds, str(len(_pairs(ours[0], settings))), difference, f"{found.p_value:.2g}", reading]
