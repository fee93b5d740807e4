"""The lexicon as a transducer from phones to words, with optional silence before, between and after words.

States: 0 start, 1 loop (between words; the only final state), 2 silence; then the inside of the
pronunciations, one chain each. A word leaves the loop state with its label and the cost -log(probability) on
its first phone; its last phone leads back to the loop state, cost -log(1 - silence probability), or to the
silence state, cost -log(silence probability). The set of paths and their costs are those of Kaldi's
make_lexicon_fst.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from pyasr.io.openfst import Fst

_START, _LOOP, _SILENCE, _AFTER_SILENCE = 0, 1, 2, 3


@dataclass
class Pronunciations:
    """Parallel lists: word ids, costs, phone ids (with disambiguation symbols) of every pronunciation."""

    words: list[int]
    costs: list[float]
    phones: list[tuple[int, ...]]


@dataclass
class OptionalSilence:
    """Probability of silence, its phone id, and the disambiguation symbol that follows it (0: none)."""

    probability: float
    phone: int
    disambig: int = 0


def add_disambig(pronunciations: list[tuple[str, ...]]) -> tuple[list[tuple[str, ...]], int]:
    """Append #1, #2, ... to pronunciations of several entries (homophones) and to those that are a prefix of
    another one.

    Equal pronunciations get consecutive numbers in order of appearance. Returns the new pronunciations and
    the largest number.
    """
    count = Counter(pronunciations)
    prefixes = {phones[:n] for phones in count for n in range(1, len(phones))}
    used: Counter = Counter()
    marked = []
    for phones in pronunciations:
        if count[phones] > 1 or phones in prefixes:
            used[phones] += 1
            phones = (*phones, f"#{used[phones]}")
        marked.append(phones)
    return marked, max(used.values(), default=0)


def lexicon_fst(
    lexicon: Pronunciations, silence: OptionalSilence, self_loop: tuple[int, int] | None = None
) -> Fst:
    """The transducer, arcs sorted by output label.

    self_loop  (phone, word) labels of #0, for the grammar's back-off symbol; only in L_disambig
    """
    optional = silence.probability > 0.0
    chains = _chain_arcs(lexicon, first_free=_AFTER_SILENCE + 1)
    blocks = [_to_ends(chains, silence) if optional else chains["inner"] + [chains["last"]]]
    if optional:
        blocks.append(_silence_arcs(silence))
    if self_loop:
        blocks.append([_rows(_LOOP, _LOOP, *self_loop, 0.0)])
    table = np.concatenate([block for group in blocks for block in group])
    num_states = int(chains["num_states"])
    return _connected(table, num_states, optional).arcsort("olabel")


def _rows(source, target, ilabel, olabel, weight) -> np.ndarray:
    """float64 (n, 5) rows of arcs from broadcastable columns."""
    return np.stack(
        np.broadcast_arrays(
            *(np.atleast_1d(np.asarray(c, np.float64)) for c in (source, target, ilabel, olabel, weight))
        ),
        1,
    )


def _chain_arcs(lexicon: Pronunciations, first_free: int) -> dict:
    """Arcs of all pronunciations: `inner`, and `last`, which lead back to the loop state without the cost of
    silence."""
    lengths = np.array([len(phones) for phones in lexicon.phones], np.int64)
    flat = np.array([phone for phones in lexicon.phones for phone in phones], np.int64)
    begins = np.cumsum(lengths) - lengths
    position = np.arange(len(flat)) - np.repeat(begins, lengths)
    entry = np.repeat(np.arange(len(lengths)), lengths)
    first, last = position == 0, position == lengths[entry] - 1
    state_after = first_free + np.cumsum(~last) - 1
    source = np.where(first, _LOOP, np.concatenate(([0], state_after[:-1])))
    olabel = np.where(first, np.asarray(lexicon.words)[entry], 0)
    weight = np.where(first, np.asarray(lexicon.costs, np.float64)[entry], 0.0)
    arcs = _rows(source, np.where(last, _LOOP, state_after), flat, olabel, weight)
    return {"inner": [arcs[~last]], "last": arcs[last], "num_states": first_free + (~last).sum()}


def _to_ends(chains: dict, silence: OptionalSilence) -> list[np.ndarray]:
    """Arcs of the last phones, to the loop state and to the silence state."""
    to_loop, to_silence = chains["last"].copy(), chains["last"].copy()
    to_loop[:, 4] += -math.log(1.0 - silence.probability)
    to_silence[:, 1] = _SILENCE
    to_silence[:, 4] += -math.log(silence.probability)
    return [*chains["inner"], to_loop, to_silence]


def _silence_arcs(silence: OptionalSilence) -> list[np.ndarray]:
    """Silence at the beginning, and the silence phone, followed by its disambiguation symbol if any."""
    arcs = [
        _rows(_START, _LOOP, 0, 0, -math.log(1.0 - silence.probability)),
        _rows(_START, _SILENCE, 0, 0, -math.log(silence.probability)),
    ]
    if not silence.disambig:
        return [*arcs, _rows(_SILENCE, _LOOP, silence.phone, 0, 0.0)]
    return [
        *arcs,
        _rows(_SILENCE, _AFTER_SILENCE, silence.phone, 0, 0.0),
        _rows(_AFTER_SILENCE, _LOOP, silence.disambig, 0, 0.0),
    ]


def _connected(table: np.ndarray, num_states: int, optional: bool) -> Fst:
    """The transducer without unreachable states and dead ends."""
    used = np.zeros(num_states, bool)
    used[table[:, :2].astype(np.int64).ravel()] = True
    number = np.cumsum(used) - 1
    source, target = number[table[:, 0].astype(np.int64)], number[table[:, 1].astype(np.int64)]
    start = int(number[_START if optional else _LOOP])
    return Fst.from_arcs(
        int(used.sum()),
        start,
        source,
        table[:, 2],
        table[:, 3],
        table[:, 4],
        target,
        {int(number[_LOOP]): 0.0},
    )
