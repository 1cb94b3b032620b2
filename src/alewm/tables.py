"""Tables as Markdown and CSV. Every cell knows the commands that made it."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    text: str
    """What it shows."""
    is_best: bool = False
    """Printed bold."""
    commands: tuple[str, ...] = ()
    """Commands that reproduce this number, in order."""


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

    def csv(self) -> str:
        """The texts of all cells; one that a spreadsheet would take for a formula begins with a quote."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        rows = [self.head, *([cell.text for cell in row] for row in self.rows)]
        writer.writerows([_no_formula(text) for text in row] for row in rows)
        return buffer.getvalue()


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
