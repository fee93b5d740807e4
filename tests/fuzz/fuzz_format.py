"""Description of a fuzzed format: a small valid file, written by pyasr or by Kaldi, and its reader."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures/kaldi"


@dataclass(frozen=True)
class Format:
    """How one kind of file is fuzzed.

    name        of the file, below a directory of its own
    make(path)  writes it and the files that belong to it
    read(path)  uses it
    names       whether the message names the file when it is refused; for a table it may name the files that
                it refers to
    refuses     whether damage is refused at all; a validator reports it instead
    """

    name: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]
    names: bool = True
    refuses: bool = True

    def write(self, directory: Path) -> Path:
        """Write the valid file below `directory`."""
        path = directory / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.make(path)
        return path


def kaldi_file(name: str, read: Callable[[Path], object]) -> Format:
    """Path of a file of tests/fixtures/kaldi/files."""
    return Format(name, lambda path: shutil.copy(FIXTURES / "files" / name, path), read)


def files_of(source: Path, names: Iterable[str], read: Callable[[Path], object]) -> list[Format]:
    """A format for each of these files of a directory; `read` takes the directory."""

    def format_of(name: str) -> Format:
        up = len(Path(name).parts) - 1
        return Format(
            f"{source.name}/{name}",
            lambda path: shutil.copytree(source, path.parents[up], dirs_exist_ok=True),
            lambda path: read(path.parents[up]),
        )

    return [format_of(name) for name in names]


def consume(*readers: Callable) -> Callable[[Path], list]:
    """Reader that calls all of these functions and exhausts the iterators that they return."""
    return lambda path: [
        list(found) if hasattr(found, "__next__") else found for found in (read(path) for read in readers)
    ]
