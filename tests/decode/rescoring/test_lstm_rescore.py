"""Expanded lattices against the models' costs of every path, word by word."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from lstm_lm_by_hand import random_lm, token_scores
from toy_language import random_ngrams, token_log10s, write_arpa_text
from word_graphs import compact_paths, random_compact

from pyasr.decode.lattices.compact_lattice import CompactLattice, empty_compact
from pyasr.decode.lattices.lattice import best_path
from pyasr.decode.rescoring.lm_rescore import compose, rescore
from pyasr.decode.rescoring.lstm_rescore import Expansion, rescore_together
from pyasr.lang.grammars.backoff_lm import BackoffLm, strict_end, strict_word
from pyasr.lang.grammars.grammar import arpa_to_fst
from pyasr.lang.ngrams.arpa import read_arpa
from pyasr.lang.symbols import SymbolTable

SPOKEN = [f"w{i}" for i in range(5)]
WORDS = SymbolTable.of(["<eps>", *SPOKEN, "#0", "<s>", "</s>"])
SHUFFLED = ["w3", "other", "w0", "w4", "w2", "w1"]  # the model's words
IDS = np.array([0, *(SHUFFLED.index(word) + 1 for word in SPOKEN), 0, 0, 0])
EVERYTHING = dict(ngram_order=30, beam=1e9, acoustic_scale=0.1)


def backoff_lm(path, seed: int, order: int):
    """(n-grams, back-off model of them)."""
    ngrams = random_ngrams(seed, SPOKEN, (0, 15, 30, 40)[:order])
    write_arpa_text(path / "m.arpa", ngrams)
    return ngrams, BackoffLm.from_fst(arpa_to_fst(read_arpa(path / "m.arpa"), WORDS)[0], WORDS["#0"])


def lattices(num: int, seed: int = 0, num_states: int = 8):
    rng = np.random.default_rng(seed)
    return [random_compact(rng, num_states=num_states, num_words=len(SPOKEN)) for _ in range(num)]


def best_cost(lattice) -> float:
    path = best_path(lattice, 0.1)
    return path.graph_cost + 0.1 * path.acoustic_cost


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_every_path_gets_mixture_cost_of_its_words(tmp_path, weight):
    ngrams, lm = backoff_lm(tmp_path, 0, 3)
    model, several = random_lm(SHUFFLED), lattices(12)
    for lattice, rescored in zip(
        several, rescore_together(several, lm, model, IDS, Expansion(weight=weight, **EVERYTHING))
    ):
        before, after = compact_paths(lattice), compact_paths(rescored)
        assert [row[:2] for row in before] == [row[:2] for row in after]
        for (_, words, graph, acoustic), (_, _, new_graph, same_acoustic) in zip(before, after):
            ngram = 10.0 ** np.array(token_log10s(ngrams, [WORDS.symbol(word) for word in words]))
            lstm = np.exp(token_scores(model, IDS[list(words)].tolist()))
            added = -np.log((1 - weight) * ngram + weight * lstm).sum()
            assert (new_graph, same_acoustic) == (
                pytest.approx(graph + added, abs=1e-3),
                pytest.approx(acoustic, abs=1e-4),
            )


class NgramInDisguise:
    """An n-gram model with the interface of a recurrent model."""

    num_words = len(SHUFFLED) + 1

    def __init__(self, lm: BackoffLm):
        self.lm, self.numbers = lm, {model_id: word for word, model_id in enumerate(IDS) if model_id}

    def start(self):
        return torch.tensor([[float(self.lm.tables.start)]])

    def step(self, states, words):
        following = [
            strict_word(self.lm.tables, int(state), self.numbers[int(word)])[1]
            for state, word in zip(states, words)
        ]
        return torch.tensor(following, dtype=torch.float32)[:, None]

    def log_probabilities(self, states):
        found = torch.full((len(states), self.num_words), -100.0)
        for row, state in enumerate(states):
            found[row, 0] = -strict_end(self.lm.tables, int(state))
            for model_id, word in self.numbers.items():
                found[row, model_id] = -strict_word(self.lm.tables, int(state), word)[0]
        return found


@pytest.mark.parametrize(("order", "weight"), [(3, 1.0), (4, 1.0), (3, 0.5)])
def test_histories_are_merged_by_ngram_order_without_error(tmp_path, order, weight):
    """Merging is exact then: costs equal those of composition. At weight 0.5, the model is interpolated with
    itself."""
    _, bigram = backoff_lm(tmp_path, 1, 2)
    _, trigram = backoff_lm(tmp_path, 2, 3)
    several, options = lattices(12, 1), Expansion(weight=weight, **EVERYTHING | {"ngram_order": order})
    found = rescore_together(
        several, bigram if weight == 1.0 else trigram, NgramInDisguise(trigram), IDS, options
    )
    for lattice, rescored in zip(several, found):
        expected = compact_paths(rescore(lattice, [(trigram, 1.0)]))
        assert np.allclose(
            [row[2:] for row in compact_paths(rescored)], [row[2:] for row in expected], atol=1e-3
        )


def test_one_history_per_state(tmp_path):
    _, lm = backoff_lm(tmp_path, 3, 2)
    several = lattices(10, 2)
    for lattice, rescored in zip(
        several, rescore_together(several, lm, random_lm(SHUFFLED), IDS, Expansion(1, 0.5, 1e9, 0.1))
    ):
        assert rescored.num_states == compose(lattice, lm)[0].num_states
        assert (np.diff(rescored.sources) >= 0).all() and (rescored.targets > rescored.sources).all()


def test_merged_history_continues_from_cheapest_path(tmp_path):
    """A merged history continues from the cheapest path to its state, by the model's costs."""
    _, lm = backoff_lm(tmp_path, 0, 1)
    model = random_lm(SHUFFLED)
    lattice = next(la for la in lattices(50, 3, 5) if len(compact_paths(la)) > 4)
    (merged,) = rescore_together([lattice], lm, model, IDS, Expansion(1, 1.0, 1e9, 0.1))
    (exact,) = rescore_together([lattice], lm, model, IDS, Expansion(30, 1.0, 1e9, 0.1))
    assert merged.num_states < exact.num_states
    alphas = {0: (0.0, ())}
    arcs = list(
        zip(merged.sources.tolist(), merged.targets.tolist(), merged.words.tolist(), range(merged.num_arcs))
    )
    # cost of the word after the words of the cheapest path to the source
    for source, target, word, arc in arcs:
        cost, words = alphas[source]
        if word:
            expected = -token_scores(model, IDS[[*words, word]].tolist())[len(words)]
            (same,) = np.flatnonzero(lattice.acoustic_costs == merged.acoustic_costs[arc])
            assert merged.graph_costs[arc] - lattice.graph_costs[same] == pytest.approx(expected, abs=1e-4)
        reached = (
            cost + merged.graph_costs[arc] + 0.1 * merged.acoustic_costs[arc],
            (*words, *([word] if word else [])),
        )
        alphas[target] = min(alphas.get(target, reached), reached)


