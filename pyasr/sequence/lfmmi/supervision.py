r"""The numerator of LF-MMI: the transcript of a chunk as a graph of pdfs, one per frame, with the weights of
the denominator.

Reference: D. Povey et al., "Purely sequence-trained neural networks for ASR based on lattice-free MMI",
Interspeech 2016, section 2.5.

An utterance is given by its phones with their times. Each phone may occupy the frames of its own time,
extended by the tolerances on both sides. All paths through the phones' HMMs within these limits give strings
of pdfs, one per frame; a chunk has the substrings of its frames, over all paths through the whole utterance.
The set A of these strings is converted to a deterministic graph, which counts each string once, and composed
with the denominator graph D. With w(pi) the weight of a path pi of D, including the initial probability, and
y_t(p) the network's output,

    numerator = sum over paths pi of D whose pdfs are in A of  w(pi) prod_t exp y_t(pi_t)
              <=  the same sum over all paths of D.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree
from pyasr.lang.fst import fst_kernels
from pyasr.sequence.lfmmi import supervision_kernels as kernels
from pyasr.sequence.lfmmi.chain import FRAME_SUBSAMPLING_FACTOR, AlignedPhones, num_subsampled, windows_of
from pyasr.sequence.lfmmi.denominator_graph import DenominatorGraph
from pyasr.sequence.lfmmi.pdf_expansion import HmmsOfWindows


@dataclass(frozen=True)
class ToleranceOptions:
    """By how much the times of phones may differ from the alignment."""

    heading = "objective"

    left_tolerance: int = option(
        5, "input frames by which a phone may begin earlier than in the alignment", minimum=0, rare=True
    )
    right_tolerance: int = option(
        5, "input frames by which a phone may end later than in the alignment", minimum=0, rare=True
    )


@dataclass(frozen=True)
class SupervisionOptions(ToleranceOptions):
    """Times of phones; output t of the network belongs to input frame t `frame_subsampling_factor`."""

    frame_subsampling_factor: int = FRAME_SUBSAMPLING_FACTOR

    def limits(self, aligned: AlignedPhones) -> tuple[np.ndarray, np.ndarray]:
        """(begins, ends) int64 (num_phones): phone i may occupy the outputs begins[i] .. ends[i] - 1."""
        begins = num_subsampled(
            np.maximum(aligned.starts[:-1] - self.left_tolerance, 0), self.frame_subsampling_factor
        )
        ends = num_subsampled(
            np.minimum(aligned.starts[1:] + self.right_tolerance, aligned.num_frames),
            self.frame_subsampling_factor,
        )
        return begins, ends

    def have_room(self, aligned: AlignedPhones) -> bool:
        """Whether every phone can have at least one output of its own, in order, as the topology requires."""
        begins, ends = self.limits(aligned)
        order = np.arange(len(begins))
        earliest = np.maximum.accumulate(begins - order) + order
        return len(begins) > 0 and bool((earliest < ends).all())


@dataclass(frozen=True)
class Supervision:
    """The numerator graph of one chunk: an acyclic graph whose paths all have `num_frames` arcs; state 0 is
    the start.

    key            utterance name, for messages
    sources, targets, slots  int32 (num_arcs); states are numbered in time, arcs sorted by source
    log_probs      float64 (num_arcs)
    finals         float64 (num_states): final costs, 0 or inf
    slot_frames, slot_pdfs   int32 (num_slots): the outputs of the network that the arcs use
    """

    key: str
    num_frames: int
    sources: np.ndarray
    targets: np.ndarray
    slots: np.ndarray
    log_probs: np.ndarray
    finals: np.ndarray
    slot_frames: np.ndarray
    slot_pdfs: np.ndarray


@dataclass(frozen=True)
class UtteranceStates:
    """The possible states of an utterance in each frame; a *node* is an HMM state of one of its phones.

    key        utterance name
    node_pdfs  int64 (num_nodes), in temporal order
    offsets, successors  int64 (num_nodes + 1), (num_arcs): possible successors of a node, including itself if
                         it has a self-loop
    lows       int64 (num_frames): the first node allowed in each frame
    alive      bool (num_frames, width): whether a path through the whole utterance is in node lows[t] + k in
               frame t
    """

    key: str
    node_pdfs: np.ndarray
    offsets: np.ndarray
    successors: np.ndarray
    lows: np.ndarray
    alive: np.ndarray

    @property
    def num_frames(self) -> int:
        """Number of the network's output frames."""
        return len(self.lows)


