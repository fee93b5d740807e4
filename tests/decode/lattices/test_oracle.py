"""Oracle paths against all paths of small lattices."""

from __future__ import annotations

import numpy as np
from word_graphs import compact_paths, edit_distance, random_compact

from pyasr.decode.lattices.compact_lattice import empty_compact, to_lattice
from pyasr.decode.lattices.oracle import NO_WORD, Oracle, oracle


def test_oracle_path_has_fewest_errors():
    rng = np.random.default_rng(0)
    for _ in range(60):
        lattice = random_compact(rng, num_states=8)
        reference = rng.integers(-1, 5, rng.integers(0, 9)).tolist()
        reference = [NO_WORD if word == 0 else word for word in reference]
        found = oracle(lattice, reference)
        sequences = {words for _, words, _, _ in compact_paths(lattice)}
        assert tuple(found.words) in sequences and edit_distance(found.words, reference) == found.errors
        assert found.errors == min(edit_distance(words, reference) for words in sequences)
        assert oracle(to_lattice(lattice), reference).errors == found.errors


def test_path_of_lattice_has_no_errors():
    rng = np.random.default_rng(1)
    for _ in range(20):
        lattice = random_compact(rng, num_states=10, epsilons=0.5)
        for _, words, _, _ in compact_paths(lattice)[:5]:
            assert oracle(lattice, words) == Oracle(list(words), 0)


def test_empty_lattice_deletes_all_words():
    assert oracle(empty_compact(), [1, 2, 3]) == Oracle([], 3)
