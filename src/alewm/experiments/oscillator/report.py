"""A study from start to finish: train, select, tabulate, draw."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alewm.config import to_dict
from alewm.errors import InputError
from alewm.experiments.oscillator.config import OscillatorRun
from alewm.experiments.oscillator.execution import execute
from alewm.experiments.oscillator.figure import draw
from alewm.experiments.oscillator.selection import select
from alewm.experiments.oscillator.study import Study
from alewm.experiments.oscillator.table import markdown_table
from alewm.files import write_text
from alewm.progress import Progress
from alewm.runs.folder import RunFolder

_SWEEP_FIGURE = ("LeWM d=4", "LeWM d=6", "LeWM d=8", "ALeWM")


def run_study(study: Study, out: Path, *, jobs: int, is_sweep: bool) -> None:
    """Fills `out` with the study's records, table, figure and `result.json`."""
    folder = RunFolder(out).open(to_dict(study))
    spent = _seconds_before(folder)
    began = time.perf_counter()
    with Progress("oscillator", total=len(study.runs), unit="models") as progress:

        def on_done(runs: Sequence[OscillatorRun], seconds: float) -> None:
            progress.advance(len(runs), f"{runs[0].name} and {len(runs) - 1} more: {seconds:.0f} s")

        records = execute(study, folder, jobs=jobs, on_done=on_done)
    result: dict[str, Any] = {"runs": records, "jobs": jobs, "wall_seconds": spent + time.perf_counter() - began}
    shown: list[dict[str, Any]] = records
    if is_sweep:
        selected = select(records)
        result["selected"] = {title: [record["name"] for record in group] for title, group in selected.items()}
        shown = [record for group in selected.values() for record in group]
        drawn = [record for title in _SWEEP_FIGURE for record in selected.get(title, [])]
    else:
        drawn = shown
    table = markdown_table(shown)
    write_text(out / "table.md", table)
    draw(drawn, out)
    folder.finish(result)
    print(table)


def _seconds_before(folder: RunFolder) -> float:
    """What earlier calls took; a damaged result is reported before hours are spent, and never overwritten unseen."""
    result = folder.result()
    if not folder.result_path.exists():
        return 0.0
    if not isinstance(result.get("runs"), list):
        raise InputError(
            f"{folder.result_path} is damaged: expected an object with a list `runs`. Nothing was changed. Remove it "
            f"and repeat the command: finished runs are kept in {folder.path / 'records'}."
        )
    return float(result.get("wall_seconds", 0.0))
