"""N-gram models in ARPA format: strict and fast reading, writing, perplexity.

    \\data\\
    ngram 1=3808
    ngram 2=17210

    \\1-grams:
    -2.3105<TAB>the<TAB>-0.5214        log10 probability, words, log10 back-off weight (optional)
    ...
    \\end\\
"""

from __future__ import annotations

import gzip
import io
import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.output import atomic_write
from pyasr.lang import arpa_kernels as kernels
from pyasr.lang.symbols import read_bytes

NO_PROBABILITY = -99.0  # what SRILM and Kaldi write for log10(0); in what is read nothing is less, neither -inf nor a finite number
_COUNT = re.compile(r"ngram\s+([0-9]{1,3})\s*=\s*([0-9]{1,15})$")
_KENLM = b"mmap lm http://kheafield.com/code"
_LINE_PROBLEMS = {
    kernels.BAD_NUMBER: "the log10 probability or back-off weight is not a number",
    kernels.UNKNOWN_WORD: "a word that has no unigram",
    kernels.BAD_COLUMNS: "the wrong number of columns",
}


@dataclass
class NgramTable:
    """All n-grams of one order: ids int32 (num, n) into the words of the model; log10 probability and back-off weight, float64 (num)."""

    ids: np.ndarray
    logprob: np.ndarray
    backoff: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


@dataclass
class Arpa:
    """A back-off model: its words and a table for each order, lowest first."""

    words: list[str]
    tables: list[NgramTable]
    _index: dict[str, int] = field(default_factory=dict, repr=False)

    @property
    def order(self) -> int:
        """Length of the longest n-grams."""
        return len(self.tables)

    @property
    def index(self) -> dict[str, int]:
        """Word -> its id."""
        if not self._index:
            self._index.update({word: number for number, word in enumerate(self.words)})
        return self._index


def read_arpa(path: Path) -> Arpa:
    """A model in ARPA format, plain or compressed; entry i of `words` is the i-th unigram. Probabilities and back-off weights of 0, and
    those below 1e-99, are read as 1e-99 (-99), so that all costs are finite.

    Raises UserError with the line for a broken header, counts that do not hold, a malformed n-gram, one with a word that is no unigram,
    one that occurs twice, a missing end; and where the begin or the end of sentences is no unigram.
    """
    return parse_arpa(read_bytes(path), path)


def parse_arpa(data: bytes, path: Path) -> Arpa:
    """`read_arpa` of the content of a file, UTF-8 text."""
    counts, offset = _header(data, path)
    words: list[str] = []
    tables, table = [], None
    for n, expected in enumerate(counts, 1):
        begin, end = _section(data, offset, n, path)
        if n == 1:
            words = _unigram_words(data, begin, end, path)
            table = kernels.word_table([word.encode() for word in words])
        ids, logprob, backoff, lines = _parse(data, begin, end, n, n == len(counts), expected, table, path)
        if lines != expected:
            raise UserError(f"{path}:{_line(data, begin) - 1}: {lines} {n}-grams where the header promises {expected}; make the file anew")
        if repeated := repeated_rows(ids):
            raise _occurs_twice(path, data, begin, n, " ".join(words[number] for number in ids[repeated[1]]), *repeated)
        tables.append(NgramTable(ids, logprob, backoff))
        offset = end
    if not re.match(rb"\s*\\end\\", data[offset : offset + 4096]):
        raise UserError(f"{path}:{_line(data, offset)}: no \\end\\ after the {len(counts)}-grams; the file is cut short, make it anew")
    for mark in ("<s>", "</s>"):
        if mark not in words:
            raise UserError(f"{path}: {mark} has no unigram, so sentences have no probability; estimate the model with utils/train_lm.py, "
                            "or with <s> and </s> around each sentence")  # fmt: skip
    return Arpa(words, tables)


