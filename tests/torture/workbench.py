"""Commands that are disturbed and repeated: what was left behind, lost or changed by it.

Every command runs in a real process. At one of its file-system steps it is killed, or a write is cut in half and the
command killed, or the disk is full from then on. Or it is killed after some time, or the disk takes so many bytes only.
A full disk must be one message. The repeated command must succeed, and leave the files of one that was never disturbed
and nothing else; numbers that are times are not compared.
"""

import json
import re
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "helpers")]

from forked_commands import Action, Done, ForkServer  # noqa: E402
from verbs import VERBS, Verb, keep, lay_out  # noqa: E402

from small_recordings import write_recordings  # noqa: E402

Files = dict[str, bytes]
_TIMES = re.compile("second|started")
_REFUSALS = re.compile("Another process|exists already|is being written|in use|not empty")


@dataclass(frozen=True)
class Undisturbed:
    """A command that nothing disturbed."""

    steps: int
    """File-system steps it made."""
    written: int
    """Bytes it wrote."""
    files: Files
    """What it left."""


@dataclass(frozen=True)
class Problem:
    """What may not be."""

    kind: str
    """stuck: the repetition failed. left behind: it left files too many. changed: files are missing or differ.
    unexplained: a command failed without a message."""
    place: str
    """Which command, and how it was disturbed."""
    detail: str

    def __str__(self) -> str:
        return f"{self.place}: {self.kind}: {self.detail}"


class Workbench:
    """Commands in one folder, disturbed one after the other."""

    def __init__(self, server: ForkServer, place: Path) -> None:
        self.server, self.base, self.root = server, place / "base", place / "root"
        self.root.mkdir()
        write_recordings(self.base / "recordings", [5, 6])
        self.seconds: dict[str, float] = {}
        """How long each command took when it was last run from its start to its end."""
        self._known: dict[str, Undisturbed] = {}
        for verb in VERBS:
            if verb.makes:
                self.undisturbed(verb)

    def undisturbed(self, verb: Verb) -> Undisturbed:
        """The command when nothing disturbs it, run once."""
        if verb.name not in self._known:
            lay_out(verb, self.base, self.root)
            began = time.perf_counter()
            done = self.server.run(self.root, verb.entry, *verb.arguments)
            assert done.status == 0, f"{verb.name}: {done.said}"
            self.seconds[verb.name] = time.perf_counter() - began
            self._known[verb.name] = Undisturbed(done.steps, done.written, files_in(self.root))
            keep(verb, self.root, self.base)
        return self._known[verb.name]

    def disturb(self, verb: Verb, action: Action, at: int) -> tuple[Done, list[Problem]]:
        """The command disturbed at a step or byte, and what is wrong after it was repeated."""
        known = self.undisturbed(verb)
        lay_out(verb, self.base, self.root)
        done = self.server.run(self.root, verb.entry, *verb.arguments, action=action, at=at)
        of = f"{at:,} of {known.written:,} bytes" if action == "size" else f"step {at} of {known.steps}"
        place = f"{verb.name}, {action} at {of}"
        problems = [] if action not in ("fill", "size") else _unexplained(done, place)
        return done, problems + self.repeated(verb, place)

    def kill_after(self, verb: Verb, seconds: float) -> tuple[Done, list[Problem]]:
        """The command killed after some time, and what is wrong after it was repeated."""
        self.undisturbed(verb)
        lay_out(verb, self.base, self.root)
        began = time.perf_counter()
        done = self.server.run(self.root, verb.entry, *verb.arguments, kill_after=seconds)
        if done.status == 0:
            self.seconds[verb.name] = time.perf_counter() - began
        return done, self.repeated(verb, f"{verb.name}, killed after {seconds:.3f} s")

    def run_together(self, verb: Verb, servers: Sequence[ForkServer]) -> list[Problem]:
        """What is wrong after the command was started several times at once, and repeated.

        Each of them succeeds, or says that another one is at work.
        """
        self.undisturbed(verb)
        lay_out(verb, self.base, self.root)
        found: list[Done] = []
        threads = [
            threading.Thread(target=lambda each=each: found.append(each.run(self.root, verb.entry, *verb.arguments)))
            for each in servers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        place = f"{verb.name}, {len(servers)} at once"
        wrong = [done for done in found if not _is_done_or_refused(done)]
        problems = [
            Problem("unexplained", place, f"status {done.status}: {done.said.strip()[-400:]}") for done in wrong
        ]
        if all(done.status for done in found):
            problems.append(Problem("stuck", place, "none of them succeeded"))
        return problems + self.repeated(verb, place)

    def repeated(self, verb: Verb, place: str) -> list[Problem]:
        """What is wrong after the command was repeated without disturbance."""
        known = self.undisturbed(verb).files
        done = self.server.run(self.root, verb.entry, *verb.arguments)
        if done.status:
            return [Problem("stuck", place, done.said.strip()[-400:])]
        found = files_in(self.root)
        too_many = sorted(name for name in found.keys() - known.keys() if not _varies(verb, name))
        differing = [
            name for name in known if not (_is_same(name, known[name], found.get(name)) or _varies(verb, name))
        ]
        problems = [Problem("left behind", place, ", ".join(too_many))] if too_many else []
        return problems + ([Problem("changed", place, ", ".join(differing))] if differing else [])


def _is_done_or_refused(done: Done) -> bool:
    return done.status == 0 or (done.status == 2 and "Traceback" not in done.said and bool(_REFUSALS.search(done.said)))


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


def _unexplained(done: Done, place: str) -> list[Problem]:
    """The problem of a command that met a full disk and did not say so; none if it did not need the space."""
    is_said = done.status == 2 and "the disk is full" in done.said and "Traceback" not in done.said
    return [] if done.status == 0 or is_said else [Problem("unexplained", place, done.said.strip()[-400:])]


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
