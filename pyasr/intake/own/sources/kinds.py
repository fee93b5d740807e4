"""Kinds of sources by name. A new kind is a new module of this package that calls `register`."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.corpora.discs import hint_of_packed, paths_below
from pyasr.intake.own.audio_files import FOREIGN, FileIndex, is_audio
from pyasr.intake.own.corpus import Corpus, ReadingOptions

KINDS: list[Kind] = []
_HINTS = {  # name of a file, as a regular expression: what it is, and what to do
    r"wav\.scp|utt2spk": "a table of a data directory of Kaldi, which needs wav.scp, text and utt2spk",
    r".*\.(xlsx?|ods)": "a spreadsheet: save it as CSV in UTF-8",
    r".*\.ya?ml(\.gz)?": "YAML: if it is a manifest of lhotse, write it as JSON lines by 'lhotse copy FILE.yaml FILE.jsonl.gz'",
    rf".*({'|'.join(map(re.escape, sorted(FOREIGN)))})": "audio that is not read: convert it to WAV or FLAC",
}


class Places:
    """The files and folders that a user names as a corpus. Raises UserError where one is missing."""

    def __init__(self, paths: list[Path]):
        self.paths = [Path(path) for path in paths]
        for path in self.paths:
            if not path.exists():
                raise UserError(f"{path}: no such file or directory; give what holds the corpus")

    @property
    def folders(self) -> list[Path]:
        """Those that are directories."""
        return [path for path in self.paths if path.is_dir()]

    @property
    def files(self) -> list[Path]:
        """Those that are files."""
        return [path for path in self.paths if not path.is_dir()]

    @cached_property
    def top_files(self) -> list[Path]:
        """The named files, and those that lie directly in a named folder, but for hidden ones."""
        inner = [path for folder in self.folders for path in sorted(folder.iterdir()) if path.is_file() and path.name[0] != "."]
        return self.files + inner

    @cached_property
    def below(self) -> list[Path]:
        """All files below the named folders, but for hidden ones."""
        return [path for path in paths_below(self.folders) if path.name[0] != "."]

    @cached_property
    def audio(self) -> list[Path]:
        """The audio files below the named folders."""
        return list(filter(is_audio, self.below))

    @cached_property
    def index(self) -> FileIndex:
        """These audio files by their names."""
        return FileIndex(self.audio)

    def __str__(self) -> str:
        return " ".join(map(str, self.paths))


@dataclass(frozen=True)
class Kind:
    """A kind of sources.

    name  as sentences name it
    rank  kinds are asked in this order
    fits  whether these places are of the kind
    read  the corpus in them; raises UserError for what is wrong with it
    """

    name: str
    rank: int
    fits: Callable[[Places], bool]
    read: Callable[[Places, ReadingOptions], Corpus]


def register(kind: Kind) -> None:
    """Make a kind known."""
    KINDS.append(kind)


def all_kinds() -> list[Kind]:
    """Those of all modules of this package, by rank."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
    return sorted(KINDS, key=lambda kind: kind.rank)


def _hint(places: Places) -> str:
    """What to do with the first file that may be what the user means; '' if there is none."""
    paths = [*places.files, *places.below]
    for pattern, told in _HINTS.items():
        if found := next((path for path in paths if re.fullmatch(pattern, path.name, re.IGNORECASE)), None):
            return f"; {found} is {told}"
    return hint_of_packed(paths)


def read_corpus(paths: list[Path], options: ReadingOptions) -> Corpus:
    """The corpus in these places. Raises UserError where they are of no kind that is known, and for what is wrong with them."""
    places, kinds = Places(paths), all_kinds()
    kind = next((kind for kind in kinds if kind.fits(places)), None)
    if kind is None:
        wanted, hint = ", ".join(kind.name for kind in kinds), _hint(places)
        found = f"{len(places.audio)} audio files without transcripts" if places.audio and not hint else "no corpus that is known"
        raise UserError(f"{places}: {found}; give one of: {wanted}{hint}")
    corpus = kind.read(places, options)
    if not corpus.utterances:
        raise UserError(f"{places}: no utterance with audio and text; see that these belong together")
    return corpus
