"""Alignments as sequences of phones: where each phone begins, its context window, and the same alignment for another model.

Two orders of transition-ids are in use. In *reordered* alignments (Kaldi's default, and ours) a state's forward transition comes first
and its self-loops follow; otherwise the self-loops come first. Which one it is can be seen from the alignments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pyasr.base.errors import UserError
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree

_UTTERANCES_PER_GROUP = 1000


@dataclass(frozen=True)
class PhoneSegments:
    """The phones of one or several alignments put end to end.

    tids      int32 (num_frames), the alignments
    phone_of  int32 (num_frames), which phone a frame is in: index into the next two
    phones    int32 (num_phones), phone ids
    starts    int64 (num_phones + 1), first frames
    utts      int32 (num_phones), which alignment a phone is in
    """

    tids: np.ndarray
    phone_of: np.ndarray
    phones: np.ndarray
    starts: np.ndarray
    utts: np.ndarray

    def windows(self, width: int, centre: int) -> np.ndarray:
        """The `width` phones around each phone, which is at `centre`: int32 (num_phones, width); 0 beyond the ends of its utterance."""
        places = np.arange(len(self.phones))[:, None] + np.arange(width) - centre
        inside = (places >= 0) & (places < len(self.phones))
        places = np.where(inside, places, 0)
        inside &= self.utts[places] == self.utts[:, None]
        return np.where(inside, self.phones[places], 0).astype(np.int32)


def split_to_phones(trans: TransitionModel, alignments: Mapping[str, np.ndarray]) -> PhoneSegments:
    """Find the phones of `alignments` (utterance -> transition-ids).

    Raises UserError, naming utterance and frame, for one that is no complete path through the HMMs.
    """
    for key, alignment in alignments.items():
        trans.check_alignment(np.asarray(alignment), f"alignment of {key}")
    lengths = np.array([len(alignment) for alignment in alignments.values()], np.int64)
    tids = np.concatenate([np.zeros(0, np.int32), *alignments.values()]).astype(np.int32)
    utt_of = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    is_first = np.diff(utt_of, prepend=-1) > 0
    is_start, broken = _find_starts(trans, tids, is_first)
    if broken.any():
        frame = int(np.argmax(broken))
        place = frame - int(np.searchsorted(utt_of, utt_of[frame]))
        told = f"alignment of {list(alignments)[utt_of[frame]]}: around frame {place}"
        raise UserError(f"{told} it is no path through the phones' HMMs; align again with this model")
    starts = np.flatnonzero(is_start)
    phone_of = np.cumsum(is_start, dtype=np.int32) - 1
    return PhoneSegments(tids, phone_of, trans.tid2phone[tids[starts]], np.append(starts, len(tids)), utt_of[starts])


def check_decoded(paths: Mapping[str, np.ndarray], trans: TransitionModel,
                  remedy: str = "give lattices that were decoded with this model") -> None:  # fmt: skip
    """Raise UserError, ending with `remedy`, unless these paths of lattices go through the model's HMMs: transition-ids of another model
    may be in its range too.

    A path counts until the last phone that it leaves: in a lattice of a search that ended in no final state another one may have begun.
    """
    try:
        for key, path in paths.items():
            trans.check_alignment(path, key)
        split_to_phones(trans, {key: path[: np.flatnonzero(np.append(True, trans.is_final[path]))[-1]] for key, path in paths.items()})
    except UserError as error:
        told = str(error).partition(";")[0]
        raise UserError(f"{told}; {remedy}") from None


def _find_starts(trans: TransitionModel, tids: np.ndarray, is_first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masks (num_frames): where phones start; where an alignment is broken. `is_first` marks first frames of utterances."""
    state, loop = trans.tid2state[tids], trans.is_self_loop[tids]
    reordered = _is_reordered(state, loop, is_first)
    visit_start = is_first | (~loop if reordered else ~np.append(True, loop[:-1])[: len(tids)])
    starts = np.flatnonzero(visit_start)
    broken = state != state[starts][np.cumsum(visit_start) - 1]
    ends = np.append(starts[1:], len(tids)) - 1
    forward = tids[starts if reordered else ends]
    broken[starts] |= trans.is_self_loop[forward]
    phone, hmm_state, is_final = trans.tid2phone[forward], trans.tid2hmm_state[forward], trans.is_final[forward]
    begins = is_first[starts] | np.append(True, is_final[:-1])[: len(starts)]
    follows = (hmm_state[1:] == trans.tid2next_hmm_state[forward[:-1]]) & (phone[1:] == phone[:-1])
    broken[starts] |= np.where(begins, hmm_state != 0, ~np.append(True, follows)[: len(starts)])
    broken[starts] |= np.append(is_first[starts][1:], True)[: len(starts)] & ~is_final
    is_start = np.zeros(len(tids), bool)
    is_start[starts[begins]] = True
    return is_start, broken


