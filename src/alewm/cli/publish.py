"""`alewm publish`: the small files behind a result, copied from run folders to where they are kept."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Publish:
    """Copy what numbers can be checked with from finished runs: settings, results, episodes, thinned metrics.

    No weights, no absolute paths, no host names. Repeating the command changes nothing; `alewm report results --out
    docs/results.md` then makes the page.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")]
    """Finished and evaluated run folders; what is below RUN/evaluations comes along. Or an oscillator study."""
    out: Annotated[Path, tyro.conf.arg(aliases=("--to",))]
    """The folder for them, for example results/two-room-short, and results itself for a study; each gets a folder of
    its name in it."""
    allow_changes: bool = False
    """Also take runs whose code no commit has, as their provenance says."""

    def run(self) -> None:
        """Copies, and prints the size and the folders."""
        from alewm.errors import InputError
        from alewm.reports.publish import publish_runs

        if not self.runs:
            raise InputError("Name at least one run folder: alewm publish RUN --out results/NAME.")
        published = publish_runs(self.runs, self.out, allow_changes=self.allow_changes)
        for path in published.left_out:
            print(f"left out, too large: {path} ({path.stat().st_size:,} bytes)", file=sys.stderr)
        print(f"{len(published.folders)} runs, {published.num_bytes:,} bytes")
        print(self.out)
