"""The frames of a shard, grouped by pdf for statistics, within a limit of memory.

Utterances are read in *rounds*. Each round reads all utterances and collects the frames of some pdfs, in time
order. A pdf with more frames than a block gets a buffer of one block, which is yielded whenever it is full.
The frames of each block, and the order of the blocks of a pdf, are therefore independent of the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.hmm.model.gmm_update import FRAMES_PER_BLOCK

_NO_LIMIT = np.iinfo(np.int64).max


class Source(Protocol):
    """Utterances 0 .. num_utterances - 1 with frames of `width` columns."""

    @property
    def num_utterances(self) -> int:
        """Number of utterances."""

    @property
    def width(self) -> int:
        """Number of columns."""

    def pdfs(self, index: int) -> np.ndarray:
        """The pdf of each frame of an utterance, int32 (T), -1 for frames that are skipped."""

    def features(self, index: int) -> np.ndarray:
        """The frames of an utterance, float32 (T, width)."""


def in_rounds(
    source: Source, counts: np.ndarray, most_rows: int, in_order: bool = False
) -> Iterator[tuple[int, np.ndarray]]:
    """Blocks (pdf, frames (T, width)), each valid until the next one is requested.

    counts     number of frames of each pdf, int64 (num_pdfs)
    most_rows  maximum number of frames in memory, FRAMES_PER_BLOCK or more
    in_order   yield pdfs in ascending order, otherwise in any order
    """
    places = counts if in_order else np.minimum(counts, FRAMES_PER_BLOCK)
    rounds = plan(places, most_rows)
    places_of = [
        _places_of_one(places, pdfs) if pdfs.stop == pdfs.start + 1 else places[pdfs] for pdfs in rounds
    ]
    rows = np.empty((max((of_round.sum() for of_round in places_of), default=0), source.width), np.float32)
    for pdfs, of_round in zip(rounds, places_of):
        collected = PdfRound(pdfs.start, counts[pdfs], of_round, rows)
        yield from collected.collect(source, range(source.num_utterances))
        yield from collected.blocks()


def _places_of_one(places: np.ndarray, pdfs: slice) -> np.ndarray:
    """Buffer of a pdf that has a round of its own: at most a block, whatever the order."""
    return np.minimum(places[pdfs], FRAMES_PER_BLOCK)


def plan(places: np.ndarray, most_rows: int) -> list[slice]:
    """The pdfs of each round: consecutive ones with up to `most_rows` of `places` in total, or a single
    larger one."""
    rounds, ends, first = [], np.cumsum(places), 0
    while first < len(places):
        before = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, before + most_rows, side="right")), first + 1)
        rounds.append(slice(first, last))
        first = last
    return rounds


class PdfRound:
    """The pdfs from `first` on, with `counts` frames each, and their buffers of `places` rows in `rows`."""

    def __init__(self, first: int, counts: np.ndarray, places: np.ndarray, rows: np.ndarray):
        self.first, self.rows = first, rows
        self.begins = np.cumsum(places) - places
        self.filled = np.zeros(len(places), np.int64)
        self._full = np.where(counts > places, places, _NO_LIMIT)

    def collect(self, source: Source, utterances: Iterable[int]) -> Iterator[tuple[int, np.ndarray]]:
        """Read these utterances; yields the blocks of buffers that become full."""
        for index in utterances:
            yield from self._take(source, index)

    def _take(self, source: Source, index: int) -> Iterator[tuple[int, np.ndarray]]:
        """Copy the frames of an utterance to their buffers."""
        places = source.pdfs(index) - self.first
        if not ((places >= 0) & (places < len(self.filled))).any():
            return
        features, t = source.features(index), 0
        while t < len(features):
            t, full = _copy(features, places, t, self.begins, self._full, self.filled, self.rows)
            if full >= 0:
                yield self.first + full, self._rows_of(full)
                self.filled[full] = 0

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Blocks of the frames in memory."""
        for number in np.flatnonzero(self.filled).tolist():
            rows = self._rows_of(number)
            for begin in range(0, len(rows), FRAMES_PER_BLOCK):
                yield self.first + number, rows[begin : begin + FRAMES_PER_BLOCK]

    def _rows_of(self, number: int) -> np.ndarray:
        begin = self.begins[number]
        return self.rows[begin : begin + self.filled[number]]


@njit(nogil=True, cache=True)
def _copy(features, places, t, begins, full, filled, rows):
    """Copy frames from `t` on until a buffer is full. Returns (the next frame, the full buffer or -1)."""
    for t in range(t, len(features)):
        place = places[t]
        if 0 <= place < len(filled):
            row = rows[begins[place] + filled[place]]
            for d in range(features.shape[1]):
                row[d] = features[t, d]
            filled[place] += 1
            if filled[place] == full[place]:
                return t + 1, place
    return len(features), -1
