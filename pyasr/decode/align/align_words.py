"""Lattices whose arcs are words: the behaviour of Kaldi's lattice-align-words-lexicon.

    aligned = align_words(compact, trans, align_lexicon(LangDir("data/lang").align_lexicon))
    begin = state_times(aligned)[aligned.sources]              # frames
    end = begin + aligned.lengths

In a compact lattice words and transition-ids are paired loosely: a word may stand before, within or after its phones. A path is therefore
read phone by phone, and in each state pend the phones and the words read that have not found each other. Of these two things one is done
there:

* *cut* off the first k phones, a pronunciation of the first word, or a silence: an arc of the result;
* *read* the arcs of the phone-aligned lattice.

Phones of a path may be divided among its words in several ways. So that the path comes out once, and counts once in posteriors, a piece is
cut off when it is the first of all divisions that what is read next may go on with, and of those that lead to the same place (as many
phones and words are left) there is one: that whose last piece, and so on backwards, is the shortest.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError
from pyasr.decode.align.align_lexicon import ANY_WORD, AlignLexicon, goes_on, has_pair, step
from pyasr.decode.align.align_phones import align_phones, arc_phones
from pyasr.decode.align.unfold import as_arrays, content_of, new_arcs, new_states, num_states, number_of, unfolded, write
from pyasr.decode.lattices.compact_lattice import CompactLattice, pick_strings, without_epsilons
from pyasr.decode.lattices.lattice import trim
from pyasr.hmm.model.transitions import TransitionModel

_STATES_PER_ARC, _MORE_STATES = 100, 100_000


def align_words(lattice: CompactLattice, trans: TransitionModel, lexicon: AlignLexicon, name: str = "lattice") -> CompactLattice:
    """The same paths, each arc a word with its transition-ids or, word 0, a silence.

    Where the phones of a path can be divided among its words in several ways, the result has one of them. When the search ended within
    words, these keep the transition-ids that they have, which may be none. Raises UserError, naming `name`, for phones that are not those
    of the words.
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

    A state is: state of the lattice, number of phones pending, arcs that have these phones, words pending.
    """
    none, end = np.empty(0, np.int64), len(offsets) - 2
    states, arcs, item = new_states(np.zeros(2, np.int64)), new_arcs(), 0
    while item < num_states(states):
        content = content_of(states, item)
        state, middle = content[0], 2 + content[1]
        pending, spoken = content[2:middle], content[middle:]
        piece = _first_piece(lexicon, phones[pending], spoken, state == end, may_break)
        if piece > 0:
            _cut(states, arcs, item, state, piece >> 1, piece & 1, pending, spoken)
        elif piece == 0 and state < end:
            _read(states, arcs, item, state, (offsets, targets, words, phones), pending, spoken)
        elif piece == 0 and len(content) > 2:
            _cut(states, arcs, item, end, len(pending), min(len(spoken), 1), pending, spoken)
        item += 1
        if num_states(states) > limit:
            return as_arrays(arcs), -1
    return as_arrays(arcs), _state(states, end, none, none)


@njit(nogil=True, cache=True)
def _state(states, state, pending, spoken):
    middle = 2 + len(pending)
    content = np.empty(middle + len(spoken), np.int64)
    content[0], content[1] = state, len(pending)
    content[2:middle], content[middle:] = pending, spoken
    return number_of(states, content)


@njit(nogil=True, cache=True)
def _read(states, arcs, item, state, lattice, pending, spoken):
    """Write an arc, without a word, for each of the arcs out of `state`; their phones and words pend at its end."""
    offsets, targets, words, phones = lattice
    for a in range(offsets[state], offsets[state + 1]):
        more = np.append(pending, a) if phones[a] else pending
        said = np.append(spoken, words[a]) if words[a] else spoken
        write(arcs, item, _state(states, targets[a], more, said), 0, a, pending[:0])


@njit(nogil=True, cache=True)
def _cut(states, arcs, item, state, length, num_words, pending, spoken):
    """Write an arc of the first `length` phones that pend, with the first word or, where num_words is 0, without."""
    word = spoken[0] if num_words else 0
    write(arcs, item, _state(states, state, pending[length:], spoken[num_words:]), word, -1, pending[:length])


@njit(nogil=True, cache=True)
def _first_piece(lexicon, phones, spoken, is_last, may_break):
    """The first piece of what pends, as `_pieces` has it: 0 if it is not known before more is read, -1 if there is no division.

    Where nothing follows (is_last) 0 says that nothing pends or, with may_break, that the first word breaks off.
    """
    first, follows = _pieces(lexicon, phones, spoken), _word_follows(lexicon, phones)
    if is_last and (first[-1, -1] >= 0 or not may_break):
        return first[-1, -1]
    found = -1
    for w in range(len(spoken), -1, -1):
        for i in range(len(phones), -1, -1):
            if first[i, w] < 0 or not (_goes_on(lexicon, phones[i:], spoken[w]) if w < len(spoken) else follows[i]):
                continue
            if is_last:  # the most words have all of their phones
                return first[i, w]
            if found >= 0 and first[i, w] != found:
                return 0
            found = first[i, w]
    return found


@njit(nogil=True, cache=True)
def _pieces(lexicon, phones, spoken):
    """[i, w]: the first piece of the division of the first i phones into the first w words and silences, -1 if there is none.

    A piece is twice the number of its phones, and one more if it is a word; it is 0 at [0, 0].
    """
    first = np.full((len(phones) + 1, len(spoken) + 1), -1)
    first[0, 0] = 0
    for i in range(len(phones)):
        for w in range(len(spoken) + 1):
            node = 0 if first[i, w] >= 0 else -1
            for k in range(i, len(phones)):
                node = step(lexicon, node, phones[k]) if node >= 0 else -1
                if node < 0:
                    break
                piece = 2 * (k + 1 - i)
                if w < len(spoken) and has_pair(lexicon.ends, node, spoken[w]):
                    first[k + 1, w + 1] = first[i, w] if i else piece + 1
                if has_pair(lexicon.ends, node, 0):
                    first[k + 1, w] = first[i, w] if i else piece
    return first


@njit(nogil=True, cache=True)
def _goes_on(lexicon, phones, word):
    """Whether these are the first phones of a longer pronunciation of the word, or of a longer silence."""
    node = 0
    for phone in phones:
        node = step(lexicon, node, phone)
        if node < 0:
            return False
    return len(phones) == 0 or has_pair(lexicon.prefixes, node, word) or has_pair(lexicon.prefixes, node, 0)


@njit(nogil=True, cache=True)
def _word_follows(lexicon, phones):
    """[i]: whether the phones from the i-th on may begin with a word that has not been read, or a silence that is not over."""
    num = len(phones)
    follows, divides = np.zeros(num + 1, np.bool_), np.zeros(num + 1, np.bool_)
    follows[num] = divides[num] = True
    for i in range(num - 1, -1, -1):
        node = 0
        for k in range(i, num):
            node = step(lexicon, node, phones[k])
            if node < 0:
                break
            follows[i] |= has_pair(lexicon.ends, node, ANY_WORD) and divides[k + 1]
            divides[i] |= has_pair(lexicon.ends, node, 0) and divides[k + 1]
        follows[i] |= node >= 0 and goes_on(lexicon, node)
        divides[i] |= follows[i]
    return follows
