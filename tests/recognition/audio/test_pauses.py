"""Recordings split at pauses: energies equal their definition; memory is small compared with the
recording."""

import tracemalloc

import numpy as np
import pytest

from pyasr.recognition.audio.pauses import _levels, cut_at_pauses


def talk(seconds: int, rate: int) -> np.ndarray:
    """Noise with a second of silence in every five."""
    time = np.arange(seconds * rate)
    loud = np.where(time % (5 * rate) < rate, 1.0, 1000.0).astype(np.float32)
    return loud * np.random.default_rng(0).standard_normal(len(time), np.float32)


def test_energies_equal_definition():
    samples, step = talk(60, 8000), 80
    levels = _levels(samples, step)
    for t in (0, 3, 999, 1000, 4100, len(levels) - 1):
        window = samples[max(t - 5, 0) * step : (t + 5) * step].astype(np.float64)
        assert levels[t] == pytest.approx(10 * np.log10(np.mean(window**2) + 1), abs=1e-6)


def test_memory_is_small_compared_with_recording():
    samples = talk(600, 16000)
    tracemalloc.start()
    edges = cut_at_pauses(samples, 16000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < samples.nbytes / 2 and (edges[0][0], edges[-1][1]) == (0, len(samples))
    assert [end / 16000 % 5 for _, end in edges[:-1]] == pytest.approx(np.full(len(edges) - 1, 0.5), abs=0.1)
