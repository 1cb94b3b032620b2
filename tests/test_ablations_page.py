"""docs/ablations.md shows what the records hold: tables as they were made, and a summary of the same numbers."""

import csv
import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from alewm.evaluation.statistics import Spread

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/ablations.md").read_text()
TINY = ROOT / "results/ablations-tiny"
RESULTS_SECTION = (
    (ROOT / "docs/results.md").read_text().split("\n## TwoRoom, ViT-Tiny, 4,500 updates at 5e-5\n")[1].split("\n## ")[0]
)

TINY_NAMES = {
    "nothing: ALeWM": "ALeWM",
    "exact marginalisation instead of sampling": "exact marginalisation",
    "a slower selector, s_q 0.3": "s_q 0.3",
    "KL(q ‖ π₀) of weight 0.01": "KL 0.01 to the prior",
    "KL(q ‖ π₀) of weight 0.1": "KL 0.1 to the prior",
    "q the prior for half of training, then learned": "q delayed by 1/2",
    "q frozen at the prior": "q frozen at the prior",
    "SIGReg of the sampled masked latent": "SIGReg, sampled",
    "SIGReg of the mixture under q": "SIGReg, marginal",
    "nested dropout": "nested dropout",
    "LeWM": "LeWM",
}
PAPER_SIZE_NAMES = {
    "nothing: ALeWM": "ALeWM, d = 192, λ = 0.3, s_q = 3, α = 3",
    "exact marginalisation instead of sampling": "ALeWM, exact marginalisation, d = 192",
    "a slower selector, s_q 0.3": "ALeWM, d = 192, λ = 0.3, s_q = 0.3, α = 3",
    "KL(q ‖ π₀) of weight 0.01": "ALeWM, KL 0.01 to the prior, d = 192",
    "KL(q ‖ π₀) of weight 0.1": "ALeWM, KL 0.1 to the prior, d = 192",
    "q the prior for half of training, then learned": "ALeWM, q delayed by 50 %, d = 192",
    "q frozen at the prior": "ALeWM, q frozen at the prior, d = 192",
    "SIGReg of the sampled masked latent": "ALeWM, SIGReg, d = 192",
    "SIGReg of the mixture under q": "ALeWM, SIGReg, marginal, d = 192",
    "nested dropout": "nested dropout, d = 192",
    "LeWM": "LeWM, d = 192, λ = 0.09",
}
PAPER_SIZE_RUNS = {
    "nothing: ALeWM": "alewm",
    "exact marginalisation instead of sampling": "exact",
    "a slower selector, s_q 0.3": "sq0.3",
    "KL(q ‖ π₀) of weight 0.01": "kl0.01",
    "KL(q ‖ π₀) of weight 0.1": "kl0.1",
    "q the prior for half of training, then learned": "delay0.5",
    "q frozen at the prior": "frozen",
    "SIGReg of the sampled masked latent": "sigreg",
    "SIGReg of the mixture under q": "sigregm",
    "nested dropout": "nested",
    "LeWM": "lewm",
}
OSCILLATOR_NAMES = {
    "nothing: ALeWM": "ALeWM, paper's way | 0.01 | -1.5 | 1 |",
    "exact marginalisation instead of sampling": "ALeWM, paper's way, exact marginalisation |",
    "a slower selector, s_q 0.3": "ALeWM, paper's way | 0.01 | -1.5 | 0.3 |",
    "KL(q ‖ π₀) of weight 0.01": "ALeWM, paper's way, KL 0.01 |",
    "KL(q ‖ π₀) of weight 0.1": "ALeWM, paper's way, KL 0.1 |",
    "q the prior for half of training, then learned": "ALeWM, paper's way, delay 0.5 |",
    "q the prior for an eighth of training, then learned": "ALeWM, paper's way, delay 0.125 |",
    "q frozen at the prior": "ALeWM, paper's way, selector frozen |",
    "LeWM": "LeWM d=8 |",
}


def rows(text: str) -> list[list[str]]:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines]


EIGHTH = "q the prior for an eighth of training, then learned"
PUBLISHED = {
    "nothing: ALeWM": "alewm",
    "KL(q ‖ π₀) of weight 0.1": "kl0.1",
    EIGHTH: "delay-0.125",
    "q the prior for half of training, then learned": "delay-0.5",
    "q frozen at the prior": "frozen",
    "SIGReg of the sampled masked latent": "sigreg",
    "LeWM": "lewm",
}
SUMMARY = {row[0]: row for row in rows(PAGE.split("± is the standard error")[0])[1:]}


def test_the_tables_are_those_that_were_made():
    for table in TINY.glob("*.md"):
        assert table.read_text() in PAGE


def test_the_summary_has_a_row_for_each_variant():
    assert set(TINY_NAMES) | {EIGHTH} == set(SUMMARY)


