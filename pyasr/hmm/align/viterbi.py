"""Viterbi alignment of an utterance to its training graph, with a beam, and the equal alignment that training
starts from.

Log-likelihoods of GMMs are computed on demand: for a pdf and a block of frames, when a path first needs them.
This is a small part of all pdfs and frames of an utterance's graph.

Scores are negated costs: -cost(path) + acoustic_scale * log-likelihoods, summed in float64. The result is the
best of all paths within the beam (at every frame, at most `beam` below the best); with an infinite beam, it
is the best of all paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pyasr.base.cli.options import option
from pyasr.base.compiled.array_copies import copy_into
from pyasr.base.compiled.kernels import njit
from pyasr.hmm.graphs.training_graphs import TrainingGraph
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.gmm_kernels import BLOCK, augmented_blocks, score_block


@dataclass(frozen=True)
class AlignOptions:
    """Alignment of utterances to their transcripts. Defaults are Kaldi's."""

    heading = "alignment"

    beam: float = option(10.0, "beam of the alignment", minimum=0.1)
    retry_beam: float = option(
        40.0,
        "beam of the second attempt if the first does not reach the end; 0: no second attempt",
        minimum=0.0,
    )
    acoustic_scale: float = option(0.1, "weight of the acoustic log-likelihoods", minimum=0.0, rare=True)
    transition_scale: float = option(
        1.0, "weight of the transition log-probabilities except for self-loops", minimum=0.0, rare=True
    )
    self_loop_scale: float = option(
        0.1, "weight of the log-probabilities of self-loops", minimum=0.0, rare=True
    )


class _Likelihoods(NamedTuple):
    """Log-likelihoods of an utterance, and the data to compute them.

    scores                 float32 (num_blocks, num_pdfs, BLOCK)
    ready                  bool (num_blocks, num_pdfs): which scores are computed
    matrix, gauss_offsets  the Gaussians of all pdfs
    pdfs                   the pdfs of the utterance
    blocks, scratch        the frames of the utterance, and work memory for a block
    """

    scores: np.ndarray
    ready: np.ndarray
    matrix: np.ndarray
    gauss_offsets: np.ndarray
    pdfs: np.ndarray
    blocks: np.ndarray
    scratch: np.ndarray


class _GraphNodes(NamedTuple):
    """The arrays of a `TrainingGraph`."""

    tids: np.ndarray
    loops: np.ndarray
    offsets: np.ndarray
    successors: np.ndarray
    costs: np.ndarray
    initial: np.ndarray
    final: np.ndarray
    node_pdf: np.ndarray


# previous: index of the preceding token
_TOKEN = np.dtype([("node", "i4"), ("previous", "i4"), ("score", "f8")])


