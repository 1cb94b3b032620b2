"""`alewm report`: one page for a run, or for several side by side."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from alewm.cli.flags import Maybe


@dataclass(frozen=True)
class Report:
    """Write one self-contained HTML page about runs: films, imagined frames, capacities, success, curves."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...", help_behavior_hint="")]
    """Run folders; those below RUN/evaluations are runs too."""
    out: Maybe[Path] = None
    """The folder to write index.html and figures/ to; if not given, `report` in the run's folder, or beside it for
    several."""

    data: Maybe[Path] = None
    """The data file, if it is no longer where the run was trained; what the run imagines is measured on it."""

    def run(self) -> None:
        from alewm.errors import InputError
        from alewm.report.page import write_report

        if not self.runs:
            raise InputError("Name at least one run folder: alewm report RUN.")
        home = self.runs[0] if len(self.runs) == 1 else self.runs[0].parent
        print(write_report(self.runs, self.out or home / "report", data_path=self.data))
