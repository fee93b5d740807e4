"""Parsing of JSON from untrusted or damaged files."""

from __future__ import annotations

import json
from pathlib import Path

from pyasr.base.system_errors import keeping_name
from pyasr.base.utf8 import without_mark

_MAX_LEVELS = 100  # of nested objects and lists: the functions that process them are recursive
_TOO_DEEP = f"nested deeper than {_MAX_LEVELS} levels"


def parse_object(text: str) -> dict:
    """Parse a JSON object. Raises ValueError for other values or more than 100 nested levels."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    if not _is_shallow(found):
        raise ValueError(_TOO_DEEP)
    return found


def parse_text_object(text: str) -> dict:
    """`parse_object` for values that are written to other files. Also raises ValueError for a lone surrogate
    (`\\ud83d`), which UTF-8 cannot encode."""
    found = parse_object(text)
    if "\\u" in text:
        json.dumps(found, ensure_ascii=False).encode()
    return found


def read_object(path: Path) -> dict:
    """Read a JSON object from a file. Raises ValueError as `parse_object` does and for bytes that are not
    UTF-8; UserError for UTF-16; OSError."""
    with keeping_name(path):
        return parse_object(without_mark(Path(path).read_bytes(), path).decode("utf-8"))


def _is_shallow(found: dict) -> bool:
    level: list[dict | list] = [found]
    for _ in range(_MAX_LEVELS):
        items = (item for one in level for item in (one.values() if isinstance(one, dict) else one))
        level = [item for item in items if isinstance(item, (dict, list))]
        if not level:
            return True
    return False