@njit(nogil=True, cache=True)
def _search(num_frames, likelihoods, scale, beam, tid_costs, graph):
    """(score, nodes): the node of each frame on the best path; (-inf, no nodes) if no path within the beam
    ends in a final node.

    The tokens of frame t are frame_offsets[t]:frame_offsets[t+1].
    """
    tids = graph.tids
    loops = graph.loops
    offsets = graph.offsets
    successors = graph.successors
    costs = graph.costs
    scores, ready, node_pdf, num_nodes = likelihoods.scores, likelihoods.ready, graph.node_pdf, len(tids)
    tokens = np.empty(64 * num_frames + 2 * num_nodes, _TOKEN)
    slot = np.full(num_nodes, -1, np.int32)
    frame_offsets = np.zeros(num_frames + 1, np.int64)
    end = 0
    for v in range(num_nodes):
        if graph.initial[v] < np.inf:
            tokens[end].node, tokens[end].previous = v, -1
            if not ready[0, node_pdf[v]]:
                _make_ready(0, node_pdf[v], likelihoods)
            tokens[end].score = scale * scores[0, node_pdf[v], 0] - graph.initial[v] - tid_costs[tids[v]]
            end += 1
    for t in range(num_frames):
        frame_offsets[t + 1] = end
        if t == num_frames - 1:
            break
        begin = frame_offsets[t]
        best = -np.inf
        for k in range(begin, end):
            best = max(best, tokens[k].score)
        if end + num_nodes > len(tokens):
            larger = np.empty(2 * len(tokens) + num_nodes, _TOKEN)
            copy_into(larger, 0, tokens[:end])
            tokens = larger
        new = end
        for k in range(begin, end):
            score = tokens[k].score
            if not score >= best - beam:
                continue
            u = tokens[k].node
            if loops[u] > 0:
                new = _relax(u, score - tid_costs[loops[u]], k, end, new, slot, tokens)
            for e in range(offsets[u], offsets[u + 1]):
                v = successors[e]
                new = _relax(v, score - costs[e] - tid_costs[tids[v]], k, end, new, slot, tokens)
        block, frame = (t + 1) // BLOCK, (t + 1) % BLOCK
        for k in range(end, new):
            v = tokens[k].node
            if not ready[block, node_pdf[v]]:
                _make_ready(block, node_pdf[v], likelihoods)
            tokens[k].score += scale * scores[block, node_pdf[v], frame]
            slot[v] = -1
        end = new
    return _trace_back(num_frames, frame_offsets[num_frames - 1], end, graph.final, tokens)


@njit(inline="always")
def _trace_back(num_frames, begin, end, final, tokens):
    """The result of `_search`, from the tokens `begin`:`end` of the last frame."""
    best, last = -np.inf, -1
    for k in range(begin, end):
        score = tokens[k].score - final[tokens[k].node]
        if score > best:
            best, last = score, k
    nodes = np.empty(num_frames if last >= 0 else 0, np.int32)
    for t in range(len(nodes) - 1, -1, -1):
        nodes[t] = tokens[last].node
        last = tokens[last].previous
    return best, nodes


@njit(inline="always")
def _make_ready(block, pdf, likelihoods):
    """Compute the log-likelihoods of a pdf (index into those of the utterance) for the frames of a block."""
    first = likelihoods.pdfs[pdf]
    begin, end = likelihoods.gauss_offsets[first], likelihoods.gauss_offsets[first + 1]
    frames, scores = likelihoods.blocks[block], likelihoods.scores[block, pdf]
    score_block(likelihoods.matrix, begin, end, frames, likelihoods.scratch, scores)
    likelihoods.ready[block, pdf] = True


@njit(inline="always")
def _relax(node, score, previous, first, new, slot, tokens):
    """Offer a path into `node`. Returns the end of the tokens, one more if the node had no token."""
    k = slot[node]
    if k < first:
        slot[node] = new
        tokens[new].node, tokens[new].previous, tokens[new].score = node, previous, score
        return new + 1
    if score > tokens[k].score:
        tokens[k].previous, tokens[k].score = previous, score
    return new


@njit(nogil=True, cache=True)
def _tids_of_nodes(nodes, tids, loops):
    """The forward transition if the path enters a node, the self-loop if it stays."""
    alignment = np.empty(len(nodes), np.int32)
    for t in range(len(nodes)):
        stays = t > 0 and nodes[t] == nodes[t - 1]
        alignment[t] = loops[nodes[t]] if stays else tids[nodes[t]]
    return alignment


_NO_GAUSSIANS = (np.zeros((0, 0), np.float32), np.zeros(0, np.int64))
_NO_FRAMES = (np.zeros((0, 0, BLOCK), np.float32), np.zeros((0, BLOCK), np.float32))


def align_gmm(
    graph: TrainingGraph, model: AmDiagGmm, feats: np.ndarray, tid_costs: np.ndarray, options: AlignOptions
):
    """As `align`, with the log-likelihoods of a GMM for feats (T, dim)."""
    blocks = augmented_blocks(model.checked(feats))
    shape = (len(blocks), len(graph.pdfs))
    frames = (blocks, np.empty((int(model.num_gauss_of.max()) + 2, BLOCK), np.float32))
    scores, ready = np.empty((*shape, BLOCK), np.float32), np.zeros(shape, np.bool_)
    return _align(
        graph, len(feats), scores, ready, (model.exponent_matrix, model.offsets), frames, tid_costs, options
    )


