"""Lattices whose arcs are words: the behaviour of Kaldi's lattice-align-words-lexicon.

    aligned = align_words(compact, trans, align_lexicon(LangDir("data/lang").align_lexicon))
    begin = state_times(aligned)[aligned.sources]              # frames
    end = begin + aligned.lengths

In a compact lattice words and transition-ids are paired loosely: a word may stand before, within or after its phones. A path is therefore
read phone by phone, and in each state pend the phones and the words read that have not found each other. Two things can be done there:

* *cut* off the first k phones, if they are a pronunciation of the first word, or a silence: an arc of the result;
* *read* an arc of the phone-aligned lattice, as long as the first word has pronunciations that are longer.

A state that has been read on from without a cut must not make it up later, or else the same division of a path would be found twice. So
besides what pends a state has the number of phones that were there before the last arc was read, and whether the first word was.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numba import njit

from pyasr.base.errors import UserError
from pyasr.decode.align_lexicon import ANY_WORD, AlignLexicon, has_pair, step
from pyasr.decode.align_phones import align_phones, arc_phones
from pyasr.decode.compact import CompactLattice, pick_strings, without_epsilons
from pyasr.decode.lattice import trim
from pyasr.decode.unfold import as_arrays, content_of, new_arcs, new_states, num_states, number_of, unfolded, write
from pyasr.hmm.transitions import TransitionModel

_STATES_PER_ARC, _MORE_STATES = 100, 100_000


def align_words(lattice: CompactLattice, trans: TransitionModel, lexicon: AlignLexicon, name: str = "lattice") -> CompactLattice:
    """The same paths, each arc a word with its transition-ids or, word 0, a silence.

    Where the phones of a path can be divided among its words in two ways, the result has both. When the search ended within words, these
    keep the transition-ids that they have, which may be none. Raises UserError, naming `name`, for phones that are not those of the words.
    """
    phones = align_phones(lattice, trans, name)
    if phones.empty:
        return phones
    labels = arc_phones(phones, trans)
    for may_break in (False, True):
        aligned = _align(phones, labels, lexicon, may_break, name)
        if (np.bincount(aligned.tids, minlength=len(labels))[labels > 0] > 0).all():
            return replace(aligned, **_expanded(aligned, phones))
    raise UserError(f"{name}: its phones are not those of its words; give the language directory and the model that it was decoded with")


def _align(phones: CompactLattice, labels: np.ndarray, lexicon: AlignLexicon, may_break: bool, name: str) -> CompactLattice:
    """The paths that can be aligned, with the arcs of `phones`, whose phones are `labels`, in place of transition-ids."""
    limit = _STATES_PER_ARC * phones.num_arcs + _MORE_STATES
    arcs, last = _word_arcs(phones.arc_offsets, phones.targets, phones.words, labels, lexicon, may_break, limit)
    if last < 0:
        raise UserError(f"{name}: its words are too far from their phones to be aligned; decode again with a narrower lattice beam")
    return without_epsilons(trim(unfolded(phones, arcs, last)))


def _expanded(aligned: CompactLattice, phones: CompactLattice) -> dict[str, np.ndarray]:
    """The strings of `aligned` as transition-ids."""
    ends, tids = pick_strings(phones.string_offsets, phones.tids, aligned.tids)
    return {"string_offsets": ends[aligned.string_offsets], "tids": tids}


@njit(nogil=True, cache=True)
def _word_arcs(offsets, targets, words, phones, lexicon, may_break, limit):
    """(arcs of the word-aligned lattice, strings of which are arcs; its last state, -1 if there are more states than `limit`).

    A state is: state of the lattice, number of phones pending before the last arc was read, whether a word was, number of phones pending,
    arcs that have these phones, words pending.
    """
    none, end = np.empty(0, np.int64), len(offsets) - 2
    states, arcs, item = new_states(np.zeros(4, np.int64)), new_arcs(), 0
    while item < num_states(states):
        content = content_of(states, item)
        state, known, knew_word, middle = content[0], content[1], content[2], 4 + content[3]
        pending, spoken = content[4:middle], content[middle:]
        goes_on, whole = _cut(states, arcs, item, state, known, knew_word, pending, spoken, phones, lexicon)
        if goes_on:
            _read(states, arcs, item, offsets[state], offsets[state + 1], targets, words, phones, pending, spoken)
        if may_break and state == end and len(content) > 4 and not whole:
            write(arcs, item, _state(states, end, 0, 0, none, spoken[1:]), spoken[0] if len(spoken) else 0, -1, pending)
        item += 1
        if num_states(states) > limit:
            return as_arrays(arcs), -1
    return as_arrays(arcs), _state(states, end, 0, 0, none, none)


@njit(nogil=True, cache=True)
def _state(states, state, known, knew_word, pending, spoken):
    middle = 4 + len(pending)
    content = np.empty(middle + len(spoken), np.int64)
    content[0], content[1], content[2], content[3] = state, known, knew_word, len(pending)
    content[4:middle], content[middle:] = pending, spoken
    return number_of(states, content)


@njit(nogil=True, cache=True)
def _read(states, arcs, item, begin, end, targets, words, phones, pending, spoken):
    """Write an arc, without a word, for each of the arcs begin:end; their phones and words pend at its end."""
    for a in range(begin, end):
        more = np.append(pending, a) if phones[a] else pending
        said = np.append(spoken, words[a]) if words[a] else spoken
        write(arcs, item, _state(states, targets[a], len(pending), len(spoken) > 0, more, said), 0, a, pending[:0])


@njit(nogil=True, cache=True)
def _cut(states, arcs, item, state, known, knew_word, pending, spoken, phones, lexicon):
    """Write an arc for each cut that could not be made before the last arc was read.

    Returns (whether the first word may be longer than what pends, or has not been read; whether a cut takes all phones).
    """
    has_word, any_ends, whole, node = len(spoken) > 0, False, False, 0
    word = spoken[0] if has_word else ANY_WORD
    for k in range(1, len(pending) + 1):
        node = step(lexicon, node, phones[pending[k - 1]])
        if node < 0:
            return any_ends and not has_word, False
        is_silence, is_word = has_pair(lexicon.ends, node, 0), has_pair(lexicon.ends, node, word)
        any_ends, whole = any_ends or is_word, is_silence or (is_word and has_word)
        if is_silence and k > known:
            write(arcs, item, _state(states, state, 0, 0, pending[k:], spoken), 0, -1, pending[:k])
        if is_word and has_word and (k > known or not knew_word):
            write(arcs, item, _state(states, state, 0, 0, pending[k:], spoken[1:]), word, -1, pending[:k])
    return not has_word or has_pair(lexicon.prefixes, node, word) or has_pair(lexicon.prefixes, node, 0), whole
