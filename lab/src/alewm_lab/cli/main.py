"""`alewm-lab <verb>`: the commands that make and publish results; `publish` and `results` are here."""

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from alewm.cli.flags import Flag, Maybe
from alewm.cli.main import run_command
from alewm_lab.cli.bench import Bench
from alewm_lab.cli.experiment import CellJob, ExperimentCommand, Oscillator

_PLURAL = {"run": "runs", "evaluation": "evaluations", "measurement": "measurements", "study": "studies"}


@dataclass(frozen=True)
class Publish:
    """Write the records of finished runs to one new file: settings, results, evaluated pairs, thinned metrics.

    No weights, no absolute paths, no host names. The file is gzip with JSON lines (results/README.md has the columns)
    and holds what its folder does not have yet. Published files are never changed: repeating the command writes
    nothing, and a run that was published with other content is refused. `alewm-lab results --out docs/results.md`
    then makes the page.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")]
    """Finished and evaluated run folders; what is below RUN/evaluations comes along. Or an oscillator study."""
    out: Annotated[Path, tyro.conf.arg(aliases=("--to",))]
    """The folder of the group they belong to, for example results/two-room-short."""
    allow_changes: Flag = False
    """Also take runs whose code no commit has, as their provenance says."""

    def run(self) -> None:
        """Writes, and prints what is new and the file."""
        from alewm.errors import InputError
        from alewm_lab.publishing.publish import publish_runs

        if not self.runs:
            raise InputError("Name at least one run folder: alewm-lab publish RUN --out results/NAME.")
        published = publish_runs(self.runs, self.out, allow_changes=self.allow_changes)
        for path in published.left_out:
            print(f"left out, too large: {path} ({path.stat().st_size:,} bytes)", file=sys.stderr)
        if published.path is None:
            print(f"nothing new: {self.out} holds all of it already")
            return
        counts = Counter(part.kind for part in published.parts)
        kinds = ", ".join(f"{count} {kind if count == 1 else _PLURAL[kind]}" for kind, count in counts.items())
        print(f"{kinds}, {published.path.stat().st_size:,} bytes")
        print(published.path)


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
    marked: Maybe[Path] = None
    """Also write the table of ALeWM beside LeWM into this page, for example README.md, between its lines
    `<!-- results: ... -->` and `<!-- /results -->`."""

    def run(self) -> None:
        """Writes the page and prints its path."""
        from alewm.errors import InputError
        from alewm_lab.publishing.experiment_page import is_experiment, write_experiments_report
        from alewm_lab.publishing.main_results import write_marked
        from alewm_lab.publishing.results_page import write_results_page

        experiments = [folder for folder in self.folders if is_experiment(folder)]
        if experiments and len(experiments) < len(self.folders):
            raise InputError("Some of these folders hold records and some are experiments; make a page of either kind.")
        if experiments and self.marked is not None:
            raise InputError("--marked takes its table from published records, and these folders are experiments.")
        if experiments:
            home = self.folders[0] if len(self.folders) == 1 else self.folders[0].parent
            print(write_experiments_report(experiments, self.out or home / "report"))
            return
        if len(self.folders) != 1:
            raise InputError(f"The results page is made of one folder of records, got {len(self.folders)}.")
        if self.marked is not None:
            write_marked(self.marked, self.folders[0])
        print(write_results_page(self.folders[0], self.out or Path("docs/results.md")))


VERBS = {
    "run": {
        "experiment": (ExperimentCommand, "train and evaluate what a table of the paper needs"),
        "cell": (CellJob, "train one model of the main table and do everything about it at once"),
        "oscillator": (Oscillator, "the toy study: the whole idea on a CPU in about a minute"),
        "bench": (Bench, "measure a fast path on this machine; the last line is JSON"),
    },
    "publish": {
        "publish": (Publish, "copy the records of finished runs into results/"),
        "results": (ResultsCommand, "write the page of results from the published records"),
    },
}


def main() -> None:
    """The console command."""
    run_command(VERBS, "alewm-lab", "The experiments, benchmarks and published results of alewm.")