def repeated_rows(ids: np.ndarray) -> tuple[int, int] | None:
    """The numbers of the first row of `ids`, int32 (num, n), that stands there a second time: (first, again); None where all are different.

    Files that are sorted by words, from the first or from the last, are only looked through; for others a hash of each row is sorted.
    """
    if kernels.is_rising(ids):
        return None
    hashes = np.sort(kernels.row_hashes(ids))
    suspects = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    seen: dict[tuple, int] = {}
    for row in np.flatnonzero(np.isin(kernels.row_hashes(ids), suspects)) if len(suspects) else ():
        if (first := seen.setdefault(tuple(ids[row].tolist()), int(row))) != row:
            return first, int(row)
    return None


def _line(data: bytes, offset: int) -> int:
    """The number of the line that holds byte `offset`."""
    return data.count(b"\n", 0, offset) + 1


def _line_of_row(data: bytes, begin: int, row: int) -> int:
    """The number of the line that holds n-gram `row` (from 0) of the section that begins at byte `begin`."""
    text = io.BytesIO(data)
    text.seek(begin)
    return next(itertools.islice((number for number, line in enumerate(text, _line(data, begin)) if line.split()), row, None))


def refuse_kenlm(data: bytes, path: Path) -> None:
    """Raise UserError for the content of a binary file of KenLM's."""
    if data.startswith(_KENLM):
        raise UserError(f"{path}: a binary model of KenLM, which is not read here; give the ARPA file that it was built from")


def _header(data: bytes, path: Path) -> tuple[list[int], int]:
    """Counts of all orders, and where the header ends. Anything may stand before `\\data\\`, nothing but counts after it."""
    begin = re.search(rb"^\\data\\[ \t\r]*$", data, re.MULTILINE)
    if not begin:
        refuse_kenlm(data, path)
        raise UserError(f"{path}:1: no \\data\\ line; not a language model in ARPA format")
    offset, counts = begin.end() + 1, []
    while offset < len(data):
        end = data.find(b"\n", offset)
        end = len(data) if end < 0 else end
        line = data[offset:end].decode("utf-8", "replace").strip()
        if line.startswith("\\"):
            break
        match = _COUNT.match(line)
        if line and (not match or int(match[1]) != len(counts) + 1):
            raise UserError(
                f"{path}:{_line(data, offset)}: expected 'ngram {len(counts) + 1}=COUNT' in the header, not '{line[:40]}'; correct it"
            )
        counts += [int(match[2])] if match else []
        offset = end + 1
    if not counts:
        raise UserError(f"{path}:{_line(data, begin.start())}: no 'ngram 1=COUNT' after \\data\\; the header is broken")
    return counts, min(offset, len(data))


def _section(data: bytes, offset: int, n: int, path: Path) -> tuple[int, int]:
    """First byte after the title of the n-grams, and the byte of the next title."""
    title = re.compile(rb"\s*\\" + str(n).encode() + rb"-grams:[ \t\r]*\n").match(data, offset)
    if not title:
        raise UserError(f"{path}:{_line(data, offset)}: expected \\{n}-grams: here; the header or a section is broken")
    end = data.find(b"\n\\", title.end() - 1)  # a line that begins with a backslash: no n-gram does
    return title.end(), len(data) if end < 0 else end + 1


def _unigram_words(data: bytes, begin: int, end: int, path: Path) -> list[str]:
    rows = [line.split() for line in data[begin:end].split(b"\n")]
    bad = next((i for i, row in enumerate(rows) if len(row) == 1), None)
    if bad is not None:
        raise UserError(f"{path}:{_line(data, begin) + bad}: a unigram needs a probability and a word; correct the line")
    words = [row[1].decode() for row in rows if row]
    if len(set(words)) != len(words):
        first = {word: row for row, word in reversed(list(enumerate(words)))}
        again = next(row for row, word in enumerate(words) if first[word] != row)
        raise _occurs_twice(path, data, begin, 1, words[again], first[words[again]], again)
    return words


def _occurs_twice(path: Path, data: bytes, begin: int, n: int, ngram: str, first: int, again: int) -> UserError:
    """What is wrong with an n-gram that is number `first` and number `again` (from 0) of the section that begins at byte `begin`."""
    name = "unigram" if n == 1 else f"{n}-gram"
    where = f"{path}:{_line_of_row(data, begin, again)}"
    return UserError(f"{where}: the {name} '{ngram}' occurs twice, first on line {_line_of_row(data, begin, first)}; remove one of the two")


