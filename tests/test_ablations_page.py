"""docs/ablations.md shows what the records hold: tables as they were made, and a summary of the same numbers."""

import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from alewm.evaluation.statistics import Spread

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/ablations.md").read_text()
TINY = ROOT / "results/ablations-tiny"

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
    "nothing: ALeWM": "ALeWM, d = 192, λ = 0.3, α = 3",
    "exact marginalisation instead of sampling": "ALeWM, exact marginalisation, d = 192",
    "KL(q ‖ π₀) of weight 0.1": "ALeWM, KL 0.1 to the prior, d = 192",
    "q the prior for half of training, then learned": "ALeWM, q delayed by 50 %, d = 192",
    "q frozen at the prior": "ALeWM, q frozen at the prior, d = 192",
    "SIGReg of the sampled masked latent": "ALeWM, SIGReg, d = 192",
    "nested dropout": "nested dropout, d = 192",
    "LeWM": "LeWM, d = 192, λ = 0.09",
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
    for name in ("ablations", "selector", "capacities"):
        assert (TINY / f"{name}.md").read_text() in PAGE


def test_the_summary_has_a_row_for_each_variant():
    assert set(TINY_NAMES) | {EIGHTH} == set(SUMMARY)


@pytest.mark.parametrize("name", TINY_NAMES)
def test_tiny_successes_are_those_of_the_table(name):
    made = {row[1]: (row[2], row[5]) for row in rows((TINY / "ablations.md").read_text())}
    assert SUMMARY[name][3] == made[TINY_NAMES[name]][0]
    planned = [float(k) for k in SUMMARY[name][4].removesuffix(" of 32").split(", ")]
    assert made[TINY_NAMES[name]][1].split(" ")[0] == f"{fmean(planned):.2f}"


@pytest.mark.parametrize("name", PUBLISHED)
def test_other_seeds_are_those_that_were_published(name):
    """Those after the first three, and the first three of what the table of this page does not have."""
    seeds, place = ((3072, 3073, 3074), 3) if name == EIGHTH else ((3075, 3076, 3077), 5)
    settings = "evaluations/100-episodes_cem-300x10-30/result.json"
    runs = [ROOT / f"results/two-room-tiny-ablations/{PUBLISHED[name]}-{seed}" for seed in seeds]
    found = [json.loads((run / settings).read_text()) for run in runs]
    assert SUMMARY[name][place] == Spread.of([each["success_rate"] for each in found]).percent(1)
    assert SUMMARY[name][place + 1] == ", ".join(f"{each['mean_capacity']:.0f}" for each in found)


def test_what_other_seeds_do_not_have_is_left_out():
    assert {name for name, row in SUMMARY.items() if row[5] == "–"} == (set(SUMMARY) - set(PUBLISHED)) | {EIGHTH}


@pytest.mark.parametrize("name", PAPER_SIZE_NAMES)
def test_successes_at_the_paper_s_size_are_those_of_the_page_of_results(name):
    section = (ROOT / "docs/results.md").read_text().split("## TwoRoom, ViT-Tiny, 4,500 updates at 5e-5")[1]
    row = rf"^{re.escape(PAPER_SIZE_NAMES[name])}; \[seed 3072\]\(\S+\) (\S+ \(\S+ to \S+\))"
    assert SUMMARY[name][1] == re.search(row, section, re.M)[1]


@pytest.mark.parametrize("name", OSCILLATOR_NAMES)
def test_recoveries_are_those_of_the_studies(name):
    studies = [(ROOT / f"results/{study}/table.md").read_text() for study in ("oscillator-remedies", "oscillator")]
    (line, *_) = [line for text in studies for line in text.splitlines() if line[2:].startswith(OSCILLATOR_NAMES[name])]
    assert rows(line)[0][6] == SUMMARY[name][7]


def test_what_was_not_run_is_said():
    assert {name for name, row in SUMMARY.items() if row[1] == "not run"} == set(SUMMARY) - set(PAPER_SIZE_NAMES)
