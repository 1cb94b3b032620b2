"""`alewm-lab publish`: the records behind results, from run folders to one file."""

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from alewm.cli.flags import Flag

_PLURAL = {"run": "runs", "evaluation": "evaluations", "measurement": "measurements", "study": "studies"}


@dataclass(frozen=True)
class Publish:
    """Write the records of finished runs to one new file: settings, results, evaluated pairs, thinned metrics.

    No weights, no absolute paths, no host names. The file is gzip with JSON lines (results/README.md has the columns)
    and holds what its folder does not have yet. Published files are never changed: repeating the command writes
    nothing, and a run that was published with other content is refused. `alewm-lab results --out docs/results.md`
    then makes the page.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")]
    """Finished and evaluated run folders; what is below RUN/evaluations comes along. Or an oscillator study."""
    out: Annotated[Path, tyro.conf.arg(aliases=("--to",))]
    """The folder of the group they belong to, for example results/two-room-short."""
    allow_changes: Flag = False
    """Also take runs whose code no commit has, as their provenance says."""

    def run(self) -> None:
        """Writes, and prints what is new and the file."""
        from alewm.errors import InputError
        from alewm_lab.publishing.publish import publish_runs

        if not self.runs:
            raise InputError("Name at least one run folder: alewm-lab publish RUN --out results/NAME.")
        published = publish_runs(self.runs, self.out, allow_changes=self.allow_changes)
        for path in published.left_out:
            print(f"left out, too large: {path} ({path.stat().st_size:,} bytes)", file=sys.stderr)
        if published.path is None:
            print(f"nothing new: {self.out} holds all of it already")
            return
        counts = Counter(part.kind for part in published.parts)
        kinds = ", ".join(f"{count} {kind if count == 1 else _PLURAL[kind]}" for kind, count in counts.items())
        print(f"{kinds}, {published.path.stat().st_size:,} bytes")
        print(published.path)
