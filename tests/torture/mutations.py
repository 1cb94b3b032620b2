"""Mutated inputs: thousands of files damaged by a seed, and what the readers make of each.

    python tests/torture/mutations.py --count 1000 --seed 0

Each subject is a folder of sound files and a way to use all of them. Every case copies the folder, damages one file by
bits, bytes, JSON values or HDF5 objects, and uses it again. The outcome is one of

    refused      an InputError that names the damaged file
    unnamed      an InputError that does not say which file is at fault
    same         the numbers are those of the sound files
    noted        other numbers, accepted with a note that the sound files do not get
    changed      other numbers, accepted without a word; allowed only where a subject has no checksums
    traceback    any other exception
    hang         no outcome within the time limit
    crash        the process died

A table of counts is printed, then every case that may not be, with the arguments that repeat it.
"""

import argparse
import io
import json
import multiprocessing
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "helpers")]

OUTCOMES = ("refused", "same", "noted", "changed", "unnamed", "traceback", "hang", "crash")

TIME_LIMIT_SECONDS = 10
START_LIMIT_SECONDS = 90
"""Of a process, until its first case is done."""
MEMORY_LIMIT_BYTES = 3 * 2**30
"""Beyond what the process had before the first case."""

Damage = Callable[[Path, np.random.Generator], str]
"""Damages the file in place; returns what was done."""


class Subject(NamedTuple):
    """Files and a way to use them."""

    make: Callable[[Path], None]
    """Writes sound files into a folder."""
    use: Callable[[Path], tuple[object, list[str]]]
    """Uses all of them; returns the numbers that must not change, and what was said of the files."""
    damaged: tuple[str, ...]
    """Names of the files that are damaged in turn."""
    is_sealed: bool
    """Whether checksums cover all of them, so that no change may be accepted."""
    is_slow: bool = False
    """Whether a case starts processes; there are fewer of them then."""


class Case(NamedTuple):
    """One damaged file and what came of it."""

    subject: str
    number: int
    file: str
    damage: str
    outcome: str
    message: str


# Damage to bytes.


def flip_bits(path: Path, rng: np.random.Generator) -> str:
    content = bytearray(path.read_bytes())
    places = rng.integers(len(content), size=rng.integers(1, 5))
    for place in places:
        content[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)
    return f"bits flipped in bytes {places.tolist()}"


def overwrite(path: Path, rng: np.random.Generator) -> str:
    content = bytearray(path.read_bytes())
    start, length = int(rng.integers(len(content))), int(rng.integers(1, 600))
    kind = int(rng.integers(3))
    filling = (bytes(length), b"\xff" * length, rng.bytes(length))[kind]
    content[start : start + length] = filling[: len(content) - start]
    path.write_bytes(content)
    return f"bytes {start} to {start + length} set to {('zeros', 'ones', 'noise')[kind]}"


def cut_or_extend(path: Path, rng: np.random.Generator) -> str:
    content = path.read_bytes()
    if rng.random() < 0.6:
        length = int(rng.integers(len(content)))
        path.write_bytes(content[:length])
        return f"cut to {length} of {len(content)} bytes"
    path.write_bytes(content + rng.bytes(int(rng.integers(1, 300))))
    return "noise appended"


def move_bytes(path: Path, rng: np.random.Generator) -> str:
    content = path.read_bytes()
    source, target = (int(place) for place in rng.integers(len(content), size=2))
    length = int(rng.integers(1, 400))
    piece = content[source : source + length]
    kind = int(rng.integers(3))
    if kind == 0:  # copied over others
        content = content[:target] + piece + content[target + len(piece) :]
    elif kind == 1:  # inserted
        content = content[:target] + piece + content[target:]
    else:  # taken out
        content = content[:source] + content[source + length :]
    path.write_bytes(content)
    return f"{length} bytes at {source} {('copied over', 'inserted at', 'removed,')[kind]} {target}"


BYTES: tuple[Damage, ...] = (flip_bits, overwrite, cut_or_extend, move_bytes)


# Damage to JSON.