def align(graph: TrainingGraph, acoustic: np.ndarray, tid_costs: np.ndarray, options: AlignOptions):
    """The best path: (transition-ids int32 (T) or None, its score, whether the retry beam was needed).

    acoustic   float32 (len(graph.pdfs), T), log-likelihoods of the graph's pdfs
    tid_costs  from `transition_costs`
    """
    num_pdfs, num_frames = acoustic.shape
    padded = np.zeros((num_pdfs, -(-num_frames // BLOCK) * BLOCK), np.float32)
    padded[:, :num_frames] = acoustic
    scores = np.ascontiguousarray(padded.reshape(num_pdfs, -1, BLOCK).transpose(1, 0, 2))
    return _align(
        graph,
        num_frames,
        scores,
        np.ones(scores.shape[:2], np.bool_),
        _NO_GAUSSIANS,
        _NO_FRAMES,
        tid_costs,
        options,
    )


def _align(graph, num_frames: int, scores, ready, gaussians, frames, tid_costs, options):
    (matrix, gauss_offsets), (blocks, scratch) = gaussians, frames
    likelihoods = _Likelihoods(scores, ready, matrix, gauss_offsets, graph.pdfs, blocks, scratch)
    of_graph = _GraphNodes(*(getattr(graph, name) for name in _GraphNodes._fields))
    beams = [options.beam] + ([options.retry_beam] if options.retry_beam > options.beam else [])
    for beam in beams if num_frames else []:
        score, nodes = _search(num_frames, likelihoods, options.acoustic_scale, beam, tid_costs, of_graph)
        if len(nodes):
            return _tids_of_nodes(nodes, graph.tids, graph.loops), score, beam != options.beam
    return None, -np.inf, True


@njit(nogil=True, cache=True)
def _random_path(offsets, successors, initial, final, loops, draws):
    """Nodes of a random walk from an initial to a final node, all continuations equally likely; empty if it
    needs too many draws."""
    starts = np.flatnonzero(initial < np.inf)
    path = [np.int32(starts[int(draws[0] * len(starts))])]
    for draw in draws[1:]:
        node = path[-1]
        num_ways = offsets[node + 1] - offsets[node] + (final[node] < np.inf)
        way = int(draw * num_ways)
        if way == offsets[node + 1] - offsets[node]:
            return np.array(path, dtype=np.int32)
        path.append(successors[offsets[node] + way])
    path.clear()
    return np.array(path, dtype=np.int32)


def align_equal(
    graph: TrainingGraph, num_frames: int, rng: np.random.Generator, num_attempts: int = 10
) -> np.ndarray | None:
    """Transition-ids (num_frames) of a random path whose nodes get equal numbers of frames; None if no path
    of `num_attempts` is short enough.

    The start of training from scratch, as Kaldi's align-equal-compiled. Remaining frames go to the first
    nodes.
    """
    for _ in range(num_attempts):
        path = _random_path(
            graph.offsets,
            graph.successors,
            graph.initial,
            graph.final,
            graph.loops,
            rng.random(num_frames + 1),
        )
        can_stay = graph.loops[path] > 0
        if 0 < len(path) <= num_frames and (can_stay.any() or len(path) == num_frames):
            repeats = np.ones(len(path), np.int64)
            share, rest = divmod(num_frames - len(path), max(int(can_stay.sum()), 1))
            repeats[can_stay] += share + (np.arange(can_stay.sum()) < rest)
            tids = np.repeat(graph.loops[path], repeats)
            tids[np.concatenate([[0], np.cumsum(repeats)[:-1]])] = graph.tids[path]
            return tids.astype(np.int32)
    return None
