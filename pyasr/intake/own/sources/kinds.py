"""Kinds of sources by name. A new kind is a new module of this package that calls `register`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyasr.base.compiled.imports import import_modules
from pyasr.base.errors import UserError
from pyasr.corpora.discs import hint_of_packed, paths_below
from pyasr.intake.own.reading.audio_files import FOREIGN, FileIndex, is_audio
from pyasr.intake.own.reading.own_corpus import Corpus, ReadingOptions

KINDS: list[Kind] = []
_HINTS = {  # regular expression for a file name: what the file is, and what to do
    r"wav\.scp|utt2spk": "a table of a data directory of Kaldi, which needs wav.scp, text and utt2spk",
    r".*\.(xlsx?|ods)": "a spreadsheet: save it as CSV in UTF-8",
    r".*\.ya?ml(\.gz)?": (
        "YAML: if it is a manifest of lhotse, write it as JSON lines by 'lhotse copy FILE.yaml FILE.jsonl.gz'"
    ),
    rf".*({'|'.join(map(re.escape, sorted(FOREIGN)))})": (
        "audio in an unsupported format: convert it to WAV or FLAC"
    ),
}


class Places:
    """The files and folders that a user gives as a corpus. Raises UserError if one is missing."""

    def __init__(self, paths: list[Path]):
        self.paths = [Path(path) for path in paths]
        for path in self.paths:
            if not path.exists():
                raise UserError(f"{path}: no such file or directory; give the files or folders of the corpus")

    @property
    def folders(self) -> list[Path]:
        """The given directories."""
        return [path for path in self.paths if path.is_dir()]

    @property
    def files(self) -> list[Path]:
        """The given files."""
        return [path for path in self.paths if not path.is_dir()]

    @cached_property
    def top_files(self) -> list[Path]:
        """The given files, and the files directly in a given folder, except hidden ones."""
        inner = [
            path
            for folder in self.folders
            for path in sorted(folder.iterdir())
            if path.is_file() and path.name[0] != "."
        ]
        return self.files + inner

    @cached_property
    def below(self) -> list[Path]:
        """All files below the given folders, except hidden ones."""
        return [path for path in paths_below(self.folders) if path.name[0] != "."]

    @cached_property
    def audio(self) -> list[Path]:
        """The audio files below the given folders."""
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

    name  name in messages
    rank  kinds are tried in this order
    fits  function: whether places are of this kind
    read  function that returns their corpus; raises UserError for faults
    """

    name: str
    rank: int
    fits: Callable[[Places], bool]
    read: Callable[[Places, ReadingOptions], Corpus]


def register(kind: Kind) -> None:
    """Register a kind."""
    KINDS.append(kind)


def all_kinds() -> list[Kind]:
    """The kinds of all modules of this package, by rank."""
    import_modules(__package__)
    return sorted(KINDS, key=lambda kind: kind.rank)


def _hint(places: Places) -> str:
    """Advice on the first file that looks like a source in another format; '' if there is none."""
    paths = [*places.files, *places.below]
    for pattern, message in _HINTS.items():
        if found := next((path for path in paths if re.fullmatch(pattern, path.name, re.IGNORECASE)), None):
            return f"; {found} is {message}"
    return hint_of_packed(paths)


def read_corpus(paths: list[Path], options: ReadingOptions) -> Corpus:
    """The corpus in these places. Raises UserError if they are of no known kind, and for faults."""
    places, kinds = Places(paths), all_kinds()
    kind = next((kind for kind in kinds if kind.fits(places)), None)
    if kind is None:
        wanted, hint = ", ".join(kind.name for kind in kinds), _hint(places)
        found = (
            f"{len(places.audio)} audio files without transcripts"
            if places.audio and not hint
            else "no known kind of corpus"
        )
        raise UserError(f"{places}: {found}; give one of: {wanted}{hint}")
    corpus = kind.read(places, options)
    if not corpus.utterances:
        raise UserError(f"{places}: no utterance with audio and text; check that these belong together")
    return corpus
