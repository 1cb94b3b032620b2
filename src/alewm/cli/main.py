"""`alewm <verb>`: finds the verb, proposes the nearest name of what is unknown, and turns failures into messages."""

import difflib
import errno
import inspect
import itertools
import os
import re
import shutil
import signal
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

import alewm
from alewm.cli.data_files import Collect, Convert, Inspect
from alewm.cli.look import Decode, Evaluate, Explore, Probe, Report
from alewm.cli.share import ExportLeWM, ImportLeWM, Share
from alewm.cli.start import Demo, Tasks
from alewm.cli.sweep import Sweep
from alewm.cli.train import Distill, Train
from alewm.errors import InputError
from alewm.interrupts import NOTHING_KEPT, Terminated, terminations_raised

Groups = Mapping[str, Mapping[str, tuple[type, str]]]
"""Verbs by group and name, each with its class and one line for the overview."""

VERBS: Groups = {
    "start": {
        "demo": (Demo, "record a task, train two models, plan with both (minutes)"),
        "tasks": (Tasks, "list the tasks: extras, success without a model, pictures"),
    },
    "data": {
        "collect": (Collect, "record episodes of a task into one file"),
        "convert": (Convert, "make a data file of LeRobot data, videos or images"),
        "inspect": (Inspect, "say what a data file, run folder or checkpoint holds"),
    },
    "train": {
        "train": (Train, "train a world model from a data file"),
        "sweep": (Sweep, "train a grid of configurations, select on validation pairs"),
        "distill": (Distill, "fit small dynamics to a trained model, to plan faster"),
    },
    "look": {
        "evaluate": (Evaluate, "plan to held-out goals and count how many are reached"),
        "probe": (Probe, "what prefixes of the latent say of the true state"),
        "decode": (Decode, "fit a decoder, to see what each prefix of the latent holds"),
        "explore": (Explore, "plan with one or two models on a local page, and watch"),
        "report": (Report, "one HTML page about one run or several"),
    },
    "share": {
        "share": (Share, "write a folder that others can evaluate without the data"),
        "import-lewm": (ImportLeWM, "make a run of LeWM weights from elsewhere"),
        "export-lewm": (ExportLeWM, "write LeWM weights that stable-worldmodel loads"),
    },
}
"""The verbs in groups, each with the line that `alewm --help` shows."""

_DESCRIPTION = "World models that choose how many latent dimensions to plan with."

_IN_THE_LAB = ("experiment", "oscillator", "bench", "publish", "results")


def main() -> None:
    """The console command."""
    if sys.argv[1:2] and sys.argv[1] in _IN_THE_LAB:
        verb = sys.argv[1]
        sys.exit(_failed("alewm", f"`{verb}` is a command of the repository's lab: alewm-lab {verb} ..."))
    run_command(VERBS, "alewm", _DESCRIPTION)


def run_command(groups: Groups, program: str, description: str) -> None:
    """Parse the command line, run its verb, and turn failures into messages with status 2."""
    verb: Any = None
    try:
        with terminations_raised():
            if sys.argv[1:] == ["--version"]:
                print(f"{program} {alewm.__version__}")
            elif sys.argv[1:2] in ([], ["-h"], ["--help"]):
                print(overview(groups, program, description))
            else:
                verb = parsed(groups, program, sys.argv[1:])
                verb.run()
        sys.stdout.flush()
    except InputError as error:
        sys.exit(_failed(program, str(error)))
    except BrokenPipeError:
        # The reader closed the pipe (`alewm ... | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        sys.exit(_failed(program, _storage_message(error)))
    except MemoryError as error:
        sys.exit(_failed(program, _memory_message(error)))
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        sys.exit(_failed(program, _memory_message(error)))
    except KeyboardInterrupt as error:
        kept = getattr(error, "__notes__", None) or [getattr(verb, "WHEN_INTERRUPTED", NOTHING_KEPT)]
        if os.environ.get("RANK", "0") == "0":  # of the processes of torchrun, one speaks
            print(f"\n{program}: interrupted. {' '.join(kept)}", file=sys.stderr)
        sys.exit(128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT))


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


MARKERS = (tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone)
"""One name per flag, and no None as a value: a flag that is not given is left out."""

IN_OTHER_TOOLS = {
    "--epochs": "--steps",
    "--lr": "--learning-rate",
    "--output": "--out",
    "--output-dir": "--out",
    "--workers": "--jobs",
    "--gpu": "--device",
    "--num-episodes": "--episodes",
    "--samples": "--candidates",
}
"""Common flags of other programs, and their names here."""


def overview(groups: Groups, program: str, description: str) -> str:
    """The help of the whole command: one line per verb."""
    lines = [f"usage: {program} VERB [...]", description]
    for group, verbs in groups.items():
        lines += [f"{group}:", *(f"  {name:<13} {summary}" for name, (_, summary) in verbs.items())]
    return "\n".join([*lines, f"`{program} VERB --help` lists the flags of a verb; {program} --version."])


