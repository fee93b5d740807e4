r"""The universal background model: one diagonal Gaussian mixture of all frames, which gives the Gaussians of
a frame.

One Gaussian is split step by step during EM, over all ranks, with the statistics and updates of the mixtures
of acoustic models. The halves of a Gaussian are moved apart by a whole standard deviation, because no pdfs
keep mixtures small and EM off saddle points.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import group, option
from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.base.outputs.progress_note import Course
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.gmm_update import (
    GmmStats,
    GmmUpdateOptions,
    PdfFrames,
    accumulate,
    blocks,
    global_moments,
    mix_up,
    pdf_blocks,
    update,
)
from pyasr.io.kaldi_objects import KaldiReader, KaldiWriter

UBM_FILE = "final.dubm"


@dataclass(frozen=True)
class UbmOptions:
    """Size and training of the UBM. After iteration x of the I iterations with splits, it has num_gauss^((x +
    1) / I) Gaussians."""

    heading = "background model"

    num_gauss: int = option(128, "number of Gaussians of the UBM", minimum=1)
    ubm_iters: int = option(24, "number of EM iterations of the UBM", minimum=1)
    ubm_split_iters: int = option(
        16, "number of initial iterations after which Gaussians are split", minimum=1
    )
    ubm_subsample: int = option(
        5, "use every N-th frame to train the UBM; 1: all frames", minimum=1, rare=True
    )
    update: GmmUpdateOptions = group(GmmUpdateOptions, perturb_factor=1.0)
    seed: int = option(
        0, "seed of the splits of Gaussians and of the initial directions of the extractor", rare=True
    )

    def target(self, x: int) -> int:
        """Number of Gaussians after iteration `x` (0-based)."""
        return round(self.num_gauss ** min((x + 1) / self.ubm_split_iters, 1.0))

    def check(self) -> None:
        """Raise UserError if the iterations end before the UBM has all Gaussians."""
        reached = self.target(self.ubm_iters - 2)  # there is no split after the last iteration
        if reached < self.num_gauss:
            raise UserError(
                f"--ubm-iters {self.ubm_iters} would end with {reached} of --num-gauss {self.num_gauss} "
                f"Gaussians; give more iterations than --ubm-split-iters {self.ubm_split_iters}, or lower "
                "that"
            )


@dataclass(frozen=True)
class PosteriorOptions:
    """Weights of a frame for the Gaussians; option names are Kaldi's."""

    heading = "i-vectors"

    posterior_scale: float = option(
        0.1, "factor on posteriors, because adjacent frames are correlated", minimum=1e-3, maximum=1.0
    )
    min_post: float = option(
        0.025, "minimum posterior of a Gaussian; smaller ones are set to 0", minimum=0.0, maximum=1.0
    )


def train_ubm(feats: np.ndarray, comm, options: UbmOptions) -> AmDiagGmm:
    """The mixture of the frames (T, D) of all ranks, the same on every rank. Raises UserError if they are too
    few."""
    mean, variances, num_frames = global_moments(feats, comm)
    if num_frames < 2 * options.update.min_count:
        raise UserError(
            f"{num_frames:.0f} frames are too few for a UBM; give more data, or lower --ubm-subsample"
        )
    floored = np.maximum(variances, options.update.min_variance)
    model = AmDiagGmm.from_moments([0, 1], [1.0], mean[None], floored[None])
    course = Course("iteration of the UBM", options.ubm_iters)
    for x in range(options.ubm_iters):
        stats = GmmStats.zeros(model)
        accumulate(model, _frames(feats), stats)
        stats.allreduce(comm)
        model = comm.bcast_object(_next_model(model, stats, options, x) if comm.rank == 0 else None)
        if comm.rank == 0:
            course.tell(x + 1, stats.log_like / stats.num_frames, stats.num_frames)
    return model


def _frames(feats: np.ndarray) -> PdfFrames:
    """Frames (T, D) that all belong to a single pdf."""
    return ((0, block) for block in blocks(feats))


def report_size(directory: Path, options: UbmOptions) -> None:
    """Warn if the UBM in DIRECTORY has fewer Gaussians than requested."""
    num_gauss = read_ubm(directory / UBM_FILE).num_gauss
    if num_gauss < options.num_gauss:
        fault = f"the UBM has {num_gauss} Gaussians, not {options.num_gauss}"
        log.warning(
            f"{fault}: the others would have had too few frames; lower --num-gauss, or train on more data"
        )


def _next_model(model: AmDiagGmm, stats: GmmStats, options: UbmOptions, x: int) -> AmDiagGmm:
    log.info(
        f"UBM iteration {x}: log-likelihood per frame {stats.log_like / stats.num_frames:.4f} over "
        f"{stats.num_frames:.0f} frames, {model.num_gauss} Gaussians"
    )
    model = update(model, stats, options.update)
    if x >= options.ubm_split_iters or x + 1 == options.ubm_iters:
        return model
    return mix_up(
        model,
        np.array([stats.num_frames]),
        options.target(x),
        options.update,
        generator(options.seed, "ubm", x),
    )


def frame_posteriors(ubm: AmDiagGmm, feats: np.ndarray, options: PosteriorOptions) -> np.ndarray:
    """p(g | x_t), float64 (T, num_gauss), rows sum to `posterior_scale`; those below `min_post` are zero,
    except the largest of a row."""
    result, begin = np.zeros((len(feats), ubm.num_gauss)), 0
    for block in pdf_blocks(ubm, _frames(feats)):
        result[begin : begin + len(block.feats)] = block.posteriors.T
        begin += len(block.feats)
    if len(feats):
        result[result < np.minimum(result.max(1, keepdims=True), options.min_post)] = 0.0
        result *= options.posterior_scale / result.sum(1, keepdims=True)
    return result


def write_ubm(path: Path, ubm: AmDiagGmm) -> None:
    """Write Kaldi's `final.dubm`, atomically."""
    with KaldiWriter(path) as writer:
        ubm.write_single(writer)


def read_ubm(path: Path) -> AmDiagGmm:
    """The UBM in a file of `write_ubm` or Kaldi. Raises UserError with file and byte for other content."""
    reader = KaldiReader(path)
    ubm = AmDiagGmm.read_single(reader)
    reader.expect_end()
    return ubm
