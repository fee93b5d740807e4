#!/usr/bin/env python3
"""Get the data file of Flight of the Amazon Queen (54 MB, free to use): from a copy, else from its Debian
package, without root.

Reads   --corpus: queen.1c, the .deb, or a directory with either; without it, apt-get downloads the package
Writes  OUT/queen.1c (a link if a copy was given)

    local/get_corpus.py corpus
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import debian_package
from queen import QueenFile

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.errors import UserError

PACKAGE, FILE = "flight-of-the-amazon-queen", "queen.1c"
NUM_ENTRIES, SIZE_BYTES = 7671, 54_108_887


@dataclass(frozen=True)
class GetCorpus:
    out: Path = argument("directory for queen.1c")
    corpus: str | None = option(
        None, "queen.1c, flight-of-the-amazon-queen_*.deb, or a directory with one of them"
    )


def main(options: GetCorpus) -> None:
    copy = find_copy(Path(options.corpus)) if options.corpus else None
    with output_of(options, options.out, [copy] if copy else [], also=[options.out / FILE]) as out:
        if copy is not None and copy.name.lower() == FILE:
            (out / FILE).symlink_to(copy.resolve())
        elif copy is not None:
            debian_package.extract(copy, FILE, out / FILE)
        else:
            fetch(out / FILE)
        verify(out / FILE)
    log.info(f"{options.out / FILE}: {NUM_ENTRIES} entries, {SIZE_BYTES} bytes, as expected")


def fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        log.info(f"fetching the Debian package {PACKAGE} (35 MB) by apt-get")
        debian_package.extract(debian_package.download(PACKAGE, Path(scratch)), FILE, target)


def find_copy(path: Path) -> Path:
    """queen.1c or the package: `path` itself or a file in it."""
    if not path.exists():
        raise UserError(f"--corpus {path}: no such file or directory")
    if path.is_file():
        if path.suffix == ".deb" or path.name.lower() == FILE:
            return path
        raise UserError(f"--corpus {path}: neither queen.1c nor a .deb package")
    found = [p for p in sorted(path.rglob("*")) if p.name.lower() == FILE] + sorted(
        path.rglob(f"{PACKAGE}_*.deb")
    )
    if not found:
        raise UserError(f"--corpus {path}: contains neither queen.1c nor {PACKAGE}_*.deb")
    return found[0]


def verify(path: Path) -> None:
    """Raise UserError unless `path` is the release that the split file describes."""
    num_entries, size = len(QueenFile(path).entries), path.stat().st_size
    if (num_entries, size) != (NUM_ENTRIES, SIZE_BYTES):
        raise UserError(
            f"{path}: {num_entries} entries, {size} bytes, expected {NUM_ENTRIES} and {SIZE_BYTES}: "
            "another release of the game or a damaged file; use queen.1c of the Debian package 1.0.0"
        )


if __name__ == "__main__":
    run_step(GetCorpus, main, __doc__)