def _parse(data: bytes, begin: int, end: int, n: int, highest: bool, expected: int, table, path: Path):
    """ids, log10 probabilities and back-off weights of the lines of one section, and how many there are."""
    lines = np.frombuffer(data, np.uint8)[begin:end]
    room = min(expected, len(lines))
    ids = np.zeros((room, n), np.int32)
    logprob, backoff = np.zeros(room), np.zeros(room)
    found, problem, where = kernels.parse_section(lines, *table, ids, logprob, backoff, not highest)
    if problem:
        line = data[begin + where :].split(b"\n", 1)[0].decode("utf-8", "replace")
        raise UserError(f"{path}:{_line(data, begin + where)}: {_LINE_PROBLEMS[problem]} in the {n}-gram '{line[:60]}'; correct the line")
    if (logprob > 1e-3).any():
        row = int(np.argmax(logprob))
        where = f"{path}:{_line_of_row(data, begin, row)}"
        raise UserError(f"{where}: the {n}-gram number {row + 1} has the log10 probability {logprob[row]}, greater than 0; "
                        "make the file anew")  # fmt: skip
    if (backoff > -NO_PROBABILITY).any():
        row = int(np.argmax(backoff))
        where = f"{path}:{_line_of_row(data, begin, row)}"
        raise UserError(f"{where}: the {n}-gram number {row + 1} has the log10 back-off weight {backoff[row]:g}, greater than "
                        f"{-NO_PROBABILITY:g}; make the file anew")  # fmt: skip
    return ids, np.maximum(logprob, NO_PROBABILITY), np.maximum(backoff, NO_PROBABILITY), found


def write_arpa(path: Path, arpa: Arpa) -> None:
    """Write a model, gzipped when the name ends in .gz, with 6 decimals; the same model gives the same bytes."""
    parts = ["\\data\\\n", *(f"ngram {n}={len(table)}\n" for n, table in enumerate(arpa.tables, 1)), "\n"]
    chunks = ["".join(parts).encode()]
    words = [word.encode() for word in arpa.words]
    for n, table in enumerate(arpa.tables, 1):
        chunks.append(f"\\{n}-grams:\n".encode())
        chunks.append(_section_bytes(table, words, highest=n == arpa.order))
        chunks.append(b"\n")
    data = b"".join([*chunks, b"\\end\\\n"])
    with atomic_write(path, "wb") as f:
        f.write(gzip.compress(data, 4, mtime=0) if str(path).endswith(".gz") else data)


def _section_bytes(table: NgramTable, words: list[bytes], highest: bool) -> bytes:
    lengths = np.array([len(word) for word in words], np.int64)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    text = np.frombuffer(b"".join(words), np.uint8)
    room = int(lengths[table.ids].sum()) + len(table) * (table.ids.shape[1] + 40)
    line = np.empty(room, np.uint8)
    size = kernels.format_section(line, text, offsets, table.ids, table.logprob, table.backoff, not highest)
    return line[:size].tobytes()


class Scorer:
    """Probabilities of running text under a model.

    Each order is a sorted array of keys (index of the history in the order below) * num_words + last word, searched by bisection.
    """

    def __init__(self, arpa: Arpa):
        self.words, self.order = arpa.words, arpa.order
        num_words = len(arpa.words)
        keys, logprobs, backoffs, sizes = [], [], [], [0]
        for n, table in enumerate(arpa.tables, 1):
            key = ngram_keys(keys, table.ids, num_words, n)
            order = np.argsort(key, kind="stable")
            order = order[key[order] >= 0]
            keys.append(key[order])
            logprobs.append(table.logprob[order])
            backoffs.append(table.backoff[order])
            sizes.append(sizes[-1] + len(order))
        self.keys, self.logprob, self.backoff = (np.concatenate(arrays) for arrays in (keys, logprobs, backoffs))
        self.offsets = np.array(sizes, np.int64)

    def sentence_scores(self, flat: np.ndarray, lengths: np.ndarray, begin: int, end: int) -> np.ndarray:
        """log10 p of every word and of </s> of each sentence, one after the other, float64 (len(flat) + len(lengths)); NaN for id -1."""
        return kernels.score(
            self.keys,
            self.logprob,
            self.backoff,
            self.offsets,
            len(self.words),
            np.asarray(flat, np.int64),
            np.asarray(lengths, np.int64),
            begin,
            end,
        )


