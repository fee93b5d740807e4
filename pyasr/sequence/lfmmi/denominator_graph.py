r"""The denominator graph of LF-MMI: all possible phone sequences as a small HMM whose arcs emit pdfs, with
initial probabilities.

Reference: D. Povey et al., "Purely sequence-trained neural networks for ASR based on lattice-free MMI",
Interspeech 2016, sections 2.2-2.4.

Arcs are stored in two steps, since many arcs into a state have the same pdf. An *entry* is a pair (target
state, pdf); an arc leads from a source state into an entry. The flow into an entry is summed before it is
multiplied by the pdf's score.

Chunks begin anywhere in an utterance: the probability that one begins in a state is the state's average over
the first 100 steps from the start state, with each state's arcs and final probability scaled to sum to one
and the distribution normalised after each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree
from pyasr.io.mapped_files.arrays import load_arrays, save_arrays
from pyasr.io.openfst import Fst
from pyasr.sequence.lfmmi.pdf_expansion import PdfArcs, expand_phone_lm, join_equal_states

_NUM_STEPS = 100


@dataclass(frozen=True)
class DenominatorGraph:
    """Arcs sorted by entry, entries sorted by target state and pdf.

    num_pdfs       of the model; each entry's pdf is less than this
    entry_targets, entry_pdfs  int32 (num_entries)
    arc_sources, arc_entries   int32 (num_arcs)
    arc_probs      float64 (num_arcs)
    initial_probs  float64 (num_states): probability that a chunk begins in a state; they sum to 1
    """

    num_pdfs: int
    entry_targets: np.ndarray
    entry_pdfs: np.ndarray
    arc_sources: np.ndarray
    arc_entries: np.ndarray
    arc_probs: np.ndarray
    initial_probs: np.ndarray

    @property
    def num_states(self) -> int:
        """Number of states of the HMM."""
        return len(self.initial_probs)

    @property
    def num_entries(self) -> int:
        """Number of different pairs of target state and pdf."""
        return len(self.entry_targets)

    @cached_property
    def pdfs(self) -> np.ndarray:
        """The pdfs of all arcs, int64, ascending."""
        return np.unique(self.entry_pdfs).astype(np.int64)

    @cached_property
    def kept(self) -> dict:
        """Cache of objects derived from the graph, with its lifetime; each user has its own keys."""
        return {}

    @cached_property
    def arc_offsets(self) -> np.ndarray:
        """int64 (num_entries + 1): the arcs into entry e are `arc_offsets[e]:arc_offsets[e + 1]`."""
        return np.searchsorted(self.arc_entries, np.arange(self.num_entries + 1))

    @cached_property
    def by_source(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(offsets int64 (num_states + 1), entries int32 (num_arcs), probs float64 (num_arcs)): the arcs out
        of each state."""
        order = np.argsort(self.arc_sources, kind="stable")
        offsets = np.searchsorted(self.arc_sources[order], np.arange(self.num_states + 1))
        return offsets, self.arc_entries[order], self.arc_probs[order]

    @cached_property
    def by_pdf(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(offsets int64 (num_pdfs + 1), entries int64 (num_entries), flow into each of these in a chunk's
        first frame, float64)."""
        order = np.argsort(self.entry_pdfs, kind="stable")
        offsets = np.searchsorted(self.entry_pdfs[order], np.arange(self.num_pdfs + 1))
        flow = np.bincount(
            self.arc_entries, self.arc_probs * self.initial_probs[self.arc_sources], self.num_entries
        )
        return offsets, order, flow[order]

    @classmethod
    def from_arcs(cls, arcs: PdfArcs, num_pdfs: int) -> DenominatorGraph:
        """The graph of an acceptor of pdfs, with its entries and initial probabilities. Raises ValueError for
        a pdf above the range."""
        if not len(arcs.pdfs) or arcs.pdfs.min() < 0 or arcs.pdfs.max() >= num_pdfs:
            raise ValueError(f"the graph has no arcs, or pdfs outside 0 .. {num_pdfs - 1}")
        order = np.lexsort((arcs.sources, arcs.pdfs, arcs.targets))
        sources, targets, pdfs, probs = (
            array[order] for array in (arcs.sources, arcs.targets, arcs.pdfs, arcs.probs)
        )
        is_new = np.append(True, (np.diff(targets) != 0) | (np.diff(pdfs) != 0))
        entries = np.cumsum(is_new) - 1
        return cls(
            num_pdfs,
            targets[is_new].astype(np.int32),
            pdfs[is_new].astype(np.int32),
            sources.astype(np.int32),
            entries.astype(np.int32),
            probs,
            initial_probs(arcs),
        )

    def save(self, path: Path) -> None:
        """Write a file for `load`, atomically."""
        save_arrays(path, **{name: getattr(self, name) for name in self.__dataclass_fields__})

    @classmethod
    def load(cls, path: Path) -> DenominatorGraph:
        """Read what `save` wrote. Raises UserError for any other file."""
        fields = load_arrays(path, cls.__dataclass_fields__, "make the denominator graph again")
        return cls(int(fields.pop("num_pdfs")), **fields)


def make_denominator_graph(phone_lm: Fst, trans: TransitionModel, tree: ContextTree) -> DenominatorGraph:
    """The graph of a phone language model (`estimate_phone_lm`) with the HMMs and pdfs of a model."""
    expanded = expand_phone_lm(phone_lm, trans, tree)
    arcs = join_equal_states(expanded)
    graph = DenominatorGraph.from_arcs(arcs, trans.num_pdfs)
    log.info(
        f"denominator graph: {graph.num_states} states, {len(graph.arc_probs)} arcs into {graph.num_entries} "
        f"entries (before equal states were joined: {expanded.num_states} states, {len(expanded.probs)} "
        "arcs)"
    )
    return graph


def initial_probs(arcs: PdfArcs, num_steps: int = _NUM_STEPS) -> np.ndarray:
    """Average of the state distributions after 0 .. num_steps - 1 steps from the start, see the module."""
    totals = np.bincount(arcs.sources, arcs.probs, arcs.num_states) + arcs.finals
    probs = arcs.probs / totals[arcs.sources]
    average = np.zeros(arcs.num_states)
    current: np.ndarray = np.zeros(arcs.num_states)
    current[0] = 1.0
    for _ in range(num_steps):
        average += current / num_steps
        current = np.bincount(arcs.targets, probs * current[arcs.sources], arcs.num_states)
        if not current.any():
            break
        current = current / current.sum()
    return average / average.sum()
