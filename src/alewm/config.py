"""Frozen configurations: written to JSON, read back strictly, compared field by field."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

from alewm.errors import InputError, unknown_name

ConfigType = TypeVar("ConfigType")


def to_dict(config: Any) -> dict[str, Any]:
    """The fields of a (nested) config dataclass as plain JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(config)))  # type: ignore[no-any-return]


def from_dict(kind: type[ConfigType], values: Mapping[str, Any]) -> ConfigType:
    """The config of type `kind` that `to_dict` wrote; unknown keys and missing ones are refused by name."""
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            raise unknown_name(f"{kind.__name__} field", name, fields)
    hints = get_type_hints(kind)
    arguments = {}
    for name, field in fields.items():
        if name in values:
            arguments[name] = _revive(hints[name], values[name])
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise InputError(f"{kind.__name__} lacks the field {name!r}.")
    return kind(**arguments)


def _revive(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping):
        return from_dict(hint, value)
    if isinstance(value, list):
        return tuple(value)
    return value


def differences(asked: Mapping[str, Any], found: Mapping[str, Any], prefix: str = "") -> list[str]:
    """One line for every field in which two configs differ, as dotted names."""
    lines = []
    for name in sorted({*asked, *found}):
        here, there = asked.get(name, "(absent)"), found.get(name, "(absent)")
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            lines += differences(here, there, f"{prefix}{name}.")
        elif here != there:
            lines.append(f"{prefix}{name}: asked {here!r}, found {there!r}")
    return lines
