"""Tables in three formats."""

import csv
import io

from alewm.tables import Cell, Table
from alewm_lab.presentation import mark_best
from alewm_lab.publishing.experiment_page import latex

TABLE = Table.of(
    "success",
    "Success of λ & co. in 100 %.",
    ["method", "SR (%)"],
    [["LeWM_a", "90.0 ± 1.0"], ["a|b", Cell("95.0", is_best=True, commands=("alewm train x",))]],
)


def test_markdown_has_a_line_per_row_and_the_caption_below():
    assert TABLE.markdown().splitlines() == [
        "| method | SR (%) |",
        "| --- | --- |",
        "| LeWM_a | 90.0 ± 1.0 |",
        r"| a\|b | **95.0** |",
        "",
        "Success of λ & co. in 100 %.",
    ]


def test_latex_escapes_what_latex_would_read():
    text = latex(TABLE)
    assert r"\caption{Success of $\lambda$ \& co. in 100 \%.}" in text
    assert r"LeWM\_a & 90.0 $\pm$ 1.0 \\" in text
    assert r"a|b & \textbf{95.0} \\" in text
    assert text.count(r"\begin") == text.count(r"\end") == 2


def test_csv_reads_back():
    rows = list(csv.reader(io.StringIO(TABLE.csv())))
    assert rows == [["method", "SR (%)"], ["LeWM_a", "90.0 ± 1.0"], ["a|b", "95.0"]]


def test_the_best_are_all_that_share_the_largest_value():
    cells = mark_best([Cell("a"), Cell("b"), Cell("c")], [1.0, 2.0, 2.0])
    assert [cell.is_best for cell in cells] == [False, True, True]
