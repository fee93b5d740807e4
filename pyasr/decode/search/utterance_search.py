"""The search of one utterance, whose frames may arrive in parts; the result is the same as for all frames at
once.

search = decoder.start()
search.advance(loglikes)                # for each part
words = search.best_path().words        # so far
lattice = search.finish()
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np

from pyasr.base.errors import UserError
from pyasr.decode.lattices.lattice import DecodeStats, Lattice, Path, from_arcs
from pyasr.decode.search import token_passing
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.decode.search.search_graph import Graph


class Workspace(threading.local):
    """Memory that a thread reuses between utterances."""

    def __init__(self, num_states: int):
        self.token_of_state = np.zeros(num_states, np.int32)
        self.tokens = np.empty(1 << 14, token_passing.TOKEN)
        self.links = np.empty(1 << 15, token_passing.LINK)

    def keep(self, tokens, links, most_bytes: int = 64 << 20) -> None:
        """Keep grown pools for reuse, unless they exceed `most_bytes`."""
        if tokens.nbytes + links.nbytes <= most_bytes:
            self.tokens, self.links = tokens, links


class UtteranceSearch:
    """A search in progress; `pyasr.decode.search.beam_search.Decoder` starts it.

    num_frames  number of input frames so far
    """

    def __init__(self, graph: Graph, options: DecodeOptions, space: Workspace):
        begin = time.thread_time()
        self.graph, self.options, self.num_frames = graph, options, 0
        self._space = space
        self._loglikes: list[np.ndarray] = []
        f = np.float32
        self._limits = token_passing.Limits(
            f(options.beam),
            f(options.lattice_beam),
            options.max_active,
            options.min_active,
            f(options.beam_delta),
            options.prune_interval,
        )
        self._pools = token_passing.begin_search(
            graph.tables, graph.start, self._limits, space.tokens, space.links, space.token_of_state
        )
        self._cpu_s = time.thread_time() - begin

    @property
    def is_dead(self) -> bool:
        """Whether no path of the graph continued after some frame; later frames are not decoded."""
        return bool(self._pools.place[token_passing.IS_DEAD])

    def advance(self, loglikes: np.ndarray, name: str = "the utterance") -> None:
        """Advance the search by the frames of `loglikes`, float32 (T, num_pdfs), natural logarithms.

        Raises UserError, naming the utterance, for likelihoods that are not finite or from another model.
        """
        begin = time.thread_time()
        loglikes, scale = self._checked(loglikes, name), np.float32(self.options.acoustic_scale)
        self._loglikes.append(loglikes)
        self.num_frames += len(loglikes)
        self._pools = token_passing.advance(self.graph.tables, loglikes, scale, self._limits, self._pools)
        if self._pools.place[token_passing.STATUS] == token_passing.NEGATIVE_CYCLE:
            raise UserError(
                f"{name}: the decoding graph has a cycle of epsilon arcs with negative cost; create the "
                "graph again"
            )
        self._cpu_s += time.thread_time() - begin

    def _checked(self, loglikes, name: str) -> np.ndarray:
        loglikes = np.ascontiguousarray(loglikes, np.float32)
        if loglikes.ndim != 2 or loglikes.shape[1] < self.graph.num_pdfs:
            raise UserError(
                f"{name}: log-likelihoods of shape {loglikes.shape}, but the graph's model has "
                f"{self.graph.num_pdfs} pdfs; decode with the model that the graph was created with"
            )
        finite = np.isfinite(loglikes)
        if not finite.all():
            frame, pdf = np.argwhere(~finite)[0]
            value = loglikes[frame, pdf]
            where = f"pdf {pdf} at frame {self.num_frames + frame}"
            raise UserError(
                f"{name}: the log-likelihood of {where} is {value}; check the features and the model"
            )
        return loglikes

    def best_path(self) -> Path:
        """The best path so far to any state; its costs are not computed (zeros)."""
        arcs = token_passing.best_arcs(self._pools)
        words, tids = self.graph.words[arcs], self.graph.tids[arcs]
        return Path(words[words != 0].tolist(), tids[tids != 0], 0.0, 0.0)

    def final_gap(self) -> float:
        """The cost difference of the best path to a final state and the best path so far; inf if no state is
        final."""
        tokens, place = self._pools.tokens, self._pools.place
        newest = tokens[place[token_passing.BEGIN] : place[token_passing.NUM_TOKENS]]
        return float((newest["cost"] + self.graph.finals[newest["state"]]).min() - newest["cost"].min())

    def _all_loglikes(self) -> np.ndarray:
        if len(self._loglikes) == 1:
            return self._loglikes[0]
        return np.concatenate(
            [np.zeros((0, self._loglikes[0].shape[1] if self._loglikes else 1), np.float32), *self._loglikes]
        )

    def finish(self) -> Lattice:
        """End the search and return the lattice, as `Decoder.decode` describes it."""
        begin = time.thread_time()
        graph, loglikes = self.graph, self._all_loglikes()
        reached = token_passing.finish_search(self._pools, graph.finals, self._limits.lattice_beam)
        sources, targets, tids, words, graph_costs, acoustic_costs, finals = token_passing.lattice_arrays(
            graph.arcs, graph.tids, graph.words, graph.finals, loglikes, self._pools, reached
        )
        self._space.keep(self._pools.tokens, self._pools.links)
        lattice = from_arcs(
            0, sources, targets, tids, words, graph_costs, acoustic_costs, finals, reached_final=reached
        )
        counts = (token_passing.FRAME, token_passing.NUM_EXPANDED, token_passing.PEAK_LINKS)
        num_decoded, num_tokens, peak_links = (int(self._pools.place[i]) for i in counts)
        return replace(
            lattice,
            stats=DecodeStats(
                self.num_frames, num_decoded, num_tokens, peak_links, self._cpu_s + time.thread_time() - begin
            ),
        )
