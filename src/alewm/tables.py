"""Tables as Markdown, LaTeX and CSV. Every cell knows the commands that made it."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


def scientific(value: float) -> str:
    """A small number by its power of ten: 5e-5 and 2e-4, whichever of the two `format` would write as a decimal."""
    digits, _, exponent = f"{value:.5e}".partition("e")
    return f"{float(digits):g}e{int(exponent)}"


_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "λ": r"$\lambda$",
    "α": r"$\alpha$",
    "η": r"$\eta$",
    "ρ": r"$\rho$",
    "δ": r"$\delta$",
    "Δ": r"$\Delta$",
    "≥": r"$\geq$",
    "−": "$-$",
    "–": "--",
    "²": "$^2$",
}


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    text: str
    """What it shows."""
    is_best: bool = False
    """Printed bold."""
    commands: tuple[str, ...] = ()
    """Commands that reproduce this number, in order."""


NONE = "–"
"""Placeholder of a missing cell."""

Row = list[Cell | str]
"""Cells, or texts that become cells without commands."""


@dataclass(frozen=True)
class Table:
    """A table whose cells know the commands behind them."""

    name: str
    """Its file name."""
    caption: str
    """What is shown, at which scale, over which seeds."""
    head: tuple[str, ...]
    """Names of the columns."""
    rows: tuple[tuple[Cell, ...], ...]
    """As many cells each as there are columns."""

    @classmethod
    def of(cls, name: str, caption: str, head: Sequence[str], rows: Sequence[Sequence[Cell | str]]) -> "Table":
        """A table whose plain texts become cells without commands."""
        cells = tuple(tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row) for row in rows)
        for row in cells:
            assert len(row) == len(head), f"{name}: {len(row)} cells under {len(head)} columns"
        return cls(name, caption, tuple(head), cells)

    def markdown(self) -> str:
        """The table with its caption below."""
        lines = [_line(self.head), _line(["---"] * len(self.head))]
        lines += [_line([f"**{cell.text}**" if cell.is_best else cell.text for cell in row]) for row in self.rows]
        return "\n".join([*lines, "", self.caption, ""])

    def latex(self) -> str:
        """A complete `table` environment; needs the package booktabs."""
        body = [
            " & ".join(rf"\textbf{{{_latex(cell.text)}}}" if cell.is_best else _latex(cell.text) for cell in row)
            for row in self.rows
        ]
        lines = [
            r"\begin{table}",
            rf"  \caption{{{_latex(self.caption)}}}",
            rf"  \label{{tab:{self.name}}}",
            r"  \centering",
            rf"  \begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}",
            r"    \toprule",
            f"    {' & '.join(map(_latex, self.head))} \\\\",
            r"    \midrule",
            *(f"    {line} \\\\" for line in body),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
        return "\n".join(lines)

    def csv(self) -> str:
        """The texts of all cells; one that a spreadsheet would take for a formula begins with a quote."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        rows = [self.head, *([cell.text for cell in row] for row in self.rows)]
        writer.writerows([_no_formula(text) for text in row] for row in rows)
        return buffer.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON values, for a report to read."""
        rows = [[{"text": c.text, "best": c.is_best, "commands": list(c.commands)} for c in row] for row in self.rows]
        return {"name": self.name, "caption": self.caption, "head": list(self.head), "rows": rows}


def mark_best(cells: Sequence[Cell], values: Sequence[float]) -> list[Cell]:
    """The cells, those with the largest of `values` marked."""
    top = max(values)
    return [Cell(cell.text, value == top, cell.commands) for cell, value in zip(cells, values, strict=True)]


def _no_formula(text: str) -> str:
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)
