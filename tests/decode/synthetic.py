"""A decoding graph like HCLG (lexicon tree, n-gram histories with back-off, 3-state phones with self-loops),
and likelihoods for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.io.openfst import Fst


@dataclass
class Task:
    """A graph, its pdf map, and the means of the pdfs in a feature space."""

    fst: Fst
    tid2pdf: np.ndarray
    means: np.ndarray


def make_task(
    num_words: int, num_bigrams: int, num_pdfs: int, seed: int = 0, num_phones: int = 40, dim: int = 13
) -> Task:
    """`num_bigrams` word pairs have their own chains of states; other pairs use an epsilon back-off arc and
    the lexicon tree."""
    rng = np.random.default_rng(seed)
    builder = _Builder(rng, num_words, num_pdfs, num_phones)
    builder.tree()
    builder.bigrams(num_bigrams)
    tid2pdf = np.concatenate([[-1], np.repeat(np.arange(num_pdfs), 2)]).astype(np.int32)
    return Task(builder.fst(), tid2pdf, rng.standard_normal((num_pdfs, dim)))


class _Builder:
    """State 0 is the back-off history and the root of the lexicon tree; states 1..num_words are the histories
    of one word."""

    def __init__(self, rng, num_words, num_pdfs, num_phones):
        self.rng, self.num_words, self.num_pdfs = rng, num_words, num_pdfs
        self.words = [tuple(rng.zipf(1.3, rng.integers(2, 9)) % num_phones) for _ in range(num_words)]
        self.arcs: list[tuple] = []
        self.num_states = num_words + 1
        self.prior = rng.zipf(1.2, num_words).clip(1, 1000) * 1.0
        self.prior /= self.prior.sum()
        self.backoff = rng.uniform(0.5, 3.0, num_words)

    def phone(self, source, context, word, cost):
        """Three states with self-loops after `source`; returns the last."""
        for k in range(3):
            pdf = hash((context, k)) % self.num_pdfs
            state, self.num_states = self.num_states, self.num_states + 1
            self.arcs.append(
                (source, 2 * pdf + 1, word if k == 0 else 0, cost + 0.7 if k == 0 else 0.7, state)
            )
            self.arcs.append((state, 2 * pdf + 2, 0, 0.07, state))
            source = state
        return source

    def tree(self):
        nodes = {}
        for w, phones in enumerate(self.words):
            state = 0
            for i, phone in enumerate(phones):
                key = phones[: i + 1]
                if key not in nodes:
                    nodes[key] = self.phone(state, (phones[i - 1] if i else 0, phone), 0, 0.0)
                state = nodes[key]
            self.arcs.append((state, 0, w + 1, -np.log(self.prior[w]), w + 1))
            self.arcs.append((w + 1, 0, 0, self.backoff[w], 0))

    def bigrams(self, count):
        first = self.rng.choice(self.num_words, count, p=self.prior)
        second = self.rng.choice(self.num_words, count, p=self.prior)
        for a, b in sorted(set(zip(first.tolist(), second.tolist()))):
            state, cost = a + 1, self.rng.uniform(0.5, 5.0)
            for i, phone in enumerate(self.words[b]):
                state = self.phone(
                    state,
                    (self.words[b][i - 1] if i else 0, phone),
                    b + 1 if i == 0 else 0,
                    cost if i == 0 else 0.0,
                )
            self.arcs.append((state, 0, 0, 0.0, b + 1))

    def fst(self):
        source, ilabel, olabel, weight, target = (np.array(column) for column in zip(*self.arcs))
        finals = np.full(self.num_states, np.inf)
        finals[: self.num_words + 1] = 2.0
        return Fst.from_arcs(self.num_states, 0, source, ilabel, olabel, weight, target, finals)


def make_loglikes(task: Task, num_frames: int, noise: float, seed: int = 0) -> np.ndarray:
    """float32 (num_frames, num_pdfs): log-likelihoods of a random walk through the graph with Gaussian noise,
    at the scale of a GMM's."""
    rng = np.random.default_rng(seed)
    fst, state, pdfs = task.fst, task.fst.start, []
    while len(pdfs) < num_frames:
        begin, end = fst.arc_offsets[state], fst.arc_offsets[state + 1]
        p = np.exp(-fst.weights[begin:end].astype(float)) * (fst.nextstates[begin:end] != state)
        arc = begin + rng.choice(end - begin, p=p / p.sum())
        if fst.ilabels[arc]:
            pdfs += [task.tid2pdf[fst.ilabels[arc]]] * int(rng.integers(1, 4))
        state = fst.nextstates[arc]
    x = task.means[pdfs[:num_frames]] + noise * rng.standard_normal((num_frames, task.means.shape[1]))
    squares = (x * x).sum(1)[:, None] - 2 * x @ task.means.T + (task.means * task.means).sum(1)
    return (-60.0 - 0.6 * squares).astype(np.float32)
