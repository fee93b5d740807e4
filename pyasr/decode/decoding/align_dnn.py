"""Forced alignment of a data directory with a network: a shard per job, one utterance in memory at a time."""

from __future__ import annotations

import dataclasses
import json

import numpy as np

from pyasr.base import log
from pyasr.base.memory_errors import computed
from pyasr.base.outputs.output import atomic_write
from pyasr.data.parts.job_parts import JobPart, part_of
from pyasr.feats.inputs import FeatureReader, open_features
from pyasr.hmm.align.align_report import NO_PATH, AlignReport
from pyasr.hmm.align.viterbi import align
from pyasr.hmm.graphs.training_graphs import GraphCompiler, transition_costs
from pyasr.hmm.graphs.transcript_ids import read_words
from pyasr.hmm.model.gmm_dir import check_phones, silence_pdfs
from pyasr.hmm.model.model_file import MODEL, read_transitions, read_tree
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.training.align_gmm import AlignSpec
from pyasr.io.int_vectors import write_int_vectors
from pyasr.io.openfst import read_fst
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.nn.networks.acoustic import AcousticModel, load_scorer


def align_shard(spec: AlignSpec, job: int) -> None:
    """Align shard `job` (1-based) and write ali.JOB.gz and report.JOB.json, like
    `pyasr.hmm.training.align_gmm.align_shard`."""
    lang = LangDir(spec.lang)
    check_phones(spec.model_dir, lang)
    trans, model = read_transitions(spec.model_dir / MODEL), load_scorer(spec.model_dir)
    model.check_answers_on_all(spec.model_dir, "an alignment")
    model.check_pdfs(spec.model_dir, trans.num_pdfs)
    aligner, part = _Aligner(spec, lang, trans, model), part_of(spec.data, spec.out, spec.num_jobs, job)
    words, failed = aligner.words(part)
    reader, report = open_features(spec.data, spec.model_dir, part=part), AlignReport(failed=failed)
    failed |= dict.fromkeys(words.keys() - failed.keys() - set(reader.keys), "no features in feats.scp")
    alignments = aligner.align(
        reader, {utt: words[utt] for utt in reader.keys if utt in words and utt not in failed}, report
    )
    report.log(f"job {job}")
    write_int_vectors(spec.out / f"ali.{job}.gz", alignments)
    num_frames = sum(map(len, alignments.values()))
    with atomic_write(spec.out / f"report.{job}.json") as f:
        json.dump(
            {"report": dataclasses.asdict(report), "log_like": aligner.log_like, "num_frames": num_frames}, f
        )


class _Aligner:
    """A network and the costs for aligning with it; `log_like` is the total log-likelihood so far."""

    def __init__(self, spec: AlignSpec, lang: LangDir, trans: TransitionModel, model: AcousticModel):
        self.spec, self.lang, self.trans, self.model, self.log_like = spec, lang, trans, model, 0.0
        self.costs = transition_costs(trans, spec.align.transition_scale, spec.align.self_loop_scale)
        tree = read_tree(spec.model_dir / "tree", trans)
        self.compiler = GraphCompiler(read_fst(lang.lexicon_fst), trans, tree, lang.words.symbol)
        self.boosts = np.zeros(trans.num_pdfs, np.float32)
        with np.errstate(divide="ignore"):
            self.boosts[silence_pdfs(lang, trans)] = np.log(spec.boost_silence)

    def words(self, part: JobPart) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """({utterance: word ids}, {utterance: reason why it has no graph}) of a shard."""
        words, failed = read_words(self.spec.data, self.lang, part.utterances, part.tables)
        return words, failed | self.compiler.failures(words)

    def align(
        self, reader: FeatureReader, words: dict[str, np.ndarray], report: AlignReport
    ) -> dict[str, np.ndarray]:
        """{utterance: transition-ids} of the utterances that can be aligned; `report` gets all outcomes."""
        found, progress = {}, log.Progress("align", len(words), "utterances", 30.0)
        for number, (utt, graph) in enumerate(self.compiler.graphs(words.items()), 1):
            loglikes = computed(utt, self.model.log_likelihoods, reader[utt])
            if not np.isfinite(loglikes).all():
                report.failed[utt] = "its features or log-likelihoods are not finite"
                continue
            boosted = loglikes[:, graph.pdfs] + self.boosts[graph.pdfs]
            tids, _, retried = align(graph, np.ascontiguousarray(boosted.T), self.costs, self.spec.align)
            if tids is None:
                report.failed[utt] = NO_PATH
                continue
            found[utt] = tids
            self.log_like += float(
                loglikes[np.arange(len(tids)), self.trans.tid2pdf[tids]].sum(dtype=np.float64)
            )
            report.num_aligned, report.num_retried = report.num_aligned + 1, report.num_retried + retried
            progress.update(number)
        return found