def parsed(groups: Groups, program: str, arguments: Sequence[str]) -> Any:
    """The verb that `arguments` begin with, with its flags; unknown names are refused, proposing the nearest."""
    verbs = {name: verb for group in groups.values() for name, (verb, _) in group.items()}
    name = arguments[0]
    if name not in verbs:
        near = difflib.get_close_matches(name, verbs, n=1)
        hint = f" Did you mean `{program} {near[0]}`?" if near else ""
        raise InputError(f"unknown verb {name!r}.{hint} `{program} --help` lists all.")
    if {"-h", "--help"} & set(arguments):
        _let_help_flow(verbs[name])
    else:
        _check_choices(verbs[name], arguments[1:])
    verb: Any
    verb, unknown = tyro.cli(
        verbs[name],
        prog=f"{program} {name}",
        description=_wrapped(inspect.getdoc(verbs[name]) or ""),
        args=arguments[1:],
        config=MARKERS,
        return_unknown_args=True,
    )
    if unknown:
        raise InputError(_unknown_argument(unknown, name, verbs, program))
    return verb


def _check_choices(verb: type, arguments: Sequence[str]) -> None:
    """Refuse a value that is none of its flag's choices, naming them in their order; tyro's message shuffles them."""
    choices: dict[str, list[str]] = {}
    for name, hint in get_type_hints(verb).items():
        members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        named = [each for each in members if each is not types.NoneType]
        # A flag that also takes a number or a path is left to tyro.
        if all(get_origin(each) is Literal for each in named):
            values = [str(choice) for each in named for choice in get_args(each)]
            choices[f"--{name.replace('_', '-')}"] = values
    for argument, following in itertools.pairwise((*arguments, "")):
        flag, equals, value = argument.partition("=")
        given = value if equals else following
        if given not in choices.get(flag, [given]):
            raise InputError(f"{flag} is one of {', '.join(choices[flag])}; got {given!r}.")


def _let_help_flow(verb: type) -> None:
    """Make the docstring of each flag its help in one line, which tyro wraps to the terminal.

    Left to itself, tyro keeps the source's line breaks, because it finds the lines after them indented.
    """
    import docstring_parser

    documented = {each.arg_name: each.description or "" for each in docstring_parser.parse_from_object(verb).params}
    for name, hint in get_type_hints(verb, include_extras=True).items():
        nested = list(_classes_in(hint))
        for each in nested:
            _let_help_flow(each)
        if name in documented and not nested:
            one_line = tyro.conf.arg(help=" ".join(documented[name].split()))
            verb.__annotations__[name] = Annotated[hint, one_line]


def _wrapped(docstring: str) -> str:
    """The docstring in lines of the terminal's width. The space before each keeps tyro from joining them again."""
    width = min(120, shutil.get_terminal_size().columns) - 1
    paragraphs = (" ".join(each.split()) for each in docstring.split("\n\n"))
    return "\n".join(
        line for each in paragraphs for line in textwrap.wrap(each, width, initial_indent=" ", subsequent_indent=" ")
    )


def _unknown_argument(unknown: Sequence[str], name: str, verbs: Mapping[str, type], program: str) -> str:
    flag = next((each.partition("=")[0] for each in unknown if each.startswith("--")), None)
    if flag is None:
        return f"`{program} {name}` does not know what {unknown[0]!r} is for; see {program} {name} --help."
    own = list(flags_of(verbs[name]))
    known_as = IN_OTHER_TOOLS.get(flag)
    near = [known_as] if known_as in own else difflib.get_close_matches(flag, own, n=1)
    if near:
        return f"`{program} {name}` has no flag {flag}. Did you mean {near[0]}?"
    others = [other for other, verb in verbs.items() if flag in flags_of(verb)]
    hint = f" It is a flag of {', '.join(others)}." if others else ""
    return f"`{program} {name}` has no flag {flag}.{hint} {program} {name} --help lists those it has."


def flags_of(verb: type) -> Iterator[str]:
    """The flags of a verb as they are typed, those of its own verbs included."""
    hints = get_type_hints(verb, include_extras=True)
    for field in fields(verb):
        hint = hints[field.name]
        extras = hint.__metadata__ if get_origin(hint) is Annotated else ()
        if tyro.conf.Positional in extras:
            continue
        nested = list(_classes_in(hint))
        if nested:
            for each in nested:
                yield from flags_of(each)
            continue
        given = [extra for extra in extras if getattr(extra, "name", None)]
        name = given[0].name if given else field.name.replace("_", "-")
        yield f"--no-{name}" if field.default is True else f"--{name}"
        for extra in extras:
            yield from getattr(extra, "aliases", None) or ()


def _classes_in(hint: Any) -> Iterator[type]:
    """The dataclasses of a union of verbs."""
    if get_origin(hint) is Annotated:
        yield from _classes_in(get_args(hint)[0])
    elif get_origin(hint) in (Union, types.UnionType):
        for each in get_args(hint):
            yield from _classes_in(each)
    elif is_dataclass(hint) and isinstance(hint, type):
        yield hint