def _is_reordered(state: np.ndarray, loop: np.ndarray, is_first: np.ndarray) -> bool:
    """Whether self-loops stand before a change of state more often than after it, or first of all."""
    changes = (state[1:] != state[:-1]) & ~is_first[1:]
    return (loop[:-1] & changes).sum() >= (loop[1:] & changes).sum() + (loop & is_first).sum()


def convert_alignments(
    old: TransitionModel, new: TransitionModel, tree: ContextTree, alignments: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The same state sequences as transition-ids of the model `new` with its `tree` (Kaldi's convert-ali): int32 (T) per utterance.

    Both models must have the same HMMs for the phones met.
    """
    return dict(iterate_converted(old, new, tree, alignments))


def iterate_converted(
    old: TransitionModel, new: TransitionModel, tree: ContextTree, alignments: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """The same one after the other; an alignment that has been given may be replaced before the next is asked for."""
    for group in groups(alignments):
        tids = _convert(old, new, tree, split_to_phones(old, group))
        ends = np.cumsum([len(alignment) for alignment in group.values()])[:-1]
        yield from zip(group, np.split(tids, ends))


def convert_alignment(old: TransitionModel, new: TransitionModel, tree: ContextTree, alignment: np.ndarray) -> np.ndarray:
    """`convert_alignments` for a single one."""
    return convert_alignments(old, new, tree, {"this utterance": alignment})["this utterance"]


def _convert(old: TransitionModel, new: TransitionModel, tree: ContextTree, segments: PhoneSegments) -> np.ndarray:
    """Each (phone, tid) once: frames of a phone with the same transition-id have the same new one."""
    for phone in np.unique(segments.phones).tolist():
        if not _same_arcs(old.topology.entry(phone), new.topology.entry(phone)):
            raise UserError(f"phone {phone} has different HMMs in the old and the new model; align again instead of converting")
    windows = segments.windows(tree.context_width, tree.central_position)[segments.phone_of]
    pdfs = tree.pdfs(windows, old.tid2pdf_class[segments.tids])
    states = new.transition_states(old.tid2phone[segments.tids], old.tid2hmm_state[segments.tids], pdfs)
    if (states < 0).any():
        raise UserError("the tree gives pdfs that the new model does not have; take tree and final.mdl from the same directory")
    return new.first_tid[states] + old.tid2index[segments.tids]


def _same_arcs(one, other) -> bool:
    """Whether two HMMs differ in probabilities only."""
    def shape(entry):
        return [(state.pdf_class, [destination for destination, _ in state.transitions]) for state in entry]

    return shape(one) == shape(other)


def groups(alignments: Mapping[str, np.ndarray], size: int = _UTTERANCES_PER_GROUP) -> Iterator[dict[str, np.ndarray]]:
    """The alignments in groups of utterances, so that work arrays stay small."""
    keys = list(alignments)
    for first in range(0, len(keys), size):
        yield {key: alignments[key] for key in keys[first : first + size]}