def ngram_keys(lower: list[np.ndarray], ids: np.ndarray, num_words: int, n: int) -> np.ndarray:
    """Keys of n-grams, `history * num_words + last word`, -1 where the history is not in the model: nothing can reach such an n-gram.

    lower  sorted keys of the orders below; a history is counted among those of its order
    ids    int (num, n)
    """
    history = np.zeros(len(ids), np.int64)
    for k in range(n - 1):
        wanted = np.where(history < 0, -1, history * num_words + ids[:, k])
        at = np.minimum(np.searchsorted(lower[k], wanted), max(len(lower[k]) - 1, 0))
        history = np.where(len(lower[k]) > 0 and lower[k][at] == wanted, at, -1)
    return np.where(history < 0, -1, history * num_words + ids[:, n - 1])


@dataclass
class Perplexity:
    """How well a model predicts a text: log10 probability over the words it knows and the sentence ends."""

    logprob: float
    num_words: int
    num_oov: int
    num_sentences: int

    @classmethod
    def of(cls, scores: np.ndarray, oov: np.ndarray, num_sentences: int) -> Perplexity:
        """From the log10 probabilities of all words and sentence ends, and which of these are words out of vocabulary."""
        return cls(float(scores[~oov].sum()), len(scores) - num_sentences, int(oov.sum()), num_sentences)

    @property
    def perplexity(self) -> float:
        """Per known word and sentence end, as SRILM's `ppl`."""
        return 10 ** (-self.logprob / max(self.num_words - self.num_oov + self.num_sentences, 1))

    @property
    def perplexity_of_words(self) -> float:
        """The same log-probability, sentence ends included, per known word, as SRILM's `ppl1`."""
        return 10 ** (-self.logprob / max(self.num_words - self.num_oov, 1))

    @property
    def oov_percent(self) -> float:
        """Share of words that the model does not have."""
        return 100 * self.num_oov / max(self.num_words, 1)

    def __str__(self) -> str:
        return (
            f"perplexity {self.perplexity:.1f}, {self.num_sentences} sentences, {self.num_words} words, "
            f"{self.num_oov} of them ({self.oov_percent:.2f} %) out of vocabulary"
        )


def perplexity(arpa: Arpa, sentences: list[list[str]], unknown: str = "<unk>") -> Perplexity:
    """Perplexity of `sentences`. Unknown words are counted, not scored; they end the history unless the model has the word `unknown`."""
    return Perplexity.of(*text_scores(arpa, sentences, unknown), len(sentences))


def text_scores(arpa: Arpa, sentences: list[list[str]], unknown: str = "<unk>") -> tuple[np.ndarray, np.ndarray]:
    """`token_scores` of the words of sentences."""
    index = arpa.index
    flat = np.array([index.get(word, -1) for words in sentences for word in words], np.int64)
    return token_scores(arpa, flat, np.array([len(words) for words in sentences], np.int64), unknown)


def token_scores(arpa: Arpa, flat: np.ndarray, lengths: np.ndarray, unknown: str = "<unk>") -> tuple[np.ndarray, np.ndarray]:
    """(log10 p of every word and of </s> of each sentence, one after the other; whether each is a word that is not to be scored).

    flat, lengths  the model's ids of all words, -1 for those it lacks, and the numbers of words of the sentences
    """
    known = arpa.index.get(unknown, -1)
    outside = (flat < 0) | (flat == known)
    scores = Scorer(arpa).sentence_scores(np.where(outside, known, flat), lengths, arpa.index["<s>"], arpa.index["</s>"])
    oov = np.zeros(len(scores), bool)
    oov[np.delete(np.arange(len(scores)), np.cumsum(lengths + 1) - 1)] = outside
    return scores, oov
