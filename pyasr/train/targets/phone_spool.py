"""Phones and times of alignments in a temporary file, from which the files of an LF-MMI training are written.
One archive at a time is in memory.

    with PhoneSpool(ali_dir, reader, options, out / SPOOL_FILE) as spool:
        keys = join(reader, spool.num_frames, max_missing, ali_dir)
        save_aligned_phones(path, zip(keys, spool.aligned(keys)))
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pyasr.feats.inputs import FeatureReader
from pyasr.hmm.model.model_file import MODEL, read_transitions
from pyasr.io.int_vectors import read_int_vectors
from pyasr.sequence.lfmmi.chain import AlignedPhones, aligned_phones
from pyasr.sequence.lfmmi.supervision import SupervisionOptions
from pyasr.train.targets.alignment_spool import ArchiveSpool


class PhoneSpool(ArchiveSpool):
    """The phones of the alignments of a directory whose length matches the features of their utterances.

    num_frames  {utterance: number of frames of its alignment}, of all alignments
    """

    def __init__(self, ali_dir: Path, reader: FeatureReader, options: SupervisionOptions, path: Path):
        super().__init__(ali_dir, path)
        self._reader, self._options, self._trans = reader, options, read_transitions(ali_dir / MODEL)
        self._frames, self._fit = array("i"), array("b")

    def __enter__(self) -> PhoneSpool:
        super().__enter__()
        self.num_frames = self.numbers_of(self._frames)
        return self

    def _converted(self, archive: Path) -> Iterator[tuple[str, np.ndarray]]:
        """Phones, then starts, of each utterance; empty if the lengths of alignment and features differ."""
        vectors = read_int_vectors(archive)
        aligned = dict(
            aligned_phones(
                self._trans, {key: tids for key, tids in vectors.items() if self._matches(key, tids)}
            )
        )
        for key, tids in vectors.items():
            one = aligned.get(key)
            self._frames.append(len(tids))
            self._fit.append(one is not None and self._options.have_room(one))
            yield key, np.concatenate([one.phones, one.starts]) if one else np.zeros(0, np.int32)

    def _matches(self, key: str, tids: np.ndarray) -> bool:
        return self._reader.has(key) and len(tids) == self._reader.num_frames(key)

    def have_room(self, keys: Sequence[str]) -> np.ndarray:
        """Whether each utterance is long enough for its phones, bool (len(keys),)."""
        return np.asarray(self._fit, bool)[self.places(keys)]

    def aligned(self, keys: Sequence[str]) -> Iterator[AlignedPhones]:
        """The phones of each utterance."""
        for row in self.vectors(keys):
            num_phones = len(row) // 2  # one start more than phones
            yield AlignedPhones(row[:num_phones], row[num_phones:].astype(np.int64))
