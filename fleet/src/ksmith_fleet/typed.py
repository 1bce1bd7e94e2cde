"""Reads JSON as a dataclass: each value is of the type that the field has, or the whole is refused."""

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
LARGEST = 1 << 62
"""The largest whole number that is taken. Sums and ratios of such numbers stay finite."""


def typed(kind: type[T], said: Any, where: str = "") -> T:
    """Makes the dataclass of an object of JSON. Raises `ValueError` with the place of what is wrong."""
    if not isinstance(said, dict):
        raise ValueError(f"{where or 'it'} is no object")
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    if strange := sorted(said.keys() - known.keys()):
        raise ValueError(f"{where}{strange[0]} is not known")
    for name, field in known.items():
        if name not in said and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{where}{name} is not there")
    return kind(**{name: _value(hints[name], value, f"{where}{name}") for name, value in said.items()})


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST


PLAIN: Mapping[type, Callable[[Any], bool]] = {
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool),
    int: _is_whole,
    float: lambda value: _is_whole(value) or (isinstance(value, float) and math.isfinite(value)),
}


def _value(kind: Any, value: Any, where: str) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is types.UnionType:
        (kind,) = (part for part in parts if part is not types.NoneType)
        return None if value is None else _value(kind, value, where)
    if origin is list and isinstance(value, list):
        return [_value(parts[0], one, f"{where}[{at}]") for at, one in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {key: _value(parts[1], one, f"{where}.{key}") for key, one in value.items()}
    if is_dataclass(kind):
        return typed(kind, value, f"{where}.")  # type: ignore[arg-type]
    if origin is None and PLAIN[kind](value):
        return float(value) if kind is float else value
    raise ValueError(f"{where} is {str(value)[:40]!r}")
