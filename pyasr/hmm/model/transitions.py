"""The transition model: Kaldi's transition-states and transition-ids, and their probabilities.

A *transition-state* is a triple (phone, HMM state, pdf). All triples that tree and topology allow are sorted;
transition-states are numbered in this order, here from 0 (Kaldi: from 1). A *transition-id* is an arc out of
a transition-state. Transition-ids are numbered 1, 2, ... in the order of transition-states, within a state in
the order of the topology's arcs. Alignments are sequences of transition-ids.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.hmm.model.topology import NO_PDF, Topology
from pyasr.hmm.model.tree import ContextTree
from pyasr.io.kaldi_objects import KaldiReader, KaldiWriter

_LOWEST_PROB = 1.0e-10


class TransitionModel:
    """Transition-ids of a topology and a tree.

    Arrays over transition-ids (index 0 is unused, length num_tids + 1):
        tid2state int32 (transition-state), tid2pdf int32, tid2phone int32, tid2hmm_state int32,
        tid2pdf_class int32, tid2next_hmm_state int32 (where the arc leads), tid2index int32 (which arc of its
        state), is_self_loop bool, is_final bool (the arc leaves the phone), log_prob float64
    Arrays over transition-states (num_states):
        tuples int32 (num_states, 3): phone, HMM state, pdf; first_tid int32 (num_states + 1);
        self_loop_tid int32 (0 if none); self_loop_log_prob float64 (-inf if none);
        non_self_loop_log_prob float64: log(1 - p(self-loop)), 0 if none
    """

    def __init__(self, topology: Topology, tuples: np.ndarray, log_prob: np.ndarray | None = None):
        self.topology, self.tuples = topology, np.asarray(tuples, np.int32).reshape(-1, 3)
        self.num_states = len(self.tuples)
        self.num_pdfs = int(self.tuples[:, 2].max()) + 1
        self._state_of: dict[tuple, int] | None = None
        self._number()
        self._set_log_prob(self._initial_log_prob if log_prob is None else np.asarray(log_prob, np.float64))

    @classmethod
    def from_tree(cls, topology: Topology, tree: ContextTree) -> TransitionModel:
        """All triples that `tree` allows for the phones of `topology`; probabilities are the topology's."""
        tuples: set[tuple[int, int, int]] = set()
        for phone in topology.phones:
            pdfs = [tree.reachable(phone, c) for c in range(topology.num_pdf_classes(phone))]
            if not all(pdfs):
                raise UserError(
                    f"the tree has no pdf for phone {phone}; it was built for other phones; build it again"
                )
            emitting = (
                (number, state)
                for number, state in enumerate(topology.entry(phone))
                if state.pdf_class != NO_PDF
            )
            tuples.update((phone, number, pdf) for number, state in emitting for pdf in pdfs[state.pdf_class])
        return cls(topology, np.array(sorted(tuples), np.int32))

    def _number(self) -> None:
        """The arrays over transition-ids that follow from topology and tuples."""
        rows = [(-1, 0, 0, 0, 0, False, False, 1.0)]
        for state, (phone, hmm_state, _) in enumerate(self.tuples.tolist()):
            entry = self.topology.entry(phone)
            for index, (destination, probability) in enumerate(entry[hmm_state].transitions):
                is_loop, is_final = destination == hmm_state, destination == len(entry) - 1
                rows.append(
                    (
                        state,
                        index,
                        hmm_state,
                        entry[hmm_state].pdf_class,
                        destination,
                        is_loop,
                        is_final,
                        probability,
                    )
                )
        columns = list(zip(*rows))
        self.tid2state, self.tid2index, self.tid2hmm_state, self.tid2pdf_class, self.tid2next_hmm_state = (
            np.array(columns[:5], np.int32)
        )
        self.is_self_loop, self.is_final = (np.array(column) for column in columns[5:7])
        self._initial_log_prob = np.log(columns[7])
        self.num_tids = len(rows) - 1
        self._number_states()

    def _number_states(self) -> None:
        self.tid2phone, _, self.tid2pdf = self.tuples[self.tid2state].T.copy()
        self.tid2phone[0], self.tid2pdf[0] = 0, -1
        self.first_tid = np.searchsorted(self.tid2state, np.arange(self.num_states + 1)).astype(np.int32)
        self.self_loop_tid = np.zeros(self.num_states, np.int32)
        loops = np.flatnonzero(self.is_self_loop)
        self.self_loop_tid[self.tid2state[loops]] = loops

    def _set_log_prob(self, log_prob: np.ndarray) -> None:
        self.log_prob = log_prob.copy()
        self.log_prob[0] = 0.0
        has_loop = self.self_loop_tid > 0
        self.self_loop_log_prob = np.where(has_loop, self.log_prob[self.self_loop_tid], -np.inf)
        left = np.maximum(-np.expm1(self.self_loop_log_prob), _LOWEST_PROB)
        self.non_self_loop_log_prob = np.where(has_loop, np.log(left), 0.0)

    def transition_states(self, phones, hmm_states, pdfs) -> np.ndarray:
        """Transition-states of triples given as three arrays; -1 where there is none."""
        sizes = self.tuples.max(axis=0).astype(np.int64) + 1
        wanted = np.stack(np.broadcast_arrays(phones, hmm_states, pdfs), axis=-1).astype(np.int64)
        known = ((wanted >= 0) & (wanted < sizes)).all(axis=-1)
        codes, wanted_codes = self.tuples @ _strides(sizes), wanted @ _strides(sizes)
        places = np.minimum(np.searchsorted(codes, wanted_codes), self.num_states - 1)
        return np.where(known & (codes[places] == wanted_codes), places, -1).astype(np.int32)

    def transition_state(self, phone: int, hmm_state: int, pdf: int) -> int:
        """The transition-state of a triple. Raises UserError if the model has none."""
        if self._state_of is None:
            self._state_of = {triple: state for state, triple in enumerate(map(tuple, self.tuples.tolist()))}
        state = self._state_of.get((phone, hmm_state, pdf))
        if state is None:
            found = f"the model has no state {hmm_state} of phone {phone} with pdf {pdf}"
            raise UserError(f"{found}; use tree and final.mdl from the same directory")
        return state

    def tids_of(self, state: int) -> range:
        """The transition-ids of a transition-state, in the order of the topology's arcs."""
        return range(int(self.first_tid[state]), int(self.first_tid[state + 1]))

    def check_alignment(self, alignment: np.ndarray, where: str) -> None:
        """Raise UserError, beginning with `where`, unless all transition-ids are the model's."""
        bad = (alignment < 1) | (alignment > self.num_tids)
        if bad.any():
            frame = int(np.argmax(bad))
            found = (
                f"transition-id {alignment[frame]} in frame {frame}, but the model has 1 to {self.num_tids}"
            )
            raise UserError(f"{where}: {found}; align again with this model")

    def update(self, counts: np.ndarray, floor: float = 0.01, mincount: float = 5.0) -> tuple[float, float]:
        """Set each state's arc probabilities in proportion to `counts` (num_tids + 1,).

        As Kaldi's MleUpdate: states with fewer than `mincount` counts or a single arc do not change; no
        probability is below `floor`. Returns (gain in log-likelihood, counts of all states with several
        arcs).
        """
        counts = np.asarray(counts, np.float64)
        if counts.shape != self.log_prob.shape:
            raise UserError(
                f"counts of {len(counts) - 1} transition-ids for a model with {self.num_tids}; accumulate "
                "again"
            )
        first, state = self.first_tid[:-1], self.tid2state[1:]
        totals = np.add.reduceat(counts, first)[state]
        several = np.diff(self.first_tid)[state] > 1
        change = several & (totals >= mincount)
        probs = _floored(counts[1:] / np.where(change, totals, 1.0), floor, state, first - 1)
        new = self.log_prob.copy()
        new[1:][change] = np.log(probs[change])
        gain = float(np.sum((counts[1:] * (new[1:] - self.log_prob[1:]))[change]))
        self._set_log_prob(new)
        return gain, float(counts[1:][several].sum())

    @classmethod
    def read(cls, path: Path | KaldiReader) -> TransitionModel:
        """Read a TransitionModel at the start of a file or at a reader's position. Raises UserError with file
        and byte offset."""
        reader = path if isinstance(path, KaldiReader) else KaldiReader(path)
        reader.expect("<TransitionModel>")
        topology = Topology.read(reader)
        tuples = _read_tuples(reader, topology)
        model = cls(topology, tuples)
        reader.expect("<LogProbs>")
        before, log_prob = reader.offset, reader.vector()
        if len(log_prob) != model.num_tids + 1 or not (log_prob <= 1e-4).all():
            raise reader.error(
                f"{model.num_tids + 1} log-probabilities were expected, found {len(log_prob)} or values "
                "above 0",
                before,
            )
        reader.expect("</LogProbs>")
        reader.expect("</TransitionModel>")
        model._set_log_prob(log_prob.astype(np.float64))
        return model

    def write(self, path: Path | KaldiWriter, binary: bool = True) -> None:
        """Write in the format that every version of Kaldi reads (<Triples>)."""
        if not isinstance(path, KaldiWriter):
            with KaldiWriter(path, binary) as writer:
                return self.write(writer)
        path.token("<TransitionModel>")
        path.newline()
        self.topology.write(path)
        self._write_tuples(path)
        path.token("<LogProbs>")
        path.vector(self.log_prob.astype(np.float32))
        path.token("</LogProbs>")
        path.newline()
        path.token("</TransitionModel>")
        path.newline()

    def _write_tuples(self, writer: KaldiWriter) -> None:
        writer.token("<Triples>")
        writer.int32(self.num_states)
        writer.newline()
        for row in self.tuples.tolist():
            for value in row:
                writer.int32(value)
            writer.newline()
        writer.token("</Triples>")
        writer.newline()


