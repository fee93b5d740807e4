r"""Alignment graphs: the possible sequences of transition-ids of an utterance with known words, and their
costs.

The graph of an utterance is the composition H o C o L o words of Kaldi's compile-train-graphs, in a form
suited to alignment. A *node* is a forward transition (a transition-id that is not a self-loop) at a position
of the utterance. It emits one frame on entry, and one more for every turn of the self-loop of the HMM state
that it leaves ("reordered" graphs: the self-loops follow the forward transition):

    cost(path) = sum over entered nodes [ edge + forward(tid) ] + sum over turns self_loop(tid') + final
    forward(tid)   = -loop_scale ln(1 - p_loop) - transition_scale ln( p_tid / (1 - p_loop) )
    self_loop(tid) = -loop_scale ln p_loop

Edges have only the lexicon's costs (pronunciation and silence probabilities), so graphs do not change when
transition probabilities are re-estimated. A graph takes a fraction of a millisecond: the lexicon's transducer
is composed with the words (all pronunciations, optional silence, everything that L.fst allows), epsilons are
removed, every phone is expanded to its possible contexts, and contexts with equal HMMs are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np

from pyasr.base.errors import UserError
from pyasr.hmm.graphs import training_graph_kernels as kernels
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree
from pyasr.io.openfst import Fst

Key = TypeVar("Key")
_GRAPHS_AT_ONCE = 512


@dataclass(frozen=True)
class TrainingGraph:
    """The nodes of one utterance; the edges of node v are `offsets[v]:offsets[v + 1]`.

    tids        int32 (num_nodes), the forward transition-id of each node
    loops       int32 (num_nodes), the self-loop of the HMM state that it leaves; 0 if none
    offsets     int64 (num_nodes + 1)
    successors  int32 (num_edges)
    costs       float32 (num_edges), graph costs without transition probabilities
    initial     float64 (num_nodes), the cost to begin in a node; inf if impossible
    final       float64 (num_nodes), the cost to end in a node; inf if impossible
    pdfs        int64 (num_pdfs of the utterance), increasing
    node_pdf    int32 (num_nodes), index into `pdfs`
    """

    tids: np.ndarray
    loops: np.ndarray
    offsets: np.ndarray
    successors: np.ndarray
    costs: np.ndarray
    initial: np.ndarray
    final: np.ndarray
    pdfs: np.ndarray
    node_pdf: np.ndarray

    @property
    def num_nodes(self) -> int:
        return len(self.tids)


def transition_costs(
    trans: TransitionModel, transition_scale: float = 1.0, self_loop_scale: float = 0.1
) -> np.ndarray:
    """forward(tid) or self_loop(tid) of every transition-id, float64 (num_tids + 1); index 0 is inf."""
    costs = np.full(trans.num_tids + 1, np.inf)
    log_prob, is_loop = trans.log_prob[1:], trans.is_self_loop[1:]
    leave = trans.non_self_loop_log_prob[trans.tid2state[1:]]
    with np.errstate(invalid="ignore"):
        costs[1:] = np.where(
            is_loop,
            -self_loop_scale * log_prob,
            -self_loop_scale * leave - transition_scale * (log_prob - leave),
        )
    return costs


def hmms_of_windows(windows: np.ndarray, trans: TransitionModel, tree: ContextTree):
    """Windows of phones (n, N) -> (class int32 (n,), `kernels.Hmms`). Windows of one class have the same
    phone and pdfs, thus the same HMM."""
    phones = windows[:, tree.central_position]
    num_states = max(len(entry) - 1 for entry in trans.topology.entries)
    keys = np.full((len(windows), 1 + num_states), -1, np.int64)
    keys[:, 0] = phones
    for phone in np.unique(phones):
        rows = np.flatnonzero(phones == phone)
        for number, state in enumerate(trans.topology.entry(int(phone))[:-1]):
            keys[rows, 1 + number] = tree.pdfs(windows[rows], np.full(len(rows), state.pdf_class))
    distinct, classes = np.unique(keys, axis=0, return_inverse=True)
    return classes.reshape(-1).astype(np.int32), _forward_transitions(distinct, trans)


def _forward_transitions(hmms: np.ndarray, trans: TransitionModel):
    """The forward transitions of HMMs given as rows (phone, pdf of state 0, ...; -1 past the last state)."""
    offsets, rows = [0], []
    for phone, *pdfs in hmms.tolist():
        entry = trans.topology.entry(phone)
        for number in range(len(entry) - 1):
            state = trans.transition_state(phone, number, pdfs[number])
            for tid, (target, _) in zip(trans.tids_of(state), entry[number].transitions):
                if target != number:
                    rows.append(
                        (tid, trans.self_loop_tid[state], number, target if target < len(entry) - 1 else -1)
                    )
        offsets.append(len(rows))
    columns = np.array(rows, np.int32).reshape(-1, 4).T
    return kernels.Hmms(np.array(offsets), *(np.ascontiguousarray(column) for column in columns))


class GraphCompiler:
    """Builds training graphs for one lexicon, transition model and tree. `name_of` returns the word of an id,
    for messages."""

    def __init__(
        self, lexicon: Fst, trans: TransitionModel, tree: ContextTree, name_of: Callable[[int], str] = str
    ):
        if (
            tree.context_width > 3
            or tree.central_position > 1
            or tree.context_width - tree.central_position > 2
        ):
            raise UserError(
                f"the tree has a context of {tree.context_width} phones around position "
                f"{tree.central_position}; training graphs support at most one phone on each side"
            )
        self.trans, self.tree, self._name_of = trans, tree, name_of
        self.use_left = tree.central_position == 1
        self.use_right = tree.context_width - tree.central_position == 2
        self._set_lexicon(lexicon)
        self._base = np.int64(max(int(trans.tid2phone.max()), int(lexicon.ilabels.max(initial=0))) + 1)

    def _set_lexicon(self, lexicon: Fst) -> None:
        lexicon = lexicon.arcsort("olabel")
        self._lexicon = kernels.LexiconArcs(
            lexicon.start,
            lexicon.arc_offsets,
            lexicon.ilabels,
            lexicon.olabels,
            lexicon.weights,
            lexicon.nextstates,
            lexicon.finals,
        )
        shape = (2, lexicon.num_states)
        self._visits = kernels.Visits(
            np.zeros(1, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        )
        self._phones = np.unique(lexicon.ilabels[lexicon.ilabels > 0])
        known = np.unique(self.trans.tid2phone[1:])
        unknown = np.setdiff1d(self._phones, known)
        if len(unknown):
            raise UserError(
                f"the lexicon has phone {unknown[0]}, but the model does not have it; "
                "use the language directory that the model was trained with"
            )

    def compile(self, words: dict[Key, np.ndarray]) -> tuple[dict[Key, TrainingGraph], dict[Key, str]]:
        """(graphs of {utterance: word ids}, {utterance: reason} for those without a graph)."""
        graphs, failed, phone_graphs = {}, {}, {}
        for utterance, ids in words.items():
            made = self._phone_graph(np.asarray(ids, np.int64))
            if isinstance(made, str):
                failed[utterance] = made
            else:
                phone_graphs[utterance] = made
        distinct, classes, hmms = self._classes([codes for *_, codes in phone_graphs.values()])
        for utterance, parts in phone_graphs.items():
            graphs[utterance] = self._expand(parts, distinct, classes, hmms)
        return graphs, failed

    def graphs(self, words: Iterable[tuple[Key, np.ndarray]]) -> Iterator[tuple[Key, TrainingGraph]]:
        """(key, graph) of (key, word ids) pairs, without those for which there is no graph. Few graphs are in
        memory at the same time."""
        words = iter(words)
        while group := dict(islice(words, _GRAPHS_AT_ONCE)):
            yield from self.compile(group)[0].items()

    def failures(self, words: dict[str, np.ndarray]) -> dict[str, str]:
        """{utterance: reason} for those of {utterance: word ids} for which `compile` builds no graph."""
        made = ((utterance, self._phone_graph(np.asarray(ids, np.int64))) for utterance, ids in words.items())
        return {utterance: found for utterance, found in made if isinstance(found, str)}

    def _phone_graph(self, ids: np.ndarray):
        """(phones, edges, neighbours, window offsets, window codes), or the reason why there is no graph."""
        passed, *composed = kernels.compose_words(ids, self._lexicon, self._visits)
        if len(ids) == 0:
            return "its transcript is empty"
        if passed < len(ids):
            return f"word '{self._name_of(int(ids[passed]))}' has no pronunciation in the lexicon"
        ok, *graph = kernels.phone_windows(*composed, self.use_left, self.use_right, self._base)
        if not ok:
            return "the lexicon has a cycle of epsilons"
        if not np.isfinite(graph[1].initial).any():
            return "its words have no phones"
        return graph

    def _classes(self, codes: list[np.ndarray]):
        """All window codes that occur, increasing, the HMM class of each, and the forward transitions of the
        classes."""
        distinct = np.unique(np.concatenate(codes)) if codes else np.zeros(0, np.int64)
        left = distinct // self._base**2
        phones = distinct // self._base % self._base
        right = distinct % self._base
        columns = [left] * self.use_left + [phones] + [right] * self.use_right
        return distinct, *hmms_of_windows(np.stack(columns, axis=1), self.trans, self.tree)

    def _expand(self, parts, distinct: np.ndarray, classes: np.ndarray, hmms) -> TrainingGraph:
        phones, edges, around, code_offsets, codes = parts
        window_classes = classes[np.searchsorted(distinct, codes)]
        tids, loops, offsets, successors, costs, initial, final = kernels.expanded(
            phones, edges, around, code_offsets, window_classes, hmms, self.use_left, self.use_right
        )
        pdfs, node_pdf = np.unique(self.trans.tid2pdf[tids], return_inverse=True)
        return TrainingGraph(
            tids,
            loops,
            offsets,
            successors,
            costs,
            initial,
            final,
            pdfs.astype(np.int64),
            node_pdf.astype(np.int32),
        )
