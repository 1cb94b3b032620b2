"""`alewm-lab <verb>`: the commands that make and publish results."""

from alewm.cli.main import run_command
from alewm_lab.cli.bench import Bench
from alewm_lab.cli.cell import CellJob
from alewm_lab.cli.experiment import ExperimentCommand
from alewm_lab.cli.oscillator import Oscillator
from alewm_lab.cli.publish import Publish
from alewm_lab.cli.results import ResultsCommand

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
