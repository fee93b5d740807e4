"""TLG: the decoding graph of a CTC network, from frames to words.

Y. Miao et al., "EESEN: end-to-end speech recognition using deep RNN models and WFST-based decoding", ASRU
2015, compose LG with a transducer T from the labels of frames to units. Here T o LG is constructed directly:
a state is a state of LG with the unit of the last frame, or with the blank. Arcs from state s of LG with last
unit u:

    u : epsilon      back to (s, u)                   the unit continues
    blank : epsilon  to (s, blank)
    v : word         to (t, v)                        for each arc of LG from s to t with unit v, except v = u
    epsilon : word   to (t, u), where only arcs of LG continue

From (s, blank) there are the same arcs with all v, so "u u" needs a blank between its units. Epsilons lead to
separate states, in which no frame can be consumed, so every alignment of the units of a path of LG is exactly
one path of TLG.

Input labels are transition-ids, unit + 1; that of the blank is 1. They equal those of LG and phones.txt
(`pyasr.lang.lang_dirs.subword_lang`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.io.openfst import Fst, write_fst
from pyasr.lang.fst import fst_ops as ops
from pyasr.lang.grammars.grammar import copy_symbols
from pyasr.lang.grammars.lg import make_lg
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.lang_dirs.subwords import BLANK

GRAPH = "TLG.fst"
BLANK_TID = 1
_BLANK = 0  # last unit of a node; any other value is a label of LG


def unit_tid2pdf(num_units: int) -> np.ndarray:
    """Network output of each transition-id, int32 (num_units + 1); entry 0 is unused."""
    return np.arange(-1, num_units, dtype=np.int32)


class _StateKeys:
    """States of TLG as sorted keys of (state of LG, whether an epsilon led there, last unit)."""

    def __init__(self, num_labels: int):
        self.num_labels = num_labels
        self.keys = np.zeros(0, np.int64)

    def key(self, states, passing: int, memory) -> np.ndarray:
        return (2 * np.asarray(states, np.int64) + passing) * self.num_labels + memory

    def add(self, keys: np.ndarray) -> np.ndarray:
        """The new ones among `keys`."""
        new = np.setdiff1d(keys, self.keys)
        self.keys = np.union1d(self.keys, new)
        return new

    def parts(self, keys: np.ndarray) -> tuple[np.ndarray, ...]:
        """(states of LG, whether reached by epsilon, last units)."""
        states, memory = np.divmod(keys, self.num_labels)
        return states // 2, states % 2, memory

    def numbers(self, keys: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.keys, keys)


def _fan_out(states: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows, arcs): each arc from states[row], for all rows."""
    counts = np.diff(offsets)[states]
    rows = np.repeat(np.arange(len(states)), counts)
    return rows, np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - offsets[states], counts)


def _all_nodes(lg: Fst) -> _StateKeys:
    """Every state of LG with the blank, the target of every arc with its unit, and the states reached from
    there by epsilons."""
    nodes = _StateKeys(int(lg.ilabels.max(initial=0)) + 1)
    spoken = lg.ilabels > 0
    entered = nodes.key(lg.nextstates[spoken], 0, lg.ilabels[spoken])
    new = nodes.add(np.r_[nodes.key(np.arange(lg.num_states), 0, _BLANK), entered])
    silent = lg.keep_arcs(~spoken)
    while len(new):
        states, _, memory = nodes.parts(new)
        rows, arcs = _fan_out(states, silent.arc_offsets)
        new = nodes.add(nodes.key(silent.nextstates[arcs], 1, memory[rows]))
    return nodes


def ctc_graph(lg: Fst) -> Fst:
    """T o LG. `lg` has units + 1 as input labels, without the blank's, and no disambiguation symbols."""
    nodes = _all_nodes(lg)
    states, passing, memory = nodes.parts(nodes.keys)
    rows, arcs = _fan_out(states, lg.arc_offsets)
    allowed = (lg.ilabels[arcs] == 0) | (lg.ilabels[arcs] != memory[rows])
    rows, arcs = rows[allowed], arcs[allowed]
    labels, silent = lg.ilabels[arcs], lg.ilabels[arcs] == 0
    targets = np.where(
        silent, nodes.key(lg.nextstates[arcs], 1, memory[rows]), nodes.key(lg.nextstates[arcs], 0, labels)
    )
    held = np.flatnonzero(passing == 0)
    ended = held[memory[held] != _BLANK]
    to_blank = nodes.numbers(nodes.key(states[ended], 0, _BLANK))
    stay = np.where(memory[held] == _BLANK, BLANK_TID, memory[held])
    zeros = np.zeros(len(held) + len(ended))
    graph = Fst.from_arcs(
        len(nodes.keys),
        int(nodes.numbers(nodes.key(lg.start, 0, _BLANK))),
        np.r_[held, ended, rows],
        np.r_[stay, np.full(len(ended), BLANK_TID), labels],
        np.r_[zeros, lg.olabels[arcs]],
        np.r_[zeros, lg.weights[arcs]],
        np.r_[held, to_blank, nodes.numbers(targets)],
        lg.finals[states],
    )
    return ops.connect(graph)


def make_tlg(lang: Path, out: Path) -> Fst:
    """Fill `out` with TLG.fst, words.txt, phones.txt and phones/ from a lang dir of units with a grammar.
    Returns the graph.

    Raises UserError if the lang dir is not one of units, and as `make_lg` does.
    """
    tables = LangDir(lang)
    if tables.phones.get(BLANK) != BLANK_TID:
        raise UserError(
            f"{lang}/phones.txt: {BLANK} is not number {BLANK_TID}; give a lang directory of "
            "utils/prepare_ctc_lang.py"
        )
    lg = ops.remove_epsilons_local(ops.remove_symbols(make_lg(lang), tables.disambig_phones))
    log.info(f"LG: {lg.num_states} states, {lg.num_arcs} arcs")
    graph = ctc_graph(lg)
    log.info(f"TLG: {graph.num_states} states, {graph.num_arcs} arcs")
    write_fst(out / GRAPH, graph, kind="const")
    copy_symbols(lang, out)
    return graph
