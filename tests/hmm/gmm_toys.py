"""Small models and utterances for tests of GMM training, with slow, plain definitions as references."""

from __future__ import annotations

import numpy as np

from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.topology import NO_PDF, HmmState, Topology, left_to_right
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import PDF_CLASS, ContextTree, Leaf, Split, TreeTable

SIL, PHONES = 1, (2, 3, 4)
LEXICON = {
    1: [((2, 3), 0.0), ((2, 4), 0.7)],
    2: [((3,), 0.1)],
    3: [((4, 3, 2), 0.0), ((3,), 0.5), ((4, 3), 1.0)],
}
SILENCE_PROB = 0.3


def random_model(num_pdfs: int, max_gauss: int, dim: int, seed: int = 0, spread: float = 2.0) -> AmDiagGmm:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, max_gauss + 1, num_pdfs)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    weights = np.concatenate([rng.dirichlet(np.full(count, 3.0)) for count in counts])
    shape = (offsets[-1], dim)
    return AmDiagGmm.from_moments(
        offsets, weights, spread * rng.standard_normal(shape), np.exp(0.5 * rng.standard_normal(shape))
    )


def log_gaussians(model: AmDiagGmm, feats: np.ndarray) -> np.ndarray:
    """log w_g N(x_t; mu_g, sigma²_g) from the definition, float64 (T, num_gauss)."""
    x, mu, var = feats.astype(np.float64)[:, None], model.means, model.variances
    return np.log(model.weights.astype(np.float64)) - 0.5 * (
        np.log(2 * np.pi * var) + (x - mu) ** 2 / var
    ).sum(-1)


def topology() -> Topology:
    """Silence with forward, backward and skip arcs; other phones with two states."""
    ways = ((0, 0.4), (1, 0.4), (2, 0.2)), ((1, 0.5), (2, 0.25), (0, 0.25)), ((2, 0.5), (3, 0.5))
    silence = (*(HmmState(state, arcs) for state, arcs in enumerate(ways)), HmmState(NO_PDF, ()))
    return Topology([silence, left_to_right(2)], {SIL: 0} | dict.fromkeys(PHONES, 1))


def triphone_tree() -> ContextTree:
    """A tree that asks about both neighbours of some phones, and about none of others."""
    leaf = iter(range(1000))

    def states(num: int) -> TreeTable:
        return TreeTable(PDF_CLASS, tuple(Leaf(next(leaf)) for _ in range(num)))

    by_left = Split(0, frozenset({0, 2}), states(2), states(2))
    by_both = Split(
        2,
        frozenset({3}),
        Split(0, frozenset({3, 4}), states(2), states(2)),
        Split(2, frozenset({0, 1}), states(2), states(2)),
    )
    one_state = TreeTable(
        PDF_CLASS, (Leaf(next(leaf)), Split(2, frozenset({1, 4}), Leaf(next(leaf)), Leaf(next(leaf))))
    )
    return ContextTree(3, 1, TreeTable(1, (None, states(3), by_left, by_both, one_state)))


def random_transitions(tree: ContextTree, seed: int = 0) -> TransitionModel:
    trans = TransitionModel.from_tree(topology(), tree)
    trans.update(np.random.default_rng(seed).uniform(20, 100, trans.num_tids + 1))
    return trans


def phone_sequences(words: list[int]):
    """(phones, cost) of every pronunciation of `words`, with or without silence before, between and after."""
    sequences = [((), 0.0)]
    for choices in [[((), 0.0)]] + [LEXICON[word] for word in words]:
        sequences = [
            (phones + said + pause, cost + more + price)
            for phones, cost in sequences
            for said, more in choices
            for pause, price in (((), -np.log(1 - SILENCE_PROB)), ((SIL,), -np.log(SILENCE_PROB)))
        ]
    return sequences


def tid_cost(trans: TransitionModel, tid: int, transition_scale: float, loop_scale: float) -> float:
    """Cost of a transition-id with Kaldi's scales, from the probabilities of its state."""
    tids = trans.tids_of(int(trans.tid2state[tid]))
    probs = np.exp(trans.log_prob[list(tids)])
    loop = sum(p for p, other in zip(probs, tids) if trans.is_self_loop[other])
    own = np.exp(trans.log_prob[tid])
    if trans.is_self_loop[tid]:
        return -loop_scale * np.log(own)
    return -loop_scale * np.log(1 - loop) - transition_scale * np.log(own / (1 - loop))


def state_sequences(phones, num_frames: int, trans: TransitionModel, tree: ContextTree):
    """All sequences of `num_frames` transition-ids through the HMMs of `phones`: first the arc out of a
    state, then its self-loops."""

    def walk(position: int, state: int, left: int):
        if position == len(phones):
            if left == 0:
                yield ()
            return
        phone = phones[position]
        entry = trans.topology.entry(phone)
        if state == len(entry) - 1:
            yield from walk(position + 1, 0, left)
            return
        if left <= 2 * (len(phones) - position - 1):  # every phone takes two frames or more
            return
        first = position - tree.central_position
        window = tuple(
            phones[i] if 0 <= i < len(phones) else 0 for i in range(first, first + tree.context_width)
        )
        tids = list(
            trans.tids_of(trans.transition_state(phone, state, tree.pdf(window, entry[state].pdf_class)))
        )
        loop = [tid for tid in tids if trans.is_self_loop[tid]]
        for tid, (target, _) in zip(tids, entry[state].transitions):
            if target == state:
                continue
            for turns in range(left if loop else 1):
                for rest in walk(position, target, left - 1 - turns):
                    yield (tid, *loop * turns, *rest)

    yield from walk(0, 0, num_frames)


def all_paths(
    words: list[int],
    num_frames: int,
    trans: TransitionModel,
    tree: ContextTree,
    transition_scale: float,
    loop_scale: float,
):
    """{transition-ids: cost} of all paths of an utterance. Probabilities of equal paths are added."""
    found: dict[tuple[int, ...], float] = {}
    costs = [0.0] + [
        tid_cost(trans, tid, transition_scale, loop_scale) for tid in range(1, trans.num_tids + 1)
    ]
    for phones, cost in phone_sequences(words):
        if 2 * len(phones) > num_frames:
            continue
        for tids in state_sequences(phones, num_frames, trans, tree):
            total = cost + sum(costs[tid] for tid in tids)
            found[tids] = -np.logaddexp(-found.get(tids, np.inf), -total)
    return found
