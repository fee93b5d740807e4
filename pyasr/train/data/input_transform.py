r"""A fixed LDA-like transform of a network's input that keeps all dimensions (Kaldi's
nnet-get-feature-transform).

LDA (`pyasr.hmm.transforms.lda`) of the spliced frames, with pdfs as classes, gives A with within-class
covariance A W A^T = I and between-class covariance A B A^T = diag(b). The input of the network is M (x - m),
where m is the mean of all frames and M is

    diag(sqrt((f + b_i) / (1 + b_i))) A      with its singular values capped at c

so dimension i has variance f + b_i: dimensions that do not discriminate pdfs (b_i near 0) are small, but not
removed. Kaldi uses f = 0.0001 and c = 5.

Reference: D. Povey, X. Zhang, S. Khudanpur, "Parallel training of DNNs with natural gradient and parameter
averaging", arXiv:1410.7455, Appendix C.6.
"""

from __future__ import annotations

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.hmm.transforms.lda import LdaStats, estimate_lda
from pyasr.parallel.communication.comm import Comm
from pyasr.train.data.minibatch_stream import Frames
from pyasr.train.data.sample import choose_frames
from pyasr.train.training_options import InputTransformOptions

_MEASURED_FRAMES = 1_000_000  # per rank
_FRAMES_PER_BLOCK = 4096


def estimate_transform(
    frames: Frames, num_pdfs: int, options: InputTransformOptions, comm: Comm
) -> torch.Tensor | None:
    """The transform from spliced frames and targets of all ranks, float32 (D, D + 1); its last column is the
    offset. None with `--input-transform none`.

    Raises UserError if there are too few frames, or if columns of the input are constant or copies of others.
    """
    if options.input_transform == "none":
        return None
    store, chosen = choose_frames(frames, _MEASURED_FRAMES * comm.size, comm, seed=0)
    stats = LdaStats.zeros(num_pdfs, (store.left + 1 + store.right) * store.dim)
    for index in chosen.split(_FRAMES_PER_BLOCK):
        x, pdfs = store.gather(index)
        stats.accumulate(x.float().cpu().numpy(), pdfs.cpu().numpy())
    try:
        return torch.from_numpy(lda_like(stats.allreduce(comm), options)).float()
    except UserError as error:
        raise UserError(f"--input-transform lda: {error}, or omit this option") from error


def lda_like(stats: LdaStats, options: InputTransformOptions) -> np.ndarray:
    """[M, -M m] of the formula above, float64 (D, D + 1)."""
    transform, ratios = estimate_lda(stats, len(stats.squares))
    ratios = np.maximum(ratios, 0.0)
    scaled = np.sqrt((options.within_class_factor + ratios) / (1.0 + ratios))[:, None] * transform
    left, singular, right = np.linalg.svd(scaled)
    matrix = (left * np.minimum(singular, options.max_singular_value)) @ right
    mean = stats.sums.sum(0) / stats.counts.sum()
    return np.hstack([matrix, -(matrix @ mean)[:, None]])
