"""Alignment of lattices with phones, so that each arc is one phone: the behaviour of Kaldi's
lattice-align-phones.

In *reordered* alignments (the default of Kaldi and pyasr), the self-loops of a state follow its forward
transition. A phone then ends after the transition into its final state and the self-loops of the same
transition state. In other alignments, a phone ends with the transition into its final state. One rule covers
both cases, because self-loops at the beginning of the next phone belong to another state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError
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
from pyasr.decode.lattices.compact_lattice import (
    CompactLattice,
    empty_compact,
    with_one_end,
    without_epsilons,
)
from pyasr.decode.lattices.lattice import has_end, trim


class PhoneModel(Protocol):
    """The part of a transition model (`pyasr.hmm.model.transitions`) that alignment uses: arrays over
    transition-ids."""

    @property
    def num_tids(self) -> int: ...

    @property
    def tid2phone(self) -> np.ndarray: ...

    @property
    def tid2state(self) -> np.ndarray: ...

    @property
    def is_self_loop(self) -> np.ndarray: ...

    @property
    def is_final(self) -> np.ndarray: ...


def align_phones(lattice: CompactLattice, trans: PhoneModel, name: str = "lattice") -> CompactLattice:
    """The same paths on arcs that each have the transition-ids of one phone, or none if a word or costs occur
    within a phone.

    Words keep their order but are not necessarily on the arcs of their phones
    (`pyasr.decode.align.align_words` moves them there). The last phone may be incomplete. Raises UserError,
    naming `name`, for transition-ids that the model does not have.
    """
    lattice = trim(lattice)
    if not has_end(lattice):
        return replace(empty_compact(), reached_final=lattice.reached_final, stats=lattice.stats)
    closed = with_one_end(lattice)
    if not len(closed.tids) and closed.words.any():
        raise UserError(
            f"{name}: the lattice has words without transition-ids, so their times are unknown; decode with "
            "--search wfst"
        )
    if not 0 < closed.tids.min(initial=1) <= closed.tids.max(initial=1) <= trans.num_tids:
        raise UserError(
            f"{name}: the lattice has transition-ids outside the model's 1 to {trans.num_tids}; give the "
            "model of the decoding"
        )
    hmm = trans.is_self_loop, trans.is_final, trans.tid2state
    arcs, last = _phone_arcs(
        closed.arc_offsets, closed.targets, closed.words, closed.string_offsets, closed.tids, *hmm
    )
    return unfolded(closed, arcs, last)


def arc_phones(lattice: CompactLattice, trans: PhoneModel) -> np.ndarray:
    """The phone of each arc of a phone-aligned lattice, int32 (num_arcs); 0 if it has no transition-ids."""
    phones, full = np.zeros(lattice.num_arcs, np.int32), lattice.lengths > 0
    phones[full] = trans.tid2phone[lattice.tids[lattice.string_offsets[:-1][full]]]
    return phones


def phone_lattice(lattice: CompactLattice, trans: PhoneModel, name: str = "lattice") -> CompactLattice:
    """The phone-aligned lattice with phones in place of words (Kaldi's lattice-align-phones
    --replace-output-symbols=true)."""
    aligned = align_phones(lattice, trans, name)
    return without_epsilons(replace(aligned, words=arc_phones(aligned, trans)))


@njit(nogil=True, cache=True)
def _first_phone(tids, at_end, is_loop, is_final, state_of):
    """The number of transition-ids of the first phone; 0 if the phone may continue after them."""
    over = False
    for i in range(len(tids)):
        if over and not (is_loop[tids[i]] and state_of[tids[i]] == state_of[tids[i - 1]]):
            return i
        over = is_final[tids[i]] or (over and is_loop[tids[i]])
    return len(tids) if at_end else 0


@njit(nogil=True, cache=True)
def _phone_arcs(offsets, targets, words, string_offsets, tids, is_loop, is_final, state_of):
    """(arcs of the phone-aligned lattice, its last state). The pending labels of a state
    (`pyasr.decode.align.unfold`) are transition-ids."""
    states, arcs, end, item = new_states(np.zeros(1, np.int64)), new_arcs(), len(offsets) - 2, 0
    while item < num_states(states):
        content = content_of(states, item)
        state, pending = content[0], content[1:]
        length = _first_phone(pending, state == end, is_loop, is_final, state_of)
        if length:
            _move(states, arcs, item, state, 0, -1, pending, length)
        else:
            for a in range(offsets[state], offsets[state + 1]):
                string = np.append(pending, tids[string_offsets[a] : string_offsets[a + 1]])
                length = _first_phone(string, targets[a] == end, is_loop, is_final, state_of)
                _move(states, arcs, item, targets[a], words[a], a, string, length)
        item += 1
    return as_arrays(arcs), number_of(states, np.array([end], np.int64))


@njit(nogil=True, cache=True)
def _move(states, arcs, source, state, word, old, string, length):
    """Write an arc with the first `length` transition-ids of `string` to the state where the others are
    pending."""
    content = np.empty(1 + len(string) - length, np.int64)
    content[0], content[1:] = state, string[length:]
    write(arcs, source, number_of(states, content), word, old, string[:length])
