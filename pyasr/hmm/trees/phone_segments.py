"""Alignments as sequences of phones: the start of each phone, its context window, and the conversion of
alignments to another model.

Two orders of transition-ids are in use. In *reordered* alignments (Kaldi's default, and ours) a state's
forward transition comes first and its self-loops follow; otherwise the self-loops come first. The order is
detected from the alignments.
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
    """The phones of one or several concatenated alignments.

    tids      int32 (num_frames), the alignments
    phone_of  int32 (num_frames), the phone of each frame, an index into `phones` and `starts`
    phones    int32 (num_phones), phone ids
    starts    int64 (num_phones + 1), first frame of each phone, and num_frames
    utts      int32 (num_phones), index of the alignment of each phone
    """

    tids: np.ndarray
    phone_of: np.ndarray
    phones: np.ndarray
    starts: np.ndarray
    utts: np.ndarray

    def windows(self, width: int, centre: int) -> np.ndarray:
        """The window of `width` phones with each phone at position `centre`, int32 (num_phones, width); 0
        outside its utterance."""
        places = np.arange(len(self.phones))[:, None] + np.arange(width) - centre
        inside = (places >= 0) & (places < len(self.phones))
        places = np.where(inside, places, 0)
        inside &= self.utts[places] == self.utts[:, None]
        return np.where(inside, self.phones[places], 0).astype(np.int32)


def split_to_phones(trans: TransitionModel, alignments: Mapping[str, np.ndarray]) -> PhoneSegments:
    """Find the phones of `alignments` (utterance -> transition-ids).

    Raises UserError, naming utterance and frame, for an alignment that is not a complete path through the
    HMMs.
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
        where = f"alignment of {list(alignments)[utt_of[frame]]}"
        raise UserError(
            f"{where}: not a path through the phones' HMMs around frame {place}; align again with this model"
        )
    starts = np.flatnonzero(is_start)
    phone_of = np.cumsum(is_start, dtype=np.int32) - 1
    return PhoneSegments(
        tids, phone_of, trans.tid2phone[tids[starts]], np.append(starts, len(tids)), utt_of[starts]
    )


def check_decoded(
    paths: Mapping[str, np.ndarray],
    trans: TransitionModel,
    remedy: str = "give lattices that were decoded with this model",
) -> None:
    """Raise UserError, ending with `remedy`, unless these lattice paths are paths through the model's HMMs.
    The range of transition-ids is not enough to detect those of another model.

    A path is checked up to the last complete phone: if the search ended in no final state, a lattice may end
    within a phone.
    """
    try:
        for key, path in paths.items():
            trans.check_alignment(path, key)
        split_to_phones(
            trans,
            {
                key: path[: np.flatnonzero(np.append(True, trans.is_final[path]))[-1]]
                for key, path in paths.items()
            },
        )
    except UserError as error:
        found = str(error).partition(";")[0]
        raise UserError(f"{found}; {remedy}") from None


def _find_starts(
    trans: TransitionModel, tids: np.ndarray, is_first: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Masks (num_frames) of the frames at which phones start, and at which an alignment is not a path.
    `is_first`: mask of the first frames of utterances."""
    state, loop = trans.tid2state[tids], trans.is_self_loop[tids]
    reordered = _is_reordered(state, loop, is_first)
    visit_start = is_first | (~loop if reordered else ~np.append(True, loop[:-1])[: len(tids)])
    starts = np.flatnonzero(visit_start)
    broken = state != state[starts][np.cumsum(visit_start) - 1]
    ends = np.append(starts[1:], len(tids)) - 1
    forward = tids[starts if reordered else ends]
    broken[starts] |= trans.is_self_loop[forward]
    phone = trans.tid2phone[forward]
    hmm_state = trans.tid2hmm_state[forward]
    is_final = trans.is_final[forward]
    begins = is_first[starts] | np.append(True, is_final[:-1])[: len(starts)]
    follows = (hmm_state[1:] == trans.tid2next_hmm_state[forward[:-1]]) & (phone[1:] == phone[:-1])
    broken[starts] |= np.where(begins, hmm_state != 0, ~np.append(True, follows)[: len(starts)])
    broken[starts] |= np.append(is_first[starts][1:], True)[: len(starts)] & ~is_final
    is_start = np.zeros(len(tids), bool)
    is_start[starts[begins]] = True
    return is_start, broken


def _is_reordered(state: np.ndarray, loop: np.ndarray, is_first: np.ndarray) -> bool:
    """Whether self-loops are before a change of state at least as often as after a change or at the start of
    an utterance."""
    changes = (state[1:] != state[:-1]) & ~is_first[1:]
    return (loop[:-1] & changes).sum() >= (loop[1:] & changes).sum() + (loop & is_first).sum()


def convert_alignments(
    old: TransitionModel, new: TransitionModel, tree: ContextTree, alignments: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The same state sequences as transition-ids of the model `new` with its `tree` (Kaldi's convert-ali):
    int32 (T) per utterance.

    Both models must have the same HMMs for the phones that occur.
    """
    return dict(iterate_converted(old, new, tree, alignments))


def iterate_converted(
    old: TransitionModel, new: TransitionModel, tree: ContextTree, alignments: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """`convert_alignments`, one utterance after the other. The caller may overwrite an alignment before it
    requests the next."""
    for group in groups(alignments):
        tids = _convert(old, new, tree, split_to_phones(old, group))
        ends = np.cumsum([len(alignment) for alignment in group.values()])[:-1]
        yield from zip(group, np.split(tids, ends))


def _convert(
    old: TransitionModel, new: TransitionModel, tree: ContextTree, segments: PhoneSegments
) -> np.ndarray:
    """The transition-ids of the model `new` for all frames of `segments`, int32 (num_frames)."""
    for phone in np.unique(segments.phones).tolist():
        if not _same_arcs(old.topology.entry(phone), new.topology.entry(phone)):
            raise UserError(
                f"phone {phone} has different HMMs in the old and the new model; align again instead of "
                "converting"
            )
    windows = segments.windows(tree.context_width, tree.central_position)[segments.phone_of]
    pdfs = tree.pdfs(windows, old.tid2pdf_class[segments.tids])
    states = new.transition_states(old.tid2phone[segments.tids], old.tid2hmm_state[segments.tids], pdfs)
    if (states < 0).any():
        raise UserError(
            "the tree gives pdfs that the new model does not have; use tree and final.mdl from the same "
            "directory"
        )
    return new.first_tid[states] + old.tid2index[segments.tids]


def _same_arcs(one, other) -> bool:
    """Whether two HMMs differ only in probabilities."""

    def shape(entry):
        return [(state.pdf_class, [destination for destination, _ in state.transitions]) for state in entry]

    return shape(one) == shape(other)


def groups(
    alignments: Mapping[str, np.ndarray], size: int = _UTTERANCES_PER_GROUP
) -> Iterator[dict[str, np.ndarray]]:
    """The alignments in groups of utterances, to keep work arrays small."""
    keys = list(alignments)
    for first in range(0, len(keys), size):
        yield {key: alignments[key] for key in keys[first : first + size]}
