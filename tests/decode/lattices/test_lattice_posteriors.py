"""Posteriors of lattices against the sum over all their paths."""

import numpy as np
import pytest
from graphs import lattice_paths, random_graph, tid2pdf

from pyasr.decode.lattices.lattice import from_arcs
from pyasr.decode.lattices.lattice_posteriors import arc_posteriors, tid_posteriors
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions

NUM_PDFS, SCALE = 4, 0.7


def lattice(seed: int, num_frames: int = 4):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 6, 20, NUM_PDFS)
    loglikes = rng.standard_normal((num_frames, NUM_PDFS)).astype(np.float32)
    return Decoder(
        graph, tid2pdf(NUM_PDFS), DecodeOptions(beam=30.0, lattice_beam=6.0, acoustic_scale=SCALE)
    ).decode(loglikes)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lm_scale", [1.0, 0.5])
def test_transition_id_posteriors_of_each_frame(seed, lm_scale):
    one = lattice(seed)
    expected, total = np.zeros((4, 2 * NUM_PDFS + 1)), 0.0
    for (labels, _), costs in lattice_paths(one).items():
        weight = sum(np.exp(-(lm_scale * graph + SCALE * acoustic)) for graph, acoustic in costs)
        total += weight
        for frame, tid in enumerate(label for label in labels if label):
            expected[frame, tid] += weight
    frames, tids, posteriors = tid_posteriors(one, SCALE, lm_scale)
    found = np.zeros_like(expected)
    found[frames, tids] = posteriors
    np.testing.assert_allclose(found, expected / total, atol=1e-5)
    assert (np.diff(frames) >= 0).all() and len(set(zip(frames.tolist(), tids.tolist()))) == len(frames)
    assert arc_posteriors(one, SCALE, lm_scale)[1] == pytest.approx(np.log(total), rel=1e-5)


def test_long_utterances_do_not_underflow():
    one = lattice(1, num_frames=3000)
    frames, _, posteriors = tid_posteriors(one, 20.0)
    np.testing.assert_allclose(np.bincount(frames, posteriors), 1.0, atol=1e-4)


def test_lattices_without_path_have_no_posteriors():
    nothing = np.zeros(0, np.int32)
    empty = from_arcs(-1, nothing, nothing, nothing, nothing, nothing, nothing, np.zeros(0, np.float32))
    assert [len(part) for part in tid_posteriors(empty, 1.0)] == [0, 0, 0]
    endless = from_arcs(0, [0], [1], [3], [1], [0.5], [1.0], [np.inf, np.inf])
    assert [len(part) for part in tid_posteriors(endless, 1.0)] == [0, 0, 0]
