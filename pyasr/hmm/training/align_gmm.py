"""Alignment of a data directory with a trained GMM system, one shard per job."""

from __future__ import annotations

import dataclasses
import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.skipped_utterances import SkippedOptions
from pyasr.base.outputs.output import atomic_write
from pyasr.data.parts.job_parts import part_of, parts_of_jobs
from pyasr.data.tables.datadir import split
from pyasr.feats.inputs import INPUT_TABLES, InputOptions, open_features
from pyasr.feats.origin import keep_origin
from pyasr.hmm.align.align_report import MAX_MISSING, AlignReport
from pyasr.hmm.align.viterbi import AlignOptions
from pyasr.hmm.graphs.transcript_ids import check_transcripts
from pyasr.hmm.model.gmm_dir import check_phones, copy_model, silence_pdfs, write_static_files
from pyasr.hmm.model.input_checks import check_gmm_input, check_model_input
from pyasr.hmm.model.model_file import first_pass_model, read_model, read_tree
from pyasr.hmm.shards.gmm_shard import GmmShard
from pyasr.hmm.shards.shard_store import MemoryOptions
from pyasr.io.int_vectors import write_int_vectors
from pyasr.lang.lang_dirs.lang_dir import LangDir


@dataclass(frozen=True)
class AlignStep:
    """Options of steps/align_si.py, align_fmllr.py and align_dnn.py."""

    data: Path = argument("data directory with features")
    lang: Path = argument("language directory that the model was trained with")
    model_dir: Path = argument("directory of the acoustic model")
    ali_dir: Path = argument("output directory of the alignments")
    align: AlignOptions = group(AlignOptions)
    boost_silence: float = option(
        1.0, "factor on the likelihoods of silence in the alignment", minimum=0.0, heading="alignment"
    )
    missing: SkippedOptions = group(SkippedOptions, max_missing=MAX_MISSING)
    jobs: JobOptions = group(JobOptions)

    def check_inputs(self, of_network: bool = False) -> None:
        """Raise UserError if model, tree, features or transcripts cannot be used."""
        (check_model_input if of_network else check_gmm_input)(self.data, self.model_dir)
        read_tree(self.model_dir / "tree")
        check_transcripts(self.data, self.lang)


def complete_ali_dir(step: AlignStep, out: Path) -> None:
    """Add the files that belong to the alignments in `out`: model, feature options, number of jobs."""
    write_static_files(out, LangDir(step.lang), InputOptions.load(step.model_dir), step.jobs.nj)
    keep_origin(out, step.data)
    copy_model(step.model_dir, out)


@dataclass(frozen=True)
class AlignSpec:
    """The work of all jobs."""

    data: Path
    lang: Path
    model_dir: Path
    out: Path
    num_jobs: int
    align: AlignOptions
    boost_silence: float
    store: MemoryOptions = MemoryOptions()


def parts_to_align(spec: AlignSpec) -> AbstractContextManager[None]:
    """Context in which the jobs have their parts of the data directory."""
    return parts_of_jobs(spec.data, spec.out, split(spec.data, spec.num_jobs), (*INPUT_TABLES, "text"))


def align_shard(spec: AlignSpec, job: int) -> None:
    """Align shard `job` (1-based): writes ali.JOB.gz and report.JOB.json."""
    lang = LangDir(spec.lang)
    check_phones(spec.model_dir, lang)
    trans, gmm = read_model(first_pass_model(spec.model_dir))
    tree = read_tree(spec.model_dir / "tree", trans)
    part = part_of(spec.data, spec.out, spec.num_jobs, job)
    shard = GmmShard.load(
        open_features(spec.data, spec.model_dir, part=part),
        lang,
        job,
        spec.num_jobs,
        spec.store,
        folder=spec.out,
    )
    shard.compile_graphs(lang, trans, tree)
    if spec.boost_silence != 1.0:
        gmm = gmm.boosted(silence_pdfs(lang, trans), spec.boost_silence)
    report = shard.align(trans, gmm, spec.align)
    report.log(f"job {job}")
    write_int_vectors(spec.out / f"ali.{job}.gz", dict(shard.alignments()))
    stats, _ = shard.accumulate(trans, gmm)
    with atomic_write(spec.out / f"report.{job}.json") as f:
        json.dump(
            {
                "report": dataclasses.asdict(report),
                "log_like": stats.log_like,
                "num_frames": stats.num_frames,
            },
            f,
        )


def merge_reports(out: Path, num_jobs: int) -> AlignReport:
    """Sum and log the reports of all jobs, write the sum to `out`, remove the jobs' files. Raises UserError
    if no utterance was aligned."""
    total, log_like, num_frames = AlignReport(), 0.0, 0.0
    for job in range(1, num_jobs + 1):
        path = out / f"report.{job}.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        total.add(AlignReport(**content["report"]))
        log_like, num_frames = log_like + content["log_like"], num_frames + content["num_frames"]
        path.unlink()
    total.check("to its transcript")
    total.log("alignment")
    total.write(out)
    log.info(f"log-likelihood per frame {log_like / num_frames:.4f} over {num_frames:.0f} frames")
    return total
