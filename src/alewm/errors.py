"""The exception for input that cannot be used, and the shared wording of its messages."""

import re
import shlex
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import metadata


class InputError(ValueError):
    """What came from outside (a flag, a file, a config) cannot be used.

    The message says what was expected, what was found and what to do next; the command line prints it without a
    traceback and exits with status 2.
    """


MOST_SHOWN = 20
"""Longer lists of names are cut to those nearest to what was asked."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a `name` that is not among the `known` ones, proposing the nearest."""
    choices = sorted(known, key=lambda each: (int(each) if each.isdecimal() else -1, each))  # numbers by value
    nearest = get_close_matches(name, choices, n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    shown = choices if len(choices) <= MOST_SHOWN else get_close_matches(name, choices, n=8, cutoff=0.0)
    others = f" and {len(choices) - len(shown)} others" if len(shown) < len(choices) else ""
    return InputError(f"Unknown {kind} {name!r}.{hint} Known: {', '.join(shown)}{others}.")


def install_line(extra: str) -> str:
    """A sentence with the command that installs what the `extra` brings, however alewm itself was installed.

    It names the packages, because `alewm[EXTRA]` can be found by name only where alewm is published.
    """
    packages = _packages_of(extra)
    in_clone = f"pip install '.[{extra}]' in a clone of alewm"
    if not packages:
        return f"Install it: {in_clone}."
    return f"Install it: pip install {' '.join(map(shlex.quote, packages))} (or {in_clone})."


def _packages_of(extra: str) -> list[str]:
    """The requirements of `extra` on this Python, from the metadata of the installed distribution."""
    try:
        listed = metadata.requires("alewm") or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for requirement in listed:
        package, _, marker = requirement.partition(";")
        if re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", marker) and _fits_python(marker):
            found.append(package.strip())
    return found


def _fits_python(marker: str) -> bool:
    """Whether this Python is meant by a marker that may compare its version."""
    compared = re.search(r"python_version (<|>=) ['\"](\d+)\.(\d+)['\"]", marker)
    if compared is None:
        return True
    is_older = sys.version_info[:2] < (int(compared[2]), int(compared[3]))
    return is_older == (compared[1] == "<")
