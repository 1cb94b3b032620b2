"""`alewm report`: one page for a run, for several side by side, or for all that were published."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Report:
    """Write one self-contained HTML page about runs: curves, capacities, success with intervals, rollouts, settings.

    For folders of `alewm experiment`: their tables and figures, with the commands behind every number. With `--out
    PAGE.md`: a Markdown page of what `alewm publish` keeps in a folder, for example `alewm report results --out
    docs/results.md`.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")]
    """Run folders (those below RUN/evaluations are runs too), folders of experiments, or the folder of published
    runs."""
    out: Path | None = None
    """The folder to write index.html and figures/ to; if not given, `report` in the run's folder, or beside it for
    several. Or the Markdown page to write."""

    def run(self) -> None:
        """Writes the page."""
        from alewm.errors import InputError
        from alewm.reports.experiments import is_experiment, write_experiments_report
        from alewm.reports.report import write_report
        from alewm.reports.results_page import write_results_page

        if not self.runs:
            raise InputError("Name at least one run folder: alewm report RUN.")
        if self.out is not None and self.out.suffix == ".md":
            if len(self.runs) > 1:
                raise InputError(f"A Markdown page is made of one folder of published runs, got {len(self.runs)}.")
            print(write_results_page(self.runs[0], self.out))
            return
        experiments = [folder for folder in self.runs if is_experiment(folder)]
        if experiments and len(experiments) < len(self.runs):
            raise InputError("Some of these folders are runs and some are experiments; make a page of either kind.")
        write = write_experiments_report if experiments else write_report
        home = self.runs[0] if len(self.runs) == 1 else self.runs[0].parent
        print(write(self.runs, self.out or home / "report"))
