"""Frozen configurations with validated fields: written to JSON, read back strictly, compared and overridden."""

import dataclasses
import json
import math
import types
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from alewm.errors import InputError, unknown_name


@dataclass(frozen=True)
class Range:
    """Finite numbers of `least` or more, below `end`."""

    rule: str
    """What a message says of this range, after the field's name."""
    least: int | float = -math.inf
    end: int | float = math.inf
    excludes_least: bool = False

    def check(self, name: str, value: int | float | None) -> None:
        """Refuses a `value` outside; `name` is what it was given as. None is a field that was left open."""
        if value is None:
            return
        # Written so that NaN, which compares with nothing, is outside.
        is_inside = self.least <= value < self.end and not (self.excludes_least and value == self.least)
        if not is_inside:
            raise InputError(f"{name} {self.rule}, got {value}.")


AT_LEAST_1 = Range("must be at least 1", least=1)
AT_LEAST_0 = Range("must not be negative", least=0)

Count = Annotated[int, AT_LEAST_1]
CountOrZero = Annotated[int, AT_LEAST_0]
Finite = Annotated[float, Range("must be a finite number", excludes_least=True)]
Positive = Annotated[float, Range("must be positive and finite", least=0, excludes_least=True)]
NotNegative = Annotated[float, Range("must be finite and not negative", least=0)]
Share = Annotated[float, Range("is a share in [0, 1)", least=0, end=1)]


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuses seeds of which one is negative or named twice, and no seed at all."""
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
        raise InputError(f"Seeds must be distinct and not negative, at least one; got {tuple(seeds)}.")


def check_ranges(config: Any) -> None:
    """Refuses a config dataclass with a number outside of its field's range."""
    for name, allowed in ranges_of(config.__class__).items():
        allowed.check(name, getattr(config, name))


@cache
def ranges_of(kind: Hashable) -> dict[str, Range]:
    """The range of every field of `kind` whose type says one."""
    hints = get_type_hints(kind, include_extras=True)
    notes = [(name, note) for name, hint in hints.items() if get_origin(hint) is Annotated for note in get_args(hint)]
    return {name: note for name, note in notes if isinstance(note, Range)}


ConfigType = TypeVar("ConfigType")

ADDED_LATER = {"added_later": True}
"""Metadata of a field that was added after runs were stored: `to_dict` leaves it out where it has its default.

A run stored before the field existed is then still found by its hash, and may be continued.
"""


def to_dict(config: Any) -> dict[str, Any]:
    """The fields of a (nested) config dataclass as plain JSON values."""
    values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    _drop_late_defaults(config, values)
    return values


def _drop_late_defaults(config: Any, values: dict[str, Any]) -> None:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if "added_later" in field.metadata and value == field.default:
            del values[field.name]
        elif dataclasses.is_dataclass(value):
            _drop_late_defaults(value, values[field.name])


def from_dict(kind: type[ConfigType], values: Mapping[str, Any]) -> ConfigType:
    """The config of type `kind` that `to_dict` wrote; keys and values that do not fit are refused by name."""
    if not isinstance(values, Mapping):
        raise InputError(f"{kind.__name__} must be an object of named fields, got {_shortened(values)}.")
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            raise unknown_name(f"{kind.__name__} field", name, fields)
    hints = get_type_hints(kind)
    arguments = {}
    for name, field in fields.items():
        if name in values:
            arguments[name] = _revive(hints[name], values[name])
            if not _fits(hints[name], arguments[name]):
                expected, found = _described(hints[name]), _shortened(values[name])
                raise InputError(f"{kind.__name__}.{name} must be {expected}, got {found}.")
            if arguments[name] != arguments[name] and name not in ranges_of(kind):  # type: ignore[arg-type]
                raise InputError(f"{kind.__name__}.{name} must be a number, got NaN.")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise InputError(f"{kind.__name__} lacks the field {name!r}.")
    return kind(**arguments)


def _revive(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping):
        return from_dict(hint, value)
    if isinstance(value, list):
        # Of several objects of one kind.
        inner = get_args(hint)[0] if get_origin(hint) is tuple else None
        return tuple(_revive(inner, each) if dataclasses.is_dataclass(inner) else each for each in value)
    return value


def late_field_defaults(kind: Any) -> dict[str, Any]:
    """The defaults that `to_dict` leaves out of configs of type `kind`, nested as it nests fields."""
    hints, defaults = get_type_hints(kind), dict[str, Any]()
    for field in dataclasses.fields(kind):
        if "added_later" in field.metadata:
            defaults[field.name] = field.default
        elif dataclasses.is_dataclass(hints[field.name]):
            defaults[field.name] = late_field_defaults(hints[field.name])
    return defaults


def differences(
    asked: Mapping[str, Any], found: Mapping[str, Any], defaults: Mapping[str, Any] | None = None, prefix: str = ""
) -> list[str]:
    """One line for every field in which two configs differ, as dotted names; one left out has that of `defaults`."""
    lines, defaults = [], defaults or {}
    for name in sorted({*asked, *found}):
        left_out = defaults.get(name, "(absent)")
        here, there = asked.get(name, left_out), found.get(name, left_out)
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            deeper = left_out if isinstance(left_out, Mapping) else None
            lines += differences(here, there, deeper, f"{prefix}{name}.")
        elif here != there:
            lines.append(f"{prefix}{name}: asked {here!r}, found {there!r}")
    return lines


def overridden(config: ConfigType, changes: Mapping[str, Any]) -> ConfigType:
    """`config` with other values in the fields that `changes` names by dotted path, each checked to fit its field.

    All take effect together, so that fields that must fit each other can change in one call.
    """
    values = to_dict(config)
    for path, value in changes.items():
        _set_field(type(config), values, path.split("."), value, path)
    return from_dict(type(config), values)


def changed_fields(config: Any, base: Any, prefix: str = "") -> dict[str, Any]:
    """What `overridden` needs to make `config` from `base`: dotted names and values of all fields that differ."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        here, there = getattr(config, field.name), getattr(base, field.name)
        if dataclasses.is_dataclass(here):
            changes |= changed_fields(here, there, f"{prefix}{field.name}.")
        elif here != there:
            changes[prefix + field.name] = here
    return changes


def _set_field(kind: Any, values: dict[str, Any], path: list[str], value: Any, whole: str) -> None:
    hints, (name, *deeper) = get_type_hints(kind), path
    if name not in hints:
        raise unknown_name(f"{kind.__name__} field", name, hints)
    hint = hints[name]
    if bool(deeper) != dataclasses.is_dataclass(hint):
        raise InputError(f"{whole!r} names no single value: write the dotted path of one field.")
    if deeper:
        _set_field(hint, values[name], deeper, value, whole)
    elif not _fits(hint, value):
        raise InputError(f"{whole} must be {_described(hint)}, got {value!r}.")
    else:
        if name in (allowed := ranges_of(kind)):
            allowed[name].check(whole, value)
        values[name] = float(value) if hint is float else list(value) if isinstance(value, tuple) else value


def _fits(hint: Any, value: Any) -> bool:
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Literal:
        return isinstance(value, Hashable) and value in inner
    if hint is Any or kind is dict or hint is dict:
        return hint is Any or isinstance(value, Mapping)
    if kind in (Union, types.UnionType):
        return any(_fits(each, value) for each in inner)
    if kind is tuple:
        return isinstance(value, (list, tuple)) and all(_fits(inner[0], each) for each in value)
    if isinstance(value, bool) or hint is bool:
        return isinstance(value, bool) and hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _described(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
