"""`alewm explore`: a local page on which one plans with trained models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from alewm.cli.flags import Flag, Maybe


@dataclass(frozen=True)
class Explore:
    """Open a page on this machine: choose a start, a goal and a capacity, plan, and watch what the model imagines.

    Two runs of the same task plan side by side to the same goal. The page works without a network and answers only
    browsers on this machine. Needs the extra `explore`; imagined frames need `alewm decode RUN`.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN2]")]
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
