"""Subsets of an stm, such as the Switchboard and CallHome parts of Hub5'00.

A subsets file has lines `NAME PATTERN`. A segment belongs to a subset if the regular expression is found in
its `FILE CHANNEL SPEAKER <LABELS>`:

    swbd    ^sw_
    callhm  ^en_
    women   [<,]F[,>]
"""

from __future__ import annotations

import re
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.data.transcripts.stm import StmSegment
from pyasr.io.text_tables import read_table

_NAME = re.compile(r"[\w.-]+")


def read_subsets(path: Path) -> dict[str, re.Pattern]:
    """{name: pattern}. Raises UserError with file and line for a malformed line."""
    found = {}
    for number, (name, pattern) in enumerate(read_table(path).items(), 1):
        if not pattern or not _NAME.fullmatch(name):
            line = f"{name} {pattern}".rstrip()
            raise UserError(
                f"{path}:{number}: '{line}' is not 'NAME PATTERN', for example 'swbd ^sw_'; correct it"
            )
        try:
            found[name] = re.compile(pattern)
        except re.error as error:
            raise UserError(
                f"{path}:{number}: '{pattern}' is not a regular expression: {error}; correct it"
            ) from None
    return found


def members(
    patterns: dict[str, re.Pattern], segments: dict[str, StmSegment], path: Path
) -> dict[str, list[str]]:
    """{subset: ids of its segments}. Empty subsets are logged and skipped."""
    found = {
        name: [key for key, segment in segments.items() if pattern.search(segment.described)]
        for name, pattern in patterns.items()
    }
    for name in (name for name, keys in found.items() if not keys):
        log.warning(f"{path}: subset '{name}' is skipped: no segment matches '{patterns[name].pattern}'")
    return {name: keys for name, keys in found.items() if keys}


def by_label(segments: dict[str, StmSegment]) -> dict[str, list[str]]:
    """{label: ids of the segments that have it}, in order of first appearance."""
    found: dict[str, list[str]] = {}
    for key, segment in segments.items():
        for label in dict.fromkeys(segment.labels):
            found.setdefault(label, []).append(key)
    return found
