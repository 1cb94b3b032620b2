"""Models to and from others: `alewm share`, `import-lewm` and `export-lewm`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from alewm.cli.flags import Flag, Maybe, Several
from alewm.errors import InputError


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
    license: Maybe[str] = None
    """The licence you give the weights, for example apache-2.0 or mit. If not given, the card says that none is stated;
    of imported weights it states the licence of their source."""
    hub: Maybe[str] = None
    """OWNER/NAME: send the folder to this repository of the Hugging Face Hub, under which its card then names it.
    Needs the extra hub and a token (hf auth login)."""

    def run(self) -> None:
        """Writes the folder, and prints the success of its weights and its path."""
        from alewm.devices import find_device
        from alewm.evaluation.evaluate_run import interval_in_words, percent
        from alewm.files import read_json
        from alewm.interop.hub import check_hub_name, licence_in_card, push_to_hub
        from alewm.interop.pretrained import UNKNOWN_LICENCE, share_run

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
            licence=self.license,
        )
        if licence_in_card(shared) == UNKNOWN_LICENCE:
            print(
                "note: the card states no licence, so others may not use these weights. Repeat the command with "
                "--license, for example --license apache-2.0, to state one.",
                file=sys.stderr,
            )
        result = read_json(shared / "result.json")
        if "success_rate" not in result:
            print("note: success was not measured, because the task has no environment here (docs/own-task.md).")
        else:
            success = percent(result["success_rate"])
            print(f"success {success} of {result['episodes']} pairs ({interval_in_words(result)})")
        if self.hub is not None:
            print(push_to_hub(shared, self.hub))
        print(shared)


@dataclass(frozen=True)
class ImportLeWM:
    """Make a run of LeWM weights from elsewhere, which `alewm evaluate` and `alewm report` accept.

    Reads a folder with config.json and weights.pt, or a .pt file, with the encoder names of transformers 4 or 5.
    Nothing in the files is executed. Which episodes the weights were trained on is not recorded in them.
    """

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    """The folder, the .pt file, or a repository of the Hub (OWNER/NAME)."""
    out: Path
    """The run folder to make."""
    task: Maybe[str] = None
    """The task the weights were trained for; if not given, the one the data file is labelled with."""
    data: Maybe[Path] = None
    """An episode file: action statistics come from its training episodes, and it is what evaluation plans on."""
    action_mean: Several[float] = ()
    """Mean of each action dimension, where no data file gives it."""
    action_std: Several[float] = ()
    """Standard deviation of each action dimension."""
    rounds_pixels: Flag = False
    """Map patches in bfloat16, as training in mixed precision did. Released LeWM weights were trained so, and their
    latents in float32 may be off by a standard deviation; which of the two plans better, evaluation tells."""
    license: Maybe[str] = None
    """The licence of the weights as their source states it, for example mit. If not given, the one in the card
    (README.md) beside the weights; where that states none, a card of ours says that it is unknown."""

    def run(self) -> None:
        from alewm.interop.lewm import import_lewm

        run = import_lewm(
            self.path,
            self.out,
            task=self.task,
            data_path=self.data,
            action_mean=self.action_mean,
            action_std=self.action_std,
            rounds_pixels=self.rounds_pixels,
            license_id=self.license,
        )
        if "license" not in run.result()["training"]:
            print(
                "note: the source states no licence for these weights. Give --license where you know it; without one, "
                "what is shared of them says that it is unknown.",
                file=sys.stderr,
            )
        print(self.out)


@dataclass(frozen=True)
class ExportLeWM:
    """Write the newest checkpoint of a run as a folder that stable-worldmodel's `load_pretrained` opens.

    As a LeWM it needs nothing of ours, but LeWM has no capacities: an ALeWM is written at full width, or with
    --capacity at one of its capacities. With --whole it keeps them, and alewm must be installed where it is loaded.
    """

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run folder."""
    out: Path
    """The new folder for config.json and weights.pt."""
    capacity: Maybe[int] = None
    """Zero what lies beyond this many coordinates, so that plans are made with this prefix."""
    names: Maybe[Literal[4, 5]] = None
    """Encoder names of transformers 4 or 5, whichever is installed where the folder is loaded; if not given, of the
    version installed here, and of 5 where none is."""
    whole: Flag = False
    """Write the whole model, with its capacity network, behind the adapter of alewm."""

    def run(self) -> None:
        from alewm.interop.lewm import export_alewm, export_lewm

        if self.whole and (self.capacity is not None or self.names is not None):
            raise InputError("--whole keeps all capacities and our own names; --capacity and --names are for a LeWM.")
        if self.whole:
            exported = export_alewm(self.source, self.out)
        else:
            exported = export_lewm(self.source, self.out, capacity=self.capacity, generation=self.names)
        for note in exported.notes:
            print(f"note: {note}", file=sys.stderr)
        print(exported.path)
