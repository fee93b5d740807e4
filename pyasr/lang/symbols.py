"""Symbols in files: texts and lists of words separated by blanks, and the tables `words.txt` and
`phones.txt`, one `SYMBOL ID` per line."""

from __future__ import annotations

import re
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.base.utf8 import text_of
from pyasr.io.content import read_content
from pyasr.io.text_tables import read_lines

EPSILON, BACKOFF = "<eps>", "#0"
_ID = re.compile(r"[0-9]{1,9}")
# in UTF-8: white space except space, tab and line ends; a byte order mark inside a concatenated file
_OTHER_BLANK = re.compile(
    rb"[\x0b\x0c\x1c-\x1f]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]"
    rb"|\xe2\x81\x9f|\xe3\x80\x80|\xef\xbb\xbf"
)


def read_bytes(path: Path) -> bytes:
    """The content of a UTF-8 text file, plain or compressed, without a byte order mark."""
    data = read_content(path)
    text_of(data, path)
    return data


def read_words(path: Path) -> bytes:
    """Content of a text, plain or compressed, whose words are separated by spaces and tabs. Raises UserError
    with the line of any other blank, because some programs treat it as part of a word, and others do not."""
    content = read_bytes(path)
    if found := _OTHER_BLANK.search(content):
        line, blank = content.count(b"\n", 0, found.start()) + 1, ord(found[0].decode("utf-8"))
        raise UserError(
            f"{path}:{line}: the blank U+{blank:04X} is neither a space nor a tab; replace it by a space, "
            "or remove it"
        )
    return content


def read_word_lines(path: Path) -> list[str]:
    """Lines of a list of words, phones or pronunciations; their only blanks are those of `read_words`."""
    content = read_words(path).decode("utf-8")
    return content.removesuffix("\n").split("\n") if content else []


def write_lines(path: Path, lines) -> None:
    """Write `lines`, each ended by a newline, atomically."""
    with atomic_write(path, "wb") as f:
        f.write("".join(f"{line}\n" for line in lines).encode("utf-8"))


class SymbolTable:
    """Symbols with their ids, in both directions: `table["AA_B"]`, `table.symbol(12)`, `"AA_B" in table`."""

    def __init__(self, ids: dict[str, int]):
        self.ids = ids
        self._symbols = {number: symbol for symbol, number in ids.items()}

    @classmethod
    def of(cls, symbols) -> SymbolTable:
        """Table of symbols numbered from 0 in the given order."""
        return cls({symbol: number for number, symbol in enumerate(symbols)})

    @classmethod
    def read(cls, path: Path) -> SymbolTable:
        """Table of a file. Raises UserError with file and line for malformed lines, and for a symbol or an id
        that occurs twice."""
        ids: dict[str, int] = {}
        for number, line in enumerate(read_lines(path), 1):
            fields = line.split()
            if len(fields) != 2 or not _ID.fullmatch(fields[1]):
                raise UserError(
                    f"{path}:{number}: expected 'SYMBOL ID', found '{line.strip()}'; correct the line"
                )
            if fields[0] in ids:
                raise UserError(
                    f"{path}:{number}: the symbol {fields[0]} occurs twice; remove one of the lines"
                )
            ids[fields[0]] = int(fields[1])
        table = cls(ids)
        if len(table._symbols) != len(ids):
            raise UserError(
                f"{path}: {len(ids) - len(table._symbols)} id(s) are given to more than one symbol; "
                "renumber the symbols"
            )
        return table

    def write(self, path: Path) -> None:
        """Write `SYMBOL ID` lines, atomically."""
        write_lines(path, (f"{symbol} {number}" for symbol, number in self.ids.items()))

    def __getitem__(self, symbol: str) -> int:
        return self.ids[symbol]

    def __contains__(self, symbol: str) -> bool:
        return symbol in self.ids

    def __len__(self) -> int:
        return len(self.ids)

    def get(self, symbol: str, default=None):
        """The id of a symbol, or `default`."""
        return self.ids.get(symbol, default)

    def symbol(self, number: int) -> str:
        """The symbol of an id. Raises KeyError if there is none."""
        return self._symbols[int(number)]

    @property
    def symbols(self) -> list[str]:
        """All symbols, in the order of the table."""
        return list(self.ids)
