r"""The lexicon as a transducer in which silence depends on the adjacent words (Chen et al. 2015, figure 1).

States: 0 start, 1 after a word without silence, 2 after silence; then the inside of the pronunciations. With
the probabilities of `pyasr.lang.lexicons.pron_probs`, and w a word with a pronunciation of probability p:

    0 -> 2   silence                -ln P(s | <s>)        0 -> 1   nothing    -ln (1 - P(s | <s>))
    1 -> w   first phone : word     -ln p F(n | w)        2 -> w   first phone : word    -ln p F(s | w)
    w -> 2   silence                -ln P(s | w)          w -> 1   nothing    -ln (1 - P(s | w))
    final    1: -ln F(n | </s>),  2: -ln F(s | </s>)

"Nothing" is epsilon, or in L_disambig the disambiguation symbol of silence, so that the two arcs after a word
differ in label, as in Kaldi.
"""

from __future__ import annotations

import math

import numpy as np

from pyasr.io.openfst import Fst
from pyasr.lang.lexicons.lexicon_fst import Pronunciations
from pyasr.lang.lexicons.silence_probs import SilenceProbs, WordSilence

_START, _SPEECH, _SILENCE, _FIRST_FREE = 0, 1, 2, 3


def silence_lexicon_fst(
    lexicon: Pronunciations,
    around: list[WordSilence],
    probs: SilenceProbs,
    silence: int,
    disambig: int = 0,
    self_loop: tuple[int, int] | None = None,
) -> Fst:
    """The transducer, arcs sorted by output label.

    around     silence around each pronunciation
    silence    phone id; disambig  symbol of no silence, 0 in L.fst
    self_loop  (phone, word) labels of #0, for the grammar's back-off symbol; only in L_disambig
    """
    chains = _Chains(lexicon, around)
    blocks = [
        _arcs(_START, _SPEECH, disambig, 0, -math.log(1.0 - probs.begin)),
        _arcs(_START, _SILENCE, silence, 0, -math.log(probs.begin)),
        chains.entries(_SPEECH, "before_none"),
        chains.entries(_SILENCE, "before_silence"),
        chains.inner(),
        chains.exits(_SPEECH, disambig, -np.log1p(-chains.after)),
        chains.exits(_SILENCE, silence, -np.log(chains.after)),
    ]
    if self_loop:
        blocks += [_arcs(state, state, *self_loop, 0.0) for state in (_SPEECH, _SILENCE)]
    sources, targets, ilabels, olabels, costs = np.concatenate(blocks).T
    finals = {_SPEECH: -math.log(probs.end_none), _SILENCE: -math.log(probs.end_silence)}
    fst = Fst.from_arcs(chains.num_states, _START, sources, ilabels, olabels, costs, targets, finals)
    return fst.arcsort("olabel")


def _arcs(source, target, ilabel, olabel, cost) -> np.ndarray:
    """float64 (n, 5) rows from broadcastable columns."""
    return np.stack(
        np.broadcast_arrays(
            *(np.atleast_1d(np.asarray(c, np.float64)) for c in (source, target, ilabel, olabel, cost))
        ),
        1,
    )


class _Chains:
    """Pronunciations as chains of states: n phones have n states; the arc to the first has the word."""

    def __init__(self, lexicon: Pronunciations, around: list[WordSilence]):
        lengths = np.array([len(phones) for phones in lexicon.phones], np.int64)
        self._phones = np.array([phone for phones in lexicon.phones for phone in phones], np.int64)
        self._first = np.cumsum(lengths) - lengths
        self._last = np.cumsum(lengths) - 1
        self._words = np.asarray(lexicon.words)
        self._costs = np.asarray(lexicon.costs, np.float64)
        self._around = around
        self.num_states = _FIRST_FREE + len(self._phones)
        self.after = np.array([word.after for word in around])

    def entries(self, source: int, correction: str) -> np.ndarray:
        """Arcs from `source` to the first state of each pronunciation; their probabilities have the factor
        `correction` of the word."""
        factors = np.array([getattr(word, correction) for word in self._around])
        return _arcs(
            source,
            _FIRST_FREE + self._first,
            self._phones[self._first],
            self._words,
            self._costs - np.log(factors),
        )

    def inner(self) -> np.ndarray:
        followers = np.setdiff1d(np.arange(len(self._phones)), self._first)
        return _arcs(_FIRST_FREE + followers - 1, _FIRST_FREE + followers, self._phones[followers], 0, 0.0)

    def exits(self, target: int, ilabel: int, costs: np.ndarray) -> np.ndarray:
        return _arcs(_FIRST_FREE + self._last, target, ilabel, 0, costs)
