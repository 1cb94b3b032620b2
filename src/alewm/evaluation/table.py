"""An evaluation's result as a few lines for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from alewm.evaluation.records import EpisodeRecord, compare_records


def success_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """One column per result, named by the mapping's keys; floors and capacities below the success."""
    columns = [[name, *(_cells(result))] for name, result in results.items()]
    width = [max(map(len, column)) for column in columns]
    lines = []
    for row, label in enumerate(("", *_LABELS)):
        cells = (column[row].rjust(w) for column, w in zip(columns, width, strict=True))
        lines.append(f"{label:<28}" + "  ".join(cells))
    return "\n".join(lines)


def comparison_lines(records: Mapping[str, Sequence[EpisodeRecord]]) -> list[str]:
    """The first model against each other one that met the same pairs, a line each."""
    (ours, own), *others = records.items()
    lines = []
    for name, other in others:
        if [(each.episode, each.start_step) for each in own] != [(each.episode, each.start_step) for each in other]:
            continue
        found = compare_records([own], [other])
        lines.append(
            f"{ours} minus {name}: {found}, by {found.num_clusters} episodes; {found.won} pairs won, {found.lost} lost"
        )
    return lines


_LABELS = (
    "success",
    "  95 % interval",
    "  where not solved at start",
    "uniform random",
    "doing nothing",
    "recorded actions",
    "solved at the start",
    "pairs",
    "mean capacity (of width)",
    "capacities (k: episodes)",
    "CEM (candidates, iterations)",
    "seconds",
)


def _cells(result: Mapping[str, Any]) -> list[str]:
    low, high = result["interval"]
    cem = result["planning"]["cem"]
    counts = {k: count for k, count in result["capacity_counts"].items() if count}
    return [
        percent(result["success_rate"]),
        f"{percent(low)} to {percent(high)}",
        percent(result["success_rate_nontrivial"]),
        percent(result["random_success_rate"]),
        percent(result["zero_success_rate"]),
        percent(result.get("replay_success_rate")),
        percent(result["presolved_share"]),
        str(result["episodes"]),
        f"{result['mean_capacity']:.3g} ({result['support'][-1]})",
        ", ".join(f"{k}: {count}" for k, count in counts.items()),
        f"{cem['num_candidates']}, {cem['num_iterations']}",
        f"{result['seconds']:.1f}",
    ]


def percent(rate: float | None) -> str:
    """A rate as tables show it; a dash where there is none."""
    return "-" if rate is None else f"{100 * rate:.1f} %"
