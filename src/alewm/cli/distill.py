"""`alewm distill`: small dynamics in the coordinates a run plans with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from alewm.cli.flags import Maybe


@dataclass(frozen=True)
class Distill:
    """Fit a small network to a trained model's latent dynamics, so that plans take a fraction of the time.

    Encodes the training episodes once with the run's encoder and fits a network of two hidden layers that predicts the
    first k coordinates from themselves and an action block. There is one network for each capacity that pairs of
    training episodes choose. Writes RUN/distilled; `alewm evaluate RUN --dynamics distilled` plans with it. Repeating
    the command finds what is there.
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder of `alewm train`, or the folder of a shared model."""
    capacities: Annotated[tuple[int, ...], tyro.conf.arg(help_behavior_hint="", name="capacity")] = ()
    """Capacities to distil, for example 8 or 8 16; if not given, those that pairs of training episodes choose."""
    data: Maybe[Path] = None
    """The data file, if it is no longer where the run was trained."""
    episodes: int = 0
    """Training episodes to encode, the first ones; 0 for all."""
    hidden: int = 128
    """Units of each of the two hidden layers."""
    horizon: int = 5
    """Blocks of actions that the network is fitted to roll out; that of planning."""
    updates: int = 3000
    """Updates of each network."""
    batch_size: int = 256
    """Windows per update."""
    learning_rate: float = 3e-3
    """Highest learning rate."""
    seed: int = 3072
    """Of the first weights and the order of windows."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda, cuda:1 or mps."""
    out: Maybe[Path] = None
    """Another folder for the networks; evaluate with --dynamics FOLDER then."""

    WHEN_INTERRUPTED: ClassVar[str] = "Finished networks are kept; repeat the command to continue."

    def run(self) -> None:
        """Writes the folder, prints the errors beside those of the model's own predictor, and its path."""
        from alewm.devices import find_device
        from alewm.evaluation.distill_run import distill, distill_table
        from alewm.training.distill import DistillConfig

        config = DistillConfig(
            hidden_dim=self.hidden,
            horizon=self.horizon,
            num_updates=self.updates,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            num_episodes=self.episodes,
            seed=self.seed,
        )
        device = find_device(self.device)
        found = distill(self.run_folder, self.capacities, config, data_path=self.data, out=self.out, device=device)
        print(distill_table(found.networks))
        print(found.path)
