"""Random phones, alignments and features for tests of decision trees, with slow, plain definitions as
references."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from pyasr.hmm.model.topology import NO_PDF, HmmState, Topology, left_to_right
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree

SIL, PHONES = (1, 2), (3, 4, 5, 6, 7, 8)
SETS = [[1, 2], [3, 4], [5], [6], [7, 8]]


def topology() -> Topology:
    """Silence with a skip and a backward arc; other phones with three states, of which the second may be
    skipped."""
    silence = (
        HmmState(0, ((0, 0.4), (1, 0.4), (2, 0.2))),
        HmmState(1, ((0, 0.25), (1, 0.5), (2, 0.25))),
        HmmState(2, ((2, 0.5), (3, 0.5))),
        HmmState(NO_PDF, ()),
    )
    phone = (HmmState(0, ((0, 0.5), (1, 0.25), (2, 0.25))), *left_to_right(3)[1:])
    return Topology([silence, phone], dict.fromkeys(SIL, 0) | dict.fromkeys(PHONES, 1))


def random_path(rng, phones) -> list[tuple[int, int, int, int, int]]:
    """(index of the phone, phone, HMM state, arc out of it, repetitions of the self-loop) of each visit of a
    state."""
    topo, visits = topology(), []
    for place, phone in enumerate(phones):
        entry, state = topo.entry(phone), 0
        while entry[state].transitions:
            forward = [
                i for i, (destination, _) in enumerate(entry[state].transitions) if destination != state
            ]
            arc = int(rng.choice(forward))
            visits.append((place, phone, state, arc, int(rng.integers(0, 4))))
            state = entry[state].transitions[arc][0]
    return visits


def alignment_of(
    path, phones, trans: TransitionModel, tree: ContextTree, reordered=True
) -> tuple[np.ndarray, list[int]]:
    """The path as transition-ids, and the phone index of each frame."""
    tids, places = [], []
    for place, phone, state, arc, turns in path:
        first = place - tree.central_position
        window = [phones[i] if 0 <= i < len(phones) else 0 for i in range(first, first + tree.context_width)]
        pdf = tree.pdf(tuple(window), trans.topology.entry(phone)[state].pdf_class)
        ids = list(trans.tids_of(trans.transition_state(phone, state, pdf)))
        loop = [tid for tid in ids if trans.is_self_loop[tid]]
        frames = [ids[arc]] + loop * turns
        tids += frames if reordered else frames[::-1]
        places += [place] * len(frames)
    return np.array(tids, np.int32), places


def random_corpus(rng, num_utterances: int) -> dict[str, tuple]:
    """Utterance -> (phones, path)."""
    corpus = {}
    for number in range(num_utterances):
        phones = [1, *rng.choice(PHONES, rng.integers(1, 9)).tolist(), int(rng.choice(SIL))]
        corpus[f"utt-{number}"] = (phones, random_path(rng, phones))
    return corpus


def emission(rng, phones, path, dim: int = 3) -> np.ndarray:
    """Features that depend on state, phone and, for some phones, on the neighbours."""
    rows = []
    for place, phone, state, _, turns in path:
        mean = np.array([phone, 2.0 * state, 0.0])[:dim]
        if phone not in SIL:
            mean[0] += 1.5 * (phones[place - 1] in (3, 4, 5))
            mean[1] -= 1.0 * (phones[place + 1] in (6, 7)) * (phone == 5)
        rows.append(mean + 0.5 * rng.standard_normal((turns + 1, dim)))
    return np.concatenate(rows).astype(np.float32)


def plain_stats(trans, corpus, feats, ci_phones) -> dict[tuple, np.ndarray]:
    """Event -> (count, sum x, sum x²) by loops."""
    stats = defaultdict(lambda: 0.0)
    for utt, (phones, path) in corpus.items():
        frame = 0
        for place, phone, state, _, turns in path:
            around = [phones[i] if 0 <= i < len(phones) else 0 for i in (place - 1, place + 1)]
            left, right = (-1, -1) if phone in ci_phones else around
            for x in feats[utt][frame : frame + turns + 1].astype(np.float64):
                stats[left, phone, right, trans.topology.entry(phone)[state].pdf_class] += np.concatenate(
                    [[1.0], x, x * x]
                )
            frame += turns + 1
    return dict(stats)


def plain_log_like(rows, var_floor: float = 0.01) -> float:
    """Log-likelihood of the summed rows under their own Gaussian."""
    total = sum(rows)
    if np.ndim(total) == 0 or total[0] == 0:
        return 0.0
    n, dim = total[0], (len(total) - 1) // 2
    log_like = 0.0
    for d in range(dim):
        variance = total[1 + dim + d] / n - (total[1 + d] / n) ** 2
        floored = max(variance, var_floor)
        log_like -= 0.5 * n * (np.log(2 * np.pi * floored) + variance / floored)
    return log_like
