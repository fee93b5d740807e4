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

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.base.jobs.in_threads import in_threads
from pyasr.decode.lattices.lattice import Lattice
from pyasr.decode.search.search_graph import Graph
from pyasr.decode.search.utterance_search import UtteranceSearch, Workspace
from pyasr.io.openfst import Fst


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


class Decoder:
    """Decodes utterances on one graph. Safe to call from several threads at once: the search runs without Python's lock.

    fst       `pyasr.io.openfst.Fst`: transition-ids in, word-ids out
    tid2pdf   int array (num_tids + 1), pdf of each transition-id, entry 0 unused

    Raises UserError when the graph is empty or does not belong to the model.
    """

    def __init__(self, fst: Fst, tid2pdf: np.ndarray, options: DecodeOptions = DecodeOptions()):
        self._set(Graph(fst, tid2pdf), options)

    @classmethod
    def on(cls, graph: Graph, options: DecodeOptions = DecodeOptions()) -> Decoder:
        """A decoder on a graph that is laid out for the search already."""
        decoder = cls.__new__(cls)
        decoder._set(graph, options)
        return decoder

    def _set(self, graph: Graph, options: DecodeOptions) -> None:
        self.graph, self.options = graph, options
        self._workspace = Workspace(graph.num_states)

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
