"""Tensors and other leaves in tuples, lists and dictionaries, as in arguments and results of ATen operations.
Other classes, for example torch.Size, are leaves."""

from __future__ import annotations

from collections.abc import Callable


def mapped(function: Callable, value):
    """The same tuples, lists and dictionaries, with `function(leaf)` instead of each leaf."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([mapped(function, part) for part in value])
    if kind is dict:
        return {key: mapped(function, part) for key, part in value.items()}
    return function(value)


def leaves(value) -> list:
    """The leaves, in order."""
    kind = type(value)
    if kind is dict:
        value = list(value.values())
    elif kind is not tuple and kind is not list:
        return [value]
    found = []
    for part in value:
        kind = type(part)
        if kind is tuple or kind is list or kind is dict:
            found += leaves(part)
        else:
            found.append(part)
    return found
