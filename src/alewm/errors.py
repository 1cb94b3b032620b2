"""The exception for input that cannot be used, and the shared wording of its messages."""

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """What came from outside (a flag, a file, a config) cannot be used.

    The message says what was expected, what was found and what to do next; the command line prints it without a
    traceback and exits with status 2.
    """


MOST_SHOWN = 20
"""Longer lists of names are cut to those nearest to what was asked."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a `name` that is not among the `known` ones, proposing the nearest."""
    choices = sorted(known)
    nearest = get_close_matches(name, choices, n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    shown = choices if len(choices) <= MOST_SHOWN else get_close_matches(name, choices, n=8, cutoff=0.0)
    others = f" and {len(choices) - len(shown)} others" if len(shown) < len(choices) else ""
    return InputError(f"Unknown {kind} {name!r}.{hint} Known: {', '.join(shown)}{others}.")
