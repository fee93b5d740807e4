"""Files of a corpus on its discs: found by name, in any case of letters, in whatever folders the discs were copied to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError

_NUM_NAMED, _NUM_CALLS_NAMED = 5, 20


@dataclass(frozen=True)
class Disc:
    """A part of a corpus, for messages: its name, what it holds, and the option of the recipe that gives its place."""

    name: str
    holds: str
    option: str

    def missing(self, places: list[Path]) -> UserError:
        """The error that nothing of it was found below `places`."""
        where = f" below {', '.join(map(str, places))}" if places else ", since no directory was given"
        return UserError(f"{self.name}: no {self.holds}{where}; give its directory by {self.option}")


def paths_below(places: list[Path]) -> Iterator[Path]:
    """All files below these directories, in sorted order; links are followed. Raises UserError for a place that is not a directory."""
    for place in places:
        if not place.is_dir():
            raise UserError(f"{place}: no such directory; correct the path, or mount the disc")
        yield from _walk(place, set())


def _walk(folder: Path, above: set[str]) -> Iterator[Path]:
    """`above` holds the real paths of the folders that lead here, against links that lead back."""
    real = os.path.realpath(folder)
    if real in above:
        return
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _walk(Path(entry.path), above | {real})
        else:
            yield Path(entry.path)


def places_in(text: str) -> list[Path]:
    """The directories or files that an option names, separated by colons; none for an empty text."""
    if text and Path(text).exists():
        return [Path(text)]
    return [Path(name) for name in text.split(":") if name]


def places_of(text: str, corpus: str, option: str) -> list[Path]:
    """`places_in` a text. Raises UserError, naming the corpus and the option of the recipe, where it is empty."""
    places = places_in(text)
    if not places:
        raise UserError(f"{corpus}: no directory was given; give it by {option}, several separated by ':'")
    return places


def files_by_name(paths: list[Path], pattern: str) -> dict[str, Path]:
    """{name: path} of those whose path ends as the regular expression `pattern` says, in any case; '/' separates folders.

    The name is the pattern's first group in lower case. Of several files of one name the first in sorted order is taken, which is logged.
    """
    wanted = re.compile(rf"(?:^|.*/){pattern}", re.IGNORECASE)
    found: dict[str, Path] = {}
    doubles: dict[str, Path] = {}
    for path in sorted(paths):
        if match := wanted.fullmatch(path.as_posix()):
            other = found.setdefault(match[1].lower(), path)
            if other != path:
                doubles[match[1].lower()] = path
    if doubles:
        examples = ", ".join(f"{found[name]} (not {path})" for name, path in list(doubles.items())[:_NUM_NAMED])
        more = " ..." * (len(doubles) > _NUM_NAMED)
        log.warning(f"{len(doubles)} files exist in several copies, the first of each is used: {examples}{more}")
    return found


def log_calls_that_have(cases: dict[str, set[str]], corpus: str) -> None:
    """A warning for each case with calls: `CORPUS: 3 calls have a transcript, but no audio: sw02289 ...`."""
    for what, calls in cases.items():
        if calls:
            more = " ..." * (len(calls) > _NUM_CALLS_NAMED)
            log.warning(f"{corpus}: {len(calls)} calls have {what}: {' '.join(sorted(calls)[:_NUM_CALLS_NAMED])}{more}")
