"""phones/align_lexicon.{txt,int} of a lang directory: the phones of each word, and those between words, for
the alignment of lattices."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyasr.lang.symbols import SymbolTable, write_lines


def write_align_lexicon(
    pronunciations: Iterable[tuple[str, tuple[str, ...]]], words: SymbolTable, phones: SymbolTable, out: Path
) -> None:
    """Write both files from (word, phones) pairs: lines `word word phones` in C order, each once; <eps>
    stands for no word."""
    rows = sorted(set(pronunciations), key=lambda row: f"{row[0]} {row[0]} {' '.join(row[1])}".encode())
    write_lines(
        out / "phones/align_lexicon.txt", (f"{word} {word} {' '.join(spelling)}" for word, spelling in rows)
    )
    numbers = ([words[word]] * 2 + [phones[phone] for phone in spelling] for word, spelling in rows)
    write_lines(out / "phones/align_lexicon.int", (" ".join(map(str, row)) for row in numbers))
