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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pyasr.base.outputs.output import atomic_write
from pyasr.io.content import ContentReader
from pyasr.lang.ngrams import arpa_kernels as kernels
from pyasr.lang.ngrams.arpa_reader import ArpaReader, Opened, Piece, occurs_twice, pieces_of


@dataclass
class NgramTable:
    """All n-grams of one order: ids int32 (num, n) into the words of the model; log10 probability and
    back-off weight, float64 (num)."""

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
        """Ids of the words."""
        if not self._index:
            self._index.update({word: number for number, word in enumerate(self.words)})
        return self._index


def read_arpa(path: Path) -> Arpa:
    """Model of an ARPA file, plain or compressed; `words` are in the order of the unigrams. Probabilities and
    back-off weights of 0, or below 1e-99, are read as 1e-99 (-99), so that all costs are finite.

    Raises UserError as `ArpaReader` does, and for an n-gram that occurs twice, with both line numbers.
    """
    return _read(lambda: ContentReader(path), path)


def parse_arpa(data: bytes, path: Path) -> Arpa:
    """`read_arpa` of the content of a file, UTF-8 text."""
    return _read(lambda: io.BytesIO(data), path)


def _read(opened: Opened, path: Path) -> Arpa:
    with opened() as content:
        reader, tables = ArpaReader(content, path), []
        for n in range(1, reader.order + 1):
            table = _joined(reader.pieces(n))
            if repeated := repeated_rows(table.ids):
                ngram = " ".join(reader.words[number] for number in table.ids[repeated[1]])
                raise occurs_twice(path, n, ngram, *_lines_of_rows(opened, path, n, repeated))
            tables.append(table)
        reader.end()
    return Arpa(reader.words, tables)


def _joined(pieces: Iterable[Piece]) -> NgramTable:
    columns = zip(*((piece.ids, piece.logprob, piece.backoff) for piece in pieces))
    return NgramTable(*map(np.concatenate, columns))


def _lines_of_rows(opened: Opened, path: Path, n: int, rows: Sequence[int]) -> list[int]:
    """Line numbers of some n-grams of order `n`, which are given by their numbers (from 0) in that order."""
    found: dict[int, int] = {}
    for piece in pieces_of(opened, path, n):
        mine = [row for row in rows if 0 <= row - piece.begin < len(piece.ids)]
        found |= {row: piece.line_of(row - piece.begin) for row in mine}
    return [found[row] for row in rows]


def repeated_rows(ids: np.ndarray) -> tuple[int, int] | None:
    """Row numbers (first, second) of the first row of `ids`, int32 (num, n), that is repeated; None if all
    rows differ.

    A file sorted by words, from the first or from the last, needs only one pass; for others, the hashes of
    the rows are sorted.
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


def write_arpa(path: Path, arpa: Arpa) -> None:
    """Write a model with 6 decimals, gzipped if the name ends in .gz. The same model gives the same bytes."""
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


class NgramScorer:
    """Probabilities of running text under a model.

    Each order is a sorted array of keys (index of the history in the order below) * num_words + last word,
    searched by bisection.
    """

    def __init__(self, arpa: Arpa):
        self.words, self.order = arpa.words, arpa.order
        num_words = len(arpa.words)
        keys, logprobs, backoffs = list[np.ndarray](), [], []
        sizes = [0]
        for n, table in enumerate(arpa.tables, 1):
            key = ngram_keys(keys, table.ids, num_words, n)
            order = np.argsort(key, kind="stable")
            order = order[key[order] >= 0]
            keys.append(key[order])
            logprobs.append(table.logprob[order])
            backoffs.append(table.backoff[order])
            sizes.append(sizes[-1] + len(order))
        self.ngrams = kernels.Ngrams(
            np.concatenate(keys),
            np.concatenate(logprobs),
            np.concatenate(backoffs),
            np.array(sizes, np.int64),
            num_words,
        )

    def sentence_scores(self, flat: np.ndarray, lengths: np.ndarray, begin: int, end: int) -> np.ndarray:
        """log10 p of every word and of </s> of each sentence, concatenated, float64 (len(flat) +
        len(lengths)); NaN for id -1."""
        return kernels.score(
            self.ngrams, np.asarray(flat, np.int64), np.asarray(lengths, np.int64), begin, end
        )


def ngram_keys(lower: list[np.ndarray], ids: np.ndarray, num_words: int, n: int) -> np.ndarray:
    """Keys of n-grams, `history * num_words + last word`; -1 for an unreachable n-gram, whose history is not
    in the model.

    lower  sorted keys of the lower orders; a history is an index into the keys of its order
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
    """Perplexity of a model on a text, from the log10 probability of the known words and sentence ends."""

    logprob: float
    num_words: int
    num_oov: int
    num_sentences: int

    @classmethod
    def of(cls, scores: np.ndarray, oov: np.ndarray, num_sentences: int) -> Perplexity:
        """From the log10 probabilities of all words and sentence ends, and a mask of the out-of-vocabulary
        words among them."""
        return cls(float(scores[~oov].sum()), len(scores) - num_sentences, int(oov.sum()), num_sentences)

    @property
    def perplexity(self) -> float:
        """Per known word and sentence end, as SRILM's `ppl`."""
        return 10 ** (-self.logprob / max(self.num_words - self.num_oov + self.num_sentences, 1))

    @property
    def perplexity_of_words(self) -> float:
        """Per known word, from the same log-probability including sentence ends, as SRILM's `ppl1`."""
        return 10 ** (-self.logprob / max(self.num_words - self.num_oov, 1))

    @property
    def oov_percent(self) -> float:
        """Percentage of words that the model does not have."""
        return 100 * self.num_oov / max(self.num_words, 1)

    def __str__(self) -> str:
        return (
            f"perplexity {self.perplexity:.1f}, {self.num_sentences} sentences, {self.num_words} words, "
            f"{self.num_oov} of them ({self.oov_percent:.2f} %) out of vocabulary"
        )


def perplexity(arpa: Arpa, sentences: list[list[str]], unknown: str = "<unk>") -> Perplexity:
    """Perplexity of `sentences`. Unknown words are counted, not scored; they end the history unless the model
    has the word `unknown`."""
    return Perplexity.of(*text_scores(arpa, sentences, unknown), len(sentences))


def text_scores(
    arpa: Arpa, sentences: list[list[str]], unknown: str = "<unk>"
) -> tuple[np.ndarray, np.ndarray]:
    """`token_scores` of the words of sentences."""
    index = arpa.index
    flat = np.array([index.get(word, -1) for words in sentences for word in words], np.int64)
    return token_scores(arpa, flat, np.array([len(words) for words in sentences], np.int64), unknown)


def token_scores(
    arpa: Arpa, flat: np.ndarray, lengths: np.ndarray, unknown: str = "<unk>"
) -> tuple[np.ndarray, np.ndarray]:
    """(log10 p of every word and of </s> of each sentence, concatenated; mask of the words that are not
    scored).

    flat, lengths  ids of all words in the model, -1 for unknown words; number of words of each sentence
    """
    known = arpa.index.get(unknown, -1)
    outside = (flat < 0) | (flat == known)
    scores = NgramScorer(arpa).sentence_scores(
        np.where(outside, known, flat), lengths, arpa.index["<s>"], arpa.index["</s>"]
    )
    oov = np.zeros(len(scores), bool)
    oov[np.delete(np.arange(len(scores)), np.cumsum(lengths + 1) - 1)] = outside
    return scores, oov
