"""Lattices whose arcs are words: each arc has the transition-ids, and so the frames, of exactly one word or silence.

    aligned, num_broken = align_words(compact, trans, read_grammar("data/lang"))
    begin = state_times(aligned)[aligned.sources]              # frames
    end = begin + aligned.lengths

The behaviour of Kaldi's lattice-align-words and lattice-align-words-lexicon. In a compact lattice words and transition-ids are paired loosely;
here a path is read phone by phone, and what is *pending* - phones that no word has yet, words that have no phones yet - is part of a state.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import replace

import numpy as np
from numba import njit

from pyasr.base.errors import UserError
from pyasr.decode.align_phones import align_phones
from pyasr.decode.compact import CompactLattice, compact_from_arcs, pick_strings
from pyasr.decode.determinize_pools import mixed
from pyasr.decode.lattice import trim
from pyasr.decode.word_grammar import WordGrammar, has_pair, may_end, step
from pyasr.hmm.transitions import TransitionModel

_EXPANSIONS = (2, 8, 32)
_SPACE = 1000
_ITEM = np.dtype([("state", "i4"), ("arcs_begin", "i8"), ("arcs_end", "i8"), ("words_begin", "i8"), ("words_end", "i8"), ("key", "u8")],
                 align=True)
_FRAME = np.dtype([("state", "i4"), ("arc", "i4"), ("num_arcs", "i4"), ("num_words", "i4"), ("graph", "f8"), ("acoustic", "f8")], align=True)
_ARC = np.dtype([("source", "i4"), ("target", "i4"), ("word", "i4"), ("phones_end", "i8"), ("graph", "f8"), ("acoustic", "f8")], align=True)
_NUM_ITEMS, _NUM_PENDING_ARCS, _NUM_PENDING_WORDS, _NUM_ARCS, _NUM_PHONES, _NUM_BROKEN, _BAD_PHONE = range(7)
_START, _END = range(2)

_Phones = namedtuple("_Phones", "offsets targets words phones graph acoustic final_graph final_acoustic")
_Phones.__doc__ = """A phone-aligned lattice: each arc's phone (0: none), word (0: none) and costs; arcs of state s from offsets[s] on."""

_Work = namedtuple("_Work", "items pending_arcs pending_words table arcs phones finals counts stack own_arcs own_words")
_Work.__doc__ = """An *item* is a state of the result: a state of the phone-aligned lattice with pending phones (as arcs) and pending words.

items, pending_arcs, pending_words, table  the items, what pends in them, and a hash table of them; item 1 is the end of broken paths
arcs, phones, finals  arcs of the result, the phone arcs that make them up one after the other, final costs (2, items)
stack, own_arcs, own_words  the path that is followed: its states, phones and words since the item it began at
"""


def align_words(lattice: CompactLattice, trans: TransitionModel, grammar: WordGrammar, reordered: bool = True,
                name: str = "lattice") -> tuple[CompactLattice, int]:
    """(the same paths, each arc a word with its frames or, word 0, a silence; the number of arcs that are words broken off at the end).

    A word that the end of the utterance breaks off keeps its frames; a word without phones there is dropped.

    lattice  deterministic; where a lexicon's words can be told apart in two ways, the result has both

    Raises UserError, naming `name`, when the phones do not form words.
    """
    if lattice.empty:
        return lattice, 0
    phones = align_phones(lattice, trans, reordered)
    aligned, num_broken = _aligned(phones, trans, grammar, grammar.is_free, name)
    if aligned.empty and not grammar.is_free:
        aligned, num_broken = _aligned(phones, trans, grammar, True, name)
    if aligned.empty:
        raise UserError(f"{name}: its phones do not form its words; align it with the language directory it was decoded with")
    return replace(aligned, reached_final=lattice.reached_final, stats=lattice.stats), num_broken


def _aligned(lattice: CompactLattice, trans: TransitionModel, grammar: WordGrammar, may_break: bool, name: str) -> tuple[CompactLattice, int]:
    """(word-aligned lattice of a phone-aligned one, empty if there is none; broken words). may_break: words may break off at the end."""
    phones = _phones_of(lattice, trans)
    for expansion in _EXPANSIONS:
        work = _new_work(lattice, expansion)
        if _search(phones, grammar, work, may_break):
            break
        if work.counts[_BAD_PHONE]:
            raise UserError(f"{name}: phone {work.counts[_BAD_PHONE]} stands where no word can have it; "
                            "align the lattice with the language directory it was decoded with")
    else:
        raise UserError(f"{name}: its words are too far from their phones to be aligned; decode again with a narrower lattice beam")
    return _result(lattice, work), int(work.counts[_NUM_BROKEN])


