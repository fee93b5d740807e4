"""The frames of a shard, sorted by pdf, in a file on disk that is written once and read sequentially in every
pass.

The utterances are read once, in groups that fit in memory. The frames of a group are sorted by pdf and
appended to the section of each pdf in the file. The blocks therefore have the same frames, in the same order,
as those of `pdf_order`.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.figures import figure
from pyasr.base.system_errors import disk_error
from pyasr.hmm.model.gmm_update import FRAMES_PER_BLOCK
from pyasr.hmm.shards.pdf_order import PdfRound, Source

_SHARE = 0.5  # of the free disk space
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_VALUE_BYTES = 4


@dataclass(frozen=True)
class Scratch:
    """A directory for the frame files of `num_sharing` ranks or jobs."""

    folder: Path
    num_sharing: int

    def write(self, source: Source, counts: np.ndarray, most_rows: int) -> FrameFile | None:
        """Write the frames of `source` to a file. None, with a warning, if the disk has too little space.
        Arguments as in `FrameFile`."""
        num_bytes = int(counts.sum()) * source.width * _VALUE_BYTES
        if num_bytes * self.num_sharing <= _SHARE * shutil.disk_usage(self.folder).free:
            try:
                return FrameFile(source, counts, most_rows, self.folder)
            except OSError as error:
                if error.errno not in _DISK_FULL:
                    raise
        log.warning(
            f"{self.folder}: {figure(num_bytes / 1e6)} MB of features do not fit in memory, and the disk has "
            "too little space: they are read from their archives more often; free disk space, or raise "
            "--max-store-mb"
        )
        return None


class FrameFile:
    """An unnamed temporary file, which is deleted with this object.

    counts     number of frames of each pdf, int64 (num_pdfs)
    most_rows  maximum number of frames in memory, exceeded only for a longer utterance
    folder     directory of the file

    Raises OSError if the disk is full.
    """

    def __init__(self, source: Source, counts: np.ndarray, most_rows: int, folder: Path):
        self.counts, self.folder, self._row_bytes = counts, folder, source.width * _VALUE_BYTES
        self._file = tempfile.TemporaryFile(dir=folder)
        self._ends = np.cumsum(counts) - counts  # of the frames of each pdf written so far
        rows = np.empty((most_rows, source.width), np.float32)
        for utterances, of_group in _groups(source, len(counts), most_rows):
            if of_group.sum() > len(rows):
                rows = np.empty((of_group.sum(), source.width), np.float32)
            self._write(source, utterances, PdfRound(0, of_group, of_group, rows))
        self._file.flush()
        os.fdatasync(self._file.fileno())  # some file servers report a full disk only here

    def _write(self, source: Source, utterances: range, in_memory: PdfRound) -> None:
        """Append the frames of these utterances to the sections of their pdfs."""
        for _ in in_memory.collect(source, utterances):  # no buffer becomes full
            pass
        for pdf, rows in in_memory.blocks():
            self._file.seek(int(self._ends[pdf]) * self._row_bytes)
            self._file.write(rows.data)
            self._ends[pdf] += len(rows)

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Blocks (pdf, frames) in ascending order of pdfs, each valid until the next one is requested."""
        rows = np.empty((FRAMES_PER_BLOCK, self._row_bytes // _VALUE_BYTES), np.float32)
        self._file.seek(0)
        for pdf in np.flatnonzero(self.counts).tolist():
            for begin in range(0, int(self.counts[pdf]), FRAMES_PER_BLOCK):
                block = rows[: self.counts[pdf] - begin]
                if self._file.readinto(block.data) < block.nbytes:
                    raise disk_error(OSError(errno.EIO, "a temporary file is truncated"), self.folder)
                yield pdf, block


def _groups(source: Source, num_pdfs: int, most_rows: int) -> Iterator[tuple[range, np.ndarray]]:
    """(utterances, their number of frames of each pdf) of groups with up to `most_rows` frames, or with a
    single longer utterance."""
    begin, of_group = 0, np.zeros(num_pdfs, np.int64)
    for index in range(source.num_utterances):
        pdfs = source.pdfs(index)
        own = np.bincount(pdfs[pdfs >= 0], minlength=num_pdfs)
        if index > begin and of_group.sum() + own.sum() > most_rows:
            yield range(begin, index), of_group
            begin, of_group = index, np.zeros(num_pdfs, np.int64)
        of_group += own
    yield range(begin, source.num_utterances), of_group
