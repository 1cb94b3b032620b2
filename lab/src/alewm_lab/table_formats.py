"""Tables as LaTeX and as JSON for a page, and what their cells hold."""

from collections.abc import Sequence
from typing import Any

from alewm.tables import Cell, Table

NONE = "–"
"""Placeholder of a missing cell."""


def scientific(value: float) -> str:
    """A small number by its power of ten: 5e-5 and 2e-4, whichever of the two `format` would write as a decimal."""
    digits, _, exponent = f"{value:.5e}".partition("e")
    return f"{float(digits):g}e{int(exponent)}"


def mark_best(cells: Sequence[Cell], values: Sequence[float]) -> list[Cell]:
    """The cells, those with the largest of `values` marked."""
    top = max(values)
    return [Cell(cell.text, value == top, cell.commands) for cell, value in zip(cells, values, strict=True)]


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


def latex(table: Table) -> str:
    """A complete `table` environment; needs the package booktabs."""
    body = [
        " & ".join(rf"\textbf{{{_latex(cell.text)}}}" if cell.is_best else _latex(cell.text) for cell in row)
        for row in table.rows
    ]
    lines = [
        r"\begin{table}",
        rf"  \caption{{{_latex(table.caption)}}}",
        rf"  \label{{tab:{table.name}}}",
        r"  \centering",
        rf"  \begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}",
        r"    \toprule",
        f"    {' & '.join(map(_latex, table.head))} \\\\",
        r"    \midrule",
        *(f"    {line} \\\\" for line in body),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def table_json(table: Table) -> dict[str, Any]:
    """Everything as plain JSON values, for a report to read."""
    rows = [[{"text": c.text, "best": c.is_best, "commands": list(c.commands)} for c in row] for row in table.rows]
    return {"name": table.name, "caption": table.caption, "head": list(table.head), "rows": rows}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)
