"""Statistics for decision trees: one Gaussian's sums for each phone in context and pdf-class that occurs in
the data.

An *event* is (window of N phones, pdf-class). Over the frames x aligned to an event: n = count, sum x, sum
x². The log-likelihood of a set of events under one Gaussian with diagonal covariance, estimated on them, is
(D dimensions)

    L = - n/2 ( D log 2 pi + sum_d [ log v_d + s_d / v_d ] )
    s_d = (sum x_d²)/n - ((sum x_d)/n)²,   v_d = max(s_d, floor)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import PDF_CLASS
from pyasr.hmm.trees.phone_segments import groups, split_to_phones
from pyasr.io.mapped_files.arrays import load_arrays, save_arrays

UNKNOWN = -1
VAR_FLOOR = 0.01
_TAG, _MESSAGE_BYTES = 1, 1 << 24


@dataclass(frozen=True)
class TreeStats:
    """Sums for each event, in ascending order of events.

    central_position  position of the central phone in the window
    events            int32 (num_events, N + 1): the window, then the pdf-class; UNKNOWN around
                      context-independent phones
    sums              float64 (num_events, 1 + 2 D): count, sum x, sum x²
    """

    central_position: int
    events: np.ndarray
    sums: np.ndarray

    @property
    def context_width(self) -> int:
        """Number of phones in a window."""
        return self.events.shape[1] - 1

    @property
    def num_frames(self) -> float:
        """Number of frames, a float as in Kaldi."""
        return float(self.sums[:, 0].sum())

    def key(self, key: int) -> np.ndarray:
        """The value of a key (position in the window, or PDF_CLASS) in every event."""
        return self.events[:, key if key != PDF_CLASS else -1]

    def select(self, mask: np.ndarray) -> TreeStats:
        """The statistics of the events in `mask`."""
        return TreeStats(self.central_position, self.events[mask], self.sums[mask])

    @classmethod
    def add(cls, parts: Iterable[TreeStats]) -> TreeStats:
        """Sum of the statistics of all parts (jobs, ranks)."""
        parts = list(parts)
        if len({(part.central_position, part.events.shape[1], part.sums.shape[1]) for part in parts}) != 1:
            raise UserError(
                "tree statistics of different windows or feature dimensions cannot be added; accumulate "
                "them again"
            )
        events, index = np.unique(
            np.concatenate([part.events for part in parts]), axis=0, return_inverse=True
        )
        sums = np.zeros((len(events), parts[0].sums.shape[1]))
        for part, rows in zip(
            parts, np.split(index.ravel(), np.cumsum([len(part.events) for part in parts])[:-1])
        ):
            _add_rows(part.sums, rows, sums)
        return cls(parts[0].central_position, events, sums)

    def save(self, path: Path) -> None:
        """Write a file for `load`, atomically."""
        save_arrays(
            path, central_position=np.array(self.central_position), events=self.events, sums=self.sums
        )

    @classmethod
    def load(cls, path: Path) -> TreeStats:
        """Read a file of `save`. Raises UserError for any other file."""
        content = load_arrays(
            path, ("central_position", "events", "sums"), "accumulate the tree statistics again"
        )
        return cls(int(content["central_position"]), content["events"], content["sums"])


def accumulate_tree_stats(
    trans: TransitionModel,
    alignments: Mapping[str, np.ndarray],
    feats,
    ci_phones: Iterable[int] = (),
    context_width: int = 3,
    central_position: int = 1,
) -> TreeStats:
    """Statistics of the utterances of `alignments`, as Kaldi's acc-tree-stats.

    alignments  utterance -> transition-ids (T)
    feats       object with feats[utterance] -> float32 (T, D); each utterance is read once
    ci_phones   context-independent phones: their windows are UNKNOWN except for the phone itself

    Raises UserError if lengths of features and alignments differ, if there are no alignments, or if phones or
    context do not fit into the codes of events.
    """
    _check_events_fit(trans, context_width)
    ci_phones = np.array(sorted(ci_phones), np.int32)

    def codes_of(group: Mapping[str, np.ndarray]) -> np.ndarray:
        return _frame_codes(trans, group, ci_phones, context_width, central_position)

    codes = np.unique(
        np.concatenate([np.zeros(0, np.int64), *(np.unique(codes_of(group)) for group in groups(alignments))])
    )
    sums = None
    for group in groups(alignments):  # second pass, with the codes of one group in memory
        numbers, end = np.searchsorted(codes, codes_of(group)), 0
        for utt, tids in group.items():
            x, begin, end = np.ascontiguousarray(feats[utt], np.float32), end, end + len(tids)
            _check_length(utt, len(tids), len(x))
            sums = np.zeros((len(codes), 1 + 2 * x.shape[1])) if sums is None else sums
            _add_frames(x, numbers[begin:end], sums)
    if sums is None:
        raise UserError("there are no alignments to build a tree from; align the data directory first")
    return TreeStats(central_position, _unpacked(codes, context_width), sums)


def _check_length(utt: str, num_aligned: int, num_frames: int) -> None:
    if num_aligned != num_frames:
        found = f"{num_aligned} frames in its alignment, {num_frames} in its features"
        raise UserError(f"utterance {utt}: {found}; align again with these features")


def _frame_codes(trans, group, ci_phones, width, centre) -> np.ndarray:
    """The rows of `TreeStats.events` of all frames of a group, each packed into one int64."""
    segments = split_to_phones(trans, group)
    windows = segments.windows(width, centre)
    around = np.arange(width) != centre
    windows[np.isin(segments.phones, ci_phones)[:, None] & around] = UNKNOWN
    codes = np.zeros(len(segments.tids), np.int64)
    for column in windows.T:
        codes = codes * _RADIX + column[segments.phone_of] + 1
    return codes * _RADIX + trans.tid2pdf_class[segments.tids]


_RADIX = 2**15  # four digits fit an int64


def _check_events_fit(trans: TransitionModel, width: int) -> None:
    if (width + 1) * np.log2(_RADIX) >= 63:
        raise UserError(f"a context of {width} phones is too wide for the tree statistics; use 3")
    last = trans.topology.phones[-1]
    if last + 1 >= _RADIX:
        found = f"the topology has a phone {last}, but the tree statistics support phones up to {_RADIX - 2}"
        raise UserError(
            f"{found}; build the language directory with fewer phones, or with --position-dependent-phones "
            "false"
        )


def _unpacked(codes: np.ndarray, width: int) -> np.ndarray:
    """The events of `_frame_codes`, int32 (num_events, width + 1)."""
    digits = [codes // _RADIX**power % _RADIX - (power > 0) for power in range(width, -1, -1)]
    return np.stack(digits, axis=1).astype(np.int32)


def reduced(own: TreeStats | None, comm) -> TreeStats | None:
    """The sum of the statistics of all ranks on rank 0, None elsewhere. `own` is None on a rank without
    statistics.

    Rank 0 adds the statistics of one rank after the other, received in messages of up to 16 MB. Every rank
    must call this.
    """
    if comm.rank > 0:
        shape = [*own.events.shape, own.sums.shape[1], own.central_position] if own else [0, 0, 0, 0]
        comm.send(np.array(shape, np.int64), 0, _TAG)
        for array in (own.events, own.sums) if own else ():
            for piece in _pieces(array):
                comm.send(piece, 0, _TAG)
        return None
    total = own
    for rank in range(1, comm.size):
        part = _receive(comm, rank)
        total = TreeStats.add([total, part]) if total and part else total or part
    return total


def _receive(comm, rank: int) -> TreeStats | None:
    """Receive the statistics that `reduced` sends on `rank`."""
    shape = np.empty(4, np.int64)
    comm.receive(shape, _TAG, rank)
    num_events, width, columns, central_position = shape.tolist()
    if not num_events:
        return None
    events, sums = np.empty((num_events, width), np.int32), np.empty((num_events, columns))
    for array in (events, sums):
        for piece in _pieces(array):
            comm.receive(piece, _TAG, rank)
    return TreeStats(central_position, events, sums)


def _pieces(array: np.ndarray) -> list[np.ndarray]:
    """Views of consecutive rows, of up to 16 MB each."""
    rows = max(_MESSAGE_BYTES // array[:1].nbytes, 1)
    return [array[begin : begin + rows] for begin in range(0, len(array), rows)]


def log_likelihood(sums: np.ndarray, var_floor: float = VAR_FLOOR) -> np.ndarray:
    """L of rows (count, sum x, sum x²): (..., 1 + 2 D) -> (...); 0 for a count of 0."""
    dim = sums.shape[-1] // 2
    count = sums[..., :1]
    safe = np.where(count > 0, count, 1.0)
    variance = sums[..., 1 + dim :] / safe - (sums[..., 1 : 1 + dim] / safe) ** 2
    floored = np.maximum(variance, var_floor)
    terms = np.sum(np.log(floored) + variance / floored, axis=-1)
    return np.where(count[..., 0] > 0, -0.5 * count[..., 0] * (dim * np.log(2 * np.pi) + terms), 0.0)


def sums_by(sums: np.ndarray, index: np.ndarray, size: int) -> np.ndarray:
    """Sums of the rows with the same `index`: (size, columns)."""
    out = np.zeros((size, sums.shape[1]))
    _add_rows(sums, np.asarray(index), out)
    return out


@njit(nogil=True, cache=True)
def _add_rows(rows, index, out):
    for i in range(len(rows)):
        for j in range(rows.shape[1]):
            out[index[i], j] += rows[i, j]


@njit(nogil=True, cache=True)
def _add_frames(x, index, sums):
    dim = x.shape[1]
    for t in range(len(x)):
        row = sums[index[t]]
        row[0] += 1.0
        for d in range(dim):
            value = np.float64(x[t, d])
            row[1 + d] += value
            row[1 + dim + d] += value * value
