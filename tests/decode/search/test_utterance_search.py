"""A search whose frames arrive in parts, against the search of all frames at once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from synthetic import make_loglikes, make_task

from pyasr.base.errors import UserError
from pyasr.decode.lattices.lattice import best_path
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.io.openfst import Fst

OPTIONS = DecodeOptions(max_active=500)


@pytest.fixture(scope="module")
def task():
    return make_task(100, 100, 30)


def arrays(lattice) -> list[np.ndarray]:
    return [value for value in vars(lattice).values() if isinstance(value, np.ndarray)]


@pytest.mark.parametrize("size", [1, 7, 60, 200])
def test_parts_give_bit_identical_lattice(task, size):
    decoder, loglikes = Decoder(task.fst, task.tid2pdf, OPTIONS), make_loglikes(task, 120, 2.0)
    whole, search = decoder.decode(loglikes), decoder.start()
    for begin in range(0, 120, size):
        search.advance(loglikes[begin : begin + size])
    found = search.finish()
    assert all(np.array_equal(one, other) for one, other in zip(arrays(found), arrays(whole), strict=True))
    assert dataclasses.replace(found.stats, cpu_s=0.0) == dataclasses.replace(whole.stats, cpu_s=0.0)
    assert found.reached_final == whole.reached_final


def test_interleaved_searches_are_independent(task):
    decoder = Decoder(task.fst, task.tid2pdf, OPTIONS)
    inputs = [make_loglikes(task, 60, 2.0, seed) for seed in (1, 2)]
    searches = [decoder.start() for _ in inputs]
    for frame in range(60):
        for search, loglikes in zip(searches, inputs):
            search.advance(loglikes[frame : frame + 1])
    for search, loglikes in zip(searches, inputs):
        assert np.array_equal(search.finish().ilabels, decoder.decode(loglikes).ilabels)


def test_partial_best_path_equals_search_with_all_states_final(task):
    fst = dataclasses.replace(task.fst, finals=np.zeros_like(task.fst.finals))
    decoder, loglikes = Decoder(fst, task.tid2pdf, OPTIONS), make_loglikes(task, 90, 2.0)
    search = decoder.start()
    assert search.best_path().words == [] and search.final_gap() == 0.0
    for end in (1, 20, 47, 90):
        search.advance(loglikes[search.num_frames : end])
        expected = best_path(decoder.decode(loglikes[:end]), OPTIONS.acoustic_scale)
        assert search.best_path().words == expected.words and np.array_equal(
            search.best_path().tids, expected.tids
        )


def test_final_gap_and_dead_search():
    fst = Fst.from_arcs(3, 0, [0, 0, 1], [1, 2, 1], [1, 2, 0], [0.0, 2.0, 0.0], [1, 2, 1], {2: 0.5})
    decoder = Decoder(fst, np.array([-1, 0, 0], np.int32), DecodeOptions(acoustic_scale=1.0))
    search = decoder.start()
    search.advance(np.zeros((1, 1), np.float32))
    assert search.final_gap() == 2.5 and not search.is_dead
    search.advance(np.zeros((1, 1), np.float32))
    assert search.final_gap() == np.inf
    one_frame = Decoder(
        Fst.from_arcs(2, 0, [0], [1], [1], [0.0], [1], {1: 0.0}), np.array([-1, 0], np.int32)
    ).start()
    one_frame.advance(np.zeros((3, 1), np.float32))
    lattice = one_frame.finish()
    assert one_frame.is_dead and (
        lattice.stats.num_frames,
        lattice.stats.num_decoded,
        lattice.reached_final,
    ) == (3, 1, False)


def test_non_finite_likelihoods_are_named_by_utterance_frame(task):
    search = Decoder(task.fst, task.tid2pdf, OPTIONS).start()
    loglikes = make_loglikes(task, 4, 2.0)
    search.advance(loglikes)
    loglikes[2, 3] = np.nan
    with pytest.raises(UserError, match="pdf 3 at frame 6 is nan"):
        search.advance(loglikes)
