"""`alewm-lab <verb>`: the commands that make and publish results."""

from typing import Annotated

import tyro

from alewm.cli.main import run_command
from alewm_lab.cli.bench import Bench
from alewm_lab.cli.experiment import ExperimentCommand
from alewm_lab.cli.oscillator import Oscillator
from alewm_lab.cli.publish import Publish
from alewm_lab.cli.results import ResultsCommand

Verb = (
    Annotated[ExperimentCommand, tyro.conf.subcommand("experiment")]
    | Annotated[Oscillator, tyro.conf.subcommand("oscillator")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Publish, tyro.conf.subcommand("publish")]
    | Annotated[ResultsCommand, tyro.conf.subcommand("results")]
)


def main() -> None:
    """The console command."""
    run_command(Verb, "alewm-lab", "The experiments, benchmarks and published results of alewm.")
