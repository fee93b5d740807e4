r"""HMMs that a phone can pass in one frame, for networks with a third of the frame rate, and conversion of
alignments to them.

Kaldi's chain topology has one state whose first frame belongs to pdf-class 0 and whose further frames, the
self-loops, belong to 1. Two states, the first without self-loop, generate the same strings of pdf-classes
with the same probabilities. In this form the topology needs no special treatment by trees, transition models,
graphs and decoders:

    state 0, pdf-class 0:  to 1 with 1/2, out with 1/2       n frames:  0 1 1 ... 1  with probability 2^-n
    state 1, pdf-class 1:  to itself with 1/2, out with 1/2
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pyasr.base.errors import UserError
from pyasr.hmm.model.topology import NO_PDF, Entry, HmmState, Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree, monophone_tree
from pyasr.hmm.trees.phone_segments import groups, split_to_phones

FRAME_SUBSAMPLING_FACTOR = 3


def chain_entry(stay: float = 0.5) -> Entry:
    """The HMM above; `stay` is the probability of one more frame."""
    stay, leave = float(np.float32(stay)), float(np.float32(1.0 - stay))
    return HmmState(0, ((1, stay), (2, leave))), HmmState(1, ((1, stay), (2, leave))), HmmState(NO_PDF, ())


def chain_topology(phones: Iterable[int]) -> Topology:
    """`chain_entry` for all of `phones`."""
    return Topology([chain_entry()], dict.fromkeys(phones, 0))


@dataclass(frozen=True)
class AlignedPhones:
    """The phones of an utterance with their times.

    phones  int32 (num_phones)
    starts  int64 (num_phones + 1): the first frame of each phone, and the number of frames
    """

    phones: np.ndarray
    starts: np.ndarray

    @property
    def num_frames(self) -> int:
        """Number of frames of the utterance."""
        return int(self.starts[-1])


def aligned_phones(
    trans: TransitionModel, alignments: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, AlignedPhones]]:
    """The phones of each alignment (utterance -> transition-ids) with their times. Raises UserError as
    `split_to_phones`."""
    for group in groups(alignments):
        segments = split_to_phones(trans, group)
        firsts = np.searchsorted(segments.utts, np.arange(len(group) + 1))
        for number, utt in enumerate(group):
            starts = segments.starts[firsts[number] : firsts[number + 1] + 1]
            yield utt, AlignedPhones(segments.phones[firsts[number] : firsts[number + 1]], starts - starts[0])


def subsample(aligned: AlignedPhones, factor: int = FRAME_SUBSAMPLING_FACTOR) -> AlignedPhones | None:
    """The same phones if only every `factor`-th frame is kept, starting with the first one.

    A phone without a frame takes one from a neighbour, so that each has at least one; None if there are more
    phones than frames.
    """
    num_phones, num_frames = len(aligned.phones), num_subsampled(aligned.num_frames, factor)
    if not 0 < num_phones <= num_frames:
        return None
    order = np.arange(num_phones)
    starts = num_subsampled(aligned.starts[:-1], factor)
    starts = np.maximum.accumulate(starts - order) + order
    starts = np.minimum(starts, num_frames - num_phones + order)
    return AlignedPhones(aligned.phones, np.append(starts, num_frames))


def num_subsampled(num_frames, factor: int):
    """Number of multiples of `factor` among the frames 0 .. num_frames - 1; also for an array of numbers."""
    return -(-num_frames // factor)


def chain_alignment(aligned: AlignedPhones, trans: TransitionModel, tree: ContextTree) -> np.ndarray:
    """Transition-ids, self-loops last, int32 (num_frames), of aligned phones, for a model whose HMMs are all
    `chain_entry`."""
    durations = np.diff(aligned.starts)
    is_first = np.zeros(aligned.num_frames, bool)
    is_first[aligned.starts[:-1]] = True
    is_second = np.append(False, is_first[:-1]) & ~is_first
    phones = np.repeat(aligned.phones, durations)
    pdfs = tree.pdfs(
        np.repeat(windows_of(aligned.phones, tree), durations, axis=0), (~is_first).astype(np.int32)
    )
    states = trans.transition_states(phones, (~is_first).astype(np.int32), pdfs)
    if (states < 0).any():
        raise UserError(
            "the tree has pdfs that the model does not have; take tree and final.mdl from the same directory"
        )
    leaves = np.repeat(durations == 1, durations) | ~is_first
    return np.where(
        is_first | is_second, trans.first_tid[states] + leaves, trans.self_loop_tid[states]
    ).astype(np.int32)


def windows_of(phones: np.ndarray, tree: ContextTree) -> np.ndarray:
    """The tree's window around each phone of a sequence: int32 (num_phones, context_width), padded by 0."""
    padded = np.pad(
        np.asarray(phones, np.int32), (tree.central_position, tree.context_width - tree.central_position - 1)
    )
    return np.lib.stride_tricks.sliding_window_view(padded, tree.context_width)


def chain_alignments(
    old: TransitionModel,
    alignments: Mapping[str, np.ndarray],
    sets: list[list[int]],
    factor: int = FRAME_SUBSAMPLING_FACTOR,
) -> tuple[TransitionModel, dict[str, np.ndarray]]:
    """Convert alignments of another model to the chain topology, without context, and to every `factor`-th
    frame.

    Returns (model of the pdf-classes of the sets of phones `sets`, utterance -> transition-ids): the input of
    `accumulate_tree_stats`, together with features of every `factor`-th frame, to build a tree. Each
    utterance must have at least as many of these as phones.
    """
    topology = chain_topology(old.topology.phones)
    tree = monophone_tree(sets, dict.fromkeys(topology.phones, 2))
    trans = TransitionModel.from_tree(topology, tree)
    found = {}
    for utt, aligned in aligned_phones(old, alignments):
        kept = subsample(aligned, factor)
        assert kept is not None
        found[utt] = chain_alignment(kept, trans, tree)
    return trans, found


def output_numbers(lengths: np.ndarray, factor: int) -> np.ndarray:
    """The targets of utterances with these lengths, concatenated: the index of the output that each frame
    belongs to, int32."""
    outputs = num_subsampled(lengths, factor)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return (np.repeat(np.cumsum(outputs) - outputs, lengths) + within // factor).astype(np.int32)
