"""Small models for tests of LF-MMI, and its quantities by plain enumeration."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import torch

from pyasr.hmm.model.topology import HmmState, Topology, left_to_right
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree, Leaf, Split, TreeTable
from pyasr.sequence.lfmmi.chain import AlignedPhones, chain_topology, windows_of
from pyasr.sequence.lfmmi.denominator_graph import DenominatorGraph
from pyasr.sequence.lfmmi.supervision import SupervisionOptions

PHONES = (1, 2, 3)


def random_sequences(seed: int, num: int = 12, longest: int = 6) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.choice(PHONES, rng.integers(1, longest + 1), p=(0.5, 0.3, 0.2)) for _ in range(num)]


def tree_of(width: int, centre: int, num_classes: int = 2, tied: bool = False) -> ContextTree:
    """One or two leaves for each phone and pdf-class, split by a neighbour. With `tied`, the classes of phone
    3 share one pdf."""
    numbers = iter(range(100))

    def leaf(phone):
        if phone == 1 and width > 1:
            return Split(
                0 if centre else width - 1, frozenset({0, 2}), Leaf(next(numbers)), Leaf(next(numbers))
            )
        if phone == 2 and width - centre > 1:
            return Split(width - 1, frozenset({0, 1}), Leaf(next(numbers)), Leaf(next(numbers)))
        return Leaf(next(numbers))

    children = [None]
    for phone in PHONES:
        shared = Leaf(next(numbers)) if tied and phone == 3 else None
        children.append(TreeTable(-1, tuple(shared or leaf(phone) for _ in range(num_classes))))
    return ContextTree(width, centre, TreeTable(centre, tuple(children)))


def chain_model(width: int = 2, centre: int = 1, tied: bool = False) -> tuple[TransitionModel, ContextTree]:
    tree = tree_of(width, centre, tied=tied)
    return random_probs(TransitionModel.from_tree(chain_topology(PHONES), tree)), tree


def skipping_model() -> tuple[TransitionModel, ContextTree]:
    """Two states with self-loops each; phone 1 may skip the second."""
    skip = (HmmState(0, ((0, 0.25), (1, 0.25), (2, 0.5))), *left_to_right(2)[1:])
    topology, tree = Topology([skip, left_to_right(2)], {1: 0, 2: 1, 3: 1}), tree_of(2, 1)
    return random_probs(TransitionModel.from_tree(topology, tree)), tree


def random_probs(trans: TransitionModel, seed: int = 3) -> TransitionModel:
    trans.update(np.random.default_rng(seed).uniform(10, 100, trans.num_tids + 1))
    return trans


def phone_strings(num_phones: int):
    """All strings of up to `num_phones` phones."""
    for length in range(1, num_phones + 1):
        yield from itertools.product(PHONES, repeat=length)


def model_probs(phones, num_frames: int, trans: TransitionModel, tree: ContextTree) -> Counter:
    """{(string of pdfs, index of each frame's phone): probability} of all complete paths of `phones` through
    their HMMs."""
    windows, found = windows_of(np.array(phones), tree), Counter()

    def arcs(place, state):
        pdf = tree.pdf(tuple(windows[place]), trans.topology.entry(phones[place])[state].pdf_class)
        tids = trans.tids_of(trans.transition_state(phones[place], state, pdf))
        return pdf, [
            (int(trans.tid2next_hmm_state[t]), float(np.exp(trans.log_prob[t])), bool(trans.is_final[t]))
            for t in tids
        ]

    def walk(place, state, pdfs, places, prob):
        pdf, ways = arcs(place, state)
        pdfs, places = (*pdfs, pdf), (*places, place)
        for to, p, leaves in ways:
            last = leaves and place == len(phones) - 1
            if last and len(pdfs) == num_frames:
                found[pdfs, places] += prob * p
            elif not last and len(pdfs) < num_frames:
                walk(place + leaves, 0 if leaves else to, pdfs, places, prob * p)

    walk(0, 0, (), (), 1.0)
    return found


def lm_prob(fst, phones) -> float:
    """Probability of a whole sequence by the acceptor, which is deterministic."""
    state, prob = fst.start, 1.0
    for phone in phones:
        arcs = [
            a for a in range(fst.arc_offsets[state], fst.arc_offsets[state + 1]) if fst.ilabels[a] == phone
        ]
        if not arcs:
            return 0.0
        (arc,) = arcs
        state, prob = int(fst.nextstates[arc]), prob * float(np.exp(-fst.weights[arc]))
    return prob * float(np.exp(-fst.finals[state]))


def dense(graph: DenominatorGraph) -> np.ndarray:
    """Arc probabilities as a table (num_states, num_pdfs, num_states)."""
    table = np.zeros((graph.num_states, graph.num_pdfs, graph.num_states))
    np.add.at(
        table,
        (graph.arc_sources, graph.entry_pdfs[graph.arc_entries], graph.entry_targets[graph.arc_entries]),
        graph.arc_probs,
    )
    return table


def string_weight(graph: DenominatorGraph, pdfs, leak: float = 0.0) -> float:
    """Sum over the graph's paths with this string of pdfs, including initial probabilities; all states are
    final."""
    table = dense(graph)
    mixed = np.eye(graph.num_states) + leak * np.tile(graph.initial_probs, (graph.num_states, 1))
    alpha = graph.initial_probs @ mixed
    for pdf in pdfs:
        alpha = alpha @ table[:, pdf] @ mixed
    return float(alpha.sum())


def enumerated(weights: dict, logits: np.ndarray) -> tuple[float, np.ndarray]:
    """(log of the sum over strings {pdfs: weight} with scores exp `logits` (T, num_pdfs), posteriors (T,
    num_pdfs))."""
    scores = {
        pdfs: weight * np.exp(sum(logits[t, pdf] for t, pdf in enumerate(pdfs)))
        for pdfs, weight in weights.items()
    }
    total, posteriors = sum(scores.values()), np.zeros(logits.shape)
    for pdfs, score in scores.items():
        for t, pdf in enumerate(pdfs):
            posteriors[t, pdf] += score / total
    return float(np.log(total)), posteriors


def all_strings(graph: DenominatorGraph, num_frames: int, leak: float = 0.0) -> dict:
    """{string: weight} of all strings of pdfs."""
    return {
        pdfs: string_weight(graph, pdfs, leak)
        for pdfs in itertools.product(range(graph.num_pdfs), repeat=num_frames)
    }


def log_space_denominator(
    graph: DenominatorGraph, logits: torch.Tensor, leak: float
) -> tuple[float, torch.Tensor]:
    """(log-likelihood, posteriors (T, num_pdfs)) of one sequence in the log domain in float64 over a table of
    all arcs, without scaling. The leak is the matrix I + eps 1 pi' between frames."""
    table, log_pi = torch.from_numpy(dense(graph)).log(), torch.from_numpy(graph.initial_probs).log()
    log_leak = torch.tensor(leak, dtype=torch.float64).log()
    alphas, arcs = [log_pi], [table + y[:, None] for y in logits.double()]
    for number in range(len(arcs) + 1):
        alphas[-1] = torch.logaddexp(alphas[-1], alphas[-1].logsumexp(0) + log_leak + log_pi)
        if number < len(arcs):
            alphas.append((alphas[-1][:, None, None] + arcs[number]).logsumexp((0, 1)))
    beta = torch.zeros_like(log_pi)
    posteriors = torch.zeros_like(logits, dtype=torch.float64)
    total = alphas[-1].logsumexp(0)
    for t in reversed(range(len(arcs))):
        onward = arcs[t] + torch.logaddexp(beta, log_leak + (log_pi + beta).logsumexp(0))
        posteriors[t] = ((alphas[t][:, None, None] + onward).logsumexp((0, 2)) - total).exp()
        beta = onward.logsumexp((1, 2))
    return float(total), posteriors


def allowed_strings(aligned: AlignedPhones, options: SupervisionOptions, trans, tree) -> set:
    """Strings of pdfs of a whole utterance whose phones stay within their time limits, by checking each
    path."""
    factor, found = options.frame_subsampling_factor, set()
    frames = [t for t in range(aligned.num_frames) if t % factor == 0]
    for pdfs, places in model_probs(aligned.phones.tolist(), len(frames), trans, tree):
        if all(
            aligned.starts[place] - options.left_tolerance
            <= t
            < aligned.starts[place + 1] + options.right_tolerance
            for t, place in zip(frames, places)
        ):
            found.add(pdfs)
    return found


def two_state_graph() -> DenominatorGraph:
    """Four pdfs, of which the last is on no arc."""
    columns = ([0, 0, 1, 1, 0], [0, 0, 1, 2, 1], [0.3, 0.2, 0.6, 0.4, 0.5])
    return DenominatorGraph(
        4,
        np.array([0, 1, 1], np.int32),
        np.array([0, 1, 2], np.int32),
        *_by_entry(*columns),
        np.array([0.7, 0.3]),
    )


def two_loops() -> DenominatorGraph:
    """Two states with only self-loops, with the pdfs 0 and 2."""
    graph = two_state_graph()
    loops = graph.arc_entries == graph.arc_sources * 2
    arcs = (array[loops] for array in (graph.arc_sources, graph.arc_entries, graph.arc_probs))
    return DenominatorGraph(4, graph.entry_targets, graph.entry_pdfs, *arcs, graph.initial_probs)


def _by_entry(sources, entries, probs):
    order = np.argsort(entries, kind="stable")
    return np.array(sources, np.int32)[order], np.array(entries, np.int32)[order], np.array(probs)[order]
