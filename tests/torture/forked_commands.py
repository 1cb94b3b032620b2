"""Commands in real processes, interrupted at a chosen file-system step.

Importing torch takes seconds, so that one process imports everything and is forked for each command. `fs_steps.c`,
preloaded into it, counts the steps of the command and of the processes it starts, and interferes with one of them.
"""

import ctypes
import importlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

SOURCE = Path(__file__).with_name("fs_steps.c")
SECONDS = 120
"""What no command takes unless it hangs."""

Action = Literal["count", "kill", "tear", "fill", "size"]
_ACTIONS: tuple[Action, ...] = ("count", "kill", "tear", "fill", "size")
_PLAN = struct.Struct("qqqq4096s")


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    """Its exit status; -9 where it was killed."""
    steps: int
    """File-system steps it made."""
    written: int
    """Bytes it wrote."""
    said: str
    """What it printed, errors included."""


class ForkServer:
    """Runs commands in processes forked from one that has imported their modules."""

    def __init__(self, entries: tuple[str, ...]) -> None:
        """`entries` are the modules whose `main` runs a command line."""
        self._home = Path(tempfile.mkdtemp(prefix="forked-"))
        library = self._home / "fs_steps.so"
        compiler = shutil.which("cc") or shutil.which("gcc")
        assert compiler is not None, "a C compiler is needed to interrupt commands"
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", SOURCE, "-o", library, "-ldl"], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, *entries],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(
        self,
        root: Path,
        entry: str,
        *arguments: object,
        action: Action = "count",
        at: int = 0,
        kill_after: float | None = None,
    ) -> Done:
        """`entry ARGUMENTS` in the folder `root`, interfered with at `at`: a step or a byte, counted below `root`.

        It is killed after `kill_after` seconds, where they are given.
        """
        plan = self._home / "plan"
        plan.write_bytes(_PLAN.pack(0, 0, at, _ACTIONS.index(action), str(root.resolve()).encode()))
        asked = {"root": str(root), "entry": entry, "arguments": [*map(str, arguments)], "plan": str(plan)}
        asked["seconds"] = SECONDS if kill_after is None else max(1e-3, kill_after)
        said = self._home / "said"
        asked["said"], asked["imported"] = str(said), str(self._home / "imported")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        status = int(self._process.stdout.readline())
        steps, written, *_ = _PLAN.unpack(plan.read_bytes())
        return Done(status, steps, written, said.read_text(errors="replace"))

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        shutil.rmtree(self._home)


def _serve(entries: list[str]) -> None:
    mains = {entry: importlib.import_module(entry).main for entry in entries}
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(asked, mains[asked["entry"]])
        status = _status_of(child, asked["seconds"])
        imported = Path(asked["imported"])
        if imported.exists():  # what one command needed, the next is likely to need
            for name in json.loads(imported.read_text()):
                importlib.import_module(name)
            imported.unlink()
        print(status, flush=True)


def _status_of(child: int, seconds: float) -> int:
    """The status of the child, which is killed after so many seconds."""

    def stop(*_: Any) -> None:
        for kill in (os.killpg, os.kill):  # it may not lead its group yet, or may have ended just now
            with suppress(ProcessLookupError):
                kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.setitimer(signal.ITIMER_REAL, 0)
    return status


def _become(asked: dict[str, Any], main: Any) -> None:
    """Be the command, in a process group of its own: a kill takes whatever it started along."""
    os.setsid()
    signal.setitimer(signal.ITIMER_REAL, 0)
    said = os.open(asked["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.chdir(asked["root"])
    os.environ["FS_STEPS"] = asked["plan"]  # for processes that the command starts
    sys.argv = ["alewm", *asked["arguments"]]
    status = 0
    ctypes.CDLL(None).fs_steps_begin(asked["plan"].encode())
    known = set(sys.modules)
    try:
        main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    finally:
        if new := [name for name in sys.modules if name not in known and name.startswith("alewm")]:
            Path(asked["imported"]).write_text(json.dumps(new))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(sys.argv[1:])
