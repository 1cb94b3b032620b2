"""`alewm-lab results`: pages made from published records or from experiments."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from alewm.cli.flags import Maybe


@dataclass(frozen=True)
class ResultsCommand:
    """Write the results page from published records, or one HTML page about experiments.

    Every number on the page comes from the records, with the command that made it.
    """

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[FOLDER ...]")] = (
        Path("results"),
    )
    """The folder of published records, or folders of `alewm-lab experiment`."""
    out: Maybe[Path] = None
    """The Markdown page to write, docs/results.md if not given. For experiments, the folder of the HTML page; if not
    given, `report` beside them."""

    def run(self) -> None:
        """Writes the page and prints its path."""
        from alewm.errors import InputError
        from alewm_lab.publishing.experiments_page import is_experiment, write_experiments_report
        from alewm_lab.publishing.results_page import write_results_page

        experiments = [folder for folder in self.folders if is_experiment(folder)]
        if experiments and len(experiments) < len(self.folders):
            raise InputError("Some of these folders hold records and some are experiments; make a page of either kind.")
        if experiments:
            home = self.folders[0] if len(self.folders) == 1 else self.folders[0].parent
            print(write_experiments_report(experiments, self.out or home / "report"))
            return
        if len(self.folders) != 1:
            raise InputError(f"The results page is made of one folder of records, got {len(self.folders)}.")
        print(write_results_page(self.folders[0], self.out or Path("docs/results.md")))
