"""Expansion of a phone language model into an HMM whose arcs emit pdfs: each phone in context gets its HMM,
then equal states are merged.

A state means "this HMM state has just emitted a frame, and the phone's arc leads to that state of the
language model": an arc into it emits its pdf. Every arc has a pdf, so paths of T arcs are the state sequences
of T frames.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from pyasr.base.errors import UserError
from pyasr.hmm.graphs.training_graphs import hmms_of_windows
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree
from pyasr.io.openfst import Fst
from pyasr.lang.fst import fst_kernels, fst_ops

_WEIGHT_STEP = 1e-5  # log-probabilities that differ by less count as equal when states are merged


@dataclass(frozen=True)
class PdfArcs:
    """A weighted acceptor of pdfs; state 0 is the start.

    sources, targets, pdfs  int64 (num_arcs)
    probs   float64 (num_arcs)
    finals  float64 (num_states), final probabilities; 0 for states that are not final
    """

    sources: np.ndarray
    targets: np.ndarray
    pdfs: np.ndarray
    probs: np.ndarray
    finals: np.ndarray

    @property
    def num_states(self) -> int:
        """Number of states, including the start."""
        return len(self.finals)


@dataclass(frozen=True)
class HmmTable:
    """HMMs by number and state j of J, the maximum number of states in the topology.

    pdfs   int64 (num_hmms, J); -1 past an HMM's last state
    inner  float64 (num_hmms, J, J): probabilities between emitting states, self-loops on the diagonal
    leave  float64 (num_hmms, J): probability to leave the phone
    """

    pdfs: np.ndarray
    inner: np.ndarray
    leave: np.ndarray

    def __getitem__(self, numbers: np.ndarray) -> HmmTable:
        """The HMMs with these numbers, in this order."""
        return HmmTable(self.pdfs[numbers], self.inner[numbers], self.leave[numbers])

    def __add__(self, other: HmmTable) -> HmmTable:
        """The HMMs of both tables."""
        return HmmTable(
            np.r_[self.pdfs, other.pdfs], np.r_[self.inner, other.inner], np.r_[self.leave, other.leave]
        )


def hmm_table(trans: TransitionModel, hmms: tuple[np.ndarray, ...]) -> HmmTable:
    """The HMMs that `hmms_of_windows` returns as forward transitions, with their probabilities, numbered by
    its classes."""
    offsets, tids, loops, from_state, to_state = hmms
    num_hmms, size = len(offsets) - 1, max(len(entry) - 1 for entry in trans.topology.entries)
    table = HmmTable(
        np.full((num_hmms, size), -1), np.zeros((num_hmms, size, size)), np.zeros((num_hmms, size))
    )
    hmm, leaves = np.repeat(np.arange(num_hmms), np.diff(offsets)), to_state < 0
    table.pdfs[hmm, from_state] = trans.tid2pdf[tids]
    probs = np.exp(trans.log_prob)
    table.inner[hmm[~leaves], from_state[~leaves], to_state[~leaves]] = probs[tids[~leaves]]
    table.leave[hmm[leaves], from_state[leaves]] = probs[tids[leaves]]
    looping = loops > 0
    table.inner[hmm[looping], from_state[looping], from_state[looping]] = probs[loops[looping]]
    return table


class HmmsOfWindows:
    """The HMMs of phones in context; each is looked up in the tree once, on first use."""

    def __init__(self, trans: TransitionModel, tree: ContextTree):
        self.trans, self.tree = trans, tree
        self._numbers: dict[bytes, int] = {}
        self._table = hmm_table(
            trans, hmms_of_windows(np.zeros((0, tree.context_width), np.int32), trans, tree)[1]
        )

    def of(self, windows: np.ndarray) -> HmmTable:
        """The HMMs of windows of phones (n, N), in this order."""
        names = [window.tobytes() for window in windows]
        places = [place for place, name in enumerate(names) if name not in self._numbers]
        if places:
            distinct, numbers = np.unique(windows[places], axis=0), itertools.count(len(self._numbers))
            classes, hmms = hmms_of_windows(distinct, self.trans, self.tree)
            self._table += hmm_table(self.trans, hmms)[classes]
            self._numbers.update(zip((window.tobytes() for window in distinct), numbers))
        return self._table[np.array([self._numbers[name] for name in names])]


def expand_phone_lm(phone_lm: Fst, trans: TransitionModel, tree: ContextTree) -> PdfArcs:
    """Expand `phone_lm`, an acceptor without epsilons, by tree and HMMs into arcs with pdfs. Raises UserError
    for unknown phones."""
    unknown = np.setdiff1d(phone_lm.ilabels, trans.tid2phone[1:])
    if len(unknown):
        raise UserError(
            f"the model does not have phone {unknown[0]} of the phone language model: estimate it from this "
            "model's alignments"
        )
    clg, info = fst_ops.compose_context(phone_lm, [], tree.context_width, tree.central_position)
    entering, phones = _split_off_delay(clg)
    windows = np.array([info[label] for label in phones.ilabels.tolist()], np.int32)
    classes, hmms = hmms_of_windows(windows, trans, tree)
    return trim(_glue(phones, entering, classes, hmm_table(trans, hmms)))


def _split_off_delay(clg: Fst) -> tuple[np.ndarray, Fst]:
    """(initial probabilities of states, float64 (num_states); the arcs with phones).

    If the tree has right context, the first arcs of C only read phones and have no window.
    """
    entering = np.zeros(clg.num_states)
    entering[clg.start] = 1.0
    silent = clg.ilabels == 0
    while entering[clg.sources[silent]].any():
        taken = np.flatnonzero(silent & (entering[clg.sources] > 0))
        moved = np.bincount(
            clg.nextstates[taken], entering[clg.sources[taken]] * np.exp(-clg.weights[taken]), clg.num_states
        )
        entering[clg.sources[taken]] = 0.0
        entering += moved
    return entering, clg.keep_arcs(~silent)


def _glue(phones: Fst, entering: np.ndarray, classes: np.ndarray, hmms: HmmTable) -> PdfArcs:
    """Replace phone arcs by HMMs; state 1 + q J + j is state j of the HMM in the q-th distinct pair of HMM
    and next state."""
    size = hmms.pdfs.shape[1]
    pairs, place = np.unique(np.stack([classes, phones.nextstates]), axis=1, return_inverse=True)
    place, (hmm, after) = place.reshape(-1), pairs
    first_state = 1 + size * place
    inner_place, j, k = np.nonzero(hmms.inner[hmm])
    left_place, left_j = np.nonzero(hmms.leave[hmm])
    parts = [
        (
            1 + size * inner_place + j,
            1 + size * inner_place + k,
            hmms.pdfs[hmm[inner_place], k],
            hmms.inner[hmm[inner_place], j, k],
        )
    ]
    ways_out = [
        (1 + size * left_place + left_j, after[left_place], hmms.leave[hmm[left_place], left_j]),
        (np.zeros(np.count_nonzero(entering), np.int64), np.flatnonzero(entering), entering[entering > 0]),
    ]
    for sources, lm_states, probs in ways_out:
        way, arc = _arcs_of(phones, lm_states)
        parts.append(
            (
                sources[way],
                first_state[arc],
                hmms.pdfs[classes[arc], 0],
                probs[way] * np.exp(-phones.weights[arc].astype(float)),
            )
        )
    finals = np.zeros(1 + size * len(hmm))
    finals[ways_out[0][0]] = ways_out[0][2] * np.exp(-phones.finals[ways_out[0][1]].astype(float))
    sources, targets, pdfs, probs = (np.concatenate(columns) for columns in zip(*parts))
    return PdfArcs(sources, targets, pdfs, probs, finals)


def _arcs_of(fst: Fst, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(index into `states`, arc) for all arcs out of each of `states`."""
    count = fst.num_arcs_out[states]
    index = np.repeat(np.arange(len(states)), count)
    return index, fst.arc_offsets[states][index] + np.arange(len(index)) - (np.cumsum(count) - count)[index]


