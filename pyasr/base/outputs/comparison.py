"""Comparison of a run with the record of an earlier run: its options, and the fingerprints of its inputs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass


class PathText(str):
    """A path in options: paths to the same file or directory are equal."""


@dataclass(frozen=True)
class RunContent:
    """What a run computes its output from. The record of a run is a dictionary with the same two entries.

    options   options of the step as JSON values
    inputs    {path: fingerprint}
    complete  function that converts the options of a record to the form of this version
    """

    options: dict
    inputs: dict[str, str]
    complete: Callable[[dict], dict] = dict

    def record(self) -> dict:
        """The run as JSON values."""
        return {"options": self.options, "inputs": self.inputs}

    def other_options(self, before: dict, but: tuple[str, ...] = ()) -> list[str]:
        """Differences from the options of a record as text; the options `but` are not compared."""
        old, new = (
            {name: value for name, value in options.items() if name not in but}
            for options in (self.complete(before["options"]), self.options)
        )
        return differences(old, new)

    def other_inputs(self, before: dict) -> list[str]:
        """Inputs that were changed, added or removed since a record was written; different paths to one place
        count as one input."""
        old, new = (
            {os.path.realpath(name): value for name, value in inputs.items()}
            for inputs in (before["inputs"], self.inputs)
        )
        names = {os.path.realpath(name): name for name in (*self.inputs, *before["inputs"])}
        return [name for place, name in names.items() if old.get(place) != new.get(place)]


def differences(old: dict, new: dict, prefix: str = "") -> list[str]:
    """Differences between two option dictionaries as text: ['num_gauss: 1000 -> 2000']."""
    lines = []
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            lines += differences(a, b, f"{prefix}{key}.")
        elif not _is_same(a, b):
            lines.append(f"{prefix}{key}: {_shown(a)} -> {_shown(b)}")
    return lines


def _shown(value):
    """A value in a difference; a group of options that only one side has is abbreviated."""
    return "its options" if isinstance(value, dict) else value


def _is_same(old, new) -> bool:
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        return len(old) == len(new) and all(map(_is_same, old, new))
    is_path = isinstance(new, PathText) and isinstance(old, str)
    return old == new or is_path and os.path.realpath(old) == os.path.realpath(new)
