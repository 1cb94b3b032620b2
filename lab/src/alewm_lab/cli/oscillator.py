"""`alewm-lab oscillator`: the toy study on a CPU."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from alewm.cli.flags import Flag, Maybe
from alewm.workers import num_processes

# Spelled out, not imported: importing the study would load torch for `--help`. A test compares the two.
_Variant = Literal[
    "lewm", "alewm", "alewm-paper", "remedies", "prior-frozen", "marginal", "alewm-sigreg", "nested-dropout"
]


@dataclass(frozen=True)
class Oscillator:
    """The toy study: does ALeWM gather four known factors in its first four coordinates?

    Trains LeWM and ALeWM on two controlled damped oscillators seen through a nonlinear ten-dimensional observation, and
    writes result.json, table.md, figure.png and figure.svg. Repeating the command continues where it stopped.
    """

    out: Path = Path("runs/oscillator")
    """Folder of the study; made if it does not exist."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One model per seed and setting; a seed fixes trajectories, initialisation, batches and noise."""
    epochs: Maybe[int] = None
    """Passes over the 5,000 training trajectories, for every model; if not given, the paper's 200, and 400 for our
    setting of ALeWM."""
    methods: tuple[_Variant, ...] = ("lewm", "alewm", "alewm-paper")
    """What to train: `lewm` (widths 4, 6 and 8), `alewm` (our recommended setting), `alewm-paper` (the paper's),
    `remedies` (the paper's with one thing changed about the selector: never updated, exact expectation, slower, delayed
    by 1/8 and 1/2, KL of 0.01 and 0.1), and controls of our setting: `prior-frozen` (selector never updated),
    `marginal` (exact expectation over capacities instead of a sample), `alewm-sigreg` (SIGReg on the masked latent) and
    `nested-dropout`."""
    jobs: int = 0
    """Processes to use; 0 means one per core."""
    sweep: Flag = False
    """Run the paper's search grids instead (12 weights x 7 LeWM widths, 12 weights x 7 prior degrees of ALeWM), select
    on validation data and report the selected settings on test data."""

    def run(self) -> None:
        """Trains what is missing and writes the results."""
        from alewm_lab.oscillator.run import run_study
        from alewm_lab.oscillator.study import default_study, sweep_study

        if self.sweep:
            study = sweep_study(self.seeds, self.epochs)
        else:
            study = default_study(self.seeds, self.epochs, self.methods)
        run_study(study, self.out, jobs=num_processes(self.jobs), is_sweep=self.sweep)
        print(self.out / "result.json")