def _phones_of(lattice: CompactLattice, trans: TransitionModel) -> _Phones:
    phones = np.zeros(lattice.num_arcs, np.int32)
    full = lattice.lengths > 0
    phones[full] = trans.tid2phone[lattice.tids[lattice.string_offsets[:-1][full]]]
    return _Phones(lattice.arc_offsets, lattice.targets, lattice.words, phones, lattice.graph_costs, lattice.acoustic_costs,
                   lattice.final_graph, lattice.final_acoustic)


def _new_work(lattice: CompactLattice, expansion: int) -> _Work:
    """Pools for about `expansion` times the arcs of a lattice."""
    size, depth = expansion * lattice.num_arcs + _SPACE, lattice.num_states + 1
    return _Work(np.empty(size, _ITEM), np.empty(size, np.int32), np.empty(size, np.int32), np.full(1 << (2 * size).bit_length(), -1, np.int32),
                 np.empty(size, _ARC), np.empty(4 * size, np.int32), np.full((2, size), np.inf), np.zeros(7, np.int64),
                 np.empty(depth, _FRAME), np.empty(depth, np.int32), np.empty(depth, np.int32))


def _result(lattice: CompactLattice, work: _Work) -> CompactLattice:
    """The lattice of the arcs found; an arc's string is made of those of its phones."""
    counts = work.counts
    arcs, phones, num_states = work.arcs[: counts[_NUM_ARCS]], work.phones[: counts[_NUM_PHONES]], int(counts[_NUM_ITEMS])
    phone_offsets, tids = pick_strings(lattice.string_offsets, lattice.tids, phones)
    strings = phone_offsets[np.append(0, arcs["phones_end"])], tids
    no_strings = np.zeros(num_states + 1, np.int64), np.empty(0, np.int32)
    return trim(compact_from_arcs(_START, arcs["source"], arcs["target"], arcs["word"], arcs["graph"], arcs["acoustic"], strings,
                                  *work.finals[:, :num_states], no_strings))


@njit(nogil=True, cache=True)
def _search(lattice, grammar, work, may_break):
    """Find the arcs of the result. Returns False when the pools are too small or, setting _BAD_PHONE, when phones form no word."""
    counts, item = work.counts, 0
    _item(work, 0, 0, 0, 0, 0)
    _item(work, -1, 0, 0, 0, 0)
    work.finals[:, _END] = 0
    while item < counts[_NUM_ITEMS]:
        if item != _END and not _follow(lattice, grammar, work, item, may_break):
            return False
        item += 1
    return True


@njit(nogil=True, cache=True)
def _item(work, state, arcs_begin, arcs_end, words_begin, words_end):
    """The item of a state and what of `own_arcs` and `own_words` pends there."""
    key = mixed(np.uint64(state + 1))
    for i in range(arcs_begin, arcs_end):
        key = mixed(key + np.uint64(2 * work.own_arcs[i] + 1))
    for i in range(words_begin, words_end):
        key = mixed(key + np.uint64(2 * work.own_words[i]))
    items, mask = work.items, np.uint64(len(work.table) - 1)
    slot = key & mask
    while work.table[slot] >= 0:
        if items[work.table[slot]].key == key:
            return work.table[slot]
        slot = (slot + np.uint64(1)) & mask
    k, a, w = work.counts[_NUM_ITEMS], work.counts[_NUM_PENDING_ARCS], work.counts[_NUM_PENDING_WORDS]
    items[k].state, items[k].key = state, key
    items[k].arcs_begin, items[k].arcs_end, items[k].words_begin, items[k].words_end = a, a + arcs_end - arcs_begin, w, w + words_end - words_begin
    work.pending_arcs[a : items[k].arcs_end] = work.own_arcs[arcs_begin:arcs_end]
    work.pending_words[w : items[k].words_end] = work.own_words[words_begin:words_end]
    work.counts[_NUM_ITEMS], work.counts[_NUM_PENDING_ARCS], work.counts[_NUM_PENDING_WORDS] = k + 1, items[k].arcs_end, items[k].words_end
    work.table[slot] = k
    return np.int32(k)


@njit(nogil=True, cache=True)
def _has_room(work, here):
    """Whether the pools have room for what may be complete at a frame: a silence and a word after each phone, and the end."""
    counts, num_more = work.counts, 2 * here.num_arcs + 2
    return (counts[_NUM_ITEMS] + num_more <= len(work.items) and counts[_NUM_ARCS] + num_more <= len(work.arcs)
            and counts[_NUM_PENDING_ARCS] + num_more * here.num_arcs <= len(work.pending_arcs)
            and counts[_NUM_PENDING_WORDS] + num_more * here.num_words <= len(work.pending_words)
            and counts[_NUM_PHONES] + num_more * here.num_arcs <= len(work.phones))


