"""Lattices whose arcs are phones: the behaviour of Kaldi's lattice-align-phones.

In *reordered* alignments (Kaldi's default, and ours) a state's self-loops follow its forward transition, so that a phone is over when,
after a transition to its final state and the self-loops of that one, another transition comes. In others a phone is over with the
transition to its final state. The rule serves both, since self-loops that begin a phone are those of another state.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError
from pyasr.decode.align.unfold import as_arrays, content_of, new_arcs, new_states, num_states, number_of, unfolded, write
from pyasr.decode.lattices.compact_lattice import CompactLattice, empty_compact, with_one_end, without_epsilons
from pyasr.decode.lattices.lattice import has_end, trim
from pyasr.hmm.model.transitions import TransitionModel


def align_phones(lattice: CompactLattice, trans: TransitionModel, name: str = "lattice") -> CompactLattice:
    """The same paths on arcs that have the transition-ids of exactly one phone; or none, where a word or costs come within a phone.

    Words stay in their order, but not necessarily on a phone of their own (`pyasr.decode.align.align_words` puts them there). The
    last phone may be broken off. Raises UserError, naming `name`, for transition-ids that the model does not have.
    """
    lattice = trim(lattice)
    if not has_end(lattice):
        return replace(empty_compact(), reached_final=lattice.reached_final, stats=lattice.stats)
    closed = with_one_end(lattice)
    if not len(closed.tids) and closed.words.any():
        raise UserError(f"{name}: it has words without transition-ids, so nobody knows when they were said; decode with --search wfst")
    if not 0 < closed.tids.min(initial=1) <= closed.tids.max(initial=1) <= trans.num_tids:
        raise UserError(f"{name}: it has transition-ids beyond the model's {trans.num_tids}; give the model that it was decoded with")
    hmm = trans.is_self_loop, trans.is_final, trans.tid2state
    arcs, last = _phone_arcs(closed.arc_offsets, closed.targets, closed.words, closed.string_offsets, closed.tids, *hmm)
    return unfolded(closed, arcs, last)


def arc_phones(lattice: CompactLattice, trans: TransitionModel) -> np.ndarray:
    """The phone of each arc of a phone-aligned lattice, int32 (num_arcs); 0 where it has none."""
    phones, full = np.zeros(lattice.num_arcs, np.int32), lattice.lengths > 0
    phones[full] = trans.tid2phone[lattice.tids[lattice.string_offsets[:-1][full]]]
    return phones


def phone_lattice(lattice: CompactLattice, trans: TransitionModel, name: str = "lattice") -> CompactLattice:
    """The phone-aligned lattice with phones in place of words (Kaldi's lattice-align-phones --replace-output-symbols=true)."""
    aligned = align_phones(lattice, trans, name)
    return without_epsilons(replace(aligned, words=arc_phones(aligned, trans)))


@njit(nogil=True, cache=True)
def _first_phone(tids, at_end, is_loop, is_final, state_of):
    """How many transition-ids the first phone has; 0 if it may go on after them."""
    over = False
    for i in range(len(tids)):
        if over and not (is_loop[tids[i]] and state_of[tids[i]] == state_of[tids[i - 1]]):
            return i
        over = is_final[tids[i]] or (over and is_loop[tids[i]])
    return len(tids) if at_end else 0


@njit(nogil=True, cache=True)
def _phone_arcs(offsets, targets, words, string_offsets, tids, is_loop, is_final, state_of):
    """(arcs of the phone-aligned lattice, its last state). What pends in a state are transition-ids."""
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
    """Write the first `length` transition-ids of `string` on an arc to `state`, where the others pend."""
    content = np.empty(1 + len(string) - length, np.int64)
    content[0], content[1:] = state, string[length:]
    write(arcs, source, number_of(states, content), word, old, string[:length])
