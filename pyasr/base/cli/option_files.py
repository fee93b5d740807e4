"""Options as JSON files, for outputs and jobs. Options that a file lacks have their defaults."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pyasr.base.cli.option_flags import kind_of
from pyasr.base.cli.option_values import check, item_type, plain_type
from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import read_object
from pyasr.base.outputs.comparison import PathText
from pyasr.base.outputs.output import atomic_write
from pyasr.base.system_errors import naming


def to_json(instance) -> dict:
    """The options as plain JSON values, with their class under `"type"`."""
    return {
        "type": f"{type(instance).__module__}:{type(instance).__qualname__}",
        **_jsonable(dataclasses.asdict(instance)),
    }


def defaults(cls) -> dict:
    """The default options of `cls` as plain JSON values."""
    return completed(cls, {})


def completed(cls, content: dict, standard: Mapping = MappingProxyType({})) -> dict:
    """Saved options as plain JSON values. Missing options, which were added later, get their defaults; values
    in `standard` override the defaults of the class.
    """
    found = dict(_upgraded(cls, content))
    for field in dataclasses.fields(cls):
        if field.metadata.get("kind") == "option":
            found.setdefault(field.name, _jsonable(standard.get(field.name, field.default)))
        elif kind := kind_of(field, found):
            found[field.name] = completed(kind, found.get(field.name, {}), field.metadata.get("defaults", {}))
    return found


def _upgraded(cls, content: dict) -> dict:
    """Saved options in the form that `cls` saves; a class of another form, or with a default that is not that
    of its field, has a static method `upgraded`."""
    return cls.upgraded(content) if hasattr(cls, "upgraded") else content


def paths_in(instance) -> list[Path]:
    """All paths in the options."""
    if dataclasses.is_dataclass(instance):
        return [
            path for field in dataclasses.fields(instance) for path in paths_in(getattr(instance, field.name))
        ]
    if isinstance(instance, (list, tuple)):
        return [path for item in instance for path in paths_in(item)]
    return [instance] if isinstance(instance, Path) else []


def _jsonable(value):
    if isinstance(value, dict):
        return {k: _jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(v) for v in value]
    return PathText(value) if isinstance(value, Path) else value


def save(path: Path, instance) -> None:
    """Write `instance` to a JSON file, atomically."""
    with atomic_write(path) as f:
        json.dump(to_json(instance), f, indent=1)
        f.write("\n")


def load(path: Path, kinds: tuple[type, ...] = ()):
    """Read an instance that `save` wrote. Only classes of pyasr are accepted; raises UserError for anything
    else.

    kinds  the expected classes, for files from untrusted sources; values are checked like those of a command
           line
    """
    try:
        with naming(path):
            content = read_object(path)
        module, _, name = content.pop("type").partition(":")
    except (ValueError, KeyError, AttributeError) as error:
        raise UserError(
            f"{path}: not a file of saved options ({error}); run the step that wrote it again"
        ) from None
    if not re.fullmatch(r"pyasr(\.\w+)+", module):
        raise UserError(f"{path}: options of {module}, which is not part of pyasr")
    try:
        cls = getattr(importlib.import_module(module), name)
        if not issubclass(cls, kinds or object) or not dataclasses.is_dataclass(cls):
            raise TypeError(f"{name} is not one of the expected classes")
        instance = from_json(cls, content)
    except (ImportError, AttributeError, TypeError, OverflowError) as error:
        raise UserError(
            f"{path}: not compatible with this version of pyasr ({error}); run the step that wrote it again"
        ) from None
    if kinds:
        check(instance, str(path))
    return instance


def from_json(cls, content: dict):
    """Rebuild paths, tuples and nested dataclasses from plain JSON values. Raises TypeError for fields that
    `cls` lacks."""
    hints, content = typing.get_type_hints(cls), _upgraded(cls, content)
    unknown = content.keys() - {field.name for field in dataclasses.fields(cls)}
    if unknown:
        raise TypeError(f"{cls.__name__} has no {', '.join(sorted(unknown))}")
    groups = [
        field
        for field in dataclasses.fields(cls)
        if field.metadata.get("kind") == "chosen" and field.name in content
    ]
    chosen = {field.name: kind_of(field, content) for field in groups}
    return cls(**{name: _revive(chosen.get(name, hints[name]), value) for name, value in content.items()})


def _revive(hint, value):
    """Convert a JSON value to the type of the annotation `hint`."""
    hint, _ = plain_type(hint)
    if value is None:
        return None
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return from_json(hint, value)
    if hint is Path:
        return Path(value)
    if hint is tuple or typing.get_origin(hint) is tuple:
        inner = item_type(hint) if typing.get_args(hint)[1:] == (...,) else None
        return tuple(_revive(inner, item) if inner else item for item in value)
    return value
