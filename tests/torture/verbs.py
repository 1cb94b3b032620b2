"""What the campaign disturbs: every command that writes files, small enough to be repeated hundreds of times."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

ALEWM, LAB = "alewm.cli.main", "alewm_lab.cli.main"
ENTRIES = (ALEWM, LAB) if find_spec("alewm_lab") else (ALEWM,)

_DATA = {"two-room.h5": "data"}
_TRAINED = {**_DATA, "two-room.splits.json": "splits", "run": "trained"}
_EVALUATED = {**_TRAINED, "run": "evaluated"}
_SEARCH = ("--candidates", "20", "--iterations", "2", "--device", "cpu")
_TRAIN = (
    *("train", "two-room-tiny", "--data", "two-room.h5", "--out", "run", "--device", "cpu"),
    *("--steps", "4", "--batch-size", "8", "--checkpoint-every", "1", "--log-every", "1"),
)


@dataclass(frozen=True)
class Verb:
    """A command, and what must be there before it."""

    name: str
    arguments: tuple[str, ...]
    needs: Mapping[str, str] = field(default_factory=dict)
    """Files and folders by their name here, with the name under which a verb before it left them."""
    makes: Mapping[str, str] = field(default_factory=dict)
    """Files and folders of it that later verbs need, with the name under which they ask for them."""
    varies: tuple[str, ...] = ()
    """Patterns of files that say how long something took, or that a repetition may add."""
    entry: str = ALEWM
    starts_processes: bool = False
    """Whether it starts others, which import everything again: each disturbance takes many seconds."""


_VERBS = (
    Verb(
        "collect",
        ("collect", "two-room", "--episodes", "6", "--image-size", "28", "--jobs", "1", "--out", "two-room.h5"),
        makes=_DATA,
    ),
    Verb(
        "convert",
        ("convert", "recordings", "--image-size", "16", "--jobs", "1", "--out", "converted.h5"),
        needs={"recordings": "recordings"},
    ),
    Verb("inspect", ("inspect", "two-room.h5"), needs=_DATA),
    Verb("train", _TRAIN, needs=_DATA, makes={name: key for name, key in _TRAINED.items() if name not in _DATA}),
    Verb("train again", _TRAIN, needs=_TRAINED),
    Verb("evaluate", ("evaluate", "run", *_SEARCH, "--animations", "1"), needs=_TRAINED),
    Verb(
        "evaluate --out run",
        ("evaluate", "run", *_SEARCH, "--animations", "1", "--out", "run"),
        needs=_TRAINED,
        makes={"run": "evaluated"},
    ),
    Verb(
        "probe",
        ("probe", "run", "--frames", "40", "--test-frames", "20", "--updates", "2", "--device", "cpu"),
        needs=_TRAINED,
    ),
    Verb(
        "distill",
        (
            *("distill", "run", "--capacity", "2", "--hidden", "8", "--horizon", "1", "--device", "cpu"),
            *("--updates", "10", "--batch-size", "8"),
        ),
        needs=_TRAINED,
    ),
    Verb("report", ("report", "run"), needs=_EVALUATED),
    Verb("share", ("share", "run", "--out", "shared", "--animations", "1", "--device", "cpu"), needs=_TRAINED),
    Verb("export-lewm", ("export-lewm", "run", "--out", "lewm"), needs=_TRAINED, makes={"lewm": "lewm"}),
    Verb(
        "import-lewm",
        ("import-lewm", "lewm", "--data", "two-room.h5", "--out", "imported"),
        needs={**_DATA, "lewm": "lewm"},
    ),
    Verb(
        "publish",
        ("publish", "run", "--allow-changes", "--out", "results/tiny"),
        needs=_EVALUATED,
        makes={"results": "results"},
        entry=LAB,
    ),
    Verb("results", ("results", "results", "--out", "page.md"), needs={"results": "results"}, entry=LAB),
    Verb(
        "oscillator",
        ("oscillator", "--seeds", "0", "--epochs", "1", "--jobs", "1", "--out", "study"),
        varies=("study/table.md",),
        entry=LAB,
    ),
    Verb(
        "sweep",
        (
            *("sweep", "two-room-tiny", "--data", "two-room.h5", *_SEARCH, "--jobs", "1"),
            *("--seeds", "0", "--set", "training.num_steps=2", "training.batch_size=8,4"),
        ),
        needs=_DATA,
        varies=("runs/sweeps/*",),
        starts_processes=True,
    ),
    Verb("demo", ("demo", "--scale", "smoke", "--out", "demo"), varies=("demo/report/*",), starts_processes=True),
    Verb(
        "experiment",
        ("experiment", "probes", "--scale", "smoke", "--seeds", "0", "--device", "cpu"),
        varies=("runs/experiments/*",),
        entry=LAB,
        starts_processes=True,
    ),
)

VERBS = tuple(verb for verb in _VERBS if verb.entry in ENTRIES)


def lay_out(verb: Verb, base: Path, root: Path) -> None:
    """An empty `root` but for what `verb` needs of `base`; always the same folder, since results name it."""
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, key in verb.needs.items():
        _copy(base / key, root / name)


def keep(verb: Verb, root: Path, base: Path) -> None:
    """Puts what later verbs need of `verb` into `base`."""
    for name, key in verb.makes.items():
        _copy(root / name, base / key)


def _copy(path: Path, to: Path) -> None:
    shutil.copytree(path, to) if path.is_dir() else shutil.copy2(path, to)
