"""docs/ablations.md shows what the records hold."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from alewm.evaluation.statistics import Spread
from alewm_lab.experiments.capacity_dynamics import PATH_HEAD
from alewm_lab.publishing.published import PublishedRun, read_results
from alewm_lab.publishing.result_tables import read_paper
from alewm_lab.publishing.results_page import scale_section, scale_title
from copied_results import ROOT, table_rows

PAGE = (ROOT / "docs/ablations.md").read_text()
PUBLISHED = read_results(ROOT / "results")
RUNS = {(run.run.folder.parent.name, run.run.name): run for scale in PUBLISHED.scales for run in scale.runs}
PAPER_SIZE = "Two-Room, ViT-Tiny, 4,500 updates at 5e-5"
(SCALE,) = [scale for scale in PUBLISHED.scales if scale_title(scale) == PAPER_SIZE]
RESULTS_SECTION = "\n".join(scale_section(SCALE, read_paper(ROOT / "results"), ROOT / "docs/results.md", []))


@dataclass(frozen=True)
class Places:
    """What a variant is called where it was measured; nothing where it was not."""

    tiny_run: str = ""
    """Its published tiny runs, without their seeds."""
    paper_size: str = ""
    """On the page of results."""
    oscillators: str = ""
    """The beginning of its row in the tables of the studies."""


VARIANTS = {
    "nothing: ALeWM": Places(
        tiny_run="alewm",
        paper_size="ALeWM, d = 192, λ = 0.3, s_q = 3, α = 3",
        oscillators="ALeWM, paper's way | 0.01 | -1.5 | 1 |",
    ),
    "λ 0.09": Places(
        tiny_run="alewm-l0.09",
    ),
    "exact marginalisation instead of sampling": Places(
        tiny_run="exact",
        paper_size="ALeWM, exact marginalisation, d = 192",
        oscillators="ALeWM, paper's way, exact marginalisation |",
    ),
    "a slower selector, s_q 0.3": Places(
        tiny_run="slow",
        paper_size="ALeWM, d = 192, λ = 0.3, s_q = 0.3, α = 3",
        oscillators="ALeWM, paper's way | 0.01 | -1.5 | 0.3 |",
    ),
    "KL(q ‖ π₀) of weight 0.01": Places(
        tiny_run="kl0.01",
        paper_size="ALeWM, KL 0.01 to the prior, d = 192",
        oscillators="ALeWM, paper's way, KL 0.01 |",
    ),
    "KL(q ‖ π₀) of weight 0.1": Places(
        tiny_run="kl0.1",
        paper_size="ALeWM, KL 0.1 to the prior, d = 192",
        oscillators="ALeWM, paper's way, KL 0.1 |",
    ),
    "q the prior for an eighth of training, then learned": Places(
        tiny_run="delay-0.125",
        oscillators="ALeWM, paper's way, delay 0.125 |",
    ),
    "q the prior for half of training, then learned": Places(
        tiny_run="delay-0.5",
        paper_size="ALeWM, q delayed by 50 %, d = 192",
        oscillators="ALeWM, paper's way, delay 0.5 |",
    ),
    "q frozen at the prior": Places(
        tiny_run="frozen",
        paper_size="ALeWM, q frozen at the prior, d = 192",
        oscillators="ALeWM, paper's way, selector frozen |",
    ),
    "SIGReg of the sampled masked latent": Places(
        tiny_run="sigreg",
        paper_size="ALeWM, SIGReg, d = 192",
    ),
    "SIGReg of the mixture under q": Places(
        tiny_run="sigreg-marginal",
        paper_size="ALeWM, SIGReg, marginal, d = 192",
    ),
    "nested dropout": Places(
        tiny_run="nested-prefix",
    ),
    "nested dropout, λ 0.09": Places(
        tiny_run="nested-prefix-l0.09",
    ),
    "nested dropout, full target": Places(
        tiny_run="nested",
        paper_size="nested dropout, full target, d = 192",
    ),
    "LeWM": Places(
        tiny_run="lewm",
        paper_size="LeWM, d = 192, λ = 0.09",
        oscillators="LeWM d=8 |",
    ),
}
SEEDS = (3072, 3073, 3074)


def measured(place: str) -> list[str]:
    """The variants that have a name there."""
    return [name for name, places in VARIANTS.items() if getattr(places, place)]


SUMMARY = {row[0]: row for row in table_rows(PAGE.split("± is the standard error")[0])[1:]}


def test_the_summary_has_a_row_for_each_variant():
    assert set(VARIANTS) == set(SUMMARY)


TINY_SETTINGS = "100-episodes_cem-300x10-30"
SHIPPED = {("alewm", 3072): "two-room-tiny", ("lewm", 3072): "two-room-tiny-lewm"}
"""Tiny runs that are published with the models in the repository, under their names."""


def tiny_runs(name: str, seeds: Sequence[int]) -> list[PublishedRun]:
    """The published tiny runs of a variant, as many of `seeds` as there are."""
    variant = VARIANTS[name].tiny_run
    places = [
        ("two-room-tiny", SHIPPED[variant, seed])
        if (variant, seed) in SHIPPED
        else ("two-room-tiny-ablations", f"{variant}-{seed}")
        for seed in seeds
    ]
    return [RUNS[place] for place in places if place in RUNS]


@pytest.mark.parametrize(("seeds", "place"), [((3072, 3073, 3074), 4), ((3075, 3076, 3077), 6)])
@pytest.mark.parametrize("name", VARIANTS)
def test_tiny_successes_are_those_that_were_published(name, seeds, place):
    found = [run.evaluations[TINY_SETTINGS] for run in tiny_runs(name, seeds)]
    if len(found) < 3:
        assert place == 6
        assert SUMMARY[name][6:8] == ["–", "–"]
        return
    assert SUMMARY[name][place] == Spread.of([each["success_rate"] for each in found]).percent(1)
    planned = ", ".join(f"{each['mean_capacity']:.0f}" for each in found)
    assert SUMMARY[name][place + 1].removesuffix(" of 32") == planned


@pytest.mark.parametrize("name", VARIANTS)
def test_the_table_of_tiny_models_is_that_of_the_records(name):
    section = PAGE.split("## Two-Room with tiny models")[1].split("Against the same seed")[0]
    (row,) = [row for row in table_rows(section) if row[0] == name]
    own, others = (
        [[bool(episode["success"]) for episode in run.episodes[TINY_SETTINGS]] for run in tiny_runs(each, SEEDS)]
        for each in (name, "nothing: ALeWM")
    )
    assert row[1:4] == [str(sum(outcomes)) for outcomes in own]
    pairs = [pair for runs in zip(own, others, strict=True) for pair in zip(*runs, strict=True)]
    won, lost = pairs.count((True, False)), pairs.count((False, True))
    assert row[4] == ("–" if name == "nothing: ALeWM" else f"{won}, {lost}")


@pytest.mark.parametrize(("pairs", "start"), [("validation", "validation"), ("test", "100-episodes")])
@pytest.mark.parametrize(("name", "weight"), [("nested dropout", "0.3"), ("nested dropout, λ 0.09", "0.09")])
def test_nested_dropout_is_scored_at_every_capacity(name, weight, pairs, start):
    section = PAGE.split("| nested dropout with every prefix imposed")[1]
    (row,) = [row for row in table_rows(section) if row[:2] == [f"{pairs} pairs (%)", weight]]
    for k, shown in zip((2, 4, 8, 16, 32), row[2:], strict=True):
        # On test pairs the prior's mode, 2, is the default.
        imposed = "" if (pairs, k) == ("test", 2) else f"_capacity-{k}"
        settings = f"{start}{imposed}_cem-300x10-30"
        rates = [run.evaluations[settings]["success_rate"] for run in tiny_runs(name, SEEDS)]
        assert shown == Spread.of(rates).percent(1)


def published(name: str) -> dict[tuple[str, str], str]:
    """Success with its interval of each run at the paper's size that the page of results links to, in seeds' order."""
    line = re.search(rf"^{re.escape(VARIANTS[name].paper_size)}; (\[seed 3072\].+):$", RESULTS_SECTION, re.M)[1]
    found = re.findall(r'\[seed \d+\]\((\S+) "(\S+)"\) (\S+ \(\S+ to \S+\))', line)
    return {(Path(link).parent.name, run): success for link, run, success in found}


@pytest.mark.parametrize("name", measured("paper_size"))
def test_successes_at_the_paper_s_size_are_those_of_the_page_of_results(name):
    first, *further = published(name).values()
    assert SUMMARY[name][1] == first
    assert SUMMARY[name][2] == (", ".join(each.split(" ")[0] for each in further) or "–")


def row_of_results(column: str, name: str) -> dict[str, str]:
    """The row of a variant, by column, in the table of the page of results that has this column."""
    method, is_lewm = VARIANTS[name].paper_size.split(", d = ")[0], name == "LeWM"
    selector = {"nested dropout, full target": "–", "LeWM": "–", "a slower selector, s_q 0.3": "0.3"}.get(name, "3")
    settings = [method, "192", "0.09" if is_lewm else "0.3", selector, "–" if is_lewm else "3"]
    tables = [table_rows(text) for text in RESULTS_SECTION.split("\n\n") if text.startswith("| method")]
    ((head, _, *body),) = [table for table in tables if column in table[0]]
    (found,) = [row for row in body if row[:5] == settings]
    return dict(zip(head, found, strict=True))


def successes(run: tuple[str, str]) -> list[bool]:
    return [episode["success"] for episode in RUNS[run].episodes[""]]


@pytest.mark.parametrize("name", measured("paper_size"))
def test_the_table_at_the_paper_s_size_is_that_of_the_records(name):
    section = PAGE.split("## Two-Room at the paper's size")[1].split("Against the same seed")[0]
    head, *body = table_rows(section)
    (row,) = [dict(zip(head, row, strict=True)) for row in body if row[0] == name]
    way, end = row_of_results("q farthest from π₀", name), row_of_results("variance off by", name)
    assert row.items() >= {column: way[column] for column in PATH_HEAD}.items()
    assert (
        row.items()
        >= {column: end[column] for column in ("error / masked variance", "variance off by", "rank")}.items()
    )
    seeds = [int(seed) for seed in way["seeds"].split(", ")]
    assert row["seeds"] == (way["seeds"] if len(seeds) < 3 else f"{seeds[0]} to {seeds[-1]}")
    own, others = ([successes(run) for run in published(each)] for each in (name, "nothing: ALeWM"))
    pairs = [pair for runs in zip(own, others, strict=False) for pair in zip(*runs, strict=True)]
    won, lost = pairs.count((True, False)), pairs.count((False, True))
    assert row["pairs won, lost"] == ("–" if name == "nothing: ALeWM" else f"{won}, {lost}")


@pytest.mark.parametrize("name", measured("oscillators"))
def test_recoveries_are_those_of_the_studies(name):
    tables = {study.name: study.markdown for study in PUBLISHED.studies}
    lines = [line for study in ("oscillator-remedies", "oscillator") for line in tables[study].splitlines()]
    line = next(line for line in lines if line.startswith(f"| {VARIANTS[name].oscillators}"))
    assert table_rows(line)[0][6] == SUMMARY[name][8]


def test_what_was_not_run_is_said():
    assert {name for name, row in SUMMARY.items() if row[1] == "not run"} == set(SUMMARY) - set(measured("paper_size"))