@njit(nogil=True, cache=True)
def _write(work, source, target, word, num_phones, graph, acoustic):
    """An arc of the result with the first `num_phones` of the path's phones."""
    k, end = work.counts[_NUM_ARCS], work.counts[_NUM_PHONES] + num_phones
    work.phones[work.counts[_NUM_PHONES] : end] = work.own_arcs[:num_phones]
    work.arcs[k].source, work.arcs[k].target, work.arcs[k].word, work.arcs[k].phones_end = source, target, word, end
    work.arcs[k].graph, work.arcs[k].acoustic = graph, acoustic
    work.counts[_NUM_ARCS], work.counts[_NUM_PHONES] = k + 1, end


@njit(nogil=True, cache=True)
def _follow(lattice, grammar, work, item, may_break):
    """Follow all paths out of an item up to where a word or a silence is complete. Returns as `_search` does."""
    stack, depth, first = work.stack, 0, work.items[item]
    stack[0].state, stack[0].arc, stack[0].graph, stack[0].acoustic = first.state, -1, 0.0, 0.0
    stack[0].num_arcs, stack[0].num_words = first.arcs_end - first.arcs_begin, first.words_end - first.words_begin
    work.own_arcs[: stack[0].num_arcs] = work.pending_arcs[first.arcs_begin : first.arcs_end]
    work.own_words[: stack[0].num_words] = work.pending_words[first.words_begin : first.words_end]
    while depth >= 0:
        here = stack[depth]
        if here.arc < 0:
            if not _has_room(work, here):
                return False
            here.arc = lattice.offsets[here.state]
            goes_on = _complete(lattice, grammar, work, item, depth)
            if goes_on and lattice.final_graph[here.state] < np.inf:
                _end(lattice, work, item, depth, may_break)
            if not goes_on:
                if work.counts[_BAD_PHONE]:
                    return False
                depth -= 1
        elif here.arc == lattice.offsets[here.state + 1]:
            depth -= 1
        else:
            a = here.arc
            here.arc += 1
            depth += 1
            _advance(lattice, work, depth, a)
    return True


@njit(nogil=True, cache=True)
def _advance(lattice, work, depth, a):
    """The frame at `depth`: that before it and then arc `a`."""
    before, here = work.stack[depth - 1], work.stack[depth]
    here.state, here.arc, here.num_arcs, here.num_words = lattice.targets[a], -1, before.num_arcs, before.num_words
    here.graph, here.acoustic = before.graph + lattice.graph[a], before.acoustic + lattice.acoustic[a]
    if lattice.phones[a]:
        work.own_arcs[here.num_arcs] = a
        here.num_arcs += 1
    if lattice.words[a]:
        work.own_words[here.num_words] = lattice.words[a]
        here.num_words += 1


@njit(nogil=True, cache=True)
def _complete(lattice, grammar, work, item, depth):
    """Write the arcs for words and silences that the path's last arc completes. Returns whether a longer path may complete others.

    Sets _BAD_PHONE if no path can, by a grammar of phones alone.
    """
    here = work.stack[depth]
    old_arcs, had_word, has_word = 0, False, here.num_words > 0
    if depth:
        old_arcs, had_word = work.stack[depth - 1].num_arcs, work.stack[depth - 1].num_words > 0
    node, word = np.int32(0), work.own_words[0]
    for k in range(1, here.num_arcs + 1):
        node = step(grammar, node, lattice.phones[work.own_arcs[k - 1]])
        if node < 0:
            break
        written = False
        if k > old_arcs and grammar.silence_ends[node]:
            target = _item(work, here.state, k, here.num_arcs, 0, here.num_words)
            _write(work, item, target, 0, k, here.graph, here.acoustic)
            written = True
        if has_word and (k > old_arcs or not had_word) and may_end(grammar, node, word):
            target = _item(work, here.state, k, here.num_arcs, 1, here.num_words)
            _write(work, item, target, word, k, here.graph, here.acoustic)
            written = True
        if written and grammar.is_free:
            return False
    if not has_word or here.num_arcs == 0:
        return True
    if grammar.is_free and node < 0:
        work.counts[_BAD_PHONE] = lattice.phones[work.own_arcs[here.num_arcs - 1]]
        return False
    return node >= 0 and (grammar.is_free or has_pair(grammar.prefixes, node, word) or has_pair(grammar.prefixes, node, 0))


@njit(nogil=True, cache=True)
def _end(lattice, work, item, depth, may_break):
    """Let a path end in a final state; what pends becomes a broken word, a silence if no word is known."""
    here = work.stack[depth]
    graph, acoustic = here.graph + lattice.final_graph[here.state], here.acoustic + lattice.final_acoustic[here.state]
    if here.num_arcs == 0 and here.num_words == 0 and depth == 0:
        work.finals[0, item], work.finals[1, item] = graph, acoustic
    elif here.num_arcs == 0 and here.num_words == 0 or may_break:
        word = work.own_words[0] if here.num_arcs and here.num_words else 0
        _write(work, item, _END, word, here.num_arcs, graph, acoustic)
        work.counts[_NUM_BROKEN] += here.num_arcs > 0