class SupervisionMaker:
    """Constructs the numerators of chunks for a denominator graph and its model."""

    def __init__(
        self,
        graph: DenominatorGraph,
        trans: TransitionModel,
        tree: ContextTree,
        options: SupervisionOptions = SupervisionOptions(),
    ):
        if graph.num_pdfs != trans.num_pdfs:
            found = f"the denominator graph has {graph.num_pdfs} pdfs, but the model has {trans.num_pdfs}"
            raise UserError(f"{found}; create the graph from this model")
        self.graph, self.tree, self.options, self._hmms = graph, tree, options, HmmsOfWindows(trans, tree)
        offsets, entries, probs = graph.by_source
        pdf_offsets, pdf_entries, flow = graph.by_pdf
        with np.errstate(divide="ignore"):
            self._entries = kernels.GraphEntries(
                graph.num_states,
                graph.entry_targets,
                graph.entry_pdfs,
                offsets,
                entries,
                np.log(probs),
                pdf_offsets,
                pdf_entries,
                np.log(flow),
            )

    def utterance(self, key: str, aligned: AlignedPhones) -> UtteranceStates:
        """The possible states of the utterance, at the network's frame rate. Raises UserError if its phones
        do not fit in their times."""
        num_frames = num_subsampled(aligned.num_frames, self.options.frame_subsampling_factor)
        if not len(aligned.phones) or num_frames < 1:
            raise UserError(
                f"{key}: an utterance without frames or phones has no supervision; exclude the utterance"
            )
        node_pdfs, phone_of, offsets, successors, is_last = self._nodes(aligned.phones)
        lows, highs = self._limits(aligned, num_frames, phone_of)
        width = int((highs - lows).max())
        if (highs > lows).all():
            alive = kernels.alive_nodes(lows, highs, width, offsets, successors, is_last)
            if alive[0].any():
                return UtteranceStates(key, node_pdfs, offsets, successors, lows, alive)
        raise UserError(
            f"{key}: the {len(aligned.phones)} aligned phones do not fit in {num_frames} frames; exclude the "
            "utterance or raise the tolerances"
        )

    def chunk(self, states: UtteranceStates, first_frame: int, num_frames: int) -> Supervision:
        """The numerator of frames first_frame .. first_frame + num_frames - 1, at the network's frame rate.

        Raises ValueError for frames that the utterance does not have, and UserError if the denominator has no
        such sequence of phones from any initial state.
        """
        last = first_frame + num_frames
        if not 0 <= first_frame < last <= states.num_frames:
            raise ValueError(
                f"{states.key}: frames {first_frame} .. {last - 1} requested, but there are "
                f"{states.num_frames}"
            )
        nodes = states.lows, states.alive, states.offsets, states.successors, states.node_pdfs
        layers, sources, targets, pdfs = kernels.string_graph(*nodes, first_frame, last)
        frames = np.searchsorted(layers, sources, side="right") - 1
        outputs, slots = np.unique(frames * self.graph.num_pdfs + pdfs, return_inverse=True)
        *arcs, first_final, num_states = kernels.compose(layers, sources, targets, pdfs, slots, self._entries)
        finals = np.where(np.arange(num_states) >= first_final, 0.0, np.inf)
        if first_final == num_states:
            raise UserError(
                f"{states.key}: the denominator graph has no path for the phones of frames {first_frame} .. "
                f"{last - 1}; estimate its phone language model from alignments with this utterance and many "
                "others"
            )
        return _trimmed(
            states.key,
            num_frames,
            arcs,
            finals,
            outputs // self.graph.num_pdfs,
            outputs % self.graph.num_pdfs,
        )

    def whole(self, key: str, aligned: AlignedPhones) -> Supervision:
        """The numerator of a whole utterance as one chunk."""
        states = self.utterance(key, aligned)
        return self.chunk(states, 0, states.num_frames)

    def _nodes(self, phones: np.ndarray):
        """(pdfs, index of the phone, offsets and successors, whether the utterance may end in it) of the
        phones' HMM states."""
        hmms = self._hmms.of(windows_of(phones, self.tree))
        phone_of, j = np.nonzero(hmms.pdfs >= 0)
        first = np.searchsorted(phone_of, np.arange(len(phones) + 1))
        inner, source_j, target_j = np.nonzero(hmms.inner)
        left, left_j = np.nonzero(hmms.leave)
        continues = left < len(phones) - 1
        sources = np.r_[first[inner] + source_j, (first[left] + left_j)[continues]]
        successors = np.r_[first[inner] + target_j, first[left + 1][continues]]
        order = np.argsort(sources, kind="stable")
        is_last = np.zeros(len(phone_of), bool)
        is_last[(first[left] + left_j)[~continues]] = True
        return (
            hmms.pdfs[phone_of, j],
            phone_of,
            np.searchsorted(sources[order], np.arange(len(phone_of) + 1)),
            successors[order],
            is_last,
        )

    def _limits(
        self, aligned: AlignedPhones, num_frames: int, phone_of: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(lows, highs) int64 (num_frames): nodes lows[t] .. highs[t] - 1 belong to the phones that may
        occupy frame t."""
        begins, ends = self.options.limits(aligned)
        frames = np.arange(num_frames)
        return np.searchsorted(ends[phone_of], frames, side="right"), np.searchsorted(
            begins[phone_of], frames, side="right"
        )


def _trimmed(key, num_frames, arcs, finals, slot_frames, slot_pdfs) -> Supervision:
    """Remove dead-end states and unused slots."""
    sources, targets, slots, log_probs = arcs
    keep = fst_kernels.coreachable(sources, targets, finals)
    number, kept = np.cumsum(keep) - 1, keep[sources] & keep[targets]
    used, slots = np.unique(slots[kept], return_inverse=True)
    return Supervision(
        key,
        num_frames,
        number[sources[kept]].astype(np.int32),
        number[targets[kept]].astype(np.int32),
        slots.astype(np.int32),
        log_probs[kept],
        finals[keep],
        slot_frames[used].astype(np.int32),
        slot_pdfs[used].astype(np.int32),
    )
