"""What one looks at of a trained run: `alewm probe`, `decode`, `explore` and `report`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from alewm.cli.flags import Flag, Maybe, Several


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


@dataclass(frozen=True)
class Decode:
    """Fit a small decoder to a trained model's frozen latents, so that what it imagines can be seen.

    One network draws frames from prefixes of every capacity. Writes RUN/decoder with a picture of held-out frames,
    recorded and decoded from each capacity; `alewm report RUN` and `alewm explore RUN` use it. The model itself is not
    changed and needs no decoder to plan. Repeating the command finds what is there.
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder of `alewm train`, or the folder of a shared model."""
    data: Maybe[Path] = None
    """The data file, if it is no longer where the run was trained."""
    frames: int = 20_000
    """Training frames to fit."""
    updates: int = 3000
    """Updates."""
    batch_size: int = 128
    """Frames per update."""
    learning_rate: float = 2e-3
    """Highest learning rate."""
    hidden: int = 96
    """Units of the hidden layer."""
    channels: int = 24
    """Channels of the feature maps."""
    seed: int = 3072
    """Of the first weights and the order of frames."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda, cuda:1 or mps."""

    def run(self) -> None:
        """Writes the folder, and prints the errors by capacity and the path of the picture."""
        from alewm.devices import find_device
        from alewm.evaluation.decoder import EXAMPLES, DecodeConfig, decode, decoder_table

        config = DecodeConfig(
            hidden_dim=self.hidden,
            channels=self.channels,
            num_updates=self.updates,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            num_frames=self.frames,
            seed=self.seed,
        )
        found = decode(self.run_folder, config, data_path=self.data, device=find_device(self.device))
        print(decoder_table(found.description))
        print(found.path / EXAMPLES)


@dataclass(frozen=True)
class Explore:
    """Open a page on this machine: choose a start, a goal and a capacity, plan, and watch what the model imagines.

    Two runs of the same task plan side by side to the same goal. The page works without a network and answers only
    browsers on this machine. Needs the extra `explore`; imagined frames need `alewm decode RUN`.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN2]", help_behavior_hint="")]
    """One run folder or two."""
    data: Maybe[Path] = None
    """The data file, if it is no longer where the run was trained and the run brings no pairs."""
    port: Maybe[int] = None
    """The port to listen on; if not given, the first free one from 7860 on."""
    public: Flag = False
    """Listen to other machines too, as a Hugging Face Space does, with at most 300 candidates and 30 iterations."""

    WHEN_INTERRUPTED: ClassVar[str] = "The page is closed; nothing was written."

    def run(self) -> None:
        """Prints the address and serves until it is interrupted."""
        from alewm.explorer.page import explore

        explore(self.runs, data_path=self.data, is_public=self.public).launch(self.port)


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
