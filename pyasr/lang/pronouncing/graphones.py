"""Joint-sequence models of letters and phones.

M. Bisani and H. Ney, "Joint-sequence models for grapheme-to-phoneme conversion", Speech Communication 50,
2008.

A word and its pronunciation are one sequence of *graphones* q = (a letter, 0 to 2 phones). First p(q) is
estimated by expectation-maximisation over all segmentations. Every word is then segmented at its best, and a
long n-gram model (modified Kneser-Ney) is trained on the graphone sequences. The pronunciation of a new word
is that of the most probable graphone sequence with its letters (beam search).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError
from pyasr.lang.ngrams.arpa import NgramScorer
from pyasr.lang.ngrams.arpa_kernels import advance
from pyasr.lang.ngrams.ngram import BEGIN, END, estimate

_FEW_WORDS = 1000
# per graphone. More phones, or two letters per graphone, gave more errors on held-out words of the CMU
# dictionary.
MAX_PHONES = 2


@dataclass
class AlignedCorpus:
    """Words and phones as flat arrays with offsets; symbols from 1, 0 stands for none."""

    letters: np.ndarray
    letter_offsets: np.ndarray
    phones: np.ndarray
    phone_offsets: np.ndarray


def _flat(sequences: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(s) for s in sequences], np.int64)
    return np.array([x for s in sequences for x in s], np.int64), np.concatenate(([0], np.cumsum(lengths)))


@njit(cache=True, nogil=True)
def _unit(letter, phones, j, num_phones, base):
    """Code of the graphone of `letter` and the `num_phones` phones before position j."""
    one = phones[j - num_phones] if num_phones else 0
    two = phones[j - 1] if num_phones == 2 else 0
    return (letter * base + one) * base + two


@njit(cache=True, nogil=True)
def _accumulate(letters, letter_offsets, phones, phone_offsets, base, prob, counts):
    """E-step: add the expected counts of all graphones to `counts`. Returns the log likelihood of the words
    that can be segmented."""
    total = 0.0
    for w in range(len(letter_offsets) - 1):
        x = letters[letter_offsets[w] : letter_offsets[w + 1]]
        y = phones[phone_offsets[w] : phone_offsets[w + 1]]
        n, m = len(x), len(y)
        alpha, beta = np.zeros((n + 1, m + 1)), np.zeros((n + 1, m + 1))
        alpha[0, 0] = beta[n, m] = 1.0
        for i in range(1, n + 1):
            for j in range(m + 1):
                for b in range(min(j, MAX_PHONES) + 1):
                    alpha[i, j] += alpha[i - 1, j - b] * prob[_unit(x[i - 1], y, j, b, base)]
        if alpha[n, m] <= 0:
            continue
        total += np.log(alpha[n, m])
        for i in range(n, 0, -1):
            for j in range(m, -1, -1):
                if beta[i, j] == 0:
                    continue
                for b in range(min(j, MAX_PHONES) + 1):
                    unit = _unit(x[i - 1], y, j, b, base)
                    counts[unit] += alpha[i - 1, j - b] * prob[unit] * beta[i, j] / alpha[n, m]
                    beta[i - 1, j - b] += prob[unit] * beta[i, j]
    return total


@njit(cache=True, nogil=True)
def _segment(letters, letter_offsets, phones, phone_offsets, base, log_prob, units):
    """Write the best segmentation of every word to `units` (one per letter). Returns which words have one."""
    possible = np.zeros(len(letter_offsets) - 1, np.bool_)
    for w in range(len(letter_offsets) - 1):
        x = letters[letter_offsets[w] : letter_offsets[w + 1]]
        y = phones[phone_offsets[w] : phone_offsets[w + 1]]
        n, m = len(x), len(y)
        best, back = np.full((n + 1, m + 1), -np.inf), np.full((n + 1, m + 1), -1)
        best[0, 0] = 0.0
        for i in range(1, n + 1):
            for j in range(m + 1):
                for b in range(min(j, MAX_PHONES) + 1):
                    value = best[i - 1, j - b] + log_prob[_unit(x[i - 1], y, j, b, base)]
                    if value > best[i, j]:
                        best[i, j], back[i, j] = value, b
        possible[w] = back[n, m] >= 0
        if possible[w]:
            j = m
            for i in range(n, 0, -1):
                units[letter_offsets[w] + i - 1] = _unit(x[i - 1], y, j, back[i, j], base)
                j -= back[i, j]
    return possible


def align(
    corpus: AlignedCorpus, num_letters: int, num_phones: int, num_iters: int
) -> tuple[np.ndarray, np.ndarray]:
    """(codes of the graphones of all letters; which words could be segmented: those with at most two phones
    per letter)."""
    base = num_phones + 1
    arrays = (corpus.letters, corpus.letter_offsets, corpus.phones, corpus.phone_offsets, base)
    prob = np.full((num_letters + 1) * base**2, 1e-2)
    for _ in range(num_iters):
        counts = np.zeros(len(prob))
        _accumulate(*arrays, prob, counts)
        prob = counts / max(counts.sum(), 1.0)
    units = np.zeros(len(corpus.letters), np.int64)
    with np.errstate(divide="ignore"):
        possible = _segment(*arrays, np.log(prob), units)
    return units, possible


class JointModel:
    """An n-gram model over graphones; `pronounce(letters)` returns the best pronunciations."""

    def __init__(self, letters: str, phones: list[str], units: np.ndarray, scorer: NgramScorer):
        self.letters, self.phones, self.scorer = letters, phones, scorer
        self._letter_ids = {letter: number for number, letter in enumerate(letters, 1)}
        self._units = units
        self._begin, self._end = scorer.words.index(BEGIN), scorer.words.index(END)
        self._index_units()

    @classmethod
    def train(
        cls,
        pairs: list[tuple[str, tuple[str, ...]]],
        order: int = 7,
        num_iters: int = 8,
        min_unit_count: int = 2,
    ) -> JointModel:
        """Model of (word, phones) pairs.

        min_unit_count  words whose best segmentation needs a rarer graphone are skipped: abbreviations,
                        foreign names (in small dictionaries no word is skipped)
        """
        letters = "".join(sorted({letter for word, _ in pairs for letter in word}))
        phones = sorted({phone for _, variant in pairs for phone in variant})
        letter_ids, phone_ids = ({x: n for n, x in enumerate(symbols, 1)} for symbols in (letters, phones))
        corpus = AlignedCorpus(
            *_flat([[letter_ids[x] for x in word] for word, _ in pairs]),
            *_flat([[phone_ids[x] for x in v] for _, v in pairs]),
        )
        units, possible = align(corpus, len(letters), len(phones), num_iters)
        if not possible.any():
            raise UserError("no word of the dictionary can be aligned with its phones; use --fallback none")
        units, lengths = _usable(
            units,
            np.diff(corpus.letter_offsets),
            possible,
            min_unit_count if possible.sum() >= _FEW_WORDS else 1,
        )
        inventory, flat = np.unique(units, return_inverse=True)
        arpa = estimate((flat.astype(np.int64), lengths), [f"q{n}" for n in range(len(inventory))], order)
        return cls(letters, phones, inventory, NgramScorer(arpa))

    def _index_units(self) -> None:
        """Group the graphones by letter: those of letter x are `unit_offsets[x]` to `unit_offsets[x + 1]`
        (the inventory is sorted)."""
        base = len(self.phones) + 1
        self._phone_pairs = np.stack([self._units // base % base, self._units % base], 1)
        self._unit_offsets = np.searchsorted(self._units // base**2, np.arange(len(self.letters) + 2))

    def can_spell(self, word: str) -> bool:
        """Whether all letters of the word occur in the dictionary."""
        return bool(word) and all(letter in self._letter_ids for letter in word)

    def pronounce(self, word: str, num_best: int = 1, beam: int = 60) -> list[tuple[tuple[str, ...], float]]:
        """The best pronunciations with their log10 joint probabilities, best first; empty if the word has an
        unseen letter.

        beam  number of hypotheses kept per letter
        """
        if not self.can_spell(word):
            return []
        letters = np.array([self._letter_ids[letter] for letter in word], np.int64)
        paths, scores = _search(letters, self._unit_offsets, self.scorer.ngrams, self._begin, self._end, beam)
        found: dict[tuple[str, ...], float] = {}
        for row in np.argsort(-scores, kind="stable"):
            phones = tuple(self.phones[p - 1] for unit in paths[row] for p in self._phone_pairs[unit] if p)
            if np.isfinite(scores[row]) and phones:
                found[phones] = (
                    np.logaddexp(found[phones], scores[row] * np.log(10))
                    if phones in found
                    else scores[row] * np.log(10)
                )
        best = sorted(found.items(), key=lambda item: -item[1])[:num_best]
        return [(phones, value / np.log(10)) for phones, value in best]


def _usable(
    units: np.ndarray, lengths: np.ndarray, possible: np.ndarray, least: int
) -> tuple[np.ndarray, np.ndarray]:
    """(graphones, lengths) of the segmented words whose graphones all occur at least `least` times."""
    word = np.repeat(np.arange(len(lengths)), lengths)
    _, index, counts = np.unique(units, return_inverse=True, return_counts=True)
    rare = np.bincount(word, counts[index] < least, minlength=len(lengths)) > 0
    good = possible & ~rare
    return units[good[word]], lengths[good]


@njit(cache=True, nogil=True)
def _search(letters, unit_offsets, lm, begin, end, beam):
    """Beam search, letter by letter. Returns the graphones of the paths, (num, len(letters)), and their log10
    probabilities (num)."""
    n, order = len(letters), len(lm.offsets) - 1
    most = 0
    for letter in letters:
        most = max(most, unit_offsets[letter + 1] - unit_offsets[letter])
    back, unit = np.zeros((n + 1, beam), np.int64), np.zeros((n + 1, beam), np.int64)
    history, score, num = np.full((beam, order + 1), -1), np.zeros(beam), 1
    advance(lm, np.full(order + 1, -1), begin, history[0])
    new_history, new_score = np.empty((beam * most, order + 1), np.int64), np.empty(beam * most)
    origin, chosen = np.empty(beam * most, np.int64), np.empty(beam * most, np.int64)
    for i in range(n):
        k = 0
        for h in range(num):
            for u in range(unit_offsets[letters[i]], unit_offsets[letters[i] + 1]):
                new_score[k] = score[h] + advance(lm, history[h], u, new_history[k])
                origin[k], chosen[k] = h, u
                k += 1
        kept = np.argsort(-new_score[:k])[:beam]
        num = len(kept)
        for row in range(num):
            back[i, row], unit[i, row] = origin[kept[row]], chosen[kept[row]]
            history[row], score[row] = new_history[kept[row]], new_score[kept[row]]
    paths = np.empty((num, n), np.int64)
    for row in range(num):
        score[row] += advance(lm, history[row], end, new_history[0])
        h = row
        for i in range(n - 1, -1, -1):
            paths[row, i], h = unit[i, h], back[i, h]
    return paths, score[:num]
