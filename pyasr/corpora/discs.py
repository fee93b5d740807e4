"""Find the files of a corpus on its discs by name, case-insensitively and independent of the folders to which
the discs were copied.

Files that operating systems and programs add are ignored: hidden files and folders (`._sw02001.sph`,
`.AppleDouble`, `.Trash-1000`), `lost+found`, `__MACOSX` and others. Names may end in a version, as in disc
images: `SW02001.SPH;1`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.system_errors import is_absence

_NUM_NAMED, _NUM_CALLS_NAMED = 5, 20
# folders, in lower case
_OF_SYSTEMS = frozenset({"lost+found", "__macosx", "@eadir", "$recycle.bin", "system volume information"})
PACKED = r"(?:\.gz)?"  # suffix of patterns for text files that may be compressed
_VERSION = re.compile(r"\.?;[0-9]{1,5}$")
_IMAGE = re.compile(r".*\.(iso|img|nrg|mdf)", re.IGNORECASE)
_ARCHIVE = re.compile(
    r".*\.(zip|tar|tgz|tbz2?|txz|7z|rar|tar\.[a-z0-9]{1,4})(?P<part>\.[0-9]{3})?", re.IGNORECASE
)


@dataclass(frozen=True)
class Disc:
    """A part of a corpus, for messages: its name, its content, and the recipe's option for its location."""

    name: str
    holds: str
    option: str

    def missing(self, places: list[Path], paths: Iterable[Path] = ()) -> UserError:
        """The error that nothing was found below `places`, with a hint if `paths`, the files there, include
        an archive or a disc image."""
        where = f" below {', '.join(map(str, places))}" if places else ", because no directory was given"
        return UserError(
            f"{self.name}: no {self.holds}{where}; give its directory with "
            f"{self.option}{hint_of_packed(paths)}"
        )


def hint_of_packed(paths: Iterable[Path]) -> str:
    """Advice for the first archive or disc image; '' if there is none."""
    for path in paths:
        if _IMAGE.fullmatch(path.name):
            return f"; {path} is a disc image: mount or unpack it first"
        if found := _ARCHIVE.fullmatch(path.name):
            joined = ", after joining the parts (.zip.001, .zip.002) with cat" if found["part"] else ""
            return f"; {path} is an archive: unpack it first{joined}"
    return ""


def paths_below(places: list[Path]) -> Iterator[Path]:
    """All files below these directories, in sorted order. Links are followed; dangling links are logged. A
    place may also be a file. Raises UserError for a place that does not exist."""
    dead: list[Path] = []
    for place in places:
        if place.is_dir():
            yield from _walk(place, set(), dead)
        elif place.exists():
            yield place
        else:
            raise UserError(f"{place}: no such directory; correct the path, or mount the disc")
    if dead:
        log.warning(
            f"{len(dead)} dangling links, such as {dead[0]} (to {os.readlink(dead[0])}); their files are "
            "missing"
        )


def _walk(folder: Path, above: set[str], dead: list[Path]) -> Iterator[Path]:
    """Walk a folder. `above`: real paths of its ancestors, to detect cyclic links; dangling links are
    appended to `dead`."""
    real = os.path.realpath(folder)
    if real in above:
        return
    for entry in entries_of(folder):
        if _leads_nowhere(entry):
            dead.append(Path(entry.path))
        elif entry.is_dir():
            yield from _walk(Path(entry.path), above | {real}, dead)
        else:
            yield Path(entry.path)


def entries_of(folder: Path) -> list[os.DirEntry]:
    """The entries of a folder in sorted order, without those added by operating systems and programs."""
    found = (
        entry
        for entry in os.scandir(folder)
        if entry.name[0] != "." and entry.name.lower() not in _OF_SYSTEMS
    )
    return sorted(found, key=lambda entry: entry.name)


def _leads_nowhere(entry: os.DirEntry) -> bool:
    if not entry.is_symlink():
        return False
    try:
        os.stat(entry.path)
    except OSError as error:
        if not is_absence(error):
            raise
        return True
    return False


def places_in(text: str) -> list[Path]:
    """The directories or files of an option, separated by colons; empty for an empty text. `~` is the home
    directory."""
    if text and Path(text).exists():
        return [Path(text)]
    return [Path(os.path.expanduser(name)) for name in text.split(":") if name]


def places_of(text: str, corpus: str, option: str) -> list[Path]:
    """`places_in` a text. Raises UserError, naming corpus and option of the recipe, if the text is empty."""
    places = places_in(text)
    if not places:
        raise UserError(f"{corpus}: no directory was given; give it with {option}, several separated by ':'")
    return places


def without_version(name: str) -> str:
    """`SW02001.SPH` of `SW02001.SPH;1`."""
    return _VERSION.sub("", name)


def files_by_name(paths: list[Path], pattern: str) -> dict[str, Path]:
    """{name: path} of the paths whose end matches the regular expression `pattern`, case-insensitively; '/'
    separates folders.

    The name is the pattern's first group in lower case. Of several files with the same name, the first in
    sorted order is used, which is logged.
    """
    wanted = re.compile(rf"(?:^|.*/){pattern}", re.IGNORECASE)
    found: dict[str, Path] = {}
    doubles: dict[str, Path] = {}
    for path in sorted(paths):
        if match := wanted.fullmatch(without_version(path.as_posix())):
            other = found.setdefault(match[1].lower(), path)
            if other != path:
                doubles[match[1].lower()] = path
    if doubles:
        examples = ", ".join(
            f"{found[name]} (not {path})" for name, path in list(doubles.items())[:_NUM_NAMED]
        )
        more = " ..." * (len(doubles) > _NUM_NAMED)
        log.warning(
            f"{len(doubles)} files exist in several copies, the first of each is used: {examples}{more}"
        )
    return found


def log_calls_that_have(cases: dict[str, set[str]], corpus: str) -> None:
    """Log a warning for each case with calls: `CORPUS: 3 calls have a transcript, but no audio: sw02289
    ...`."""
    for what, calls in cases.items():
        if calls:
            more = " ..." * (len(calls) > _NUM_CALLS_NAMED)
            log.warning(
                f"{corpus}: {len(calls)} calls have {what}: "
                f"{' '.join(sorted(calls)[:_NUM_CALLS_NAMED])}{more}"
            )
