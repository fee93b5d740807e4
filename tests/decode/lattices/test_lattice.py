"""Lattice operations against enumeration of all paths."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import lattice_paths, random_graph, tid2pdf

from pyasr.base.errors import UserError
from pyasr.decode.lattices.lattice import Lattice, best_path, from_arcs, prune, sweep
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions


def random_lattice(seed: int) -> Lattice:
    rng = np.random.default_rng(seed)
    decoder = Decoder(
        random_graph(rng, 6, 16, 4),
        tid2pdf(4),
        DecodeOptions(beam=1000.0, lattice_beam=8.0, acoustic_scale=0.1),
    )
    return decoder.decode(-30 * rng.random((5, 4)))


def costs_of(lattice: Lattice, scale: float, penalty: float = 0.0):
    """[(cost, words)] of all paths."""
    return [
        (graph + scale * acoustic + penalty * sum(map(bool, outs)), [w for w in outs if w])
        for (_, outs), costs in lattice_paths(lattice).items()
        for graph, acoustic in costs
    ]


@pytest.mark.parametrize("seed", range(20))
def test_sweep_finds_best_words_at_every_weight(seed):
    lattice = random_lattice(seed)
    found = sweep(lattice, [1, 7, 10, 17], [0.0, 0.5, 1.0])
    assert len(found) == 12
    for (lmwt, wip), words in found.items():
        paths = costs_of(lattice, 1 / lmwt, wip)
        best = min(cost for cost, _ in paths)
        assert min(cost for cost, w in paths if w == words) == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize("seed", range(10))
def test_best_path_equals_enumeration(seed):
    lattice = random_lattice(seed)
    path = best_path(lattice, 0.3, 0.8)
    expected = min(0.8 * g + 0.3 * a for costs in lattice_paths(lattice).values() for g, a in costs)
    assert 0.8 * path.graph_cost + 0.3 * path.acoustic_cost == pytest.approx(expected, abs=1e-5)
    assert len(path.tids) == lattice.num_frames == 5


@pytest.mark.parametrize("seed", range(10))
def test_pruning_keeps_paths_within_beam_of_best(seed):
    lattice = random_lattice(seed)
    pruned = prune(lattice, 2.0, 0.1)
    whole, kept = costs_of(lattice, 0.1), costs_of(pruned, 0.1)
    best = min(cost for cost, _ in whole)
    near = sorted(round(cost, 4) for cost, _ in whole if cost <= best + 2.0 - 1e-4)
    assert set(near) <= {round(cost, 4) for cost, _ in kept}
    assert pruned.num_arcs < lattice.num_arcs or len(near) == len(whole)


def test_states_are_sorted_topologically_and_unreachable_ones_dropped():
    final = [np.inf, 0.5, np.inf, np.inf]
    lattice = from_arcs(
        2, [2, 0, 3, 2], [0, 1, 1, 1], [5, 6, 7, 8], [1, 2, 3, 4], [1, 1, 1, 1], [0, 0, 0, 0], final
    )
    assert lattice.num_states == 3
    assert (lattice.targets > lattice.sources).all()
    assert sorted(lattice_paths(lattice)) == [((5, 6), (1, 2)), ((8,), (4,))]


def test_cycle_is_refused():
    with pytest.raises(UserError, match="utt: the lattice has a cycle"):
        from_arcs(0, [0, 1], [1, 0], [1, 1], [0, 0], [0, 0], [0, 0], [np.inf, 0], name="utt")


def test_empty_lattice_has_no_words():
    empty = from_arcs(-1, [], [], [], [], [], [], [])
    assert empty.empty and best_path(empty, 1.0) is None
    assert sweep(empty, [10], [0.0]) == {(10, 0.0): []}
    assert prune(empty, 1.0, 1.0).empty and empty.num_frames == 0


def test_lattice_without_final_state_has_no_words():
    lattice = from_arcs(0, [0], [1], [1], [1], [0], [0], [np.inf, np.inf])
    assert best_path(lattice, 1.0) is None
    assert sweep(lattice, [10], [0.0]) == {(10, 0.0): []}
