r"""Forward-backward of a batch of sequences over a denominator graph: log-likelihoods, and posteriors of pdfs
at each frame.

With x_t(p) = exp y_t(p), entries e = (target state, pdf) and arcs s -> e of weight w, initial probabilities
pi and the leak eps, the weight of a transition from any state to any other between two frames (D. Povey et
al., Interspeech 2016, section 2.4):

    a'_0 = (1 + eps) pi                                                                                  (1)
    f_t(e) = sum over arcs s -> e of w a'_{t-1}(s)
    u_t(j) = sum over entries e into j of x_t(pdf of e) f_t(e)                                           (2)
    c_t = sum_j u_t(j),    a'_t = u_t / c_t + eps pi,    log-likelihood = sum_t log c_t + log(1 + eps)   (3)
    b_T = 1,    g_t(e) = x_t(pdf of e) b_t(target of e) / c_t                                            (4)
    b'_{t-1}(s) = sum over arcs s -> e of w g_t(e)
    b_{t-1}(s) = b'_{t-1}(s) + eps sum_j pi(j) b'_{t-1}(j)                                               (5)
    posterior of p at t = sum over entries e with pdf p of f_t(e) g_t(e)                                 (6)

x_t is first divided by its maximum over the graph's pdfs. (3) adds eps pi without a factor because u_t / c_t
sums to one. Every state's leak at the end of (3) is the factor 1 + eps: all states are final. For a sequence
shorter than others in the batch, (2) and (3) continue without effect, and the backward pass begins with b_T =
1 at the sequence's own end.

With scaling by c_t at each frame, the sums are as accurate as sums of logarithms, also in float32, because of
the leak: a'_t(j) is at least eps pi(j), and sum_j a'_t(j) b'_t(j) is 1, so neither leaves the type's range,
and an underflow is negligible compared to eps pi(j). Without a leak, a state may underflow that would have
been the best one later. If the posteriors of a frame do not sum to one, this has happened.

On CPUs, the loops process blocks of sequences of similar length, with the sequences in the unit-stride
dimension. On GPUs, sums over arcs are products with sparse matrices, which are created once per graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyasr.base.compiled.kernels import njit
from pyasr.sequence.lfmmi.denominator_graph import DenominatorGraph

_BLOCK = 16  # sequences per block: fills some vector registers, and the states of a block stay in the cache
# maximum deviation of a frame's sum of posteriors from one; rounding causes 2e-4 in 10,000 frames of float32
_MAX_DEVIATION = 0.01
# maximum size of f_t(e), stored for all frames of a block; long sequences get smaller blocks
_FLOW_BYTES = 1 << 29


@dataclass(frozen=True)
class _Scores:
    """x (T, num_pdfs, N) of a batch, and the logarithms of its divisors, float64 (T, N)."""

    x: Tensor
    log_scale: Tensor


def _scores(logits: Tensor, in_graph: Tensor) -> _Scores:
    largest = logits.index_select(2, in_graph).amax(dim=2, keepdim=True)
    x = (logits - largest).clamp(max=0.0).exp()
    return _Scores(x.permute(1, 2, 0).contiguous(), largest.squeeze(2).double().T)


def forward_backward(
    logits: Tensor, graph: DenominatorGraph, leak: float, lengths: np.ndarray | None = None
) -> tuple[Tensor, Tensor]:
    """(log-likelihoods float64 (N), posteriors (N, T, num_pdfs)) of `logits` (N, T, num_pdfs), float32 or
    float64.

    lengths  frames of each sequence, int (N), at least 1: later frames are ignored and have posteriors of 0;
             None: T

    A sequence whose likelihood is 0 or NaN, or whose posteriors do not sum to one in some frame, gets a
    log-likelihood that is not finite and meaningless posteriors. If `leak` is 0, losses may be undetected for
    outputs that differ by more than the logarithm of the type's range (87 for float32).
    """
    over = _over_blocks if logits.device.type == "cpu" else _by_sparse_matrices
    lengths = np.full(len(logits), logits.shape[1]) if lengths is None else np.asarray(lengths)
    return over(logits, graph, leak, lengths.astype(np.int64))


def _over_blocks(
    logits: Tensor, graph: DenominatorGraph, leak: float, lengths: np.ndarray
) -> tuple[Tensor, Tensor]:
    each = logits.shape[1] * graph.num_entries * logits.element_size()
    log_likes, posteriors = torch.empty(len(logits), dtype=torch.float64), torch.zeros_like(logits)
    order, size = np.argsort(-lengths, kind="stable"), max(1, min(_BLOCK, _FLOW_BYTES // each))
    for begin in range(0, len(order), size):
        block = order[begin : begin + size]
        own = lengths[block]
        log_likes[block], posteriors[block, : own[0]] = _one_block(logits[block, : own[0]], graph, leak, own)
    return log_likes, posteriors


def _one_block(
    logits: Tensor, graph: DenominatorGraph, leak: float, lengths: np.ndarray
) -> tuple[Tensor, Tensor]:
    scores = _scores(logits, torch.from_numpy(graph.pdfs))
    x = scores.x.numpy()
    kind, leak = x.dtype, x.dtype.type(leak)
    entries, (offsets, places, probs) = _EntryTables(graph.entry_targets, graph.entry_pdfs), graph.by_source
    into = _EntryArcs(graph.arc_offsets, graph.arc_sources, graph.arc_probs.astype(kind))
    initial = graph.initial_probs.astype(kind)
    flows, totals, scales = _forward(x, into, entries, initial, leak)
    posteriors = _backward(
        x, flows, scales, lengths, _EntryArcs(offsets, places, probs.astype(kind)), entries, initial, leak
    )
    return _results(
        torch.from_numpy(totals), torch.from_numpy(posteriors), scores, leak, torch.from_numpy(lengths)
    )


def _results(
    totals: Tensor, posteriors: Tensor, scores: _Scores, leak: float, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """The result of `forward_backward`, from c (T, N) and posteriors (T, num_pdfs, N); lengths int64 (N), on
    the same device."""
    behind = torch.arange(len(totals), device=totals.device)[:, None] >= lengths
    log_likes = (totals.double().log() + scores.log_scale).masked_fill_(behind, 0).sum(dim=0) + np.log1p(
        float(leak)
    )
    off = (posteriors.sum(dim=1) - 1).masked_fill_(behind, 0).abs().amax(dim=0)
    posteriors.masked_fill_(behind[:, None], 0)
    return torch.where(off < _MAX_DEVIATION, log_likes, torch.nan), posteriors.permute(2, 0, 1)


class _EntryTables(NamedTuple):
    """The target state and the pdf of each entry."""

    targets: np.ndarray
    pdfs: np.ndarray


class _EntryArcs(NamedTuple):
    """Those of an entry, with the states that they leave, or those of a state, with the entries that they
    lead to, at offsets[i]:offsets[i + 1]."""

    offsets: np.ndarray
    others: np.ndarray
    probs: np.ndarray


@njit(nogil=True, cache=True, fastmath={"contract"})
def _forward(x, into, entries, initial, leak):
    """(f (T, num_entries, B), c (T, B), 1 / c) of x (T, num_pdfs, B), by (1)-(3); 1 / 0 is 0."""
    arc_offsets, arc_sources, arc_probs = into.offsets, into.others, into.probs
    entry_targets, entry_pdfs = entries.targets, entries.pdfs
    num_frames, _, size = x.shape
    num_states, num_entries = len(initial), len(entry_targets)
    flows = np.zeros((num_frames, num_entries, size), x.dtype)
    totals, scales = np.zeros((num_frames, size), x.dtype), np.zeros((num_frames, size), x.dtype)
    alpha = np.empty((num_states, size), x.dtype)
    new = np.empty((num_states, size), x.dtype)
    for s in range(num_states):
        alpha[s] = initial[s] + leak * initial[s]
    for t in range(num_frames):
        total, scale = totals[t], scales[t]
        new[:] = 0
        for e in range(num_entries):
            flow, score, target = flows[t, e], x[t, entry_pdfs[e]], new[entry_targets[e]]
            for a in range(arc_offsets[e], arc_offsets[e + 1]):
                prob, source = arc_probs[a], alpha[arc_sources[a]]
                for b in range(size):
                    flow[b] += prob * source[b]
            for b in range(size):
                target[b] += score[b] * flow[b]
        for s in range(num_states):
            for b in range(size):
                total[b] += new[s, b]
        for b in range(size):
            if total[b] > 0:
                scale[b] = 1 / total[b]
        for s in range(num_states):
            for b in range(size):
                alpha[s, b] = new[s, b] * scale[b] + leak * initial[s]
    return flows, totals, scales


@njit(nogil=True, cache=True, fastmath={"contract"})
def _backward(x, flows, scales, lengths, out_of, entries, initial, leak):
    """Posteriors (T, num_pdfs, B) by (4)-(6), from f and 1 / c."""
    arc_offsets, arc_entries, arc_probs = out_of.offsets, out_of.others, out_of.probs
    entry_targets, entry_pdfs = entries.targets, entries.pdfs
    num_frames, num_pdfs, size = x.shape
    num_states, num_entries = len(initial), len(entry_targets)
    posteriors = np.zeros((num_frames, num_pdfs, size), x.dtype)
    beta = np.ones((num_states, size), x.dtype)
    back = np.empty((num_entries, size), x.dtype)
    leaked = np.empty(size, x.dtype)
    for t in range(num_frames - 1, -1, -1):
        scale = scales[t]
        for b in range(size):
            if lengths[b] == t + 1:
                beta[:, b] = 1
        for e in range(num_entries):
            score = x[t, entry_pdfs[e]]
            target = beta[entry_targets[e]]
            sums = posteriors[t, entry_pdfs[e]]
            flow = flows[t, e]
            for b in range(size):
                back[e, b] = score[b] * target[b] * scale[b]
                sums[b] += flow[b] * back[e, b]
        leaked[:] = 0
        for s in range(num_states):
            own = beta[s]
            own[:] = 0
            for a in range(arc_offsets[s], arc_offsets[s + 1]):
                prob, entry = arc_probs[a], back[arc_entries[a]]
                for b in range(size):
                    own[b] += prob * entry[b]
            for b in range(size):
                leaked[b] += initial[s] * own[b]
        for s in range(num_states):
            for b in range(size):
                beta[s, b] += leak * leaked[b]
    return posteriors


def _by_sparse_matrices(
    logits: Tensor, graph: DenominatorGraph, leak: float, lengths: np.ndarray
) -> tuple[Tensor, Tensor]:
    """The same in plain torch, for all sequences together, on any device, without synchronisation."""
    on, ends = _OnDevice.of(graph, logits), torch.from_numpy(lengths).to(logits.device, non_blocking=True)
    scores = _scores(logits, on.in_graph)
    num_frames, _, size = scores.x.shape
    alpha, flows, totals, scales = (on.initial + leak * on.initial).repeat(1, size), [], [], []
    for x in scores.x:
        flows.append(on.into @ alpha)
        new = alpha.new_zeros(alpha.shape).index_add_(0, on.targets, x[on.pdfs] * flows[-1])
        totals.append(new.sum(dim=0))
        scales.append(torch.where(totals[-1] > 0, 1 / totals[-1], 0))
        alpha = new * scales[-1] + leak * on.initial
    beta, posteriors = torch.ones_like(alpha), torch.zeros_like(scores.x)
    for t in range(num_frames - 1, -1, -1):
        if t + 1 in lengths:
            beta.masked_fill_(ends == t + 1, 1)
        back = scores.x[t][on.pdfs] * beta[on.targets] * scales[t]
        posteriors[t].index_add_(0, on.pdfs, flows[t] * back)
        beta = on.out_of @ back
        beta = beta + leak * (on.initial * beta).sum(dim=0)
    return _results(torch.stack(totals), posteriors, scores, leak, ends)


@dataclass(frozen=True)
class _OnDevice:
    """A graph as tensors of one device and type.

    into           (num_entries, num_states), sparse: sums the flow into entries
    out_of         its transpose
    targets, pdfs  int64 (num_entries), of entries
    in_graph       int64: the pdfs of all arcs
    initial        (num_states, 1)
    """

    into: Tensor
    out_of: Tensor
    targets: Tensor
    pdfs: Tensor
    in_graph: Tensor
    initial: Tensor

    @classmethod
    def of(cls, graph: DenominatorGraph, like: Tensor) -> _OnDevice:
        """The graph on the device and in the type of a tensor; created once and cached with the graph."""
        kept, place = graph.kept, (cls, like.device, like.dtype)
        if place not in kept:
            kept[place] = cls._made(graph, like)
        return kept[place]

    @classmethod
    def _made(cls, graph: DenominatorGraph, like: Tensor) -> _OnDevice:
        arcs = torch.from_numpy(np.stack([graph.arc_entries, graph.arc_sources]).astype(np.int64))
        size = graph.num_entries, graph.num_states
        into = torch.sparse_coo_tensor(arcs, torch.from_numpy(graph.arc_probs), size, check_invariants=False)
        into, out_of = (matrix.coalesce().to(like) for matrix in (into, into.t()))
        targets, pdfs, in_graph = (
            torch.from_numpy(array).to(like.device, torch.int64)
            for array in (graph.entry_targets, graph.entry_pdfs, graph.pdfs)
        )
        initial = torch.from_numpy(graph.initial_probs).to(like)[:, None]
        return cls(into, out_of, targets, pdfs, in_graph, initial)