DEEP = "[" * 100_000 + "]" * 100_000
HOSTILE = (
    *(
        "null",
        "true",
        "-1",
        "0",
        "1.5",
        "1e308",
        "1e999",
        "NaN",
        "-Infinity",
        "9" * 4400,
        '"x"',
        '""',
        '"\\ud800"',
        "[]",
    ),
    *("{}", "[[]]", "[null]", '{"a": {}}', '["a", 1]', DEEP, "2147483648", "-9223372036854775809", "[1, 2, 3, 4, 5]"),
)
MARK = "replaced here"


def replace_value(path: Path, rng: np.random.Generator) -> str:
    lines = path.read_text().splitlines()
    line = int(rng.integers(len(lines))) if path.suffix == ".jsonl" else 0
    tree = json.loads(lines[line] if path.suffix == ".jsonl" else path.read_text())
    keys: list[str] = []
    parent: Any = None
    node: Any = tree
    while isinstance(node, (dict, list)) and len(node) and (parent is None or rng.random() < 0.8):
        names = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = names[int(rng.integers(len(names)))]
        parent, node = node, node[key]
        keys.append(str(key))
    value = HOSTILE[int(rng.integers(len(HOSTILE)))]
    kind = rng.random()
    if parent is None:
        text = value
    elif kind < 0.1:
        del parent[key]
        value, text = "(removed)", json.dumps(tree)
    elif kind < 0.15 and isinstance(parent, dict):
        parent["extra"] = MARK
        text = json.dumps(tree).replace(f'"{MARK}"', value)
    else:
        parent[key] = MARK
        text = json.dumps(tree).replace(f'"{MARK}"', value)
    if path.suffix == ".jsonl":
        lines[line] = text
        text = "\n".join(lines) + "\n"
    path.write_text(text, errors="surrogateescape")
    return f"{'.'.join(keys)} = {value[:30]}"


# Damage to HDF5 objects.


