r"""Probabilities of pronunciations, and of silence between them, from counts.

G. Chen, H. Xu, M. Wu, D. Povey and S. Khudanpur, "Pronunciation and silence probability modeling for ASR",
Interspeech 2015; smoothed as in Kaldi's dict_dir_add_pronprobs.sh. Here w is a word with one of its
pronunciations, s silence, n no silence, C counts:

    p(w | word) = (C(w) + 1) / sum over the word's w' (C(w') + 1),  divided by the maximum over the word's w'
    P(s | w)    = (C(w s) + lambda2 P(s)) / (C(w) + lambda2)
                  silence after w, limited to 0.01 .. 0.99
    F(s | w)    = (C(s w) + lambda3) / (sum over v C(v w) P(s | v) + lambda3)
                  correction after silence
    F(n | w)    = (C(n w) + lambda3) / (sum over v C(v w) (1 - P(s | v)) + lambda3)
                  correction without; both at least 0.01

P(s) is the fraction of word boundaries with silence, at least 1e-6, because Kaldi accepts
no dictionary with 0. The cost of silence between v and w is -ln P(s | v) F(s | w), that of no silence
-ln (1 - P(s | v)) F(n | w). Kaldi's script rounds to two digits; this module does not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.base.figures import figure
from pyasr.lang.lexicons.dict_dir import DictDir
from pyasr.lang.lexicons.lexicon import Lexicon
from pyasr.lang.lexicons.pron_counts import BEGIN, END, PronCounts, SilenceCounts, Token
from pyasr.lang.lexicons.silence_probs import SilenceProbs, WordSilence
from pyasr.lang.symbols import EPSILON

_MIN_PROB, _MIN_OVERALL = 0.01, 1e-6


@dataclass(frozen=True)
class PronProbOptions:
    """Smoothing of the probabilities."""

    max_normalize: bool = option(
        True, "scale the probabilities of a word so that the largest is 1; false: they sum to 1"
    )
    pron_smoothing: float = option(1.0, "count added to every pronunciation", minimum=0.0)
    silence_smoothing: float = option(
        2.0, "weight of the overall probability of silence, as a count (lambda 2)", minimum=1e-6
    )
    correction_smoothing: float = option(
        2.0, "weight of a correction of 1, as a count (lambda 3)", minimum=1e-6
    )


def pron_probabilities(lexicon: Lexicon, prons: Counter, options: PronProbOptions) -> Lexicon:
    """The lexicon with probabilities of its pronunciations. Raises UserError for counts of a pronunciation
    that it does not have."""
    counts = {(word, *phones): options.pron_smoothing for word, _, phones in lexicon.rows()}
    for token, count in prons.items():
        if token[0] == EPSILON:
            continue
        if token not in counts:
            fault = f"'{' '.join(token)}' was counted but is not in the lexicon"
            raise UserError(f"{fault}; give the dictionary of the alignments")
        counts[token] += count
    measure: dict[str, float] = {}
    for (word, *_), number in counts.items():
        before = measure.get(word, 0)
        measure[word] = max(before, number) if options.max_normalize else before + number
    probable = Lexicon()
    for word, _, phones in lexicon.rows():
        token = (word, *phones)
        share = counts[token] / measure[word] if measure[word] else 1.0
        if share == 0.0:
            raise UserError(
                f"'{word} {' '.join(phones)}' has the probability 0; give a --pron-smoothing above 0"
            )
        probable.add(word, phones, share)
    return probable


def silence_probabilities(tokens: list[Token], counts: PronCounts, options: PronProbOptions) -> SilenceProbs:
    """Silence before and after each of `tokens` (word, phones...), and at the ends of utterances."""
    nothing = SilenceCounts()
    total = sum(found.before for found in counts.silences.values())
    num_places = sum(found.before + found.none_before for found in counts.silences.values())
    if not num_places:
        raise UserError("the counts of silences are empty; count again with steps/get_prons.py")
    overall = max(total / num_places, _MIN_OVERALL)
    after = {
        token: _after(counts.silences.get(token, nothing), overall, options) for token in {*tokens, BEGIN}
    }
    expected = _expected(counts.bigrams, after, overall)
    factors = {
        token: _corrections(token, counts.silences.get(token, nothing), expected, options)
        for token in {*tokens, END}
    }
    words = {token: WordSilence(after[token], *factors[token]) for token in tokens}
    return SilenceProbs(words, after[BEGIN], *factors[END], overall)


def _after(found: SilenceCounts, overall: float, options: PronProbOptions) -> float:
    """P(s | w)."""
    weight = options.silence_smoothing
    share = (found.after + weight * overall) / (found.after + found.none_after + weight)
    return min(max(share, _MIN_PROB), 1.0 - _MIN_PROB)


def _expected(
    bigrams: Counter, after: dict[Token, float], overall: float
) -> dict[Token, tuple[float, float]]:
    """Expected counts of silence and of no silence before a word, given the preceding words."""
    expected: dict[Token, tuple[float, float]] = {}
    for (left, right), count in bigrams.items():
        silence = count * after.get(left, overall)
        with_silence, without = expected.get(right, (0.0, 0.0))
        expected[right] = with_silence + silence, without + count - silence
    return expected


def _corrections(
    token: Token, found: SilenceCounts, expected: dict, options: PronProbOptions
) -> tuple[float, float]:
    """F(s | w), F(n | w)."""
    weight, (with_silence, without) = options.correction_smoothing, expected.get(token, (0.0, 0.0))
    pairs = (found.before, with_silence), (found.none_before, without)
    return tuple(max((seen + weight) / (wanted + weight), _MIN_PROB) for seen, wanted in pairs)


def add_probabilities(content: DictDir, counts: PronCounts, options: PronProbOptions) -> DictDir:
    """The dictionary with probabilities estimated from the counts."""
    lexicon = pron_probabilities(content.lexicon, counts.prons, options)
    tokens = [(word, *phones) for word, _, phones in lexicon.rows()]
    return DictDir(
        lexicon,
        content.silence,
        content.nonsilence,
        content.optional_silence,
        content.extra_questions,
        silence_probabilities(tokens, counts, options),
    )


def summary(old: Lexicon, new: DictDir) -> list[str]:
    """Log lines on the changes, with the least likely pronunciations."""
    several = [
        (p, word, phones) for word, p, phones in new.lexicon.rows() if len(new.lexicon.entries[word]) > 1
    ]
    probs = new.silence_probs
    assert probs is not None
    least = "; ".join(f"{word} {' '.join(phones)} {p:.3f}" for p, word, phones in sorted(several)[:5])
    return [
        (
            f"{len(several)} of {len(old.rows())} pronunciations are one of several; the least likely: "
            f"{least or 'none'}"
        ),
        f"silence at {figure(100 * probs.overall, 3)} % of all places between words, "
        f"{figure(100 * probs.begin, 3)} % at the beginning of utterances; after single words "
        + _range(probs),
    ]


def _range(probs: SilenceProbs) -> str:
    chances = sorted((silence.after, token[0]) for token, silence in probs.words.items())
    (low, rare), (high, often) = chances[0], chances[-1]
    return f"from {figure(100 * low)} % ({rare}) to {figure(100 * high)} % ({often})"
