"""Published records to change at will: copies of one that is in the repository."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from alewm.reports.results_page import results_page

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
EXAMPLE = RESULTS / "two-room-short" / "alewm-192-3073"
OF_EXAMPLE = {
    "success_rate": 0.985,
    "interval": [0.957, 0.995],
    "success_rate_nontrivial": 0.9838,
    "interval_nontrivial": [0.953, 0.994],
}
"""What copies of it say instead, so that tests do not depend on how well some model plans."""


def publisher(folder: Path) -> Callable[..., Path]:
    """A function that publishes a copy of the example below `folder` with other values in some files."""
    (folder / "results").mkdir()
    shutil.copyfile(RESULTS / "paper.json", folder / "results" / "paper.json")

    def publish(name, *, config=(), evaluation="", **result):
        place = folder / "results" / "here" / name
        if not place.exists():
            shutil.copytree(EXAMPLE, place, ignore=shutil.ignore_patterns("evaluations"))
            change(place / "result.json", OF_EXAMPLE)
            provenance = json.loads((place / "provenance.json").read_text())
            del provenance["data"]["made_with"]  # as if the file had come from elsewhere
            (place / "provenance.json").write_text(json.dumps(provenance))
        change(place / "config.json", dict(config))
        if evaluation:
            (place / "evaluations" / evaluation).mkdir(parents=True)
            shutil.copyfile(place / "result.json", place / "evaluations" / evaluation / "result.json")
            place = place / "evaluations" / evaluation
        change(place / "result.json", result)
        return folder / "results"

    return publish


def change(path: Path, changes: dict) -> None:
    content = json.loads(path.read_text())
    for name, value in changes.items():
        *outer, last = name.split(".")
        place = content
        for part in outer:
            place = place[part]
        place[last] = value
    path.write_text(json.dumps(content))


def page_of(results: Path) -> str:
    return results_page(results, results.parent / "docs" / "results.md")[0]
