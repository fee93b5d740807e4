"""Values of options from the command line or JSON, checked against their types and bounds."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path

from pyasr.base.errors import UserError

_JSON_TYPES: dict[type, tuple[type, ...]] = {
    float: (float, int)
}  # of fields that are saved with one of several types


def check_bounds(value, meta: Mapping, where: str, text: str) -> None:
    """Raise UserError, beginning with `where`, for a value that is not among the choices or is out of
    bounds."""
    if meta["choices"] and value is not None and value not in meta["choices"]:
        raise UserError(f"{where}: '{text}' is not one of {', '.join(map(str, meta['choices']))}")
    if meta["minimum"] is not None and value is not None and value < meta["minimum"]:
        raise UserError(f"{where}: {text} is below the minimum {meta['minimum']}")
    if meta["maximum"] is not None and value is not None and value > meta["maximum"]:
        raise UserError(f"{where}: {text} is above the maximum {meta['maximum']}")


def from_text(kind: type, text: str, where: str):
    """Convert a word of the command line to type `kind`. Raises UserError if that is impossible."""
    if kind is Path and not text:
        raise UserError(f"{where}: the path is empty")
    if kind is int and not re.fullmatch(r"[+-]?[0-9]+", text):
        raise UserError(f"{where}: '{text}' is not a whole number")
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where}: '{text}' is not a number")
    return value


def as_typed(value) -> str:
    """A value as written on the command line: `true`, `none`, `0.5`."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def plain_type(hint) -> tuple[type, bool]:
    """(type, optional) of an annotation such as `int` or `float | None`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        return inner[0], True
    return hint, False


def item_type(hint) -> type:
    """`Path` of `tuple[Path, ...]`; `str` of a bare `tuple`."""
    return (typing.get_args(hint) or (str,))[0]


def check(instance, where: str) -> None:
    """Raise UserError, beginning with `where`, for a field of the wrong type and for an option with an
    invalid choice or out of bounds."""
    hints = typing.get_type_hints(type(instance))
    for field in dataclasses.fields(instance):
        is_flag = field.metadata.get("kind") == "option"
        value, of_field = (
            getattr(instance, field.name),
            f"{where}: {'--' + field.name.replace('_', '-') if is_flag else field.name}",
        )
        _check_value(value, *plain_type(hints[field.name]), where, of_field)
        if is_flag:
            check_bounds(value, field.metadata, of_field, str(value))


def _check_value(value, kind: type, is_optional: bool, where: str, of_field: str) -> None:
    """Raise UserError unless a value read from JSON, and all values in it, have the types of the field."""
    if value is None and is_optional:
        return
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, kind):
            raise UserError(f"{of_field}: expected options, found '{str(value)[:40]}'")
        check(value, where)
    elif typing.get_origin(kind) is tuple:
        for item in value:
            _check_value(item, typing.get_args(kind)[0], False, where, of_field)
    else:
        _check_type(value, kind, of_field)


def _check_type(value, kind: type, where: str) -> None:
    """Raise UserError, beginning with `where`, unless a value is of this type and, if it is a number, finite
    and below 2^63."""
    fits = type(value) in _JSON_TYPES.get(kind, (kind,))
    if not fits or isinstance(value, (int, float)) and not abs(value) < 1 << 63:
        raise UserError(f"{where}: '{str(value)[:40]}' is not a value of type {kind.__name__}")
