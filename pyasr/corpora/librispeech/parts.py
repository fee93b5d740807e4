"""The parts of LibriSpeech (OpenSLR 12) and mini_librispeech (OpenSLR 31): their folders and published
counts.

    LibriSpeech/train-clean-100/1088/134315/1088-134315-0000.flac    READER/CHAPTER
    LibriSpeech/SPEAKERS.TXT

Each archive unpacks to a folder LibriSpeech; the archives may be unpacked in one place or several.

Hours and readers are those of V. Panayotov, G. Chen, D. Povey, S. Khudanpur, "LibriSpeech: an ASR corpus
based on public domain audio books", ICASSP 2015, Table 1 (dev-other and test-other have 5.1 and 5.3 h; the
table swaps them). The word counts of dev and test sets are those on which Kaldi's RESULTS are scored.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.corpora.counts import Published
from pyasr.corpora.discs import entries_of

TRAINING = {  # subset: its training parts
    "mini": ("train-clean-5",),
    "100": ("train-clean-100",),
    "460": ("train-clean-100", "train-clean-360"),
    "960": ("train-clean-100", "train-clean-360", "train-other-500"),
}
TEST_KINDS = ("clean", "other")
PUBLISHED: dict[str, dict[str, tuple[float, ...]]] = {  # part: {quantity: numbers}
    "train-clean-5": {"utterances": (1519,)},
    "train-clean-100": {"utterances": (28_539,), "hours": (100.6,), "readers": (251,)},
    "train-clean-360": {"utterances": (104_014,), "hours": (363.6,), "readers": (921,)},
    "train-other-500": {"utterances": (148_688,), "hours": (496.7,), "readers": (1166,)},
    "dev-clean-2": {"utterances": (1089,), "words": (20_138,)},
    "dev-clean": {"utterances": (2703,), "hours": (5.4,), "readers": (40,), "words": (54_402,)},
    "dev-other": {"utterances": (2864,), "hours": (5.1, 5.3), "readers": (33,), "words": (50_948,)},
    "test-clean": {"utterances": (2620,), "hours": (5.4,), "readers": (40,), "words": (52_576,)},
    "test-other": {"utterances": (2939,), "hours": (5.1, 5.3), "readers": (33,), "words": (52_343,)},
}
_HOURS_TOLERANCE = 0.005
_DEPTH = 4  # maximum depth of a part's folder below a given place
_PAGES = {"mini": "www.openslr.org/31"}
_PAGE = "www.openslr.org/12"


def parts_of(subset: str, test_kinds: Iterable[str] = TEST_KINDS) -> list[str]:
    """The training and test parts of a subset (mini, 100, 460, 960); mini has one dev set, independent of
    `test_kinds`."""
    if subset == "mini":
        return [*TRAINING[subset], "dev-clean-2"]
    return [*TRAINING[subset], *(f"{name}-{kind}" for name in ("dev", "test") for kind in test_kinds)]


def published(part: str) -> list[Published]:
    """Published counts of a part. Its speakers are called readers, because a speaker of the data directory is
    a reader of a chapter."""
    return [
        Published(quantity, values, _HOURS_TOLERANCE if quantity == "hours" else 0.0)
        for quantity, values in PUBLISHED[part].items()
    ]


def part_folders(places: list[Path], subset: str, parts: list[str]) -> dict[str, list[Path]]:
    """{part: folders of its name at or below `places`}.

    Raises UserError for a place that is not a directory, and for missing parts; the message names all of them
    and the archives that have not been unpacked.
    """
    found: dict[str, dict[str, Path]] = {part: {} for part in parts}
    archives: dict[str, Path] = {}
    for folder in folders_below(places):
        part = folder.name.lower()
        if part in found:
            found[part].setdefault(os.path.realpath(folder), folder)
        archives.update({name: path for name in parts if (path := folder / f"{name}.tar.gz").is_file()})
    if missing := [part for part in parts if not found[part]]:
        raise _missing(missing, archives, places, subset)
    return {part: list(folders.values()) for part, folders in found.items()}


def folders_below(places: list[Path]) -> Iterator[Path]:
    """The places and the folders below them, to the maximum depth of parts, except folders within a part."""
    for place in places:
        if not place.is_dir():
            is_file = "a file, not a directory; give the directory that contains it"
            raise UserError(
                f"{place}: {is_file if place.exists() else 'no such directory; correct the path'}"
            )
        yield from _walk(place, _DEPTH)


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    yield folder
    if depth and folder.name.lower() not in PUBLISHED:
        for entry in entries_of(folder):
            if entry.is_dir():
                yield from _walk(Path(entry.path), depth - 1)


def _missing(parts: list[str], archives: dict[str, Path], places: list[Path], subset: str) -> UserError:
    where = ", ".join(map(str, places))
    packed = [archives[part] for part in parts if part in archives]
    absent = [part for part in parts if part not in archives]
    sentence = [f"{path.name} is not unpacked: run 'tar -xzf {path} -C {path.parent}'" for path in packed]
    if absent:
        sentence.append(
            f"no folder {', '.join(absent)} below {where}: download from {_PAGES.get(subset, _PAGE)} and "
            "unpack the missing parts, or give their directories with --corpus, separated by ':'"
        )
    return UserError(f"LibriSpeech: {'; '.join(sentence)}")
