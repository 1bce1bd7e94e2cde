"""Reads JSON as a declared dataclass: each value has the type and the bounds of its field, or the whole is refused."""

from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

T = TypeVar("T")
LARGEST = 1 << 60
"""The largest number that is believed. Sums and ratios of such numbers stay finite."""
Whole = Annotated[int, Field(ge=0, le=LARGEST)]
"""A whole number from 0 on."""
Signed = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
"""A whole number."""
Amount = Annotated[float, Field(ge=0, le=LARGEST)]
"""A number from 0 on."""
Part = Annotated[float, Field(ge=0, le=1)]
"""A number from 0 to 1."""

CLOSED = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""For files of this program: no value is made another type's, and a key that is no field is refused. As `__pydantic_config__` of a dataclass."""
OPEN = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
"""For files that newer programs write: keys that are no fields are left alone."""


def parse_json(form: TypeAdapter[T], text: str | bytes) -> T:
    """Makes what the format declares of JSON. Raises `ValueError` with the place of the first value that is wrong."""
    try:
        return form.validate_json(text)
    except ValidationError as error:
        raise ValueError(_fault(error)) from None


def _fault(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in first["loc"]).removeprefix(".")
    if first["type"] == "missing":
        return f"{place} is not there"
    if first["type"] == "unexpected_keyword_argument":
        return f"{place} is not known: remove it, or mend its name"
    needed = first["msg"].replace("Input should", "it should", 1)
    return f"{place or 'it'} is {_short(first['input'])}: {needed}" if first["type"] != "json_invalid" else needed


def _short(value: Any) -> str:
    try:
        return repr(value)[:40]
    except ValueError:
        # Python writes no integer of over 4300 digits.
        return "a number without end"
