"""From a command line to a verb: the overview, the nearest name of what is unknown, and tyro for everything else."""

import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import tyro

from alewm.errors import InputError

Groups = Mapping[str, Mapping[str, tuple[type, str]]]
"""Verbs by group and name, each with its class and one line for the overview."""

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
"""Flags that people bring along, and what they are called here."""


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
    verb: Any
    verb, unknown = tyro.cli(
        verbs[name], prog=f"{program} {name}", args=arguments[1:], config=MARKERS, return_unknown_args=True
    )
    if unknown:
        raise InputError(_unknown_argument(unknown, name, verbs, program))
    return verb


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
