"""A decoding graph in the layout of the search, in memory or memory-mapped from a file that all jobs and
threads of a host share.

graph = Graph.read(Path("exp/tri1/graph/HCLG.fst"), trans.tid2pdf)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError
from pyasr.decode.search import token_passing
from pyasr.io.mapped_files.mapped import MappedTables, derived, digest_of_parts
from pyasr.io.openfst import Fst, read_fst

_LAYOUT = "search graph 1"  # change it when the content of the tables changes


class Graph:
    """A decoding graph. The arcs of a state are sorted: emitting arcs, labelled with pdfs, come first, then
    epsilon arcs.

    arcs        token_passing.ARC (num_arcs)
    offsets     int32 (num_states + 1, 2): first emitting arc and first epsilon arc of each state
    tids, words int32 (num_arcs): transition-ids and words
    vocabulary  int32: the distinct `words`, sorted
    finals      float32 (num_states)
    levels      int32 (num_states): length of the longest epsilon path that leads to a state; -1 if it has no
                epsilon arcs
    tables      the arrays for the kernels

    Memory: 20 bytes per arc and 16 per state; each thread adds 4 bytes per state.
    """

    def __init__(self, fst: Fst, tid2pdf: np.ndarray):
        self._take(laid_out(fst, tid2pdf))

    @classmethod
    def read(cls, path: Path, tid2pdf: np.ndarray) -> Graph:
        """The graph of an OpenFst file, memory-mapped if the file is large (`pyasr.io.mapped_files.mapped`).

        Raises UserError as `read_fst` does, and if the graph is empty or does not belong to the model.
        """
        tid2pdf, graph = np.ascontiguousarray(tid2pdf, np.int32), cls.__new__(cls)
        key = digest_of_parts(_LAYOUT, tid2pdf.tobytes())
        graph._take(derived(Path(path), "search", key, lambda: laid_out(read_fst(path), tid2pdf)))
        return graph

    def _take(self, tables: MappedTables) -> None:
        arrays, values = tables.arrays, tables.values
        self.arcs = arrays["arcs"].view(token_passing.ARC)[:, 0]
        self.offsets, self.finals, self.levels = arrays["offsets"], arrays["finals"], arrays["levels"]
        self.tids, self.words, self.vocabulary = arrays["tids"], arrays["words"], arrays["vocabulary"]
        self.start, self.num_pdfs = values["start"], values["num_pdfs"]
        self.num_levels, self.cyclic = values["num_levels"], values["cyclic"]
        self.tables = token_passing.GraphTables(
            self.arcs, self.offsets, self.levels, self.num_levels, self.cyclic
        )

    @property
    def num_states(self) -> int:
        """States of the graph."""
        return len(self.finals)


def laid_out(fst: Fst, tid2pdf: np.ndarray) -> MappedTables:
    """The arrays and values of a `Graph`; arcs as int32 (num_arcs, 3). Raises UserError if it is empty or
    belongs to another model."""
    tid2pdf = np.asarray(tid2pdf, np.int32)
    _check(fst, tid2pdf)
    offsets, arcs = np.empty((fst.num_states + 1, 2), np.int32), np.empty(fst.num_arcs, token_passing.ARC)
    tids, words = np.empty(fst.num_arcs, np.int32), np.empty(fst.num_arcs, np.int32)
    columns = fst.arc_offsets, fst.ilabels, fst.olabels, fst.weights, fst.nextstates
    _lay_out(columns, tid2pdf, offsets, arcs, tids, words)
    start, finals, vocabulary = int(fst.start), np.ascontiguousarray(fst.finals, np.float32), _distinct(words)
    del fst, columns
    levels, num_levels, cyclic = epsilon_levels(*_epsilon_arcs(offsets, arcs))
    num_pdfs = int(tid2pdf[1:].max()) + 1 if len(tid2pdf) > 1 else 0
    return MappedTables(
        {
            "offsets": offsets,
            "arcs": arcs.view(np.int32).reshape(-1, 3),
            "tids": tids,
            "words": words,
            "vocabulary": vocabulary,
            "finals": finals,
            "levels": levels,
        },
        {"start": start, "num_pdfs": num_pdfs, "num_levels": num_levels, "cyclic": cyclic},
    )


def _check(fst: Fst, tid2pdf: np.ndarray) -> None:
    if fst.start < 0 or fst.num_states == 0:
        raise UserError("the decoding graph is empty; run utils/make_graph.py again")
    if fst.num_arcs and int(fst.ilabels.max()) >= len(tid2pdf):
        raise UserError(
            f"the decoding graph has transition-id {int(fst.ilabels.max())} but the model has only "
            f"{len(tid2pdf) - 1}; run utils/make_graph.py with this model"
        )
    if fst.num_arcs > np.iinfo(np.int32).max:
        raise UserError(
            f"the decoding graph has {fst.num_arcs} arcs, more than 2^31 - 1; prune the language model"
        )


@njit(nogil=True, cache=True)
def _lay_out(columns, tid2pdf, offsets, arcs, tids, words):
    """Fill offsets, arcs, tids and words: the arcs of each state in their order, those with an input label
    before those without.

    columns  arc offsets, input and output labels, weights and next states of an Fst
    """
    arc_offsets, ilabels, olabels, weights, nextstates = columns
    at = 0
    for state in range(len(arc_offsets) - 1):
        offsets[state, 0] = at
        for without_label in range(2):
            if without_label:
                offsets[state, 1] = at
            for a in range(arc_offsets[state], arc_offsets[state + 1]):
                if (ilabels[a] == 0) == (without_label == 1):
                    arcs[at].target = nextstates[a]
                    arcs[at].weight = weights[a]
                    arcs[at].pdf = tid2pdf[ilabels[a]]
                    tids[at], words[at] = ilabels[a], olabels[a]
                    at += 1
    offsets[-1, 0], offsets[-1, 1] = at, 0


def _distinct(words: np.ndarray) -> np.ndarray:
    """The distinct labels, sorted: int32."""
    seen = np.zeros(int(words.max(initial=-1)) + 1, bool)
    seen[words] = True
    return np.flatnonzero(seen).astype(np.int32)


def _epsilon_arcs(offsets: np.ndarray, arcs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(source and target of each epsilon arc, number of epsilon arcs out of each state): int32."""
    num_epsilon = offsets[1:, 0] - offsets[:-1, 1]
    sources = np.repeat(np.arange(len(num_epsilon), dtype=np.int32), num_epsilon)
    first = np.cumsum(num_epsilon, dtype=np.int64) - num_epsilon
    places = np.arange(len(sources)) + np.repeat(offsets[:-1, 1] - first, num_epsilon)
    return sources, arcs["target"][places], num_epsilon