def replace_dataset(path: Path, rng: np.random.Generator) -> str:
    with h5py.File(path, "r+") as file:
        names = sorted(file)
        name = names[int(rng.integers(len(names)))]
        old = file[name][()]
        kept = dict(file[name].attrs) if rng.random() < 0.5 else {}
        del file[name]
        rows, kind = len(old), "f8" if old.dtype.hasobject else old.dtype
        choices: dict[str, Callable[[], object]] = {
            "two-dimensional": lambda: file.create_dataset(name, data=np.zeros((rows, 2), kind)),
            "four-dimensional": lambda: file.create_dataset(name, data=np.zeros((rows, 2, 2, 2), kind)),
            "scalar": lambda: file.create_dataset(name, data=3),
            "empty": lambda: file.create_dataset(name, data=h5py.Empty("f8")),
            "no rows": lambda: file.create_dataset(name, data=old[:0]),
            "cut": lambda: file.create_dataset(name, data=old[: rows // 2]),
            "text": lambda: file.create_dataset(name, data=["x"] * rows),
            "bytes": lambda: file.create_dataset(name, data=np.array([b"x"] * rows)),
            "references": lambda: file.create_dataset(name, data=[file.ref] * rows, dtype=h5py.ref_dtype),
            "compound": lambda: file.create_dataset(name, data=np.zeros(rows, [("a", "i4"), ("b", "f4")])),
            "complex": lambda: file.create_dataset(name, data=np.zeros(rows, np.complex64)),
            "NaN": lambda: file.create_dataset(name, data=np.full(old.shape, np.nan)),
            "negative": lambda: file.create_dataset(name, data=np.full(old.shape, -7)),
            "large": lambda: file.create_dataset(name, data=np.full(old.shape, 2**62)),
            "boolean": lambda: file.create_dataset(name, data=np.ones(old.shape, bool)),
            "unsigned": lambda: file.create_dataset(name, data=np.full(old.shape, 2**64 - 1, np.uint64)),
            "bomb": lambda: file.create_dataset(
                name,
                (500_000_000, *old.shape[1:]),
                old.dtype,
                chunks=(1000, *old.shape[1:]),
                maxshape=(None, *old.shape[1:]),
            ),
            "group": lambda: file.create_group(name),
            "dangling link": lambda: file.__setitem__(name, h5py.SoftLink("/nowhere")),
            "circular link": lambda: file.__setitem__(name, h5py.SoftLink(f"/{name}")),
            "external link": lambda: file.__setitem__(name, h5py.ExternalLink("/etc/hostname", "/")),
            "external storage": lambda: file.create_dataset(
                name, old.shape, old.dtype, external=[("/etc/hostname", 0, h5py.h5f.UNLIMITED)]
            ),
            "virtual": lambda: _virtual(file, name, old),
            "type": lambda: file.__setitem__(name, np.dtype("f8")),
        }
        way = sorted(choices)[int(rng.integers(len(choices)))]
        choices[way]()
        if isinstance(file.get(name, getlink=True), h5py.HardLink):
            for attribute, value in kept.items():
                file[name].attrs[attribute] = value
    return f"{name} made {way}{' with its attributes' if kept else ''}"


def _virtual(file: h5py.File, name: str, old: np.ndarray) -> None:
    layout = h5py.VirtualLayout(shape=old.shape, dtype=old.dtype)
    layout[...] = h5py.VirtualSource("/nowhere.h5", "a", shape=old.shape)
    file.create_virtual_dataset(name, layout)


def replace_attribute(path: Path, rng: np.random.Generator) -> str:
    values: tuple[Any, ...] = (
        *(
            b"\xff\xfe",
            "",
            "{",
            "[]",
            "null",
            '"x"',
            DEEP,
            '{"seed": ' + "9" * 4400 + "}",
            '{"draw_every": 0}',
            3,
            -1,
            2.5,
        ),
        *(
            np.nan,
            2**40,
            [1, 2],
            np.zeros((2, 2)),
            h5py.Empty("f8"),
            np.zeros(3, [("a", "i4")]),
            '{"task": 7}',
            '{"draw_every": true}',
        ),
    )
    with h5py.File(path, "r+") as file:
        places = [(file, name) for name in file.attrs] + [(file[c], a) for c in file for a in file[c].attrs]
        owner, name = places[int(rng.integers(len(places)))] if places else (file, "alewm_attributes")
        value = values[int(rng.integers(len(values)))]
        owner.attrs.pop(name, None)
        owner.attrs[name] = value
        return f"attribute {name} of {owner.name} = {str(value)[:30]}"


def damages_of(path: Path) -> tuple[Damage, ...]:
    """What may be done to a file, by its kind."""
    if path.suffix in (".json", ".jsonl"):
        return (*BYTES, *[replace_value] * 4)
    if path.suffix == ".h5":
        return (*BYTES, replace_dataset, replace_dataset, replace_attribute)
    return BYTES


# Running.


def run_case(name: str, subject: Subject, sound: Path, expected: bytes, seed: int, index: int, folder: Path) -> Case:
    """One damaged copy of the folder `sound`, used in `folder`."""
    rng = np.random.default_rng([seed, index, *name.encode()])
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    target = folder / subject.damaged[int(rng.integers(len(subject.damaged)))]
    choices = damages_of(target)
    damage = choices[int(rng.integers(len(choices)))](target, rng)
    file = str(target.relative_to(folder))
    names = [str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()]
    try:
        signal.alarm(TIME_LIMIT_SECONDS)
        found, notes = subject.use(folder)
        outcome, message = ("same" if as_bytes(found) == expected else "noted" if notes else "changed"), ""
    except TimeoutError:
        outcome, message = "hang", ""
    except Exception as error:
        message = str(error)
        if type(error).__name__ in ("InputError", "NativeUnavailableError") or isinstance(error, _input_error()):
            # Two files that contradict each other may be told by either name.
            outcome = "refused" if any(each in message for each in names) else "unnamed"
        else:
            outcome, message = "traceback", "".join(traceback.format_exception(error)[-6:])
    finally:
        signal.alarm(0)
    return Case(name, index, file, damage, outcome, message)


def _input_error() -> type[Exception]:
    from alewm.errors import InputError

    return InputError


def as_bytes(found: object) -> bytes:
    """What was found, arrays and nested mappings included, as bytes to compare."""
    if isinstance(found, dict):
        return b"{" + b",".join(str(k).encode() + b":" + as_bytes(found[k]) for k in sorted(found, key=str)) + b"}"
    if isinstance(found, (list, tuple)):
        return b"[" + b",".join(map(as_bytes, found)) + b"]"
    if hasattr(found, "detach"):
        found = found.detach().cpu().numpy()
    if isinstance(found, np.ndarray):
        return f"{found.dtype}{found.shape}".encode() + np.ascontiguousarray(found).tobytes()
    return repr(found).encode()


def _serve(connection: Connection, name: str, sound: Path, seed: int, indices: list[int], folder: Path) -> None:
    from mutation_subjects import SUBJECTS

    def interrupt(number: int, frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, interrupt)
    sys.stderr = io.StringIO()  # progress bars
    subject = SUBJECTS[name]
    expected = as_bytes(subject.use(sound)[0])
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_LIMIT_BYTES,) * 2)
    for index in indices:
        connection.send(run_case(name, subject, sound, expected, seed, index, folder))
    connection.close()


