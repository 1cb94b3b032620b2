"""What is compiled is right, kept for the next process, and never somebody else's.

Libraries are loaded in processes of their own: one process keeps a library it has loaded, whatever becomes of its file.
"""

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from alewm.kernels.compiled import NativeUnavailableError, load_library, thread_pool

with_compiler = pytest.mark.parametrize("compiler", [name for name in ("cc", "gcc", "clang") if shutil.which(name)])

LOAD = "import sys; from pathlib import Path; from alewm.kernels.compiled import load_library; "
LOAD += "print(*(load_library(Path(source)).answer() for source in sys.argv[1:]))"


def write_source(folder: Path, answer: str) -> Path:
    folder.mkdir()
    (folder / "answer.h").write_text(f"#define ANSWER {answer}\n")
    (folder / "answer.c").write_text('#include "answer.h"\nint answer(void) { return ANSWER; }\n')
    return folder / "answer.c"


class Machine:
    """A user's cache and temporary folder, and processes that load libraries there."""

    def __init__(self, folder: Path) -> None:
        self.cache, self.temporary = folder / "cache", folder / "temporary"
        self.temporary.mkdir()

    @property
    def folder(self) -> Path:
        return self.cache / "alewm" / "native"

    def start(self, *sources: Path) -> "subprocess.Popen[str]":
        paths = {"XDG_CACHE_HOME": str(self.cache), "TMPDIR": str(self.temporary), "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-c", LOAD, *map(str, sources)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=os.environ | paths, stdout=pipe, stderr=pipe, text=True)

    def load(self, *sources: Path) -> tuple[str, str]:
        """The answers, and what was said; no temporary file is left behind."""
        with self.start(*sources) as process:
            out, err = process.communicate()
        assert process.returncode == 0, err
        assert not list(self.temporary.iterdir())
        return out.strip(), err

    def library(self) -> Path:
        """The only file that is kept."""
        (kept,) = self.folder.iterdir()
        return kept


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@with_compiler
def test_a_header_is_part_of_what_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str) -> None:
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "alewm" / "native"
    for name, answer in (("a", 1), ("b", 2), ("c", 1)):
        assert load_library(write_source(tmp_path / name, str(answer))).answer() == answer
    assert len(list(folder.iterdir())) == 2
    assert load_library(tmp_path / "a" / "answer.c", ("-DUNUSED",)).answer() == 1
    assert len(list(folder.iterdir())) == 3


@with_compiler
def test_a_source_that_does_not_compile_is_refused_with_the_compilers_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(NativeUnavailableError, match=rf"(?s){compiler} failed: .*no_such_name"):
        load_library(write_source(tmp_path / "a", "no_such_name"))
    assert not list((tmp_path / "cache" / "alewm" / "native").iterdir())


def test_a_compiler_that_fails_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, broken = tmp_path / "calls", tmp_path / "broken"
    broken.write_text(f"#!/bin/sh\necho called >> {calls}\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = write_source(tmp_path / "a", "1")
    for _ in range(3):
        with pytest.raises(NativeUnavailableError, match="broken failed"):
            load_library(source)
    assert calls.read_text() == "called\n"


def test_a_library_is_kept_where_only_its_user_reads_and_writes(tmp_path: Path, machine: Machine) -> None:
    source = write_source(tmp_path / "a", "1")
    before = os.umask(0)  # as permissive as can be
    try:
        assert machine.load(source) == ("1", "")
    finally:
        os.umask(before)
    library = machine.library()
    assert stat.S_IMODE(machine.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(library.stat().st_mode) == 0o600
    assert library.stem.endswith(hashlib.sha256(library.read_bytes()).hexdigest())
    inode = library.stat().st_ino
    assert machine.load(source) == ("1", "")
    assert machine.library().stat().st_ino == inode


def planted(folder: Path, library: Path, way: str) -> None:
    """Puts a library with another answer where `library` is, with all right but the `way` it came there."""
    source = write_source(folder / "evil", "666")
    evil = folder / "evil.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(evil)], check=True)
    evil.chmod(0o600)
    recipe = library.stem.rpartition("-")[0]
    place = library.with_name(f"{recipe}-{hashlib.sha256(evil.read_bytes()).hexdigest()}.so")
    if way in ("other content", "half"):
        library.write_bytes(evil.read_bytes() if way == "other content" else library.read_bytes()[:5000])
        return
    library.unlink()
    if way == "symbolic link":
        place.symlink_to(evil)
    elif way == "pipe":
        os.mkfifo(place, 0o600)
    else:
        shutil.copy(evil, place)
    if way == "writable by the group":
        place.chmod(0o660)
    elif way == "another user's":
        os.chown(place, 65534, 65534)


WAYS = ["other content", "half", "symbolic link", "pipe", "writable by the group"]
WAYS += ["another user's"] if os.geteuid() == 0 else []  # only root can give files away


@pytest.mark.parametrize("way", WAYS)
def test_a_planted_or_damaged_library_is_built_anew(tmp_path: Path, machine: Machine, way: str) -> None:
    source = write_source(tmp_path / "a", "1")
    machine.load(source)
    planted(tmp_path, machine.library(), way)
    assert machine.load(source) == ("1", "")
    library = machine.library()
    assert library.stem.endswith(hashlib.sha256(library.read_bytes()).hexdigest())


FOLDERS = ["writable by others", "writable by all above", "a file", "a link to such a folder"]
FOLDERS += ["another user's", "another user's above"] if os.geteuid() == 0 else []


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_that_cannot_be_trusted_or_written_is_left_alone_and_named_once(
    tmp_path: Path, machine: Machine, kind: str
) -> None:
    sources = [write_source(tmp_path / name, answer) for name, answer in (("a", "1"), ("b", "2"))]
    above = machine.cache / "alewm"
    if kind == "a file":
        above.parent.mkdir()
        above.write_text("not a folder")
    elif kind.endswith("above"):
        above.mkdir(parents=True)
    elif kind.startswith("a link"):
        above.mkdir(parents=True)
        (tmp_path / "elsewhere").mkdir(mode=0o777)
        (tmp_path / "elsewhere").chmod(0o777)
        machine.folder.symlink_to(tmp_path / "elsewhere")
    else:
        machine.folder.mkdir(parents=True)
    if kind.startswith("writable"):
        (above if kind.endswith("above") else machine.folder).chmod(0o777)
    elif kind.startswith("another"):
        os.chown(above if kind.endswith("above") else machine.folder, 65534, 65534)
    before = sorted(tmp_path.rglob("*"))
    answers, said = machine.load(*sources)
    assert answers == "1 2"
    assert said.count("\n") == 1
    assert "compiled code is not kept, so every process compiles it again" in said
    assert str(tmp_path) in said
    assert sorted(tmp_path.rglob("*")) == before


def test_processes_that_build_at_once_all_get_the_library_and_leave_only_that(tmp_path: Path, machine: Machine) -> None:
    source = write_source(tmp_path / "a", "1")
    for process in [machine.start(source) for _ in range(4)]:
        with process:
            assert process.communicate() == ("1\n", "")
    for library in machine.folder.iterdir():  # one, if the compiler writes the same bytes every time
        assert library.stem.endswith(hashlib.sha256(library.read_bytes()).hexdigest())
    assert not list(machine.temporary.iterdir())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    """Gymnasium forks its environments; those of the parent's threads that waited for work do not exist there."""
    assert list(thread_pool(2, "test").map(abs, [-1, -2])) == [1, 2]
    assert thread_pool(2, "test") is thread_pool(2, "test")
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if list(thread_pool(2, "test").map(abs, [-1, -2])) == [1, 2] else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