def epsilon_levels(
    sources: np.ndarray, targets: np.ndarray, num_epsilon: np.ndarray
) -> tuple[np.ndarray, int, bool]:
    """Levels of the states in the graph of epsilon arcs (`sources` ascending): each arc between strongly
    connected components goes up.

    Returns (int32 levels (num_states), -1 for states without epsilon arcs out; number of levels; whether
    there is a cycle).
    """
    offsets = np.zeros(len(num_epsilon) + 1, np.int64)
    np.cumsum(num_epsilon, out=offsets[1:])
    targets = np.ascontiguousarray(targets, np.int32)
    component = _components(offsets, targets)
    level = _component_levels(sources, targets, component)[component]
    cyclic = bool((component[sources] == component[targets]).any())
    level[num_epsilon == 0] = -1
    return level.astype(np.int32), int(level.max(initial=0)) + 1, cyclic


@njit(nogil=True, cache=True)
def _components(offsets, targets):
    """Strongly connected components (Tarjan 1972, without recursion), numbered so that arcs between
    components go to lower numbers."""
    num_states = len(offsets) - 1
    component = np.full(num_states, -1, np.int32)
    index, low = np.full(num_states, -1, np.int32), np.zeros(num_states, np.int32)
    at = offsets[:-1].copy()
    path, stack = np.empty(num_states, np.int32), np.empty(num_states, np.int32)
    num_stack, num_seen, num_components = 0, 0, 0
    for root in range(num_states):
        if index[root] >= 0:
            continue
        depth = 0
        path[0] = root
        while depth >= 0:
            s = path[depth]
            if index[s] < 0:
                index[s] = low[s] = num_seen
                num_seen += 1
                stack[num_stack] = s
                num_stack += 1
            descend = False
            while at[s] < offsets[s + 1] and not descend:
                target = targets[at[s]]
                at[s] += 1
                if index[target] < 0:
                    depth += 1
                    path[depth] = target
                    descend = True
                elif component[target] < 0:
                    low[s] = min(low[s], index[target])
            if descend:
                continue
            if low[s] == index[s]:
                while component[s] < 0:
                    num_stack -= 1
                    component[stack[num_stack]] = num_components
                num_components += 1
            depth -= 1
            if depth >= 0:
                low[path[depth]] = min(low[path[depth]], low[s])
    return component


def _component_levels(sources, targets, component):
    """Length of the longest path to each component over arcs between components, which go from higher to
    lower numbers."""
    between = component[sources] != component[targets]
    a, b = component[sources][between], component[targets][between]
    order = np.argsort(-a.astype(np.int64), kind="stable")
    return _longest(a[order], b[order], int(component.max(initial=-1)) + 1)


@njit(nogil=True, cache=True)
def _longest(sources, targets, num_nodes):
    level = np.zeros(num_nodes, np.int64)
    for i in range(len(sources)):
        level[targets[i]] = max(level[targets[i]], level[sources[i]] + 1)
    return level
