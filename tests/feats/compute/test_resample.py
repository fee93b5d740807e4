"""Resampling of audio that arrives in parts, against sines at the new times, against `resample`, and against
resampling of the whole."""

from __future__ import annotations

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.feats.compute.resample import Resampler, resample

RATES = [(8000, 16000), (16000, 8000), (44100, 16000), (11025, 8000)]


def sine(hertz: float, rate: int, num: int) -> np.ndarray:
    return (1000 * np.sin(2 * np.pi * hertz * np.arange(num) / rate)).astype(np.float32)


@pytest.mark.parametrize("rate_in, rate_out", RATES)
def test_tones_below_nyquist_are_kept_and_others_removed(rate_in, rate_out):
    low = Resampler(rate_in, rate_out)(sine(700, rate_in, rate_in // 2), last=True)
    assert len(low) == -(-(rate_in // 2) * rate_out // rate_in)
    inner = slice(len(low) // 5, -(len(low) // 5))
    assert np.abs(low - sine(700, rate_out, len(low)))[inner].max() < 2.0
    if rate_out < rate_in:
        assert (
            np.abs(
                Resampler(rate_in, rate_out)(sine(0.53 * rate_out, rate_in, rate_in // 2), last=True)[inner]
            ).max()
            < 20.0
        )


@pytest.mark.parametrize("rate_in, rate_out", RATES)
def test_parts_are_bit_identical_to_whole(rate_in, rate_out):
    signal = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    whole = Resampler(rate_in, rate_out)(signal, last=True)
    expected = resample(signal, rate_in, rate_out, 0.95 * min(rate_in, rate_out) / 2, 32)
    assert np.allclose(whole, expected, atol=1e-5)
    for sizes in ([1] * 7, [100, 0, 3000], [4999]):
        resampler, parts = Resampler(rate_in, rate_out), []
        for piece in np.split(signal, np.cumsum(sizes)):
            parts.append(resampler(piece))
        assert np.array_equal(np.concatenate([*parts, resampler(signal[:0], last=True)]), whole)


def test_equal_rates_empty_input_and_impossible_rates():
    signal = np.arange(10, dtype=np.float32)
    assert np.array_equal(Resampler(8000, 8000)(signal), signal)
    assert len(Resampler(8000, 16000)(signal[:0], last=True)) == 0
    with pytest.raises(UserError, match="audio of 0 Hz"):
        Resampler(0, 8000)


@pytest.mark.parametrize("rate_out", [8000, 16000])
def test_rates_with_small_common_divisor(rate_out):
    """A header may name any rate. All rates of real recordings are supported."""
    for rate_in in (
        11025,
        11127,
        22254,
        22255,
        44056,
        44101,
        44144,
        50000,
        88200,
        176400,
        192000,
        352800,
        384000,
        705600,
        768000,
    ):
        assert len(Resampler(rate_in, rate_out)(np.zeros(rate_in // 100, np.float32), last=True))
    for rate_in in (192001, 767999):
        with pytest.raises(
            UserError,
            match=f"^audio of {rate_in} Hz, whose common divisor with {rate_out} Hz is too small; convert it",
        ):
            Resampler(rate_in, rate_out)
