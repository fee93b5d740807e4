"""Beam search over HCLG that makes lattices: the graph prepared once, then any number of utterances, from any number of threads.

    decoder = Decoder(read_fst("exp/tri1/graph/HCLG.fst"), trans.tid2pdf, DecodeOptions(beam=13.0, acoustic_scale=1 / 12))
    lattice = decoder.decode(am.log_likelihoods(x), "utt1")
    words = best_path(lattice, 1 / 12).words

The algorithm is the search with lattice pruning of D. Povey et al., "Generating exact lattices in the WFST framework", ICASSP 2012 (the
behaviour of Kaldi's LatticeFasterDecoder); docs/decoding.md has its equations. `Decoder.start` is for utterances that come bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.in_threads import in_threads
from pyasr.base.kernels import njit
from pyasr.base.options import option
from pyasr.decode import token_passing
from pyasr.decode.lattice import Lattice
from pyasr.decode.utterance_search import UtteranceSearch, Workspace


@dataclass(frozen=True)
class DecodeOptions:
    """Beams and scales of the search; costs are negated natural logarithms."""

    beam: float = option(13.0, "tokens this much worse than the frame's best are dropped", minimum=0.1)
    lattice_beam: float = option(6.0, "lattice paths may be this much worse than the best one", minimum=0.0, maximum=1e6)
    max_active: int = option(7000, "most tokens of a frame that are taken on", minimum=1)
    min_active: int = option(200, "fewest tokens of a frame that are taken on, beam or not", minimum=0)
    acoustic_scale: float = option(0.083333, "scale of the log-likelihoods during the search (1 / LM weight)", minimum=1e-6)
    beam_delta: float = option(0.5, "added to the beam of the next frame where max-active or min-active sets it", minimum=0.0)
    prune_interval: int = option(25, "frames between two prunings of the links", minimum=1)

    def check(self) -> None:
        """Raise UserError for numbers of tokens that no frame can have."""
        if self.min_active > self.max_active:
            raise UserError(f"--min-active {self.min_active} is above --max-active {self.max_active}; lower the one or raise the other")


class Graph:
    """A decoding graph laid out for the search: the emitting arcs of each state first, its epsilon arcs after them, pdfs for labels.

    Memory: 20 bytes an arc, 16 a state; each thread adds 4 bytes a state.
    """

    def __init__(self, fst, tid2pdf: np.ndarray):
        tid2pdf = np.asarray(tid2pdf, np.int32)
        _check(fst, tid2pdf)
        num_out = np.diff(fst.arc_offsets)
        sources = np.repeat(np.arange(len(num_out), dtype=np.int32), num_out)
        epsilon = fst.ilabels == 0
        order = np.argsort(2 * sources.astype(np.int64) + epsilon, kind="stable")
        num_epsilon = np.bincount(sources[epsilon], minlength=len(num_out))
        self.offsets = np.zeros((len(num_out) + 1, 2), np.int32)
        self.offsets[:, 0] = fst.arc_offsets
        self.offsets[:-1, 1] = fst.arc_offsets[1:] - num_epsilon
        self.arcs = np.empty(len(order), token_passing.ARC)
        self.tids, self.words = np.ascontiguousarray(fst.ilabels[order], np.int32), np.ascontiguousarray(fst.olabels[order], np.int32)
        self.arcs["target"], self.arcs["weight"] = fst.nextstates[order], fst.weights[order]
        self.arcs["pdf"] = tid2pdf[self.tids]
        self.start, self.finals = int(fst.start), np.ascontiguousarray(fst.finals, np.float32)
        self.num_pdfs = int(tid2pdf[1:].max()) + 1 if len(tid2pdf) > 1 else 0
        self.levels, self.num_levels, self.cyclic = epsilon_levels(sources[epsilon], np.asarray(fst.nextstates)[epsilon], num_epsilon)

    @property
    def num_states(self) -> int:
        """States of the graph."""
        return len(self.finals)


def _check(fst, tid2pdf) -> None:
    if fst.start < 0 or fst.num_states == 0:
        raise UserError("the decoding graph is empty; make it anew with utils/make_graph.py")
    if fst.num_arcs and int(fst.ilabels.max()) >= len(tid2pdf):
        raise UserError(f"the decoding graph has transition-id {int(fst.ilabels.max())} but the model only {len(tid2pdf) - 1}; "
                        "make the graph with this model (utils/make_graph.py)")
    if fst.num_arcs > np.iinfo(np.int32).max:
        raise UserError(f"the decoding graph has {fst.num_arcs} arcs, more than 2^31 - 1; prune the language model")


def epsilon_levels(sources: np.ndarray, targets: np.ndarray, num_epsilon: np.ndarray) -> tuple[np.ndarray, int, bool]:
    """Levels of the states in the graph of epsilon arcs (`sources` ascending): every arc between strongly connected components goes up.

    Returns (int32 levels (num_states), -1 for states that no epsilon arc leaves; number of levels; whether there is a cycle).
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
    """Strongly connected components (Tarjan 1972, without recursion), numbered so that arcs between two go to the lower number."""
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
    """Longest path to each component over the arcs between components, which run from higher to lower numbers."""
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


class Decoder:
    """Decodes utterances on one graph. Safe to call from several threads at once: the search runs without Python's lock.

    fst       `pyasr.io.openfst.Fst`: transition-ids in, word-ids out
    tid2pdf   int array (num_tids + 1), pdf of each transition-id, entry 0 unused

    Raises UserError when the graph is empty or does not belong to the model.
    """

    def __init__(self, fst, tid2pdf: np.ndarray, options: DecodeOptions = DecodeOptions()):
        self.options = options
        self.graph = Graph(fst, tid2pdf)
        self._workspace = Workspace(self.graph.num_states)

    def with_options(self, options: DecodeOptions) -> Decoder:
        """A decoder with other beams and scales on the same graph, which is in memory once."""
        other = copy(self)
        other.options = options
        return other

    def decode(self, loglikes: np.ndarray, name: str = "the utterance") -> Lattice:
        """The lattice of one utterance: graph costs and unscaled acoustic costs on its arcs, transition-ids in, words out.

        loglikes  float32 (T, num_pdfs), natural logarithms

        When no final state is reached at the last frame, all states there count as final at no cost and `lattice.reached_final` is False.
        When the search dies before the last frame (the graph has no way on), the lattice ends there: `lattice.stats.num_decoded` < T.
        Raises UserError, naming the utterance, for likelihoods that are not finite or of another model.
        """
        search = self._started(self._workspace)
        search.advance(loglikes, name)
        return search.finish()

    def start(self) -> UtteranceSearch:
        """The search of an utterance whose frames come bit by bit."""
        return self._started(Workspace(self.graph.num_states))

    def _started(self, space: Workspace) -> UtteranceSearch:
        return UtteranceSearch(self.graph, self.options, space)

    def decode_many(self, utterances: Iterable[tuple[str, np.ndarray | Callable[[], np.ndarray]]], num_threads: int = 1,
                    finish: Callable[[Lattice], Any] = lambda lattice: lattice) -> Iterator[tuple[str, Any]]:
        """(name, lattice) of each (name, log-likelihoods) in their order, `num_threads` at a time.

        Log-likelihoods may be a function that computes them: it is called in the thread, and so is `finish`, a function of the lattice
        whose result is given in its place. At most 2 * num_threads utterances are under way.
        """
        def work(utterance):
            name, loglikes = utterance
            return name, finish(self.decode(loglikes() if callable(loglikes) else loglikes, name))

        return in_threads(work, utterances, num_threads)
