"""Training of triphone GMMs on spliced frames with LDA and MLLT, on all ranks of one MPI job, with the
schedule of Kaldi's train_lda_mllt.sh.

Before the tree is built, LDA is estimated on the given alignments, with the pdfs of their model as classes
and without silence. In the iterations `mllt_iters`, matrix and means are multiplied by M (`mllt`), which maps
the features to the space that diagonal covariances fit best.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.feats.transforms import MATRIX_FILE, compose, write_matrix
from pyasr.hmm.align.pdf_posteriors import SilenceWeighting
from pyasr.hmm.model.gmm_dir import check_phones
from pyasr.hmm.model.model_file import read_transitions
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.shards.adaptable_shard import AdaptableShard, load_adaptable
from pyasr.hmm.training.train_gmm import Model, finish, is_finished, iterations
from pyasr.hmm.training.train_triphones import TriphoneSpec, train_triphones
from pyasr.hmm.transforms.lda import LdaStats, estimate_lda
from pyasr.hmm.transforms.mllt import MlltStats, estimate_mllt, transform_means
from pyasr.lang.lang_dirs.lang_dir import LangDir


@dataclass(frozen=True)
class LdaMlltOptions:
    """The features of an LDA+MLLT system."""

    heading = "transforms and adaptation"

    dim: int = option(40, "dimension of the features after LDA", minimum=1)
    mllt_iters: str = option("2 4 6 12", "iterations in which MLLT is estimated")
    remove_offset: bool = option(
        False, "shift the mean of all features to zero, by an additional column of the matrix"
    )

    def check(self) -> None:
        """Raise UserError if --mllt-iters is not a list of iterations."""
        iterations(self.mllt_iters, "--mllt-iters")


@dataclass(frozen=True)
class LdaMlltSpec:
    """The work of `train_rank`."""

    triphones: TriphoneSpec
    lda: LdaMlltOptions


def train_rank(spec: LdaMlltSpec, comm) -> None:
    """Train on shard `comm.rank + 1` of `comm.size`. Writes a complete GMM directory with final.mat to
    `spec.triphones.out`."""
    work = spec.triphones
    if is_finished(work.out, comm):
        return
    lang = LangDir(work.lang)
    check_phones(work.ali_dir, lang)
    shard = load_adaptable(work.data, work.inputs, lang, comm, work.train.store, work.out)
    transform = LdaMllt(shard, comm, spec.lda, lang.silence_phones, work.ali_dir)
    trainer, _ = train_triphones(work, lang, shard, comm, transform)
    finish(work.out, trainer)


class LdaMllt:
    """The matrix of all features as an `Adaptation`; its key in `matrices` is its file name."""

    def __init__(
        self, shard: AdaptableShard, comm, options: LdaMlltOptions, silence_phones: list[int], ali_dir: Path
    ):
        self.shard, self.comm, self.options = shard, comm, options
        self.silence_phones, self.ali_dir = silence_phones, ali_dir
        self.iters = iterations(options.mllt_iters, "--mllt-iters")
        self.matrices: dict[str, np.ndarray] = {}
        self.names = {MATRIX_FILE}

    def begin(self) -> None:
        """Estimate LDA from the shard's alignment, which is an alignment of `ali_dir`'s model."""
        trans = read_transitions(self.ali_dir / "final.mdl")
        pdf_of = self._pdf_of(trans)
        stats = LdaStats.zeros(trans.num_pdfs, self.shard.extended_dim)
        for i in range(len(self.shard.keys)):
            stats.accumulate(self.shard.extended(i), pdf_of[self.shard.tids(i)])
        matrix, ratios = estimate_lda(
            stats.allreduce(self.comm), self.options.dim, self.options.remove_offset
        )
        if self.comm.rank == 0:
            log.info(
                f"LDA from {self.shard.extended_dim} to {len(matrix)} dimensions on {stats.counts.sum():.0f} "
                f"frames: ratios of between-class to within-class variance {ratios[0]:.3f} to "
                f"{ratios[-1]:.3f}, sum {ratios.sum():.3f}"
            )
        self.restore({MATRIX_FILE: matrix})

    def update(self, model: Model) -> Model:
        """Estimate MLLT and set the new matrix. Returns the model with transformed means."""
        stats = MlltStats.zeros(model.gmm.dim)
        stats.accumulate(model.gmm, self.shard.frames_by_pdf(self._pdf_of(model.trans), in_order=True))
        stats.allreduce(self.comm)
        matrix, gain = self.comm.bcast_object(estimate_mllt(stats) if self.comm.rank == 0 else None)
        if self.comm.rank == 0:
            log.info(f"MLLT: log-likelihood per frame {gain:+.4f} over {stats.beta:.0f} frames")
        self.restore({MATRIX_FILE: compose(matrix, self.matrices[MATRIX_FILE], self.shard.extended_dim)})
        return Model(model.trans, transform_means(model.gmm, matrix), model.start_gauss)

    def restore(self, matrices: dict[str, np.ndarray]) -> None:
        """Transform the features by this matrix, in the precision of its file, from now on."""
        matrix = matrices[MATRIX_FILE].astype(np.float32)
        self.matrices = {MATRIX_FILE: matrix}
        self.shard.transform(lambda utt: matrix, len(matrix))

    def write(self, out: Path) -> None:
        """Write final.mat."""
        if self.comm.rank == 0:
            write_matrix(out / MATRIX_FILE, self.matrices[MATRIX_FILE])

    def _pdf_of(self, trans: TransitionModel) -> np.ndarray:
        """The pdf of each transition-id, -1 for silence and 0 (no alignment)."""
        return SilenceWeighting(trans, self.silence_phones, 0.0).pdfs_of_alignment(
            np.arange(trans.num_tids + 1)
        )