def test_beam_removes_paths_without_changing_costs(tmp_path):
    _, lm = backoff_lm(tmp_path, 0, 2)
    model, several, fewer = random_lm(SHUFFLED), lattices(10, 4, 9), 0
    exact = rescore_together(several, lm, model, IDS, Expansion(weight=0.5, **EVERYTHING))
    for beam in (0.0, 2.0, 6.0):
        for whole, pruned in zip(
            exact,
            rescore_together(several, lm, model, IDS, Expansion(weight=0.5, **EVERYTHING | {"beam": beam})),
        ):
            kept, all_costs = compact_paths(pruned), {row[0]: row[2] for row in compact_paths(whole)}
            assert kept and all(row[2] == pytest.approx(all_costs[row[0]], abs=1e-3) for row in kept)
            fewer += len(kept) < len(all_costs)
            assert beam < 6 or best_cost(pruned) == pytest.approx(best_cost(whole), abs=1e-3)
    assert fewer > 5


def test_batched_lattices_equal_single_ones(tmp_path):
    _, lm = backoff_lm(tmp_path, 0, 2)
    model, several, options = random_lm(SHUFFLED), lattices(6, 5), Expansion(3, 0.5, 3.0, 0.1)
    several.insert(2, empty_compact())
    for together, lattice in zip(rescore_together(several, lm, model, IDS, options), several):
        (alone,) = rescore_together([lattice], lm, model, IDS, options)
        assert np.allclose(
            [row[2:] for row in compact_paths(together)], [row[2:] for row in compact_paths(alone)], atol=1e-4
        )


def test_lattices_without_path_are_unchanged(tmp_path):
    _, lm = backoff_lm(tmp_path, 0, 2)
    lattice = lattices(1)[0]
    endless = lattice.select(np.ones(lattice.num_arcs, bool), np.zeros(lattice.num_states, bool))
    found = rescore_together(
        [empty_compact(), endless], lm, random_lm(SHUFFLED), IDS, Expansion(3, 0.5, 3.0, 0.1)
    )
    assert found[0].empty and found[1] is endless


@pytest.mark.parametrize("num", [1, 2])
def test_lattice_with_only_silence(tmp_path, num):
    """A single state whose final string has all frames: the mixture's cost of the sentence end is added to
    its final cost."""
    ngrams, lm = backoff_lm(tmp_path, 0, 2)
    model, no_arcs, no_costs = random_lm(SHUFFLED), np.zeros(0, np.int32), np.zeros(0, np.float32)
    silent = CompactLattice(
        no_arcs,
        no_arcs,
        no_arcs,
        no_costs,
        no_costs,
        np.zeros(1, np.int64),
        no_arcs,
        np.array([1.5], np.float32),
        np.array([2.0], np.float32),
        np.array([0, 3]),
        np.array([1, 1, 1], np.int32),
    )
    end = 0.5 * 10 ** token_log10s(ngrams, [])[0] + 0.5 * np.exp(token_scores(model, [])[0])
    for rescored in rescore_together([silent] * num, lm, model, IDS, Expansion(weight=0.5, **EVERYTHING)):
        ((tids, words, graph, acoustic),) = compact_paths(rescored)
        assert (list(tids), words, acoustic) == ([1, 1, 1], (), 2.0) and graph == pytest.approx(
            1.5 - np.log(end), abs=1e-4
        )


def test_probabilities_equal_formulas():
    """Probabilities of each word after each prefix; they sum to one."""
    model, sentence = random_lm(SHUFFLED), [2, 1, 6, 6, 3]
    states, expected = model.start(), token_scores(model, sentence)
    for word, score in zip([*sentence, 0], expected):
        scores = model.log_probabilities(states)
        assert scores.exp().sum().item() == pytest.approx(1.0, abs=1e-6)
        assert scores[0, word].item() == pytest.approx(score, abs=1e-5)
        states = model.step(states, torch.tensor([word]))
    assert math.isclose(sum(np.exp(token_scores(model, [word])[0]) for word in range(7)), 1.0)
