"""Determinisation against enumeration of all paths, and against constrained Viterbi searches where there are
too many paths."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cmp_to_key

import numpy as np
import pytest
from graphs import compact_paths, lattice_paths, random_graph, tid2pdf
from synthetic import make_loglikes, make_task

from pyasr.decode.lattices import determinize as determinize_module
from pyasr.decode.lattices.compact_lattice import empty_compact, state_times, to_lattice
from pyasr.decode.lattices.determinize import DeterminizeOptions, Determinizer, determinize
from pyasr.decode.lattices.determinize_pools import new_pools
from pyasr.decode.lattices.lattice import Lattice, best_path, from_arcs, prune
from pyasr.decode.lattices.nbest import n_best
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions

SCALE, BEAM = 0.125, 6.0
ARRAYS = (
    "sources",
    "targets",
    "words",
    "graph_costs",
    "acoustic_costs",
    "string_offsets",
    "tids",
    "final_graph",
    "final_acoustic",
    "final_offsets",
    "final_tids",
)


def random_lattice(seed: int, num_frames: int = 5, exact: bool = False) -> Lattice:
    """A raw lattice. exact: costs are multiples of 1/8, so that many paths have equal costs."""
    rng = np.random.default_rng(seed)
    graph, loglikes = random_graph(rng, 6, 20, 4), -30 * rng.random((num_frames, 4))
    if exact:
        graph = graph.replaced(weights=np.round(2 * graph.weights) / 2)
        loglikes = np.round(loglikes / 16) * 16
    return Decoder(
        graph, tid2pdf(4), DecodeOptions(beam=1000.0, lattice_beam=9.0, acoustic_scale=SCALE)
    ).decode(loglikes)


def kaldi_order(one, other) -> int:
    """Negative if `one` is preferred; a path is (total, graph, transition-ids)."""
    for a, b in ((one[0], other[0]), (one[1], other[1]), (len(one[2]), len(other[2]))):
        if abs(a - b) > 1e-5:
            return -1 if a < b else 1
    return -1 if one[2] > other[2] else 1 if one[2] < other[2] else 0


def best_by_words(paths: dict) -> dict:
    """{words: best (total, graph, transition-ids)} of enumerated paths."""
    found: dict = {}
    for (tids, words), costs in paths.items():
        for graph, acoustic in costs:
            path = (graph + SCALE * acoustic, graph, tuple(t for t in tids if t))
            found.setdefault(tuple(w for w in words if w), []).append(path)
    return {words: min(group, key=cmp_to_key(kaldi_order)) for words, group in found.items()}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_every_word_sequence_within_beam_keeps_only_its_best_path(seed, exact):
    raw = random_lattice(seed, exact=exact)
    expected = best_by_words(lattice_paths(raw))
    compact, beam = determinize(raw, BEAM, SCALE)
    found = {
        words: (graph + SCALE * acoustic, graph, tids)
        for tids, words, graph, acoustic in compact_paths(compact)
    }
    assert beam == BEAM and len(found) == len(compact_paths(compact))
    best = min(path[0] for path in expected.values())
    inside = {words for words, path in expected.items() if path[0] < best + BEAM - 1e-3}
    assert inside <= set(found) <= set(expected)
    for words, (total, graph, tids) in found.items():
        assert total == pytest.approx(expected[words][0], abs=0.02) and graph == pytest.approx(
            expected[words][1], abs=0.02
        )
        assert tids == expected[words][2]


@pytest.mark.parametrize("seed", range(10))
def test_states_have_at_most_one_arc_per_word_and_no_epsilon(seed):
    compact, _ = determinize(random_lattice(seed), BEAM, SCALE)
    pairs = list(zip(compact.sources.tolist(), compact.words.tolist()))
    assert len(set(pairs)) == len(pairs) and (compact.words != 0).all()


def test_ties_are_resolved_by_graph_cost_then_transition_id():
    def words_of(*ways):
        arcs = [
            arc
            for i, (graph, tids) in enumerate(ways)
            for arc in (
                (0, 1 + i, tids[0], 7, graph, 8.0),
                (1 + i, len(ways) + 1, tids[1], 0, 0.0, 8 * (1 - graph)),
            )
        ]
        finals = [np.inf] * (len(ways) + 1) + [0.0]
        compact, _ = determinize(from_arcs(0, *zip(*arcs), finals), BEAM, 1.0)
        ((tids, words, graph, acoustic),) = compact_paths(compact)
        return tids

    assert words_of((0.5, (9, 9)), (0.25, (1, 1))) == words_of((0.25, (1, 1)), (0.5, (9, 9))) == (9, 9)
    assert words_of((0.5, (3, 4)), (0.5, (3, 5)), (0.5, (2, 9))) == (3, 5)


@pytest.fixture(scope="module")
def large():
    """A raw lattice of more than a thousand word sequences."""
    task = make_task(100, 1000, 60)
    decoder = Decoder(task.fst, task.tid2pdf, DecodeOptions(lattice_beam=8.0, acoustic_scale=SCALE))
    return decoder.decode(make_loglikes(task, 250, 3.0, 1))


def viterbi(raw: Lattice, words: list[int], costs: np.ndarray) -> float:
    """Lowest cost of a path with these words: a search over pairs of state and number of words."""
    best = np.full((raw.num_states, len(words) + 1), np.inf)
    best[0, 0] = 0
    follows = np.array([*words, -1])
    for k in range(raw.num_arcs):
        source, target, word = raw.sources[k], raw.targets[k], raw.olabels[k]
        if word == 0:
            best[target] = np.minimum(best[target], best[source] + costs[k])
        else:
            fits = np.flatnonzero(follows == word)
            best[target, fits + 1] = np.minimum(best[target, fits + 1], best[source, fits] + costs[k])
    return float((best[:, -1] + raw.final_graph + SCALE * raw.final_acoustic).min())


def test_large_lattices_have_costs_of_constrained_searches(large):
    compact, _ = determinize(large, 8.0, SCALE)
    costs = large.graph_costs.astype(float) + SCALE * large.acoustic_costs
    paths = n_best(compact, 2000, SCALE)
    assert len(paths) > 300 and compact.num_arcs < 0.2 * large.num_arcs
    totals = {tuple(path.words): path.graph_cost + SCALE * path.acoustic_cost for path in paths}
    for path in paths[::200]:
        assert totals[tuple(path.words)] == pytest.approx(viterbi(large, path.words, costs), abs=0.01)
    rng = np.random.default_rng(0)
    for _ in range(8):
        shaken = replace(
            large, graph_costs=large.graph_costs + rng.exponential(0.3, large.num_arcs).astype(np.float32)
        )
        words = tuple(best_path(shaken, SCALE).words)
        cost = viterbi(large, list(words), costs)
        assert totals.get(words, cost) == pytest.approx(cost, abs=0.01)
        assert words in totals or cost > max(totals.values()) - 0.01


def test_best_path_and_alignment_equal_raw_lattice(large):
    compact, _ = determinize(large, 8.0, SCALE)
    found, expected = best_path(compact, SCALE), best_path(large, SCALE)
    assert found.words == expected.words and np.array_equal(found.tids, expected.tids)
    assert found.acoustic_cost == pytest.approx(expected.acoustic_cost, abs=0.05)
    times = state_times(compact)
    assert np.array_equal(times[compact.sources] + compact.lengths, times[compact.targets])


def test_determinisation_is_idempotent(large):
    """Expansion to one transition-id per arc and a second determinisation give the same lattice."""
    compact, _ = determinize(large, 8.0, SCALE)
    again, _ = determinize(to_lattice(compact), 8.5, SCALE)
    one, other = n_best(compact, 500, SCALE), n_best(again, 500, SCALE)
    for a, b in zip(one, other):
        assert a.graph_cost + SCALE * a.acoustic_cost == pytest.approx(
            b.graph_cost + SCALE * b.acoustic_cost, abs=0.02
        )
    assert {tuple(p.words): p.tids.tolist() for p in one[:400]}.items() <= {
        tuple(p.words): p.tids.tolist() for p in other
    }.items()


def test_memory_limit_narrows_beam_and_keeps_best_paths(large, monkeypatch):
    whole, _ = determinize(large, 8.0, SCALE)
    monkeypatch.setattr(
        determinize_module, "new_pools", lambda states, frames, size: new_pools(states, frames, 0.3 * size)
    )
    part, beam = determinize(large, 8.0, SCALE, max_mb=0)
    assert 0 < beam < 8.0 and 0 < part.num_arcs < whole.num_arcs
    kept, all_paths = n_best(part, 1000, SCALE), n_best(whole, 1000, SCALE)
    best = all_paths[0].graph_cost + SCALE * all_paths[0].acoustic_cost
    inside = {
        tuple(p.words) for p in all_paths if p.graph_cost + SCALE * p.acoustic_cost < best + beam - 0.01
    }
    assert inside <= {tuple(p.words) for p in kept} and kept[0].words == all_paths[0].words
    assert prune(part, 100.0, SCALE).num_arcs == part.num_arcs
    assert part.num_frames == whole.num_frames
    assert Determinizer(DeterminizeOptions(determinize_mb=0), 8.0, SCALE)(large).stats.narrowed_beam == beam


@pytest.mark.parametrize("share", [0.05, 0.01, 0.0])
def test_best_path_is_kept_with_any_memory_limit(large, monkeypatch, share):
    monkeypatch.setattr(
        determinize_module, "new_pools", lambda states, frames, size: new_pools(states, frames, share * size)
    )
    path, expected = best_path(determinize(large, 8.0, SCALE, max_mb=0)[0], SCALE), best_path(large, SCALE)
    assert path.words == expected.words and np.array_equal(path.tids, expected.tids)


def test_threads_give_identical_lattices_and_stats(large):
    work = Determinizer(DeterminizeOptions(), 6.0, SCALE)
    alone = work(large)
    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(work, [large] * 6):
            assert all(np.array_equal(getattr(found, name), getattr(alone, name)) for name in ARRAYS)
    assert (
        alone.stats.determinize_s > 0 and alone.stats.narrowed_beam is None and alone.stats.num_frames == 250
    )
    assert Determinizer(DeterminizeOptions(determinize=False), 6.0, SCALE)(large) is large


def test_lattices_of_one_frame_one_state_and_none():
    arc = from_arcs(0, [0, 0], [1, 1], [3, 4], [7, 7], [1.0, 0.5], [2.0, 2.0], [np.inf, 0.25])
    assert compact_paths(determinize(arc, BEAM, SCALE)[0]) == [((4,), (7,), 0.75, 2.0)]
    silent = from_arcs(0, [0, 0], [1, 1], [3, 4], [0, 0], [1.0, 0.5], [2.0, 2.0], [np.inf, 0.25])
    compact, _ = determinize(silent, BEAM, SCALE)
    assert compact.num_arcs == 0 and compact_paths(compact) == [((4,), (), 0.75, 2.0)]
    end = from_arcs(0, [], [], [], [], [], [], [0.5])
    assert compact_paths(determinize(end, BEAM, SCALE)[0]) == [((), (), 0.5, 0.0)]
    for nothing in (
        to_lattice(empty_compact()),
        from_arcs(0, [0], [1], [1], [1], [0.0], [0.0], [np.inf, np.inf]),
        from_arcs(0, [0], [1], [1], [1], [np.inf], [0.0], [np.inf, 0.0]),
    ):
        assert determinize(nothing, BEAM, SCALE)[0].empty


def test_memory_is_linear_in_length():
    """Memory is linear in the number of frames: an hour with a single word sequence is determinised without
    narrowing."""
    num_frames = 360_000
    frames = np.arange(num_frames)
    words = np.where(frames % 30 == 0, 1 + frames % 7, 0)
    arcs = [
        np.repeat(frames, 2),
        np.repeat(frames + 1, 2),
        np.tile([1, 2], num_frames),
        np.repeat(words, 2),
        np.tile([0.5, 0.6], num_frames),
    ]
    finals = np.full(num_frames + 1, np.inf)
    finals[-1] = 0
    raw = from_arcs(0, *arcs, np.full(2 * num_frames, 50.0), finals)
    compact, beam = determinize(raw, BEAM, SCALE)
    assert (compact.num_arcs, beam) == (num_frames // 30, BEAM)
    path = best_path(compact, SCALE)
    assert len(path.words) == num_frames // 30 and (path.tids == 1).all()
    assert path.acoustic_cost == pytest.approx(50.0 * num_frames) and path.graph_cost == pytest.approx(
        0.5 * num_frames
    )
