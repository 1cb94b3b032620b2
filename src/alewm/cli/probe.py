"""`alewm probe`: what the prefixes of a trained latent say of the true state."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from alewm.cli.flags import Maybe, Several


@dataclass(frozen=True)
class Probe:
    """Read the true state from every prefix of a trained model's latent, by a linear map and by a small network.

    Prints R² on held-out episodes for each part of the state that one frame shows. What is near 0 there is not in the
    latent, and no plan in it can reach for it. Kept in RUN/measurements/probes.json, which is published with the run.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...", help_behavior_hint="")]
    """Run folders of `alewm train`, or folders of shared models."""
    data: Maybe[Path] = None
    """The data file, if it is no longer where the run was trained."""
    capacities: Several[int] = ()
    """Lengths of the prefixes; if not given, those the model supports."""
    frames: int = 20_000
    """Frames of training episodes that probes are fitted to, at most."""
    test_frames: int = 5_000
    """Frames of test episodes that they are scored on, at most."""
    updates: int = 3_000
    """Updates of the networks."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda, cuda:1 or mps."""

    WHEN_INTERRUPTED: ClassVar[str] = "Nothing is kept of unfinished probes; repeat the command to start again."

    def run(self) -> None:
        """Probes the runs one after the other and prints a table of each."""
        from alewm.devices import find_device
        from alewm.errors import InputError
        from alewm.evaluation.probes import probe_run, probe_table

        if not self.runs:
            raise InputError("Name a run folder: alewm probe RUN.")
        for name in ("frames", "test_frames", "updates"):
            if getattr(self, name) < 2:
                raise InputError(f"--{name.replace('_', '-')} must be at least 2, got {getattr(self, name)}.")
        device = find_device(self.device)
        amounts = {"num_train": self.frames, "num_test": self.test_frames, "num_steps": self.updates}
        for run in self.runs:
            print(f"reading at most {self.frames + self.test_frames:,} frames with {run}", file=sys.stderr)
            path, measured = probe_run(run, self.capacities, amounts, data_path=self.data, device=device)
            print(probe_table(measured))
            print(path)
