"""Alignment of lattices with words, so that each arc is one word: the behaviour of Kaldi's
lattice-align-words-lexicon.

    aligned = align_words(compact, trans, align_lexicon(LangDir("data/lang").align_lexicon))
    begin = state_times(aligned)[aligned.sources]              # frames
    end = begin + aligned.lengths

In a compact lattice, words and transition-ids are paired loosely: a word may be before, within or after its
phones. The algorithm therefore reads a path phone by phone. Each state has *pending* phones and words, which
have been read but not matched with each other. In each state, the algorithm does one of two things:

* *cut*: write an arc with the first k pending phones, which are a pronunciation of the first pending word or
  a silence;
* *read*: follow the arcs of the phone-aligned lattice.

The phones of a path can often be divided among its words in several ways. The path must appear once in the
result, so that it counts once in posteriors. A piece is therefore cut only if it is the first piece of every
division that the labels read next can continue. Of the divisions that leave the same number of phones and
words, only one is considered: that with the shortest last piece, then the shortest piece before it, and so
on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError
from pyasr.decode.align.align_lexicon import ANY_WORD, AlignLexicon, continues, has_pair, step
from pyasr.decode.align.align_phones import PhoneModel, align_phones, arc_phones
from pyasr.decode.align.unfold import (
    as_arrays,
    content_of,
    new_arcs,
    new_states,
    num_states,
    number_of,
    unfolded,
    write,
)
from pyasr.decode.lattices.compact_lattice import CompactLattice, pick_strings, without_epsilons
from pyasr.decode.lattices.lattice import trim

_STATES_PER_ARC, _MORE_STATES = 100, 100_000


def align_words(
    lattice: CompactLattice, trans: PhoneModel, lexicon: AlignLexicon, name: str = "lattice"
) -> CompactLattice:
    """The same paths on arcs that each have one word, or word 0 for a silence, and its transition-ids.

    If the phones of a path can be divided among its words in several ways, the result contains one of them.
    Words that are incomplete because the search ended keep the transition-ids that they have, possibly none.
    Raises UserError, naming `name`, if the phones do not match the words.
    """
    phones = align_phones(lattice, trans, name)
    if phones.empty:
        return phones
    labels = arc_phones(phones, trans)
    for may_break in (False, True):
        aligned = _align(phones, labels, lexicon, may_break, name)
        if (np.bincount(aligned.tids, minlength=len(labels))[labels > 0] > 0).all():
            return _expanded(aligned, phones)
    raise UserError(
        f"{name}: its phones do not match its words; give the language directory and the model of the "
        "decoding"
    )


def _align(
    phones: CompactLattice, labels: np.ndarray, lexicon: AlignLexicon, may_break: bool, name: str
) -> CompactLattice:
    """The paths that can be aligned; their strings are arc numbers of `phones` instead of transition-ids.
    labels: the phone of each arc."""
    limit = _STATES_PER_ARC * phones.num_arcs + _MORE_STATES
    arcs, last = _word_arcs(
        phones.arc_offsets, phones.targets, phones.words, labels, lexicon, may_break, limit
    )
    if last < 0:
        raise UserError(
            f"{name}: its words are too far from their phones to be aligned; decode with a narrower "
            "--lattice-beam"
        )
    return without_epsilons(trim(unfolded(phones, arcs, last)))


def _expanded(aligned: CompactLattice, phones: CompactLattice) -> CompactLattice:
    """`aligned` with transition-ids for its strings, which are arc numbers of `phones`."""
    ends, tids = pick_strings(phones.string_offsets, phones.tids, aligned.tids)
    return replace(aligned, string_offsets=ends[aligned.string_offsets], tids=tids)


@njit(nogil=True, cache=True)
def _word_arcs(offsets, targets, words, phones, lexicon, may_break, limit):
    """(arcs of the word-aligned lattice, whose strings are arc numbers; its last state, or -1 if it has more
    than `limit` states).

    A state consists of: state of the lattice, number of pending phones, arcs of these phones, pending words.
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
    """Write an arc without a word for each arc out of `state`; its phone and word are pending at the
    target."""
    offsets, targets, words, phones = lattice
    for a in range(offsets[state], offsets[state + 1]):
        more = np.append(pending, a) if phones[a] else pending
        said = np.append(spoken, words[a]) if words[a] else spoken
        write(arcs, item, _state(states, targets[a], more, said), 0, a, pending[:0])


@njit(nogil=True, cache=True)
def _cut(states, arcs, item, state, length, num_words, pending, spoken):
    """Write an arc with the first `length` pending phones and, unless num_words is 0, the first pending
    word."""
    word = spoken[0] if num_words else 0
    write(arcs, item, _state(states, state, pending[length:], spoken[num_words:]), word, -1, pending[:length])


@njit(nogil=True, cache=True)
def _first_piece(lexicon, phones, spoken, is_last, may_break):
    """The first piece of the pending labels, encoded as by `_pieces`; 0 if it depends on labels not yet read,
    -1 if there is no division.

    At the end of the lattice (is_last), 0 means that nothing is pending or, with may_break, that the first
    word is incomplete.
    """
    first, follows = _pieces(lexicon, phones, spoken), _word_follows(lexicon, phones)
    if is_last and (first[-1, -1] >= 0 or not may_break):
        return first[-1, -1]
    found = -1
    for w in range(len(spoken), -1, -1):
        for i in range(len(phones), -1, -1):
            if first[i, w] < 0 or not (
                _continues(lexicon, phones[i:], spoken[w]) if w < len(spoken) else follows[i]
            ):
                continue
            if is_last:  # as many words as possible are complete
                return first[i, w]
            if found >= 0 and first[i, w] != found:
                return 0
            found = first[i, w]
    return found


@njit(nogil=True, cache=True)
def _pieces(lexicon, phones, spoken):
    """Array [i, w]: the first piece of the division of the first i phones into the first w words and
    silences; -1 if there is none.

    A piece is encoded as twice the number of its phones, plus one if it is a word; entry [0, 0] is 0.
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
def _continues(lexicon, phones, word):
    """Whether `phones` begin a longer pronunciation of the word, or a longer silence."""
    node = 0
    for phone in phones:
        node = step(lexicon, node, phone)
        if node < 0:
            return False
    return len(phones) == 0 or has_pair(lexicon.prefixes, node, word) or has_pair(lexicon.prefixes, node, 0)


@njit(nogil=True, cache=True)
def _word_follows(lexicon, phones):
    """Array [i]: whether the phones from i on may begin with a word that has not been read yet, or with an
    incomplete silence."""
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
        follows[i] |= node >= 0 and continues(lexicon, node)
        divides[i] |= follows[i]
    return follows
