"""Alignment of a data directory with a SAT system in two passes, on all ranks of one MPI job, as Kaldi's
align_fmllr.sh.

Pass 1 aligns features without fMLLR with the alignment model. From this alignment, the speakers' transforms
are estimated for the final model, with the alignment model's posteriors of Gaussians. Pass 2 aligns the
transformed features with the final model. A system without an alignment model uses final.mdl in both passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.align.align_report import AlignReport, on_first_rank
from pyasr.hmm.align.viterbi import AlignOptions
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.gmm_dir import check_phones, silence_pdfs
from pyasr.hmm.model.model_file import MODEL, first_pass_model, read_model, read_tree
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.shards.adaptable_shard import AdaptableShard, load_adaptable
from pyasr.hmm.shards.shard_store import MemoryOptions
from pyasr.hmm.shards.speaker_transforms import SpeakerTransforms
from pyasr.hmm.transforms.fmllr import FmllrOptions
from pyasr.io.int_vectors import write_int_vectors
from pyasr.lang.lang_dirs.lang_dir import LangDir


@dataclass(frozen=True)
class AlignFmllrSpec:
    """The work of `align_rank`."""

    data: Path
    lang: Path
    model_dir: Path
    out: Path
    align: AlignOptions
    boost_silence: float
    fmllr: FmllrOptions
    store: MemoryOptions = MemoryOptions()


def align_rank(spec: AlignFmllrSpec, comm) -> None:
    """Align shard `comm.rank + 1` of `comm.size`. Writes ali.N.gz and trans.N; rank 0 also writes
    failed_utterances."""
    lang = LangDir(spec.lang)
    check_phones(spec.model_dir, lang)
    trans, gmm = read_model(spec.model_dir / MODEL)
    first_trans, aligner = read_model(first_pass_model(spec.model_dir))
    if aligner.num_gauss != gmm.num_gauss:
        found = "final.alimdl and final.mdl have different numbers of Gaussians"
        raise UserError(f"{spec.model_dir}: {found}; use both from the same training")
    shard = load_adaptable(spec.data, InputOptions.load(spec.model_dir), lang, comm, spec.store, spec.out)
    shard.compile_graphs(lang, trans, read_tree(spec.model_dir / "tree", trans))
    transforms = SpeakerTransforms(shard, comm, spec.model_dir, spec.fmllr, (lang.silence_phones, 0.0))
    transforms.start()
    _align(spec, lang, shard, first_trans, aligner, comm, "without fMLLR")
    transforms.estimate(trans, gmm, aligner)
    report = _align(spec, lang, shard, trans, gmm, comm, "with fMLLR")
    write_int_vectors(spec.out / f"ali.{comm.rank + 1}.gz", dict(shard.alignments()))
    transforms.write(spec.out)
    if comm.rank == 0:
        report.write(spec.out)


def _align(
    spec: AlignFmllrSpec,
    lang: LangDir,
    shard: AdaptableShard,
    trans: TransitionModel,
    gmm: AmDiagGmm,
    comm,
    how: str,
) -> AlignReport:
    """One alignment pass. Returns the report, on rank 0 of all ranks' utterances. Raises UserError if no
    utterance can be aligned."""
    boosted = gmm if spec.boost_silence == 1.0 else gmm.boosted(silence_pdfs(lang, trans), spec.boost_silence)
    report = shard.align(trans, boosted, spec.align).gathered(comm)
    on_first_rank(comm, lambda: report.check(how))
    stats, _ = shard.accumulate(trans, gmm)
    stats.allreduce(comm)
    if comm.rank == 0:
        report.log(f"alignment {how}")
        log.info(
            f"log-likelihood per frame {stats.log_like / stats.num_frames:.4f} over {stats.num_frames:.0f} "
            "frames"
        )
    return report