def run(name: str, subject: Subject, seed: int, indices: list[int]) -> list[Case]:
    """The cases `indices` of a subject, in a process of its own that is started anew where it dies."""
    done: list[Case] = []
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch:
        sound = Path(scratch) / "sound"
        sound.mkdir()
        subject.make(sound)
        while len(done) < len(indices):
            here, there = context.Pipe(duplex=False)
            left, last = indices[len(done) :], done[-1:]
            process = context.Process(target=_serve, args=(there, name, sound, seed, left, Path(scratch) / "case"))
            process.start()
            there.close()
            try:
                while len(done) < len(indices):
                    # The library may be caught in a loop that no signal ends.
                    if not here.poll(START_LIMIT_SECONDS if done[-1:] == last else 2 * TIME_LIMIT_SECONDS):
                        process.kill()
                        done.append(Case(name, indices[len(done)], "?", "?", "hang", "killed"))
                        break
                    done.append(here.recv())
            except EOFError:
                process.join()
                if len(done) < len(indices):
                    died = f"exit status {process.exitcode}"
                    done.append(Case(name, indices[len(done)], "?", "?", "crash", died))
            process.join()
    return done


def is_fault(case: Case, subject: Subject) -> bool:
    """Whether this may not be."""
    return case.outcome in ("traceback", "hang", "crash", "unnamed") or (
        case.outcome == "changed" and subject.is_sealed
    )


def heading() -> str:
    """The head of the table that `line` belongs to."""
    return f"{'subject':18s} {'cases':>6s} " + " ".join(f"{each:>9s}" for each in OUTCOMES)


def line(name: str, counts: Counter[str]) -> str:
    """The outcomes of one subject."""
    return f"{name:18s} {counts.total():6d} " + " ".join(f"{counts[each]:9d}" for each in OUTCOMES)


def main() -> int:
    """Runs the campaign; the exit status is 1 where a case may not be."""
    from mutation_subjects import SUBJECTS

    parser = argparse.ArgumentParser(
        description="Damage input files by a seed and look at what the readers make of them."
    )
    parser.add_argument("--count", type=int, default=300, help="cases per subject")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--subject", choices=SUBJECTS, action="append", help="only these subjects")
    parser.add_argument("--only", type=int, action="append", help="only these cases")
    parser.add_argument("--shown", type=int, default=20, help="faults shown in full")
    asked = parser.parse_args()
    print(heading(), flush=True)
    faults: list[Case] = []
    for name in asked.subject or SUBJECTS:
        cases = run(name, SUBJECTS[name], asked.seed, asked.only or list(range(asked.count)))
        print(line(name, Counter(case.outcome for case in cases)), flush=True)
        faults += [case for case in cases if is_fault(case, SUBJECTS[name])]
    kinds: dict[str, list[Case]] = {}
    for case in faults:
        last = case.message.strip().splitlines()[-1] if case.message.strip() else ""
        kinds.setdefault(f"{case.subject} {case.outcome}: {last[:100]}", []).append(case)
    for kind, cases in sorted(kinds.items(), key=lambda item: -len(item[1]))[: asked.shown]:
        case = cases[0]
        print(f"\n{len(cases)} x {kind}\n{case.file}: {case.damage}\n{case.message.strip()[-1500:]}")
        print(f"repeat: --subject {case.subject} --seed {asked.seed} --only {case.number}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
