"""The decoder against exhaustive search, against kaldi-decoder, and against itself in threads."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from graphs import all_paths, lattice_paths, random_graph, tid2pdf
from synthetic import make_loglikes, make_task

from pyasr.base.errors import UserError
from pyasr.decode.lattices.lattice import best_path
from pyasr.decode.search import token_passing
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.io.openfst import Fst, write_fst

SCALE, NUM_PDFS, MARGIN = 0.1, 4, 1e-4
ALL_TOKENS = dict(beam=1000.0, max_active=10**6, acoustic_scale=SCALE)


def small_case(seed: int, cycles: bool):
    rng = np.random.default_rng(seed)
    fst = random_graph(rng, 6, 14, NUM_PDFS, cycles=cycles)
    return fst, -30 * rng.random((int(rng.integers(0, 6)), NUM_PDFS)).astype(np.float32)


def expected_paths(fst, loglikes):
    """(all paths, whether a final state is reached)."""
    final = all_paths(fst, loglikes, tid2pdf(NUM_PDFS), SCALE, 1e9)
    return (
        (final, True)
        if final
        else (all_paths(fst, loglikes, tid2pdf(NUM_PDFS), SCALE, 1e9, use_final=False), False)
    )


def best_of(paths) -> float:
    return min(graph + SCALE * acoustic for costs in paths.values() for graph, acoustic in costs)


def contains(costs, wanted) -> bool:
    return any(np.allclose(wanted, cost, atol=MARGIN) for cost in costs)


@pytest.mark.parametrize("cycles", [False, True])
def test_best_path_and_lattice_paths_equal_enumeration(cycles):
    for seed in range(100):
        fst, loglikes = small_case(seed, cycles)
        expected, reached = expected_paths(fst, loglikes)
        lattice = Decoder(
            fst, tid2pdf(NUM_PDFS), DecodeOptions(lattice_beam=3.0, prune_interval=2, **ALL_TOKENS)
        ).decode(loglikes)
        assert lattice.reached_final == reached
        path = best_path(lattice, SCALE)
        assert path.graph_cost + SCALE * path.acoustic_cost == pytest.approx(best_of(expected), abs=MARGIN)
        for labels, costs in lattice_paths(lattice).items():
            assert all(contains(expected[labels], cost) for cost in costs)


@pytest.mark.parametrize("cycles", [False, True])
def test_best_path_is_in_lattice_without_beam(cycles):
    for seed in range(100):
        fst, loglikes = small_case(seed, cycles)
        lattice = Decoder(
            fst, tid2pdf(NUM_PDFS), DecodeOptions(lattice_beam=0.0, prune_interval=2, **ALL_TOKENS)
        ).decode(loglikes)
        path = best_path(lattice, SCALE)
        assert path.graph_cost + SCALE * path.acoustic_cost == pytest.approx(
            best_of(expected_paths(fst, loglikes)[0]), abs=MARGIN
        )


def test_all_paths_within_lattice_beam_are_found():
    num_paths = 0
    for seed in range(100, 200):
        fst, loglikes = small_case(seed, cycles=False)
        expected, _ = expected_paths(fst, loglikes)
        lattice = Decoder(
            fst, tid2pdf(NUM_PDFS), DecodeOptions(lattice_beam=3.0, prune_interval=2, **ALL_TOKENS)
        ).decode(loglikes)
        found, best = lattice_paths(lattice), best_of(expected)
        for labels, costs in expected.items():
            inside = [cost for cost in costs if cost[0] + SCALE * cost[1] < best + 3.0 - MARGIN]
            assert all(contains(found.get(labels, []), cost) for cost in inside)
            num_paths += len(inside)
    assert num_paths > 300


def test_pruning_interval_does_not_change_lattice():
    task = make_task(200, 200, 40)
    loglikes = make_loglikes(task, 150, 2.0)
    lattices = [
        Decoder(task.fst, task.tid2pdf, DecodeOptions(prune_interval=interval)).decode(loglikes)
        for interval in (1, 7, 25, 1000)
    ]
    for lattice in lattices[1:]:
        assert (lattice.num_arcs, lattice.num_states) == (lattices[0].num_arcs, lattices[0].num_states)
        assert sorted(lattice.ilabels) == sorted(lattices[0].ilabels)
    assert lattices[0].stats.peak_links < 0.5 * lattices[-1].stats.peak_links


def test_kept_links_equal_forward_backward_within_beam():
    task = make_task(200, 200, 40)
    lattice = Decoder(task.fst, task.tid2pdf, DecodeOptions(lattice_beam=6.0, acoustic_scale=SCALE)).decode(
        make_loglikes(task, 150, 2.0)
    )
    costs = lattice.graph_costs.astype(float) + SCALE * lattice.acoustic_costs
    alpha, beta = np.full(lattice.num_states, np.inf), lattice.final_graph.astype(float)
    alpha[0] = 0
    for k in range(lattice.num_arcs):
        alpha[lattice.targets[k]] = min(alpha[lattice.targets[k]], alpha[lattice.sources[k]] + costs[k])
    for k in reversed(range(lattice.num_arcs)):
        beta[lattice.sources[k]] = min(beta[lattice.sources[k]], costs[k] + beta[lattice.targets[k]])
    through = alpha[lattice.sources] + costs + beta[lattice.targets]
    assert through.max() <= beta[0] + 6.0 + 1e-3
    assert np.isfinite(alpha).all() and np.isfinite(beta).all()


@pytest.mark.parametrize("noise", [0.5, 2.0, 3.0])
def test_best_cost_equals_kaldi_decoder(noise, tmp_path):
    kaldi_decoder, kaldifst = pytest.importorskip("kaldi_decoder"), pytest.importorskip("kaldifst")
    task = make_task(500, 500, 60)
    loglikes = make_loglikes(task, 200, noise)
    path = best_path(
        Decoder(task.fst, task.tid2pdf, DecodeOptions(max_active=10**6, acoustic_scale=SCALE)).decode(
            loglikes
        ),
        SCALE,
    )
    write_fst(
        tmp_path / "peer.fst",
        task.fst.replaced(ilabels=(task.tid2pdf[task.fst.ilabels] + 1).astype(np.int32)),
    )
    # both must outlive the peer
    graph, scaled = kaldifst.StdVectorFst.read(str(tmp_path / "peer.fst")), loglikes * np.float32(SCALE)
    peer = kaldi_decoder.FasterDecoder(
        graph, kaldi_decoder.FasterDecoderOptions(beam=13.0, max_active=10**6, min_active=200)
    )
    peer.decode(kaldi_decoder.DecodableCtc(scaled))
    _, best = peer.get_best_path()
    _, _, words, weight = kaldifst.get_linear_symbol_sequence(best)
    assert path.words == words
    assert path.graph_cost == pytest.approx(weight.value1, abs=0.01)
    assert SCALE * path.acoustic_cost == pytest.approx(weight.value2, abs=0.01)


def test_max_active_and_min_active_limit_the_search():
    task = make_task(500, 500, 60)
    loglikes = make_loglikes(task, 100, 3.0)

    def tokens(**options):
        return (
            Decoder(task.fst, task.tid2pdf, DecodeOptions(acoustic_scale=SCALE, **options))
            .decode(loglikes)
            .stats.num_tokens
        )

    wide = tokens(beam=15.0)
    assert tokens(beam=15.0, max_active=100) < 0.5 * wide
    assert tokens(beam=1.0, min_active=0) < tokens(beam=1.0, min_active=500)


def test_threads_and_repetition_give_identical_lattices():
    task = make_task(300, 300, 50)
    decoder = Decoder(task.fst, task.tid2pdf, DecodeOptions(acoustic_scale=SCALE))
    items = [(f"u{i}", make_loglikes(task, 30 + 17 * i, 2.0, i)) for i in range(12)]
    alone = dict(decoder.decode_many(items))
    threads = dict(decoder.decode_many(((name, lambda x=x: x) for name, x in items), num_threads=3))
    assert list(alone) == list(threads)
    for name in alone:
        for field in (
            "sources",
            "targets",
            "ilabels",
            "olabels",
            "graph_costs",
            "acoustic_costs",
            "final_graph",
        ):
            assert np.array_equal(getattr(alone[name], field), getattr(threads[name], field))


def test_other_threads_run_during_search(monkeypatch):
    """Another thread runs within one kernel call, in at least one of a few searches, so that machine load
    does not matter."""
    task, kernel, inside = make_task(2000, 10000, 500), token_passing.advance, []
    decoder, loglikes = Decoder(task.fst, task.tid2pdf), make_loglikes(task, 400, 2.0)
    decoder.decode(loglikes[:5])

    def advance(*arguments):
        inside.append(True)
        try:
            return kernel(*arguments)
        finally:
            inside.clear()

    def turns_inside() -> int:
        search, turns = pool.submit(decoder.decode, loglikes), 0
        while not search.done():
            turns += bool(inside)
            time.sleep(0.001)
        return turns

    monkeypatch.setattr(token_passing, "advance", advance)
    with ThreadPoolExecutor(1) as pool:
        assert any(turns_inside() > 5 for _ in range(20))


def chain(ilabels, finals=None) -> Fst:
    """A graph of one path 0 -> 1 -> 2 ... with word k on its k-th arc."""
    n = len(ilabels)
    return Fst.from_arcs(
        n + 1,
        0,
        range(n),
        ilabels,
        range(1, n + 1),
        [0.5] * n,
        range(1, n + 1),
        {n: 0.25} if finals is None else finals,
    )


def test_one_frame():
    lattice = Decoder(chain([1]), tid2pdf(1)).decode(np.full((1, 1), -2.0))
    path = best_path(lattice, 1.0)
    assert (path.words, path.graph_cost, path.acoustic_cost, lattice.reached_final) == ([1], 0.75, 2.0, True)
    assert lattice.num_frames == 1


def test_no_frames():
    empty = np.empty((0, 1), np.float32)
    assert best_path(Decoder(chain([0]), tid2pdf(1)).decode(empty), 1.0).words == [1]
    lattice = Decoder(chain([1]), tid2pdf(1)).decode(empty)
    assert not lattice.reached_final and best_path(lattice, 1.0).words == []


def test_search_without_continuation_ends_early():
    lattice = Decoder(chain([1, 1]), tid2pdf(1)).decode(np.zeros((5, 1)))
    assert (lattice.stats.num_decoded, lattice.stats.num_frames, lattice.reached_final) == (2, 5, False)
    assert best_path(lattice, 1.0).words == [1, 2]


def test_path_ends_in_best_token_without_final_state():
    lattice = Decoder(chain([1, 1, 1]), tid2pdf(1)).decode(np.zeros((2, 1)))
    assert not lattice.reached_final
    assert best_path(lattice, 1.0).graph_cost == 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_likelihoods_name_the_utterance(value):
    loglikes = np.zeros((3, 2), np.float32)
    loglikes[1, 1] = value
    with pytest.raises(UserError, match="utt-7: the log-likelihood of pdf 1 at frame 1"):
        Decoder(chain([1]), tid2pdf(2)).decode(loglikes, "utt-7")


def test_graph_of_other_model_is_refused():
    with pytest.raises(UserError, match="transition-id 9 but the model has only 4"):
        Decoder(chain([9]), tid2pdf(2))
    with pytest.raises(UserError, match="utt: log-likelihoods of shape"):
        Decoder(chain([1]), tid2pdf(3)).decode(np.zeros((4, 2)), "utt")
    with pytest.raises(UserError, match="empty"):
        Decoder(Fst.from_arcs(0, -1, [], [], [], [], []), tid2pdf(1))


def test_negative_epsilon_cycle_is_refused():
    fst = Fst.from_arcs(2, 0, [0, 1, 0], [0, 0, 1], [0, 0, 0], [-1.0, 0.5, 0.0], [1, 0, 0], {0: 0.0})
    with pytest.raises(
        UserError, match="utt: the decoding graph has a cycle of epsilon arcs with negative cost"
    ):
        Decoder(fst, tid2pdf(1)).decode(np.zeros((2, 1)), "utt")
