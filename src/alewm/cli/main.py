"""`alewm <verb>`: finds the verb, runs it, and turns failures into messages."""

import errno
import os
import sys
from pathlib import Path
from typing import Annotated

import tyro

import alewm
from alewm.cli.bench import Bench
from alewm.cli.collect import Collect
from alewm.cli.convert import Convert
from alewm.cli.demo import Demo
from alewm.cli.distill import Distill
from alewm.cli.evaluate import Evaluate
from alewm.cli.experiment import Experiment
from alewm.cli.inspect import Inspect
from alewm.cli.lewm import ExportLeWM, ImportLeWM
from alewm.cli.oscillator import Oscillator
from alewm.cli.probe import Probe
from alewm.cli.publish import Publish
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
    | Annotated[Experiment, tyro.conf.subcommand("experiment")]
    | Annotated[Sweep, tyro.conf.subcommand("sweep")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Publish, tyro.conf.subcommand("publish")]
    | Annotated[Share, tyro.conf.subcommand("share")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Convert, tyro.conf.subcommand("convert")]
    | Annotated[Oscillator, tyro.conf.subcommand("oscillator")]
    | Annotated[ImportLeWM, tyro.conf.subcommand("import-lewm")]
    | Annotated[ExportLeWM, tyro.conf.subcommand("export-lewm")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)

_DESCRIPTION = "Latent world models that learn how much of themselves to use."


def main() -> None:
    """The console command."""
    if sys.argv[1:] == ["--version"]:
        print(f"alewm {alewm.__version__}")
        return
    try:
        tyro.cli(Verb, prog="alewm", description=_DESCRIPTION).run()
        sys.stdout.flush()
    except InputError as error:
        sys.exit(_failed(str(error)))
    except BrokenPipeError:
        # The reader of our output went away (`alewm ... | head`): nothing left to say, and nobody to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        sys.exit(_failed(_storage_message(error)))
    except MemoryError as error:
        sys.exit(_failed(_memory_message(error)))
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's, which is not imported for its name alone
            raise
        sys.exit(_failed(_memory_message(error)))
    except KeyboardInterrupt:
        print("\nalewm: interrupted. What was finished is kept; repeat the command to continue.", file=sys.stderr)
        sys.exit(130)


def _failed(message: str) -> int:
    print(f"alewm: {message}", file=sys.stderr)
    return 2


def _storage_message(error: OSError) -> str:
    where = f" {error.filename}" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk is full, writing{where} failed. Finished parts are kept: free some space and repeat the command "
            f"to continue."
        )
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
    first_line = (str(error) or "out of memory").splitlines()[0]
    return (
        f"memory does not suffice. {first_line}\nFinished parts are kept. Free some memory, or choose fewer windows "
        f"per update (--batch-size), fewer candidates (--candidates) or another --device, and repeat the command."
    )