@pytest.mark.parametrize("name", TINY_NAMES)
def test_tiny_successes_are_those_of_the_table(name):
    made = {row[1]: (row[2], row[5]) for row in rows((TINY / "ablations.md").read_text())}
    assert SUMMARY[name][4] == made[TINY_NAMES[name]][0]
    planned = [float(k) for k in SUMMARY[name][5].removesuffix(" of 32").split(", ")]
    assert made[TINY_NAMES[name]][1].split(" ")[0] == f"{fmean(planned):.2f}"


@pytest.mark.parametrize("name", PUBLISHED)
def test_other_seeds_are_those_that_were_published(name):
    """Those after the first three, and the first three of what the table of this page does not have."""
    seeds, place = ((3072, 3073, 3074), 4) if name == EIGHTH else ((3075, 3076, 3077), 6)
    settings = "evaluations/100-episodes_cem-300x10-30/result.json"
    runs = [ROOT / f"results/two-room-tiny-ablations/{PUBLISHED[name]}-{seed}" for seed in seeds]
    found = [json.loads((run / settings).read_text()) for run in runs]
    assert SUMMARY[name][place] == Spread.of([each["success_rate"] for each in found]).percent(1)
    assert SUMMARY[name][place + 1] == ", ".join(f"{each['mean_capacity']:.0f}" for each in found)


def test_what_other_seeds_do_not_have_is_left_out():
    assert {name for name, row in SUMMARY.items() if row[6] == "–"} == (set(SUMMARY) - set(PUBLISHED)) | {EIGHTH}


@pytest.mark.parametrize("name", PAPER_SIZE_NAMES)
def test_successes_at_the_paper_s_size_are_those_of_the_page_of_results(name):
    line = re.search(rf"^{re.escape(PAPER_SIZE_NAMES[name])}; (\[seed 3072\].+):$", RESULTS_SECTION, re.M)[1]
    first, *further = re.findall(r"\) (\S+ \(\S+ to \S+\))", line)
    assert SUMMARY[name][1] == first
    assert SUMMARY[name][2] == (", ".join(each.split(" ")[0] for each in further) or "–")


def row_of_results(column: str, name: str) -> dict[str, str]:
    """The row of a variant, by column, in the table of the page of results that has this column."""
    method, is_lewm = PAPER_SIZE_NAMES[name].split(", d = ")[0], name == "LeWM"
    selector = {"nested dropout": "–", "LeWM": "–", "a slower selector, s_q 0.3": "0.3"}.get(name, "3")
    settings = [method, "192", "0.09" if is_lewm else "0.3", selector, "–" if is_lewm else "3"]
    tables = [rows(text) for text in RESULTS_SECTION.split("\n\n") if text.startswith("| method")]
    ((head, _, *body),) = [table for table in tables if column in table[0]]
    (found,) = [row for row in body if row[:5] == settings]
    return dict(zip(head, found, strict=True))


def successes(run: str, seed: int) -> list[str]:
    with (ROOT / f"results/two-room-short/{run}-192-{seed}/episodes.csv").open() as file:
        return [row["success"] for row in csv.DictReader(file)]


@pytest.mark.parametrize("name", PAPER_SIZE_NAMES)
def test_the_table_at_the_paper_s_size_is_that_of_the_records(name):
    section = PAGE.split("## Two-Room at the paper's size")[1].split("Against the same seed")[0]
    head, *body = rows(section)
    (row,) = [dict(zip(head, row, strict=True)) for row in body if row[0] == name]
    way, end = row_of_results("q farthest from π₀", name), row_of_results("variance off by", name)
    assert row.items() >= {column: way[column] for column in list(way)[6:]}.items()
    assert row.items() >= {column: end[column] for column in list(end)[7:8] + list(end)[10:]}.items()
    seeds = [int(seed) for seed in way["seeds"].split(", ")]
    assert row["seeds"] == (way["seeds"] if len(seeds) < 3 else f"{seeds[0]} to {seeds[-1]}")
    pairs = [
        pair
        for seed in seeds
        for pair in zip(successes("alewm", seed), successes(PAPER_SIZE_RUNS[name], seed), strict=True)
    ]
    won, lost = (pairs.count(kind) for kind in (("0", "1"), ("1", "0")))
    assert row["pairs won, lost"] == ("–" if name == "nothing: ALeWM" else f"{won}, {lost}")


@pytest.mark.parametrize("name", OSCILLATOR_NAMES)
def test_recoveries_are_those_of_the_studies(name):
    studies = [(ROOT / f"results/{study}/table.md").read_text() for study in ("oscillator-remedies", "oscillator")]
    (line, *_) = [line for text in studies for line in text.splitlines() if line[2:].startswith(OSCILLATOR_NAMES[name])]
    assert rows(line)[0][6] == SUMMARY[name][8]


def test_what_was_not_run_is_said():
    assert {name for name, row in SUMMARY.items() if row[1] == "not run"} == set(SUMMARY) - set(PAPER_SIZE_NAMES)
