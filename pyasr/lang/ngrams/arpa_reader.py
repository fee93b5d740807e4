"""ARPA files read in pieces, in memory that does not grow with the number of n-grams.

with ContentReader(path) as content:
    reader = ArpaReader(content, path)
    for n in range(1, reader.order + 1):
        for piece in reader.pieces(n):
            ...
    reader.end()
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.utf8 import text_of
from pyasr.lang.ngrams import arpa_kernels as kernels

# log10(0) as SRILM and Kaldi write it; smaller values and -inf are raised to it when read
NO_PROBABILITY = -99.0
_PIECE_BYTES = 1 << 22
_DATA = re.compile(rb"\\data\\[ \t\r]*\n?")
_COUNT = re.compile(r"ngram\s+([0-9]{1,3})\s*=\s*([0-9]{1,15})$")
_BLANKS = re.compile(rb"[ \t\r]*")
_KENLM = b"mmap lm http://kheafield.com/code"
_LINE_PROBLEMS = {
    kernels.BAD_NUMBER: "the log10 probability or back-off weight is not a number",
    kernels.UNKNOWN_WORD: "a word without a unigram",
    kernels.BAD_COLUMNS: "the wrong number of columns",
}


class Content(Protocol):
    """Readable content, such as an open file."""

    def read(self, size: int) -> bytes: ...


Opened = Callable[[], AbstractContextManager[Content]]  # opens the content of a file at its beginning


@dataclass(frozen=True)
class Piece:
    """N-grams of one order on consecutive lines.

    ids              int32 (num, n) into the words of the model
    logprob, backoff float64 (num): log10 probability and back-off weight
    begin            number of the first n-gram within its order
    line, text       number of the first line; text of all lines
    """

    ids: np.ndarray
    logprob: np.ndarray
    backoff: np.ndarray
    begin: int
    line: int
    text: bytes

    def line_of(self, row: int) -> int:
        """Line number of n-gram `row` (from 0) of the piece."""
        filled = (number for number, line in enumerate(self.text.split(b"\n"), self.line) if line.split())
        return next(islice(filled, row, None))


class ArpaReader:
    """Reads a model from the header, which the constructor reads, to the end.

    ahead   a reader of the same file that has read further, whose words this one shares
    counts  numbers of n-grams, from unigrams up
    words   words with a unigram, in the order of the file; known once `pieces(1)` has begun

    Raises UserError with the line number for a broken header, wrong counts, a malformed n-gram, an n-gram
    with a word without a unigram, a unigram that occurs twice, or a missing end; also if the sentence begin
    or the sentence end has no unigram.
    """

    def __init__(self, content: Content, path: Path, ahead: ArpaReader | None = None):
        self.path, self._lines, self._ahead = path, _Lines(content, path), ahead
        self.words: list[str] = []
        self._table: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        self.counts = self._header()

    @property
    def order(self) -> int:
        """Length of the longest n-grams."""
        return len(self.counts)

    def pieces(self, n: int) -> Iterator[Piece]:
        """N-grams of order `n`, at least one piece, which may be empty. Read n = 1, 2, ... in this order,
        each to its end."""
        title = self._title(n)
        if n == 1 and self._ahead:
            self.words, self._table = self._ahead.words, self._ahead._table
        blocks = self._unigram_blocks() if n == 1 and not self._ahead else self._blocks()
        begin = 0
        for line, text in blocks:
            piece = self._parsed(n, text, begin, line)
            begin += len(piece.ids)
            yield piece
        if begin != self.counts[n - 1]:
            raise UserError(
                f"{self.path}:{title}: {begin} {n}-grams, but the header promises {self.counts[n - 1]}; "
                "create the file again"
            )

    def end(self) -> None:
        """Check the end of the file, after the last n-gram."""
        line, text = self._lines.filled_line()
        if not text.lstrip().startswith(b"\\end\\"):
            fault = f"no \\end\\ after the {self.order}-grams; the file is truncated, create it again"
            raise UserError(f"{self.path}:{line}: {fault}")
        for mark in ("<s>", "</s>"):
            if mark not in self.words:
                raise UserError(
                    f"{self.path}: {mark} has no unigram, so sentences have no probability; estimate the "
                    "model with utils/train_lm.py, or with <s> and </s> around each sentence"
                )

    def _header(self) -> list[int]:
        """Counts of all orders. Any text may precede `\\data\\`; only counts may follow it."""
        self._find_data()
        begin, counts = self._lines.number - 1, list[int]()
        while not self._lines.at_backslash() and (found := self._lines.take())[1]:
            number, line = found[0], found[1].decode("utf-8", "replace").strip()
            match = _COUNT.match(line)
            if line and (not match or int(match[1]) != len(counts) + 1):
                fault = (
                    f"expected 'ngram {len(counts) + 1}=COUNT' in the header, not '{line[:40]}'; correct it"
                )
                raise UserError(f"{self.path}:{number}: {fault}")
            counts += [int(match[2])] if match else []
        if not counts:
            raise UserError(f"{self.path}:{begin}: no 'ngram 1=COUNT' after \\data\\; the header is broken")
        return counts

    def _find_data(self) -> None:
        """Read to the end of the `\\data\\` line."""
        refuse_kenlm(self._lines.ahead(len(_KENLM)), self.path)
        while line := self._lines.take()[1]:
            if _DATA.fullmatch(line):
                return
        raise UserError(f"{self.path}:1: no \\data\\ line; not a language model in ARPA format")

    def _title(self, n: int) -> int:
        """Read the title of a section of n-grams. Returns its line number."""
        number, line = self._lines.filled_line()
        if not re.fullmatch(rb"\s*\\%d-grams:[ \t\r]*\n" % n, line):
            raise UserError(
                f"{self.path}:{number}: expected \\{n}-grams: here; the header or a section is broken"
            )
        return number

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        block = self._lines.block()
        yield block
        while (block := self._lines.block())[1]:
            yield block

    def _unigram_blocks(self) -> Iterator[tuple[int, bytes]]:
        """All unigrams as one block, after their words have been read."""
        blocks = list(self._blocks())
        line, text = blocks[0][0], b"".join(text for _, text in blocks)
        for number, row in enumerate(text.split(b"\n"), line):
            fields = row.split()
            if len(fields) == 1:
                raise UserError(
                    f"{self.path}:{number}: a unigram needs a probability and a word; correct the line"
                )
            if fields:
                self.words.append(fields[1].decode())
        self._refuse_twice(line, text)
        self._table = kernels.word_table([word.encode() for word in self.words])
        yield line, text

    def _refuse_twice(self, line: int, text: bytes) -> None:
        """Raise UserError if a word has two unigrams."""
        if len(set(self.words)) == len(self.words):
            return
        first = {word: row for row, word in reversed(list(enumerate(self.words)))}
        again = next(row for row, word in enumerate(self.words) if first[word] != row)
        nothing = np.zeros(0)
        piece = Piece(nothing, nothing, nothing, 0, line, text)
        lines = piece.line_of(first[self.words[again]]), piece.line_of(again)
        raise occurs_twice(self.path, 1, self.words[again], *lines)

    def _parsed(self, n: int, text: bytes, begin: int, line: int) -> Piece:
        room = text.count(b"\n") + 1
        ids, logprob, backoff = np.zeros((room, n), np.int32), np.zeros(room), np.zeros(room)
        assert self._table is not None
        found, problem, where = kernels.parse_section(
            np.frombuffer(text, np.uint8), *self._table, ids, logprob, backoff, n < self.order
        )
        if problem:
            line += text.count(b"\n", 0, where)
            shown = text[where:].split(b"\n", 1)[0].decode("utf-8", "replace")[:60]
            raise UserError(
                f"{self.path}:{line}: {_LINE_PROBLEMS[problem]} in the {n}-gram '{shown}'; correct the line"
            )
        piece = Piece(ids[:found], logprob[:found], backoff[:found], begin, line, text)
        self._check(piece, piece.logprob, 1e-3, "probability", "0")
        self._check(piece, piece.backoff, -NO_PROBABILITY, "back-off weight", f"{-NO_PROBABILITY:g}")
        for column in (piece.logprob, piece.backoff):
            np.maximum(column, NO_PROBABILITY, out=column)
        return piece

    def _check(self, piece: Piece, column: np.ndarray, most: float, name: str, shown: str) -> None:
        """Raise UserError if a number of a piece is greater than `most`."""
        if (column > most).any():
            row = int(np.argmax(column))
            where = (
                f"{self.path}:{piece.line_of(row)}: the {piece.ids.shape[1]}-gram number "
                f"{piece.begin + row + 1}"
            )
            raise UserError(
                f"{where} has the log10 {name} {column[row]:g}, greater than {shown}; create the file again"
            )


def pieces_of(opened: Opened, path: Path, n: int) -> Iterator[Piece]:
    """N-grams of order `n` only."""
    with opened() as content:
        reader = ArpaReader(content, path)
        for order in range(1, n + 1):
            yield from (piece for piece in reader.pieces(order) if order == n)


def refuse_kenlm(data: bytes, path: Path) -> None:
    """Raise UserError if the content is a binary KenLM file."""
    if data.startswith(_KENLM):
        raise UserError(
            f"{path}: binary KenLM models cannot be read; give the ARPA file that it was built from"
        )


def occurs_twice(path: Path, n: int, ngram: str, first: int, again: int) -> UserError:
    """Error for an n-gram on two lines."""
    name = "unigram" if n == 1 else f"{n}-gram"
    return UserError(
        f"{path}:{again}: the {name} '{ngram}' occurs twice, first on line {first}; remove one of the two"
    )


class _Lines:
    """Lines of a text, read in blocks. `number` is the number of the next line."""

    def __init__(self, content: Content, path: Path):
        self._content, self._path, self.number = content, path, 1
        # the last block that was read, and the position of the next line in it
        self._buffer, self._at = b"", 0

    def ahead(self, size: int) -> bytes:
        """The next `size` bytes (fewer at the end of the text), without consuming them."""
        while len(self._buffer) - self._at < size and self._more():
            pass
        return self._buffer[self._at : self._at + size]

    def at_backslash(self) -> bool:
        """Whether the next line begins with a backslash after blanks."""
        while (end := self._after_blanks()) == len(self._buffer) and self._more():
            pass
        return self._buffer[end : end + 1] == b"\\"

    def _after_blanks(self) -> int:
        found = _BLANKS.match(self._buffer, self._at)
        assert found is not None
        return found.end()

    def take(self) -> tuple[int, bytes]:
        """(line number, next line); b"" at the end."""
        return self._cut(self._end_of_line() or len(self._buffer))

    def filled_line(self) -> tuple[int, bytes]:
        """The next line that is not blank."""
        while (found := self.take())[1] and not found[1].split():
            pass
        return found

    def block(self) -> tuple[int, bytes]:
        """(first line number, lines until one begins with a backslash); b"" before that and at the end."""
        if self.ahead(1) == b"\\":
            return self.number, b""
        begin = self._end_of_line() - 1  # end of a line without a preceding backslash
        end = self._buffer.find(b"\n\\", max(begin, self._at)) + 1
        return self._cut(end or self._buffer.rfind(b"\n", self._at) + 1 or len(self._buffer))

    def _end_of_line(self) -> int:
        """Position of the end of the next line in the buffer; 0 at the end of the text."""
        while not (end := self._buffer.find(b"\n", self._at) + 1) and self._more():
            pass
        return end

    def _more(self) -> bool:
        """Read more text. False at the end."""
        piece = self._content.read(_PIECE_BYTES)
        self._buffer, self._at = self._buffer[self._at :] + piece, 0
        return bool(piece)

    def _cut(self, end: int) -> tuple[int, bytes]:
        """Consume the lines up to `end` in the buffer. Raises UserError with the line number if they are not
        UTF-8."""
        number, text = self.number, self._buffer[self._at : end]
        self._at = end
        self.number += text.count(b"\n")
        if not text.isascii():
            text_of(text, self._path, number)
        return number, text
