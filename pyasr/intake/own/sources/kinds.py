"""Kinds of sources by name. A new kind is a new module of this package that calls `register`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.corpora.discs import paths_below
from pyasr.intake.own.audio_files import FileIndex, is_audio
from pyasr.intake.own.corpus import Corpus, ReadingOptions

KINDS: list[Kind] = []


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


def read_corpus(paths: list[Path], options: ReadingOptions) -> Corpus:
    """The corpus in these places. Raises UserError where they are of no kind that is known, and for what is wrong with them."""
    places, kinds = Places(paths), all_kinds()
    kind = next((kind for kind in kinds if kind.fits(places)), None)
    if kind is None:
        wanted = ", ".join(kind.name for kind in kinds)
        raise UserError(f"{places}: no corpus that is known; give one of: {wanted}")
    corpus = kind.read(places, options)
    if not corpus.utterances:
        raise UserError(f"{places}: no utterance with audio and text; see that these belong together")
    return corpus
