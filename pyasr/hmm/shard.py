"""One rank's share of the training data, kept in memory over all iterations: features, training graphs, the current alignment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.left_out import LeftOutOptions, log_reasons, told_reasons
from pyasr.base.seeds import generator
from pyasr.data.datadir import DataDir, split
from pyasr.feats.inputs import FeatureReader
from pyasr.hmm.gmm import AmDiagGmm
from pyasr.hmm.gmm_update import GmmStats, accumulate
from pyasr.hmm.training_graphs import GraphCompiler, TrainingGraph, transition_costs
from pyasr.hmm.transcripts import read_words
from pyasr.hmm.transitions import TransitionModel
from pyasr.hmm.viterbi import AlignOptions, align_equal, align_gmm
from pyasr.io.openfst import read_fst
from pyasr.io.text import read_table, write_table
from pyasr.lang.lang_dir import LangDir

FAILED_FILE = "failed_utterances"
MOST_MISSING = 0.1  # transcripts of real speech have their faults, and the shortest utterances are too short for some of the words
NO_PATH = "no path within the beams ends with the utterance (too short for its words, or other words)"


@dataclass
class AlignReport:
    """What an alignment pass did: counts, and why utterances have no alignment."""

    num_aligned: int = 0
    num_retried: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def __add__(self, other: AlignReport) -> AlignReport:
        return AlignReport(self.num_aligned + other.num_aligned, self.num_retried + other.num_retried, self.failed | other.failed)

    def log(self, what: str) -> None:
        """One line, and one more naming the first utterances of every kind of failure."""
        log.info(f"{what}: {self.num_aligned} utterances aligned, {self.num_retried} with the retry beam, {len(self.failed)} failed")
        log_reasons(self.failed, "without alignment")

    def check(self, when: str) -> None:
        """Raise UserError unless some utterance was aligned."""
        if self.num_aligned == 0:
            raise UserError(f"none of {len(self.failed)} utterances could be aligned {when}: {told_reasons(self.failed)}; "
                            "check that features, text, language and model directory belong together")

    def check_missing(self, where: Path, options: LeftOutOptions) -> None:
        """Raise UserError, beginning with `where`, when too large a share of the utterances has no alignment."""
        if len(self.failed) > options.max_missing * (self.num_aligned + len(self.failed)):
            raise UserError(f"{where}: {self.summary()}; check that features, text, language and model directory belong together, "
                            "or raise --max-missing")

    def summary(self) -> str:
        """How many utterances have no alignment, the commonest reasons, and the first utterances of each."""
        total = self.num_aligned + len(self.failed)
        if not self.failed:
            return f"all {total} utterances have an alignment"
        return f"{len(self.failed)} of {total} utterances have no alignment: {told_reasons(self.failed)}"

    def write(self, out: Path) -> None:
        """OUT/failed_utterances: `UTTERANCE why it has no alignment`."""
        write_table(out / FAILED_FILE, self.failed)


def check_failed(out: Path, data: Path, options: LeftOutOptions) -> None:
    """Log in one line how many utterances of `data` OUT/failed_utterances names, and why. Raises UserError when they are too many."""
    failed = read_table(out / FAILED_FILE)
    report = AlignReport(len(DataDir(data).utterances) - len(failed), failed=failed)
    report.check_missing(data, options)
    log.info(report.summary() + (f"; {FAILED_FILE} names all" if failed else ""))


class Shard:
    """Utterances `keys` with stacked features `feats` (T, D); frames `offsets[i]:offsets[i + 1]` are utterance i's.

    data       the data directory
    words      {utterance: word ids}
    graphs     {utterance: TrainingGraph}, after `compile_graphs`
    alignment  int32 (T) of transition-ids, 0 where an utterance has none
    failed     {utterance: reason} of those that never take part
    """

    def __init__(self, data: Path, keys: list[str], feats: np.ndarray, offsets: np.ndarray, words: dict[str, np.ndarray],
                 failed: dict[str, str]):  # fmt: skip
        self.data, self.keys, self.feats, self.offsets, self.words, self.failed = data, keys, feats, offsets, words, dict(failed)
        self.graphs: dict[str, TrainingGraph] = {}
        self.alignment = np.zeros(len(feats), np.int32)

    @classmethod
    def load(cls, reader: FeatureReader, lang: LangDir, job: int, num_jobs: int) -> Shard:
        """Features and words of shard `job` (1-based) of `num_jobs`; no frames, and a line in the log, where it has no usable utterance."""
        data = reader.data
        words, failed = read_words(data, lang, split(data, num_jobs)[job - 1])
        known = set(reader.keys)
        failed |= {utt: "no features in feats.scp" for utt in words if utt not in known}
        matrices = {utt: reader[utt] for utt in reader.keys if utt in words}
        failed |= {utt: "its features have no frames" for utt, matrix in matrices.items() if not len(matrix)}
        failed |= {utt: "its features are not finite" for utt, matrix in matrices.items() if not np.isfinite(matrix).all()}
        keys = [utt for utt in matrices if utt not in failed]
        if not keys:
            log.warning(f"{data}: no utterance of shard {job} of {num_jobs} can be used: {told_reasons(failed)}")
        offsets = np.cumsum([0, *(len(matrices[utt]) for utt in keys)])
        feats = np.concatenate([np.zeros((0, reader.dim), np.float32), *(matrices[utt] for utt in keys)])
        return cls(data, keys, feats, offsets, {utt: words[utt] for utt in keys}, failed)

    def features(self, index: int) -> np.ndarray:
        """Frames of utterance `keys[index]`, (T, D): a view."""
        return self.feats[self.offsets[index]:self.offsets[index + 1]]

    def compile_graphs(self, lang: LangDir, trans: TransitionModel, tree) -> None:
        """Make the graphs of all utterances."""
        self.graphs, failed = GraphCompiler(read_fst(lang.lexicon_fst), trans, tree, lang.words.symbol).compile(self.words)
        self.failed |= failed

    def usable(self) -> AlignReport:
        """The report of an alignment of all that can take part."""
        return AlignReport(len(set(self.keys) - self.failed.keys()), failed=dict(self.failed))

    def check_usable(self, comm) -> None:
        """Raise UserError, on all ranks, when no utterance of any rank can be used."""
        total = sum(comm.allgather(self.usable()), AlignReport())
        if total.num_aligned == 0:
            told = f"no utterance can be used: {told_reasons(total.failed)}"
            raise UserError(f"{self.data}: {told}; run utils/validate_data_dir.py {self.data}")

    def align(self, trans: TransitionModel, model: AmDiagGmm, options: AlignOptions) -> AlignReport:
        """Replace the alignment by the best paths through the graphs; utterances without one are left out until the next time."""
        report = AlignReport(failed=dict(self.failed))
        costs = transition_costs(trans, options.transition_scale, options.self_loop_scale)
        self.alignment[:] = 0
        for i, utt in enumerate(self.keys):
            if utt in self.graphs:
                tids, _, retried = align_gmm(self.graphs[utt], model, self.features(i), costs, options)
                self._take(i, tids, retried, report, NO_PATH)
        return report

    def align_equal(self, seed: int) -> AlignReport:
        """Replace the alignment by random paths with equally long states."""
        report = AlignReport(failed=dict(self.failed))
        self.alignment[:] = 0
        for i, utt in enumerate(self.keys):
            if utt in self.graphs:
                tids = align_equal(self.graphs[utt], len(self.features(i)), generator(seed, "align_equal", utt))
                self._take(i, tids, False, report, "fewer frames than HMM states")
        return report

    def _take(self, index: int, tids: np.ndarray | None, retried: bool, report: AlignReport, reason: str) -> None:
        if tids is None:
            report.failed[self.keys[index]] = reason
            return
        self.alignment[self.offsets[index]:self.offsets[index + 1]] = tids
        report.num_aligned += 1
        report.num_retried += retried

    def accumulate(self, trans: TransitionModel, model: AmDiagGmm, seen_as: np.ndarray | None = None) -> tuple[GmmStats, np.ndarray]:
        """GMM statistics and counts of transition-ids, float64 (num_tids + 1), of the aligned frames.

        seen_as  other features (T, D) to take sums of, with the posteriors of the shard's own
        """
        stats = GmmStats.zeros(model)
        pdfs = np.where(self.alignment > 0, trans.tid2pdf[self.alignment], -1)
        accumulate(model, self.feats, pdfs, stats, seen_as)
        counts = np.bincount(self.alignment, minlength=trans.num_tids + 1).astype(np.float64)
        counts[0] = 0
        return stats, counts

    def alignments(self) -> dict[str, np.ndarray]:
        """{utterance: transition-ids} of those that have an alignment."""
        parts = ((utt, self.alignment[self.offsets[i]:self.offsets[i + 1]]) for i, utt in enumerate(self.keys))
        return {utt: tids for utt, tids in parts if len(tids) and tids[0] > 0}

    def set_alignments(self, alignments: dict[str, np.ndarray], num_tids: int, source: Path) -> AlignReport:
        """Take over alignments made before. Raises UserError where one does not fit the features or the model."""
        report = AlignReport(failed=dict(self.failed))
        self.alignment[:] = 0
        for i, utt in enumerate(self.keys):
            tids = alignments.get(utt)
            if tids is not None and len(tids) != len(self.features(i)):
                raise UserError(f"{source}: the alignment of {utt} has {len(tids)} frames, its features {len(self.features(i))}; "
                                "align this data directory again")
            if tids is not None and len(tids) and not 0 < tids.min() <= tids.max() <= num_tids:
                raise UserError(f"{source}: the alignment of {utt} has transition-id {tids.max()}, the model {num_tids} transition-ids; "
                                "use the alignment directory's own model")
            self._take(i, tids if tids is not None and len(tids) else None, False, report, f"none in {source}")
        return report

