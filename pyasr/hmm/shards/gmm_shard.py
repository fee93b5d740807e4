"""One rank's share of the training data in all iterations: its words, training graphs and current alignment.

Features are read from their archives, utterance by utterance, when they are needed. Statistics are
accumulated pdf by pdf. Until the alignment or the transforms change, the frames sorted by pdf are kept in
memory if the limit allows it, otherwise in a file (`frame_file`). If the disk has too little space for the
file, each accumulation reads the archives again, for some pdfs at a time (`pdf_order`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.seeds import generator
from pyasr.base.cli.skipped_utterances import counted_reasons
from pyasr.base.errors import UserError
from pyasr.data.parts.job_parts import JobPart
from pyasr.data.tables.datadir import split
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.hmm.align.align_report import NO_PATH, AlignReport, on_first_rank
from pyasr.hmm.align.viterbi import AlignOptions, align_equal, align_gmm
from pyasr.hmm.graphs.training_graphs import GraphCompiler, TrainingGraph, transition_costs
from pyasr.hmm.graphs.transcript_ids import read_words
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.gmm_update import FRAMES_PER_BLOCK, GmmStats, PdfFrames, accumulate
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.shards.frame_file import FrameFile, Scratch
from pyasr.hmm.shards.pdf_order import PdfRound, in_rounds
from pyasr.hmm.shards.shard_store import MemoryOptions, reserve
from pyasr.io.openfst import read_fst
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.parallel.communication.comm import SoloComm

_COUNTED_AT_ONCE = 1 << 20


class GmmShard:
    """Utterances `keys`; frames `offsets[i]:offsets[i + 1]` of the shard are utterance i's.

    data       the data directory
    dim        number of feature columns
    words      {utterance: word ids}
    alignment  transition-ids of all frames, int32 (T); 0 for utterances without alignment
    failed     {utterance: reason} of unusable utterances
    """

    def __init__(
        self,
        reader: FeatureReader,
        lengths: dict[str, int],
        words: dict[str, np.ndarray],
        failed: dict[str, str],
        room: int,
        scratch: Scratch | None,
    ):
        self.reader, self.data, self.dim = reader, reader.data, reader.dim
        self.keys = list(lengths)
        self.words = words
        self.failed = dict(failed)
        self.room = room
        self.scratch = scratch
        self.offsets = np.cumsum([0, *lengths.values()])
        self.alignment = np.zeros(self.offsets[-1], np.int32)
        self._compiler: GraphCompiler | None = None
        self._kept: tuple[bytes, PdfRound | FrameFile] | None = None

    @classmethod
    def load(
        cls,
        reader: FeatureReader,
        lang: LangDir,
        job: int,
        num_jobs: int,
        store: MemoryOptions = MemoryOptions(),
        comm=SoloComm(),
        folder: Path | None = None,
    ):
        """Shard `job` (1-based) of `num_jobs`. Reads all its features once to check them. A shard without
        usable utterances has no frames; a warning says so.

        comm    communicator of the ranks that have the shards
        folder  directory for frames that do not fit in memory; None: they are read from their archives more
                often
        """
        data = reader.data
        part = reader.part or JobPart(data, data, split(data, num_jobs)[job - 1])
        words, failed = read_words(data, lang, part.utterances, part.tables)
        known = set(reader.keys)
        failed |= {utt: "no features in feats.scp" for utt in words if utt not in known}
        lengths, unusable = _usable(reader, (utt for utt in reader.keys if utt in words))
        failed |= unusable
        if not lengths:
            log.warning(
                f"{data}: no utterance of shard {job} of {num_jobs} can be used: {counted_reasons(failed)}"
            )
        room = reserve(data, sum(lengths.values()), store, comm)
        return cls(
            reader,
            lengths,
            {utt: words[utt] for utt in lengths},
            failed,
            room,
            Scratch(folder, num_jobs) if folder else None,
        )

    @property
    def num_frames(self) -> int:
        """Number of frames of all utterances."""
        return len(self.alignment)

    def features(self, index: int) -> np.ndarray:
        """Frames of utterance `keys[index]`, float32 (T, dim)."""
        return self._read(index)

    def __getitem__(self, utt: str) -> np.ndarray:
        """`features` of an utterance by name."""
        return self.features(self._places[utt])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {utt: i for i, utt in enumerate(self.keys)}

    def _read(self, index: int) -> np.ndarray:
        """The reader's features of an utterance. Raises UserError if their number of frames has changed."""
        utt, features = self.keys[index], self.reader[self.keys[index]]
        if len(features) != len(self.tids(index)):
            found = (
                f"{utt} has {len(features)} frames now, but had {len(self.tids(index))} when this "
                "program started"
            )
            raise UserError(f"{self.data}: {found}; do not change features while a program reads them")
        return features

    def all_features(self) -> Iterator[np.ndarray]:
        """An empty array, then the features of each utterance."""
        yield np.zeros((0, self.dim), np.float32)
        yield from map(self.features, range(len(self.keys)))

    def tids(self, index: int) -> np.ndarray:
        """The alignment of utterance `keys[index]`: a view."""
        return self.alignment[self.offsets[index] : self.offsets[index + 1]]

    def compile_graphs(self, lang: LangDir, trans: TransitionModel, tree) -> None:
        """Set the model from which later alignments build their graphs. Adds the utterances without a graph
        to `failed`."""
        self._compiler = GraphCompiler(read_fst(lang.lexicon_fst), trans, tree, lang.words.symbol)
        self.failed |= self._compiler.failures(self.words)

    def graphs(self) -> Iterator[tuple[int, TrainingGraph]]:
        """(index of an utterance, its graph) of all utterances with a graph."""
        assert self._compiler is not None
        return self._compiler.graphs((i, self.words[utt]) for i, utt in enumerate(self.keys))

    def usable(self) -> AlignReport:
        """The report of an alignment of all usable utterances."""
        return AlignReport(len(set(self.keys) - self.failed.keys()), failed=dict(self.failed))

    def check_usable(self, comm) -> None:
        """Raise UserError, on all ranks, if no utterance of any rank can be used."""
        total = self.usable().gathered(comm)

        def check() -> None:
            if total.num_aligned == 0:
                found = f"no utterance can be used: {counted_reasons(total.failed)}"
                raise UserError(f"{self.data}: {found}; run utils/validate_data_dir.py {self.data}")

        on_first_rank(comm, check)

    def align(self, trans: TransitionModel, model: AmDiagGmm, options: AlignOptions) -> AlignReport:
        """Replace the alignment by the best paths through the graphs; utterances without a path have no
        alignment until the next call."""
        costs = transition_costs(trans, options.transition_scale, options.self_loop_scale)

        def path(index: int, graph: TrainingGraph) -> tuple[np.ndarray | None, bool]:
            tids, _, retried = align_gmm(graph, model, self.features(index), costs, options)
            return tids, retried

        return self._align(path, NO_PATH)

    def align_equal(self, seed: int) -> AlignReport:
        """Replace the alignment by random paths whose states have equal numbers of frames."""

        def path(index: int, graph: TrainingGraph) -> tuple[np.ndarray | None, bool]:
            return align_equal(
                graph, len(self.tids(index)), generator(seed, "align_equal", self.keys[index])
            ), False

        return self._align(path, "fewer frames than HMM states")

    def _align(
        self, path: Callable[[int, TrainingGraph], tuple[np.ndarray | None, bool]], reason: str
    ) -> AlignReport:
        """Replace the alignment by the results of `path`: (transition-ids or None, whether the retry beam
        found them) of each graph."""
        report = AlignReport(failed=dict(self.failed))
        self.alignment[:] = 0
        for index, graph in self.graphs():
            self._take(index, *path(index, graph), report, reason)
        self.forget_frames()
        return report

    def _take(
        self, index: int, tids: np.ndarray | None, retried: bool, report: AlignReport, reason: str
    ) -> None:
        if tids is None:
            report.failed[self.keys[index]] = reason
            return
        self.tids(index)[:] = tids
        report.num_aligned += 1
        report.num_retried += retried

    def accumulate(
        self, trans: TransitionModel, model: AmDiagGmm, seen_as: Callable[[int], np.ndarray] | None = None
    ) -> tuple[GmmStats, np.ndarray]:
        """GMM statistics and counts of transition-ids, float64 (num_tids + 1), of the aligned frames.

        seen_as  function from an utterance's index to other features (T, dim), over which sums are taken,
                 with the posteriors of the shard's own features
        """
        stats, pdf_of = GmmStats.zeros(model), trans.tid2pdf.copy()
        pdf_of[0] = -1
        accumulate(model, self.frames_by_pdf(pdf_of, seen_as), stats, paired=seen_as is not None)
        counts = self._tid_counts(trans.num_tids).astype(np.float64)
        counts[0] = 0
        return stats, counts

    def frames_by_pdf(
        self, pdf_of: np.ndarray, seen_as: Callable[[int], np.ndarray] | None = None, in_order: bool = False
    ) -> PdfFrames:
        """Blocks (pdf, frames), each valid until the next one is requested.

        pdf_of    int32 (num_tids + 1): the pdf of each transition-id, -1 to skip its frames
        seen_as   as in `accumulate`; its columns follow those of the features
        in_order  yield pdfs in ascending order, otherwise in any order
        """
        source, counts = _AlignedFrames(self, pdf_of, seen_as), self._pdf_counts(pdf_of)
        most_rows = max(self.room // (4 * source.width), FRAMES_PER_BLOCK)
        if seen_as or not self._kept or self._kept[0] != pdf_of.tobytes():
            self.forget_frames()
            collected = self._collected(source, counts, most_rows)
            if not collected:
                return in_rounds(source, counts, most_rows, in_order)
            if seen_as:
                return collected.blocks()
            self._kept = pdf_of.tobytes(), collected
        return self._kept[1].blocks()

    def _collected(
        self, source: _AlignedFrames, counts: np.ndarray, most_rows: int
    ) -> PdfRound | FrameFile | None:
        """All frames, in memory or in a file; None if they fit in neither."""
        if counts.sum() > most_rows:
            return self.scratch.write(source, counts, most_rows) if self.scratch else None
        collected = PdfRound(0, counts, counts, np.empty((counts.sum(), source.width), np.float32))
        for _ in collected.collect(source, range(source.num_utterances)):  # no buffer becomes full
            pass
        return collected

    def forget_frames(self) -> None:
        """Discard the frames sorted by pdf. Must be called after a change of alignment or features."""
        self._kept = None

    def _pdf_counts(self, pdf_of: np.ndarray) -> np.ndarray:
        """Number of frames of each pdf, int64."""
        counts = np.zeros(int(pdf_of.max(initial=-1)) + 1, np.int64)
        np.add.at(counts, pdf_of[pdf_of >= 0], self._tid_counts(len(pdf_of) - 1)[pdf_of >= 0])
        return counts

    def _tid_counts(self, num_tids: int) -> np.ndarray:
        """Number of frames of each transition-id, int64 (num_tids + 1)."""
        counts = np.zeros(num_tids + 1, np.int64)
        for begin in range(0, self.num_frames, _COUNTED_AT_ONCE):
            counts += np.bincount(self.alignment[begin : begin + _COUNTED_AT_ONCE], minlength=num_tids + 1)
        return counts

    def alignments(self) -> Iterator[tuple[str, np.ndarray]]:
        """(utterance, its transition-ids: a view) of all utterances with an alignment."""
        for i, utt in enumerate(self.keys):
            if self.tids(i)[0] > 0:
                yield utt, self.tids(i)

    def set_alignments(
        self,
        alignments: Mapping[str, np.ndarray] | Iterable[tuple[str, np.ndarray]],
        num_tids: int,
        source: Path,
    ) -> AlignReport:
        """Replace the alignment by given ones. Raises UserError if one does not match features or model."""
        report, place = AlignReport(failed=dict(self.failed)), dict(self._places)
        for utt, tids in alignments.items() if isinstance(alignments, Mapping) else alignments:
            if utt in place and len(tids):
                self._check(utt, tids, len(self.tids(place[utt])), num_tids, source)
                self._take(place.pop(utt), tids, False, report, "")
        for utt, index in place.items():
            self.tids(index)[:] = 0
            report.failed[utt] = f"not aligned in {source}"
        self.forget_frames()
        return report

    @staticmethod
    def _check(utt: str, tids: np.ndarray, num_frames: int, num_tids: int, source: Path) -> None:
        if len(tids) != num_frames:
            raise UserError(
                f"{source}: the alignment of {utt} has {len(tids)} frames, its features have {num_frames}; "
                "align this data directory again"
            )
        if not 0 < tids.min() <= tids.max() <= num_tids:
            raise UserError(
                f"{source}: the alignment of {utt} has transition-id {tids.max()}, but the model has "
                f"{num_tids}; use the model of the alignment directory"
            )


def load_shard(
    data: Path, inputs: InputOptions, lang: LangDir, comm, store: MemoryOptions, folder: Path
) -> GmmShard:
    """The shard of this rank; see `GmmShard.load`."""
    reader = FeatureReader(data, inputs)
    return GmmShard.load(reader, lang, comm.rank + 1, comm.size, store, comm, folder)


def _usable(reader: FeatureReader, utterances: Iterable[str]) -> tuple[dict[str, int], dict[str, str]]:
    """({utterance: number of frames}, {utterance: reason why its features cannot be used})."""
    lengths, failed = {}, {}
    for utt in utterances:
        features = reader[utt]
        if not len(features):
            failed[utt] = "its features have no frames"
        elif not np.isfinite(features).all():
            failed[utt] = "its features are not finite"
        else:
            lengths[utt] = len(features)
    return lengths, failed


@dataclass(frozen=True)
class _AlignedFrames:
    """The frames of a shard as a `pdf_order.Source`."""

    shard: GmmShard
    pdf_of: np.ndarray
    seen_as: Callable[[int], np.ndarray] | None

    @property
    def num_utterances(self) -> int:
        return len(self.shard.keys)

    @property
    def width(self) -> int:
        return self.shard.dim * (1 if self.seen_as is None else 2)

    def pdfs(self, index: int) -> np.ndarray:
        return self.pdf_of[self.shard.tids(index)]

    def features(self, index: int) -> np.ndarray:
        own = self.shard.features(index)
        return own if self.seen_as is None else np.hstack([own, self.seen_as(index)])