def _strides(sizes: np.ndarray) -> np.ndarray:
    return np.array([sizes[1] * sizes[2], sizes[2], 1], np.int64)


def _floored(probs: np.ndarray, floor: float, states: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Floored probabilities of each state's arcs, as in Kaldi: three rounds of flooring and normalising."""
    for _ in range(3):
        totals = np.maximum(np.add.reduceat(probs, start), np.finfo(float).tiny)
        probs = np.maximum(probs / totals[states], floor)
    return probs


def _read_tuples(reader: KaldiReader, topology: Topology) -> np.ndarray:
    """Read the triples, or the tuples of newer versions, and check them against the topology."""
    kind, before = reader.expect("<Triples>", "<Tuples>"), reader.offset
    size, width = reader.int32(), 3 if kind == "<Triples>" else 4
    if not 0 < size <= reader.num_left:
        raise reader.error(
            f"{size} transition-states do not fit into the remaining {reader.num_left} bytes; the file is "
            "damaged",
            before,
        )
    tuples = reader.int32s(size * width).reshape(size, width)
    reader.expect(kind.replace("<", "</"))
    if width == 4 and (tuples[:, 2] != tuples[:, 3]).any():
        raise reader.error(
            "separate forward and self-loop pdfs (Kaldi's chain models) are not supported", before
        )
    for phone, state, pdf in tuples[:, :3].tolist():
        if (
            phone not in topology.phone_to_entry
            or not 0 <= state < len(topology.entry(phone)) - 1
            or not 0 <= pdf < reader.num_bytes
        ):
            raise reader.error(
                f"the transition-state (phone {phone}, state {state}, pdf {pdf}) does not match the topology",
                before,
            )
    if (np.diff(tuples[:, :3] @ _strides(tuples[:, :3].max(axis=0) + 1)) <= 0).any():
        raise reader.error("the transition-states are not in ascending order", before)
    return tuples[:, :3].astype(np.int32)
