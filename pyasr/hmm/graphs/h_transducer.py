"""H, the transducer from transition-ids to phones in context, and the self-loops, which are added last.

Self-loops follow the transition that leaves their state ("reordered"): an arc with transition-id t of
transition-state j leads to a graph state with the self-loop of j, so a path is
t, loop, loop, ..., next transition.
"""

from __future__ import annotations

import numpy as np

from pyasr.base.errors import UserError
from pyasr.hmm.graphs.training_graphs import hmms_of_windows
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree
from pyasr.io.openfst import Fst
from pyasr.lang.fst import fst_ops


def _is_window(meaning: list[int]) -> bool:
    """Whether an input label of CLG stands for phones in context, not epsilon or a disambiguation symbol."""
    return len(meaning) > 1 or (len(meaning) == 1 and meaning[0] > 0)


def _window_labels(ilabel_info: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """(labels that stand for windows, their windows (num, N))."""
    labels = np.array([label for label, meaning in enumerate(ilabel_info) if _is_window(meaning)], np.int64)
    return labels, np.array([ilabel_info[label] for label in labels], np.int32)


def merge_equal_contexts(
    clg: Fst, ilabel_info: list[list[int]], trans: TransitionModel, tree: ContextTree
) -> tuple[Fst, list[list[int]]]:
    """(CLG with one input label for all windows with the same HMM, the meanings of the remaining labels)."""
    labels, windows = _window_labels(ilabel_info)
    classes, _ = hmms_of_windows(windows, trans, tree)
    _, firsts = np.unique(classes, return_index=True)
    represented_by = np.arange(len(ilabel_info))
    represented_by[labels] = labels[firsts][classes]
    kept, new_labels = np.unique(represented_by, return_inverse=True)
    return clg.replaced(ilabels=new_labels.astype(np.int32)[clg.ilabels]), [
        ilabel_info[label] for label in kept
    ]


def h_transducer(
    ilabel_info: list[list[int]], trans: TransitionModel, tree: ContextTree, transition_scale: float = 1.0
) -> tuple[Fst, list[int]]:
    """H without self-loops, sorted by output label, and the input labels of its disambiguation symbols (above
    all transition-ids).

    State 0 is initial and final. For each input label of CLG, an HMM of transition-ids leads from state 0
    back to it; its first arcs output the label. An arc of probability p out of a state with self-loop
    probability q costs -scale * ln(p / (1 - q)). Labels with equal HMMs share all arcs except the first.
    Behaves as Kaldi's make-h-transducer, without its epsilons.
    """
    labels, windows = _window_labels(ilabel_info)
    classes, (offsets, tids, _, from_state, to_state) = hmms_of_windows(windows, trans, tree)
    num_states = int(from_state.max()) + 1  # reserved for each HMM
    hmm = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    sources = 1 + num_states * hmm + from_state
    targets = np.where(to_state < 0, 0, 1 + num_states * hmm + to_state)
    costs = transition_scale * (trans.non_self_loop_log_prob[trans.tid2state[tids]] - trans.log_prob[tids])
    inner = Fst.from_arcs(
        1 + num_states * (len(offsets) - 1), 0, sources, tids, np.zeros_like(tids), costs, targets, {0: 0.0}
    )
    first, label_of = _entering_arcs(classes, hmm, from_state)
    with_entries = inner.add_arcs(
        np.zeros_like(first), tids[first], labels[label_of], costs[first], targets[first]
    )
    marks = [label for label, meaning in enumerate(ilabel_info) if label > 0 and not _is_window(meaning)]
    disambig, zeros = trans.num_tids + 1 + np.arange(len(marks)), np.zeros(len(marks), np.int64)
    whole = with_entries.add_arcs(zeros, disambig, np.array(marks, np.int64), zeros, zeros)
    return fst_ops.connect(whole).arcsort("olabel"), disambig.tolist()


def _entering_arcs(
    classes: np.ndarray, hmm: np.ndarray, from_state: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each label, given its HMM in `classes`, the arcs out of the HMM's first state: (arcs, positions of
    their labels in `classes`)."""
    arcs = np.flatnonzero(from_state == 0)
    count = np.bincount(hmm[arcs], minlength=int(classes.max()) + 1)
    begin, repeats = np.cumsum(count) - count, count[classes]
    rank = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    label_of = np.repeat(np.arange(len(classes)), repeats)
    return arcs[begin[classes[label_of]] + rank], label_of


def add_self_loops(fst: Fst, trans: TransitionModel, scale: float = 0.1) -> Fst:
    """The graph with self-loops after the transitions that enter their states (`add-self-loops
    --reorder=true`).

    A graph state that is entered by transition-state j with self-loop probability q gets the loop of j at the
    cost -scale * ln q; its outgoing arcs and its final cost increase by -scale * ln(1 - q). A state that is
    entered by different transition-states is split first. The graph must not have disambiguation symbols.
    """
    if fst.num_arcs and fst.ilabels.max() > trans.num_tids:
        found = (
            f"the graph has the input label {fst.ilabels.max()}, but the model has {trans.num_tids} "
            "transition-ids"
        )
        raise UserError(f"{found}; build the graph from this model")
    if trans.is_self_loop[fst.ilabels].any():
        raise UserError("the graph has self-loops already; give a graph without self-loops")
    entry_of_label = np.r_[-1, trans.tid2state[1:]]
    fst, entry = _split_by_entry(fst, entry_of_label[fst.ilabels])
    leave = np.where(entry >= 0, -scale * trans.non_self_loop_log_prob[entry], 0.0)
    loops = np.where(entry >= 0, trans.self_loop_tid[entry], 0)
    looping = np.flatnonzero(loops)
    loops = loops[looping]
    fst = fst.replaced(weights=fst.weights + leave[fst.sources], finals=fst.finals + leave)
    return fst.add_arcs(looping, loops, np.zeros_like(loops), -scale * trans.log_prob[loops], looping)


def _split_by_entry(fst: Fst, entry: np.ndarray) -> tuple[Fst, np.ndarray]:
    """Make all arcs into a state have the same `entry` (num_arcs). Returns the graph and the common value of
    each state, -1 if none.

    If they differ, the arcs with one value v >= 0 go to a new state with a free epsilon arc to the old one,
    which gets the value -1. The start state counts as entered with -1.
    """
    base = int(entry.max(initial=0)) + 2
    pairs, pair_of_arc = np.unique(fst.nextstates.astype(np.int64) * base + entry + 1, return_inverse=True)
    state, value = pairs // base, pairs % base - 1
    num_values = np.bincount(state, minlength=fst.num_states)
    num_values[fst.start] += not (value[state == fst.start] == -1).any()
    moved = (num_values[state] > 1) & (value >= 0)
    num_new = int(moved.sum())
    target = np.where(moved, fst.num_states + np.cumsum(moved) - 1, state)
    common = np.full(fst.num_states + num_new, -1, np.int64)
    common[target[value >= 0]] = value[value >= 0]
    zeros = np.zeros(num_new, np.int32)
    fst = fst.replaced(nextstates=target[pair_of_arc])
    return fst.add_arcs(
        target[moved], zeros, zeros, zeros, state[moved], np.r_[fst.finals, np.full(num_new, np.inf)]
    ), common