def trim(arcs: PdfArcs) -> PdfArcs:
    """The arcs on paths from the start to an end. Raises UserError if there are none."""
    costs = np.where(arcs.finals > 0, 0.0, np.inf)
    fst = Fst.from_arcs(
        arcs.num_states, 0, arcs.sources, arcs.pdfs, arcs.pdfs, arcs.probs, arcs.targets, costs
    )
    keep = fst_kernels.reachable(0, fst.arc_offsets, fst.nextstates) & fst_kernels.coreachable(
        fst.sources, fst.nextstates, fst.finals
    )
    if not keep[0]:
        raise UserError("the phone language model has no complete path through the HMMs")
    number = np.cumsum(keep) - 1
    kept = keep[arcs.sources] & keep[arcs.targets]
    return PdfArcs(
        number[arcs.sources[kept]],
        number[arcs.targets[kept]],
        arcs.pdfs[kept],
        arcs.probs[kept],
        arcs.finals[keep],
    )


def join_equal_states(arcs: PdfArcs) -> PdfArcs:
    """Merge states from which all strings of pdfs have the same probabilities because their arcs are the same
    (bisimulation).

    The partition of states by their final probabilities is refined by the arcs into the parts, until no part
    is divided any further. State 0 remains the start.
    """
    parts, num_parts = _ranks(_rounded_log(arcs.finals)), 0
    while parts.max() + 1 > num_parts:
        num_parts = int(parts.max()) + 1
        sources, pdfs, targets, probs = _summed(arcs.sources, arcs.pdfs, parts[arcs.targets], arcs.probs)
        hashes = _mixed(
            _mixed(_mixed(pdfs) + targets.astype(np.uint64)) + _rounded_log(probs).astype(np.uint64)
        )
        sums = np.zeros(arcs.num_states, np.uint64)
        np.add.at(sums, sources, hashes)
        parts = _ranks(_mixed(sums + _mixed(parts)))
    return _quotient(arcs, parts)


def _quotient(arcs: PdfArcs, parts: np.ndarray) -> PdfArcs:
    """One state for each part, with the arcs of its first member; the part of state 0 becomes state 0."""
    _, first = np.unique(parts, return_index=True)
    number = _ranks(first)[parts]
    chosen = np.isin(arcs.sources, first)
    ends = number[arcs.sources[chosen]], number[arcs.targets[chosen]]
    sources, pdfs, targets, probs = _summed(ends[0], arcs.pdfs[chosen], ends[1], arcs.probs[chosen])
    return PdfArcs(sources, targets, pdfs, probs, arcs.finals[np.sort(first)])


def _summed(sources, pdfs, targets, probs):
    """Merge arcs with the same source, pdf and target; probabilities are added."""
    (sources, pdfs, targets), index = np.unique(
        np.stack([sources, pdfs, targets]), axis=1, return_inverse=True
    )
    return sources, pdfs, targets, np.bincount(index.reshape(-1), probs)


def _ranks(values: np.ndarray) -> np.ndarray:
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def _rounded_log(probs: np.ndarray) -> np.ndarray:
    return np.round(np.log(np.maximum(probs, 1e-300)) / _WEIGHT_STEP).astype(np.int64)


def _mixed(values: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each integer (the finaliser of D. Lea and S. Vigna's splitmix64)."""
    z = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
