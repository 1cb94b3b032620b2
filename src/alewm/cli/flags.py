"""Flags that several commands share, and `--set FIELD=VALUE`."""

import json
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

import tyro

from alewm.errors import InputError


def assigned(text: str) -> tuple[str, Any]:
    """The field and the value of FIELD=VALUE."""
    field, value = _parted(text, "FIELD=VALUE")
    return field, _value(value)


def assigned_values(texts: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """The values to try of each field, from texts such as FIELD=0.1,0.3; a list in brackets is one value."""
    values: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        field, several = _parted(text, "FIELD=VALUE or FIELD=VALUE,VALUE")
        if field in values:
            raise InputError(f"--set {field} is given twice. Join its values with commas: {field}=VALUE,VALUE.")
        try:
            values[field] = tuple(json.loads(f"[{several}]"))
        except json.JSONDecodeError:
            values[field] = tuple(map(_value, several.split(",")))
        if not values[field] or len(set(map(repr, values[field]))) < len(values[field]):
            raise InputError(f"--set {field} takes different values, got {several!r}.")
    return values


def _parted(text: str, expected: str) -> tuple[str, str]:
    field, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set takes {expected}, got {text!r}.")
    return field, value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text  # a word such as lewm needs no quotes


T = TypeVar("T")

Maybe = Annotated[T | None, tyro.conf.arg(help_behavior_hint="")]
"""An optional flag. Its help states the default."""

Several = Annotated[tuple[T, ...], tyro.conf.arg(help_behavior_hint="")]
"""A flag with any number of values, none if it is not given."""

Flag = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]
"""A flag without a value."""
