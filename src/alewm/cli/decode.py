"""`alewm decode`: a decoder that draws what each prefix of a run's latent holds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from alewm.cli.flags import Maybe


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
