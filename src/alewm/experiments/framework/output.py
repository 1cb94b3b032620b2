"""An outcome as files: tables in three formats, figures in two, and what a report needs to show them."""

from pathlib import Path

from alewm.experiments.framework.experiment import Experiment, Outcome
from alewm.files import write_bytes, write_json, write_text
from alewm.presentation.theme import as_png, light_and_dark

DESCRIPTION = "experiment.json"


def write_outcome(experiment: Experiment, outcome: Outcome, summary: str, command: str, out: Path) -> Path:
    """Writes everything below `out`; the path of the description that `alewm report` reads."""
    for table in outcome.tables:
        for suffix, text in (("md", table.markdown()), ("tex", table.latex()), ("csv", table.csv())):
            write_text(out / "tables" / f"{table.name}.{suffix}", text)
    for drawing in outcome.drawings:
        light, dark = light_and_dark(drawing.draw)
        write_bytes(out / "figures" / f"{drawing.name}.svg", light)
        write_bytes(out / "figures" / f"{drawing.name}-dark.svg", dark)
        write_bytes(out / "figures" / f"{drawing.name}.png", as_png(drawing.draw))
    for film in outcome.films:
        write_bytes(out / "films" / f"{film.name}.gif", film.gif)
    description = {
        "name": experiment.name,
        "summary": summary,
        "command": command,
        "scale": experiment.choice.scale.name,
        "note": experiment.choice.scale.note,
        "seeds": list(experiment.choice.seeds),
        "only": list(experiment.choice.only),
        "runs": [run.name for run in experiment.runs],
        "findings": list(outcome.findings),
        "tables": [table.to_json() for table in outcome.tables],
        "figures": [{"name": d.name, "caption": d.caption, "commands": list(d.commands)} for d in outcome.drawings],
        "films": [{"name": film.name, "caption": film.caption} for film in outcome.films],
    }
    write_json(out / DESCRIPTION, description)
    return out / DESCRIPTION
