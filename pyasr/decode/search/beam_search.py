"""Beam search in HCLG that generates lattices. A decoder prepares the graph once and serves any number of
utterances and threads.

    options = DecodeOptions(beam=13.0, acoustic_scale=1 / 12)
    decoder = Decoder(read_fst("exp/tri1/graph/HCLG.fst"), trans.tid2pdf, options)
    lattice = decoder.decode(am.log_likelihoods(x), "utt1")
    words = best_path(lattice, 1 / 12).words

The algorithm is the search with lattice pruning of D. Povey et al., "Generating exact lattices in the WFST
framework", ICASSP 2012 (the behaviour of Kaldi's LatticeFasterDecoder); docs/decoding/decoding.md has its
equations. `Decoder.start` is for utterances that arrive in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any

import numpy as np

from pyasr.base.jobs.in_threads import in_threads
from pyasr.decode.lattices.lattice import Lattice
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.decode.search.search_graph import Graph
from pyasr.decode.search.utterance_search import UtteranceSearch, Workspace
from pyasr.io.openfst import Fst


class Decoder:
    """Decodes utterances on one graph. Safe to call from several threads at once; the search releases
    Python's global interpreter lock.

    fst       `pyasr.io.openfst.Fst` with input transition-ids and output word ids
    tid2pdf   int array (num_tids + 1), pdf of each transition-id, entry 0 unused

    Raises UserError if the graph is empty or does not belong to the model.
    """

    def __init__(self, fst: Fst, tid2pdf: np.ndarray, options: DecodeOptions = DecodeOptions()):
        self._set(Graph(fst, tid2pdf), options)

    @classmethod
    def on(cls, graph: Graph, options: DecodeOptions = DecodeOptions()) -> Decoder:
        """A decoder on a graph in the layout of the search."""
        decoder = cls.__new__(cls)
        decoder._set(graph, options)
        return decoder

    def _set(self, graph: Graph, options: DecodeOptions) -> None:
        self.graph, self.options = graph, options
        self._workspace = Workspace(graph.num_states)

    def with_options(self, options: DecodeOptions) -> Decoder:
        """A decoder with other beams and scales that shares the graph in memory."""
        other = copy(self)
        other.options = options
        return other

    def decode(self, loglikes: np.ndarray, name: str = "the utterance") -> Lattice:
        """The lattice of one utterance: graph costs and unscaled acoustic costs on its arcs, transition-ids
        in, words out.

        loglikes  float32 (T, num_pdfs), natural logarithms

        If no final state is reached at the last frame, all states there count as final with cost 0 and
        `lattice.reached_final` is False. If no path of the graph continues after an earlier frame, the
        lattice ends there: `lattice.stats.num_decoded` < T. Raises UserError, naming the utterance, for
        likelihoods that are not finite or from another model.
        """
        search = self._started(self._workspace)
        search.advance(loglikes, name)
        return search.finish()

    def start(self) -> UtteranceSearch:
        """Start the search of an utterance whose frames arrive in parts."""
        return self._started(Workspace(self.graph.num_states))

    def _started(self, space: Workspace) -> UtteranceSearch:
        return UtteranceSearch(self.graph, self.options, space)

    def decode_many(
        self,
        utterances: Iterable[tuple[str, np.ndarray | Callable[[], np.ndarray]]],
        num_threads: int = 1,
        finish: Callable[[Lattice], Any] = lambda lattice: lattice,
    ) -> Iterator[tuple[str, Any]]:
        """Yield (name, lattice) for each (name, log-likelihoods) in order, `num_threads` at a time.

        Log-likelihoods may be a function that computes them, which is called in the worker thread. `finish`
        is called there, too; its result replaces the lattice. At most 2 * num_threads utterances are in
        progress.
        """

        def work(utterance):
            name, loglikes = utterance
            return name, finish(self.decode(loglikes() if callable(loglikes) else loglikes, name))

        return in_threads(work, utterances, num_threads)
