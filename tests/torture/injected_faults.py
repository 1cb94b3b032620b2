"""Every command is disturbed at its file-system steps and repeated: `python tests/torture/injected_faults.py --help`.

At a step the command is killed, or a write is cut in half and the command killed, or the disk is full from then on. A
full disk must be one message. The repeated command must succeed, and leave the files of one that was never disturbed
and nothing else; numbers that are times are not compared.
"""

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "helpers")]

from forked_commands import Action, Done, ForkServer  # noqa: E402
from verbs import ENTRIES, VERBS, Verb, keep, lay_out  # noqa: E402

from small_recordings import write_recordings  # noqa: E402

Files = dict[str, bytes]

PROBLEMS = ("stuck", "left behind", "changed", "unexplained")
"""What can be wrong: the repetition failed; it left files too many; files are missing or differ; a full disk was no
message."""
_TIMES = re.compile("second|started")


@dataclass
class Row:
    """What became of one verb."""

    steps: int
    kills: int = 0
    full: int = 0
    problems: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PROBLEMS, 0))


class Campaign:
    """Commands in one folder, disturbed one after the other."""

    def __init__(self, server: ForkServer, place: Path) -> None:
        self.server, self.base, self.root = server, place / "base", place / "root"
        self.root.mkdir()
        write_recordings(self.base / "recordings", [5, 6])
        self.undisturbed: dict[str, Files] = {}
        self.rows: dict[str, Row] = {}
        for verb in VERBS:
            if verb.makes:
                self.steps(verb)

    def steps(self, verb: Verb) -> int:
        """The steps of the command when nothing disturbs it; what it leaves then is remembered."""
        if verb.name not in self.rows:
            done = self._run(verb)
            assert done.status == 0, f"{verb.name}: {done.said}"
            self.undisturbed[verb.name] = files_in(self.root)
            self.rows[verb.name] = Row(done.steps)
            keep(verb, self.root, self.base)
        return self.rows[verb.name].steps

    def disturb(self, verb: Verb, at: int, action: Action) -> list[str]:
        """What is wrong after `verb` was disturbed at step `at` and repeated; empty if nothing is."""
        self.steps(verb)
        known, row = self.undisturbed[verb.name], self.rows[verb.name]
        disturbed = self._run(verb, action, at)
        row.kills += disturbed.status == -9
        row.full += action == "fill"
        repeated = self.server.run(self.root, verb.entry, *verb.arguments)
        found = files_in(self.root)
        differing = [name for name in known if not _is_same(name, known[name], found.get(name))]
        problems = {
            "stuck": [repeated.said.strip()[-300:]] if repeated.status else [],
            "left behind": [name for name in sorted(found.keys() - known.keys()) if not _varies(verb, name)],
            "changed": [] if repeated.status else [name for name in differing if not _varies(verb, name)],
            "unexplained": [] if action != "fill" or _is_explained(disturbed) else [disturbed.said.strip()[-300:]],
        }
        for kind, names in problems.items():
            row.problems[kind] += bool(names)
        where = f"{verb.name}, {action} at step {at} of {row.steps}"
        return [f"{where}: {kind}: {', '.join(names)}" for kind, names in problems.items() if names]

    def table(self) -> str:
        """One line per verb."""
        rows = {name: [row.steps, row.kills, row.full, *row.problems.values()] for name, row in self.rows.items()}
        rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
        head = ("verb", "steps", "kills", "full disks", *PROBLEMS)
        lines = [head, *((name, *map(str, counts)) for name, counts in rows.items())]
        return "\n".join(
            "".join(f"{cell:<20}" if i == 0 else f"{cell:>13}" for i, cell in enumerate(line)) for line in lines
        )

    def _run(self, verb: Verb, action: Action = "count", at: int = 0) -> Done:
        lay_out(verb, self.base, self.root)
        return self.server.run(self.root, verb.entry, *verb.arguments, action=action, at=at)


def files_in(folder: Path) -> Files:
    """The content of all files below `folder`, by relative path; empty folders count too."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file():
            found[name] = path.read_bytes()
        elif path.is_dir() and not any(path.iterdir()):
            found[f"{name}/"] = b""
    return found


def _varies(verb: Verb, name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in verb.varies)


def _is_explained(done: Done) -> bool:
    """Whether a command that met a full disk has said so, or did not need the space."""
    return done.status == 0 or (done.status == 2 and "the disk is full" in done.said and "Traceback" not in done.said)


def _is_same(name: str, expected: bytes, found: bytes | None) -> bool:
    if found is None or expected == found:
        return found is not None
    if not name.endswith((".json", ".jsonl")):
        return False
    try:
        return [_without_times(each) for each in _values(expected)] == [_without_times(each) for each in _values(found)]
    except ValueError:
        return False


def _values(content: bytes) -> list[Any]:
    try:
        return [json.loads(content)]
    except ValueError:
        return [json.loads(line) for line in content.splitlines()]


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(each) for name, each in value.items() if not _TIMES.search(name)}
    return [_without_times(each) for each in value] if isinstance(value, list) else value


def chosen(campaign: Campaign, verbs: Sequence[Verb], seed: int) -> Iterator[tuple[Verb, int, Action]]:
    """Every step of every verb in a random order, verbs by turns, those that start processes seldom."""
    draw = random.Random(seed)
    waiting: dict[str, list[tuple[Verb, int, Action]]] = {}
    for verb in verbs:
        actions: tuple[Action, ...] = ("kill", "kill", "tear", "fill")
        waiting[verb.name] = [(verb, at, draw.choice(actions)) for at in range(1, campaign.steps(verb) + 1)]
        draw.shuffle(waiting[verb.name])
    turn = 0
    while any(waiting.values()):
        for verb in verbs:
            if waiting[verb.name] and (turn % 16 == 0 or not verb.starts_processes):
                yield waiting[verb.name].pop()
        turn += 1


def main() -> None:
    """The campaign, for as long as it may take."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the order of steps and of what happens there")
    parser.add_argument("--seconds", type=float, default=300, help="afterwards no further step is tried")
    parser.add_argument("--verbs", nargs="*", default=[verb.name for verb in VERBS], help="only these")
    asked = parser.parse_args()
    deadline, wrong = time.monotonic() + asked.seconds, 0
    with tempfile.TemporaryDirectory() as place, ForkServer(ENTRIES) as server:
        campaign = Campaign(server, Path(place).resolve())
        for case in chosen(campaign, [verb for verb in VERBS if verb.name in asked.verbs], asked.seed):
            if time.monotonic() > deadline:
                break
            for problem in campaign.disturb(*case):
                print(problem, flush=True)
                wrong += 1
        print(campaign.table())
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
