"""`alewm <verb>`: finds the verb, runs it, and turns failures into messages."""

import errno
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

import alewm
from alewm.cli.collect import Collect
from alewm.cli.convert import Convert
from alewm.cli.demo import Demo
from alewm.cli.distill import Distill
from alewm.cli.evaluate import Evaluate
from alewm.cli.inspect import Inspect
from alewm.cli.lewm import ExportLeWM, ImportLeWM
from alewm.cli.probe import Probe
from alewm.cli.report import Report
from alewm.cli.share import Share
from alewm.cli.sweep import Sweep
from alewm.cli.train import Train
from alewm.errors import InputError

Verb = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Collect, tyro.conf.subcommand("collect")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Distill, tyro.conf.subcommand("distill")]
    | Annotated[Probe, tyro.conf.subcommand("probe")]
    | Annotated[Sweep, tyro.conf.subcommand("sweep")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Share, tyro.conf.subcommand("share")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Convert, tyro.conf.subcommand("convert")]
    | Annotated[ImportLeWM, tyro.conf.subcommand("import-lewm")]
    | Annotated[ExportLeWM, tyro.conf.subcommand("export-lewm")]
)

_DESCRIPTION = "World models that choose how many latent dimensions to plan with."

_IN_THE_LAB = ("experiment", "oscillator", "bench", "publish", "results")


def main() -> None:
    """The console command."""
    if sys.argv[1:2] and sys.argv[1] in _IN_THE_LAB:
        verb = sys.argv[1]
        sys.exit(_failed("alewm", f"`{verb}` is a command of the repository's lab: alewm-lab {verb} ..."))
    run_command(Verb, "alewm", _DESCRIPTION)


def run_command(verbs: Any, program: str, description: str) -> None:
    """Parse the command line, run its verb, and turn failures into messages with status 2."""
    if sys.argv[1:] == ["--version"]:
        print(f"{program} {alewm.__version__}")
        return
    try:
        tyro.cli(verbs, prog=program, description=description).run()
        sys.stdout.flush()
    except InputError as error:
        sys.exit(_failed(program, str(error)))
    except BrokenPipeError:
        # The reader of our output went away (`alewm ... | head`): there is nothing left to print.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        sys.exit(_failed(program, _storage_message(error)))
    except MemoryError as error:
        sys.exit(_failed(program, _memory_message(error)))
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        sys.exit(_failed(program, _memory_message(error)))
    except KeyboardInterrupt:
        print(f"\n{program}: interrupted. What was finished is kept; repeat the command to continue.", file=sys.stderr)
        sys.exit(130)


def _failed(program: str, message: str) -> int:
    print(f"{program}: {message}", file=sys.stderr)
    return 2


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch says so, which is not imported for this alone: of a GPU by a type, of a CPU only in words."""
    return type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)


def _storage_message(error: OSError) -> str:
    where = f" {error.filename}" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        kept = " ".join(["Finished parts are kept.", *getattr(error, "__notes__", ())])
        return f"the disk is full, writing{where} failed. {kept} Free some space and repeat the command to continue."
    if error.errno in (errno.EEXIST, errno.ENOTDIR) and (file := _file_in_the_way(error.filename)):
        return f"{file} is a file, where a folder is needed. Choose another path, or move the file away."
    return f"{error.strerror or error}{where and ':'}{where}."


def _file_in_the_way(path: str | bytes | None) -> Path | None:
    """The file that `path` is, or that it leads through as if it were a folder."""
    if not path:
        return None
    where = Path(os.fsdecode(path))
    return next((each for each in (where, *where.parents) if each.is_file()), None)


def _memory_message(error: Exception) -> str:
    asked = re.search(r"tried to allocate (\d+) bytes", str(error))  # as torch says it of a CPU, between other things
    found = f"{int(asked[1]) / 1e9:,.1f} GB were asked for at once." if asked else str(error).partition("\n")[0]
    return (
        f"out of memory. {found}\nFinished parts are kept. Free some memory, or choose fewer windows "
        f"per update (--batch-size), fewer candidates (--candidates) or another --device, and repeat the command."
    )
