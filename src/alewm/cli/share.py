"""`alewm share`: a trained model as a folder others can evaluate in one command."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from alewm.cli.flags import Maybe


@dataclass(frozen=True)
class Share:
    """Write a finished run's weights, card and held-out pairs into a folder, with the success of those very weights.

    `alewm evaluate FOLDER` then repeats the evaluation without the data, and says how many episodes ended as published.
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A finished run folder of `alewm train`."""
    out: Path
    """The new folder, for example pretrained/two-room-tiny."""
    weights: Literal["float32", "bfloat16"] = "float32"
    """How matrices are stored; bfloat16 halves the file."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda, cuda:1 or mps."""
    animations: int = 2
    """Episodes to film."""
    hub: Maybe[str] = None
    """OWNER/NAME: send the folder to this repository of the Hugging Face Hub, under which its card then names it.
    Needs the extra hub and a token (hf auth login)."""

    def run(self) -> None:
        """Writes the folder, and prints the success of its weights and its path."""
        from alewm.devices import find_device
        from alewm.errors import InputError
        from alewm.evaluation.evaluate_run import interval_in_words, percent
        from alewm.files import read_json
        from alewm.interop.hub import check_hub_name, push_to_hub
        from alewm.interop.pretrained import share_run

        if self.animations < 0:
            raise InputError(f"--animations must not be negative, got {self.animations}.")
        if self.hub is not None:
            check_hub_name(self.hub)
        shared = share_run(
            self.run_folder,
            self.out,
            weights=self.weights,
            device=find_device(self.device),
            num_animations=self.animations,
            name=self.hub,
        )
        result = read_json(shared / "result.json")
        print(f"success {percent(result['success_rate'])} of {result['episodes']} pairs ({interval_in_words(result)})")
        if self.hub is not None:
            print(push_to_hub(shared, self.hub))
        print(shared)
