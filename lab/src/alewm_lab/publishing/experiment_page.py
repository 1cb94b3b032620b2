"""The files of an experiment: tables in three formats, figures, a description, and an HTML page made from them."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from alewm.errors import InputError
from alewm.files import read_object, write_bytes, write_json, write_text
from alewm.report import html
from alewm.tables import Table
from alewm.theme import as_svg, rendered
from alewm_lab.experiments.experiment import Experiment, Outcome

DESCRIPTION = "experiment.json"


def write_outcome(experiment: Experiment, outcome: Outcome, summary: str, command: str, out: Path) -> Path:
    """Writes everything below `out`; the path of the description that `alewm report` reads."""
    for table in outcome.tables:
        for suffix, text in (("md", table.markdown()), ("tex", latex(table)), ("csv", table.csv())):
            write_text(out / "tables" / f"{table.name}.{suffix}", text)
    for drawing in outcome.drawings:
        write_bytes(out / "figures" / f"{drawing.name}.svg", as_svg(drawing.draw))
        write_bytes(out / "figures" / f"{drawing.name}.png", rendered(drawing.draw, "png"))
    for film in outcome.films:
        write_bytes(out / "films" / f"{film.name}.gif", film.gif)
    description = {
        "name": experiment.name,
        "summary": summary,
        "command": command,
        "scale": experiment.request.scale.name,
        "note": experiment.request.scale.note,
        "seeds": list(experiment.request.seeds),
        "only": list(experiment.request.only),
        "runs": [run.name for run in experiment.runs],
        "findings": list(outcome.findings),
        "tables": [table_json(table) for table in outcome.tables],
        "figures": [{"name": d.name, "caption": d.caption, "commands": list(d.commands)} for d in outcome.drawings],
        "films": [{"name": film.name, "caption": film.caption} for film in outcome.films],
    }
    write_json(out / DESCRIPTION, description)
    return out / DESCRIPTION


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
