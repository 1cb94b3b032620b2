"""One page for experiments: tables, figures, and the command of every cell."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from alewm.errors import InputError
from alewm.files import read_object
from alewm.report import html
from alewm_lab.experiments.framework import DESCRIPTION


def is_experiment(folder: Path) -> bool:
    """Whether `alewm-lab experiment` wrote this folder."""
    return (folder / DESCRIPTION).is_file()


def write_experiments_report(folders: Sequence[Path], out: Path) -> Path:
    """Write `out/index.html` from the experiments' folders alone; the path of the page."""
    described = [(folder, _read(folder)) for folder in folders]
    title = " · ".join(content["name"] for _, content in described)
    subtitle = " ".join(dict.fromkeys(content["note"] for _, content in described))
    return html.write_page(out, title, subtitle, *(_section(folder, content) for folder, content in described))


def _read(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    if not path.is_file():
        raise InputError(f"{folder} holds no experiment: expected {DESCRIPTION} in it.")
    content = read_object(path)
    missing = {"name", "note", "summary", "command", "tables", "figures", "films", "findings"} - content.keys()
    if missing:
        raise InputError(f"{path} lacks {', '.join(sorted(missing))}; repeat the command that wrote it.")
    return content


def _section(folder: Path, content: dict[str, Any]) -> str:
    parts = [html.paragraph(content["summary"]), f"<p><code>{escape(content['command'])}</code></p>"]
    parts += [html.paragraph(finding) for finding in content["findings"]]
    for table in content["tables"]:
        parts += [_table(table), html.paragraph(table["caption"]), _commands(_cells(table))]
    figures = [_figure(folder, figure) for figure in content["figures"]]
    parts += figures
    parts += [_commands([(f["name"], f["commands"]) for f in content["figures"]])]
    films = [
        html.film((folder / "films" / f"{film['name']}.gif").read_bytes(), film["caption"]) for film in content["films"]
    ]
    if films:
        parts.append(html.grid(films))
    return html.section(content["name"], *parts)


def _table(table: dict[str, Any]) -> str:
    rows = [[cell["text"] for cell in row] for row in table["rows"]]
    best = {(i, j) for i, row in enumerate(table["rows"]) for j, cell in enumerate(row) if cell["best"]}
    return html.table(table["head"], rows, best=best)


def _figure(folder: Path, figure: dict[str, Any]) -> str:
    return html.figure((folder / "figures" / f"{figure['name']}.svg").read_bytes(), figure["caption"])


def _cells(table: dict[str, Any]) -> Iterable[tuple[str, list[str]]]:
    for row in table["rows"]:
        label = " · ".join(cell["text"] for cell in row if not cell["commands"])
        for name, cell in zip(table["head"], row, strict=True):
            yield f"{label} · {name}", cell["commands"]


def _commands(cells: Iterable[tuple[str, list[str]]]) -> str:
    rows = [(label, "\n".join(commands)) for label, commands in cells if commands]
    return html.folded("Commands behind every number", rows) if rows else ""
