"""Compact lattices against enumeration of all paths."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import compact_paths, lattice_paths, plain, same
from word_graphs import random_compact

from pyasr.base.errors import UserError
from pyasr.decode.lattices.compact_lattice import (
    compact_from_arcs,
    empty_compact,
    pick_strings,
    scale,
    state_times,
    to_compact,
    to_lattice,
    with_one_end,
    without_epsilons,
)
from pyasr.decode.lattices.lattice import Lattice, best_path, from_arcs, trim

SCALE = 0.1


def random_lattice(seed: int, num_frames: int = 5) -> Lattice:
    """Up to three states per frame; arcs with transition-ids lead to the next frame, arcs without to another
    state of the same frame."""
    rng, arcs = np.random.default_rng(seed), []
    firsts = np.cumsum([0, 1, *rng.integers(1, 4, num_frames)])
    for begin, middle, end in zip(firsts, firsts[1:], [*firsts[2:], None]):
        for source in range(begin, middle):
            arcs += [(source, target, 0) for target in range(source + 1, middle) if rng.random() < 0.4]
            arcs += [
                (source, rng.integers(middle, end), rng.integers(1, 9))
                for _ in range(1 + (rng.random() < 0.3))
                if end
            ]
    words = np.where(rng.random(len(arcs)) < 0.4, rng.integers(1, 6, len(arcs)), 0)
    finals = np.where(np.arange(firsts[-1]) >= firsts[-2], rng.random(firsts[-1]), np.inf)
    return trim(from_arcs(0, *zip(*arcs), words, rng.random(len(arcs)), 30 * rng.random(len(arcs)), finals))


@pytest.mark.parametrize("seed", range(10))
def test_compaction_and_expansion_keep_every_path(seed):
    raw = random_lattice(seed)
    compact = to_compact(raw)
    assert compact.num_arcs <= raw.num_arcs
    assert same(compact_paths(compact), plain(lattice_paths(raw)))
    again = to_lattice(compact)
    assert (again.sources < again.targets).all() and (np.diff(again.sources) >= 0).all()
    assert same(plain(lattice_paths(again)), compact_paths(compact))


def test_expanded_single_arcs_merge_to_one_string():
    expanded = to_lattice(final_string_lattice())
    assert expanded.num_arcs == 6
    assert [
        (a.tolist(), w) for a, w in ((to_compact(expanded).string(0), 8), (to_compact(expanded).string(1), 7))
    ] == [([4, 5, 6], 8), ([1, 2], 7)]


@pytest.mark.parametrize("seed", range(10))
def test_best_path_and_times_equal_raw_lattice(seed):
    raw = random_lattice(seed)
    compact = to_compact(raw)
    found, expected = best_path(compact, SCALE), best_path(raw, SCALE)
    assert found.words == expected.words and np.array_equal(found.tids, expected.tids)
    assert found.graph_cost == pytest.approx(expected.graph_cost) and found.acoustic_cost == pytest.approx(
        expected.acoustic_cost
    )
    assert compact.num_frames == raw.num_frames == 5
    times = state_times(compact)
    assert np.array_equal(times[compact.sources] + compact.lengths, times[compact.targets])


def final_string_lattice():
    """States 2 -> 0 -> 1: the first arc and the final state have strings, the second arc has none; state 3 is
    unreachable."""
    return compact_from_arcs(
        2,
        [0, 2, 3],
        [1, 0, 1],
        [7, 8, 9],
        [1, 2, 3],
        [10, 20, 30],
        (np.array([0, 0, 3, 4]), np.array([4, 5, 6, 9])),
        [np.inf, 0.5, np.inf, np.inf],
        [np.inf, 5, np.inf, np.inf],
        final_strings=(np.array([0, 0, 2, 2, 2]), np.array([1, 2])),
    )


def test_unordered_arcs_and_final_strings():
    lattice = final_string_lattice()
    expected = [((4, 5, 6, 1, 2), (8, 7), 3.5, 35.0)]
    assert compact_paths(lattice) == expected == plain(lattice_paths(to_lattice(lattice)))
    assert lattice.num_frames == 5 and state_times(lattice).tolist() == [0, 3, 3]
    assert compact_paths(scale(lattice, 0.1, 2.0)) == [(*expected[0][:2], 7.0, 3.5)]


@pytest.mark.parametrize("seed", range(20))
def test_single_final_state_without_epsilons_keeps_every_path(seed):
    """Of paths that differ only in epsilons before the end, the best one is kept."""
    lattice = trim(random_compact(np.random.default_rng(seed), num_states=7, epsilons=0.6))
    closed, bare = with_one_end(lattice), without_epsilons(lattice)
    assert np.flatnonzero(np.isfinite(closed.final_graph)).tolist() == [closed.num_states - 1]
    assert same(compact_paths(closed), compact_paths(lattice))
    assert ((bare.words != 0) | (bare.lengths > 0)).all()
    assert best_by_labels(bare) == {
        labels: pytest.approx(cost, abs=0.02) for labels, cost in best_by_labels(lattice).items()
    }


def best_by_labels(lattice) -> dict:
    """{(transition-ids, words): lowest cost} of all paths."""
    found: dict = {}
    for *labels, graph, acoustic in compact_paths(lattice):
        found[tuple(labels)] = min(found.get(tuple(labels), np.inf), graph + acoustic)
    return found


def test_cycle_is_refused():
    with pytest.raises(UserError, match="x: the lattice has a cycle"):
        compact_from_arcs(
            0,
            [0, 1],
            [1, 0],
            [1, 1],
            [0, 0],
            [0, 0],
            (np.zeros(3, int), []),
            [0, 0],
            [0, 0],
            final_strings=(np.zeros(3, int), []),
            name="x",
        )


def test_empty_lattice_stays_empty():
    empty = empty_compact()
    assert empty.empty and best_path(empty, 1.0) is None and empty.num_frames == 0
    assert to_lattice(empty).empty and to_compact(to_lattice(empty)).empty
    assert with_one_end(empty).empty and without_epsilons(empty).empty


def test_strings_are_selected_in_order():
    offsets, labels = pick_strings(np.array([0, 2, 2, 5]), np.arange(5), np.array([2, 1, 0, 2]))
    assert offsets.tolist() == [0, 3, 3, 5, 8] and labels.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
