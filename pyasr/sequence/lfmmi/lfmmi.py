r"""LF-MMI: the log-probability of the transcript relative to all possible phone sequences, without lattices.

Reference: D. Povey et al., "Purely sequence-trained neural networks for ASR based on lattice-free MMI",
Interspeech 2016; equivalent to Kaldi's chain objective. For sequences n of T frames with outputs y_nt
(logits, used as log-likelihoods without normalisation),

    F = sum_n [ log numerator_n - log denominator_n ]  -  lambda / 2 sum_nt ||y_nt||^2
    dF / dy_nt(p) = posterior of p in the numerator - posterior of p in the denominator - lambda y_nt(p)

The numerator is `supervision`'s graph, the denominator `leaky_hmm`'s forward-backward over the denominator
graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pyasr.base import log
from pyasr.decode.lattices.lattice_posteriors import forward_backward as graph_posteriors
from pyasr.sequence.lfmmi import leaky_hmm
from pyasr.sequence.lfmmi.denominator_graph import DenominatorGraph
from pyasr.sequence.lfmmi.lfmmi_options import LfMmiOptions
from pyasr.sequence.lfmmi.supervision import Supervision


@dataclass(frozen=True)
class LfMmiCounts:
    """The parts of an objective; sums are over all sequences that are not skipped.

    num_frames    at the network's frame rate
    num_skipped  number of skipped sequences, whose likelihoods were not finite
    numerator, denominator  log-likelihoods
    l2_term       -lambda / 2 sum ||y||^2
    """

    num_sequences: int
    num_frames: int
    num_skipped: int
    numerator: float
    denominator: float
    l2_term: float

    @property
    def log_prob(self) -> float:
        """log of numerator / denominator, at most 0 up to rounding."""
        return self.numerator - self.denominator


def lf_mmi(
    logits: Tensor,
    supervisions: Sequence[Supervision],
    graph: DenominatorGraph,
    options: LfMmiOptions = LfMmiOptions(),
) -> tuple[Tensor, LfMmiCounts]:
    """(F, differentiable by the logits; its parts).

    logits        (N, T, num_pdfs) float32, float64, or a narrower type, which is converted to float32
    supervisions  N; for one of fewer than T frames, the outputs of the last frames have no derivative

    Sequences whose likelihoods are not finite are skipped with a warning, in F and the counts. Raises
    ValueError for shapes that do not match.
    """
    objf, _, counts = lf_mmi_with_posteriors(logits, supervisions, graph, options)
    return objf, counts


def lf_mmi_with_posteriors(
    logits: Tensor,
    supervisions: Sequence[Supervision],
    graph: DenominatorGraph,
    options: LfMmiOptions = LfMmiOptions(),
) -> tuple[Tensor, Tensor, LfMmiCounts]:
    """(F, posteriors of pdfs in the numerators (N, T, num_pdfs), parts of F), as `lf_mmi`.

    The posteriors are the targets of cross-entropy regularisation; no gradient flows through them. They are
    zero for frames beyond a supervision's end and for skipped sequences.
    """
    _check(logits, supervisions, graph)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return _LfMmi.apply(wide, supervisions, graph, options)


class _LfMmi(torch.autograd.Function):
    """F and its derivative, which is computed in the forward pass."""

    @staticmethod
    def forward(ctx, logits, supervisions, graph, options):
        """(F, posteriors of the numerators, parts of F)."""
        numerators, posteriors = _numerators(logits, supervisions)
        derivative = posteriors.clone()
        denominators = _subtract_denominators(
            derivative, logits, supervisions, graph, options.leaky_hmm_coefficient
        )
        good = (
            torch.isfinite(numerators)
            & torch.isfinite(denominators)
            & torch.isfinite(derivative).all(dim=2).all(dim=1).cpu()
        )
        _warn(good, supervisions)
        lengths = torch.tensor([supervision.num_frames for supervision in supervisions])
        unused = (torch.arange(logits.shape[1]) >= lengths[:, None]) | ~good[:, None]
        if unused.any():
            unused = unused.to(logits.device)[:, :, None]
            logits = logits.masked_fill(unused, 0)
            for tensor in (posteriors, derivative):
                tensor.masked_fill_(unused, 0)
        l2_term = 0.0
        if options.l2_regularize:
            derivative.sub_(logits, alpha=options.l2_regularize)
            l2_term = (
                -0.5
                * options.l2_regularize
                * float(torch.einsum("ntp,ntp->nt", logits, logits).double().sum())
            )
        ctx.save_for_backward(derivative)
        counts = LfMmiCounts(
            int(good.sum()),
            int(lengths[good].sum()),
            int((~good).sum()),
            float(numerators[good].sum()),
            float(denominators[good].sum()),
            l2_term,
        )
        ctx.mark_non_differentiable(posteriors)
        return logits.new_tensor(counts.log_prob + l2_term), posteriors, counts

    @staticmethod
    @once_differentiable
    def backward(ctx, by_objf, *_):
        (derivative,) = ctx.saved_tensors
        return by_objf * derivative, None, None, None


def _check(logits: Tensor, supervisions: Sequence[Supervision], graph: DenominatorGraph) -> None:
    if logits.ndim != 3 or logits.shape[0] != len(supervisions) or not logits.numel():
        raise ValueError(
            f"expected logits of shape (sequences, frames, pdfs) for {len(supervisions)} supervisions, "
            f"got {tuple(logits.shape)}"
        )
    if logits.shape[2] != graph.num_pdfs:
        raise ValueError(
            f"the network has {logits.shape[2]} outputs, but the denominator graph has {graph.num_pdfs} pdfs"
        )
    for supervision in supervisions:
        if not 0 < supervision.num_frames <= logits.shape[1]:
            found = (
                f"a supervision of {supervision.num_frames} frames, but the network's output has "
                f"{logits.shape[1]}"
            )
            raise ValueError(f"{supervision.key}: {found}")
        if supervision.slot_pdfs.min() < 0 or supervision.slot_pdfs.max() >= graph.num_pdfs:
            raise ValueError(
                f"{supervision.key}: pdf {supervision.slot_pdfs.max()} in a supervision, but the model has "
                f"{graph.num_pdfs}"
            )


def _numerators(logits: Tensor, supervisions: Sequence[Supervision]) -> tuple[Tensor, Tensor]:
    """(log-likelihoods float64 (N) on the CPU, posteriors like `logits`); copies only the outputs that the
    graphs need to the host."""
    num_frames, num_pdfs = logits.shape[1:]
    places = [
        (number * num_frames + supervision.slot_frames.astype(np.int64)) * num_pdfs + supervision.slot_pdfs
        for number, supervision in enumerate(supervisions)
    ]
    where = torch.from_numpy(np.concatenate(places)).to(logits.device)
    outputs = logits.reshape(-1)[where].double().cpu().numpy()
    ends = np.cumsum([len(place) for place in places])[:-1]
    done = [
        _one_numerator(supervision, own) for supervision, own in zip(supervisions, np.split(outputs, ends))
    ]
    values = torch.from_numpy(np.concatenate([posteriors for _, posteriors in done])).to(logits)
    posteriors = logits.new_zeros(logits.numel()).index_copy_(0, where, values).view(logits.shape)
    return torch.tensor([log_like for log_like, _ in done], dtype=torch.float64), posteriors


def _one_numerator(supervision: Supervision, outputs: np.ndarray) -> tuple[float, np.ndarray]:
    """(log-likelihood, posteriors float64 (num_slots))."""
    costs = -(supervision.log_probs + outputs[supervision.slots])
    if not np.isfinite(costs).all():
        return float("nan"), np.zeros(len(outputs))
    posteriors, cost = graph_posteriors(supervision.sources, supervision.targets, costs, supervision.finals)
    return -cost, np.bincount(supervision.slots, posteriors, len(outputs))


def _subtract_denominators(
    derivative: Tensor, logits: Tensor, supervisions, graph: DenominatorGraph, leak: float
) -> Tensor:
    """Subtract the denominators' posteriors from `derivative`; returns their log-likelihoods, float64 (N), on
    the CPU."""
    lengths = np.array([supervision.num_frames for supervision in supervisions])
    log_likes, posteriors = leaky_hmm.forward_backward(logits, graph, leak, lengths)
    derivative.sub_(posteriors)
    return log_likes.cpu()


def _warn(good: Tensor, supervisions: Sequence[Supervision]) -> None:
    if not good.all():
        bad = [supervisions[number].key for number in torch.nonzero(~good).flatten().tolist()]
        log.warning(
            f"LF-MMI: {len(bad)} of {len(supervisions)} sequences have no finite likelihood and are "
            f"skipped: {' '.join(bad[:5])}"
        )
