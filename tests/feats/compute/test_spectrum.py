"""Spectra of frames and sums of them, against sums over samples in extended precision."""

import functools
import subprocess
import sys

import numpy as np
import pytest
from processors import environment, has_avx512

from pyasr.base.compiled.kernels import njit
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.compute.mel import EPSILON, mel_filters
from pyasr.feats.compute.spectrum import FrameBuffer, KernelSpectrum, Spectrum, reflected, spectrum_of
from pyasr.feats.compute.spectrum_kernels import floored_log
from pyasr.feats.options import FbankOptions, FrameOptions, MelOptions

PI = np.longdouble("3.14159265358979323846264338327950288")
WINDOWS = {
    "povey": lambda x: (0.5 - 0.5 * np.cos(x)) ** np.longdouble("0.85"),
    "hamming": lambda x: np.longdouble("0.54") - np.longdouble("0.46") * np.cos(x),
    "hanning": lambda x: 0.5 - 0.5 * np.cos(x),
    "rectangular": lambda x: 0 * x + 1,
    "blackman": lambda x: np.longdouble("0.42") - 0.5 * np.cos(x) + np.longdouble("0.08") * np.cos(2 * x),
}
SIGNALS = ("noise", "tone", "rounded tone", "offset")
# (rate, frame length in ms, transform)
FRAMES = [
    (8000.0, 15.0, 128),
    (8000.0, 25.0, 256),
    (11025.0, 25.0, 512),
    (16000.0, 25.0, 512),
    (16000.0, 32.0, 512),
    (22050.0, 25.0, 1024),
    (44100.0, 25.0, 2048),
]


def signal_of(name: str, num: int) -> np.ndarray:
    noise, tone = np.random.default_rng(5).standard_normal(num), 20000 * np.sin(0.157 * np.arange(num))
    found = {"noise": 1000 * noise, "tone": tone, "rounded tone": np.round(tone), "offset": 12000 + noise}
    return found[name].astype(np.float32)


@functools.cache
def waves_of(num: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    phase = 2 * PI * (np.arange(num)[:, None] * np.arange(size // 2 + 1) % size) / size
    return np.cos(phase), np.sin(phase)


def by_formula(wave: np.ndarray, frame: FrameOptions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(P[k], sum of d^2, sum of (w p)^2) of all frames, in extended precision."""
    num, size, i = len(wave), frame.fft_size, np.arange(frame.window_size)
    begins = frame.first_sample + frame.window_shift * np.arange(frame.num_frames(num))
    places = begins[:, None] + i
    places = places if frame.snip_edges else reflected(places, num)
    d = wave.astype(np.longdouble)[places]
    if frame.remove_dc_offset:
        d = d - d.mean(1, keepdims=True)
    p = d - np.longdouble(frame.preemphasis_coefficient) * d[:, np.maximum(i - 1, 0)]
    x = p * WINDOWS[frame.window_type](2 * PI * i / (len(i) - 1))
    cosines, sines = waves_of(len(i), size)
    return (x @ cosines) ** 2 + (x @ sines) ** 2, (d**2).sum(1), (x**2).sum(1)


def computed(spectrum: KernelSpectrum | Spectrum, waves: list[np.ndarray], frame: FrameOptions) -> np.ndarray:
    buffer = FrameBuffer(waves, frame)
    return spectrum(buffer, 0, buffer.num_rows).copy()


def assert_close(found: np.ndarray, expected: np.ndarray, wave: np.ndarray) -> None:
    """Within the rounding errors of a transform in float64, which are relative to the samples."""
    error = np.abs(np.sqrt(found) - np.sqrt(expected))
    assert error.max() <= 1e-15 * np.sqrt(expected.shape[1]) * np.abs(wave).max()


@pytest.mark.parametrize("rate, length, size", FRAMES)
@pytest.mark.parametrize("window", WINDOWS)
def test_power_spectra_equal_formula(rate, length, size, window):
    for snip in (True, False):
        frame = FrameOptions(rate, frame_length=length, window_type=window, snip_edges=snip)
        assert frame.fft_size == size
        spectrum = spectrum_of(frame, None, energy=True)
        assert isinstance(spectrum, KernelSpectrum)
        for name in SIGNALS:
            wave = signal_of(name, int(0.06 * rate))
            power, energy, _ = by_formula(wave, frame)
            assert_close(computed(spectrum, [wave], frame), power, wave)
            np.testing.assert_allclose(
                spectrum.log_energy(len(power), 0.0), np.log(energy).astype(float), rtol=1e-13
            )


@pytest.mark.parametrize("rate", [8000.0, 16000.0])
@pytest.mark.parametrize("num_filters", [3, 23, 40])
def test_filters_of_magnitudes_and_powers_equal_formula(rate, num_filters):
    frame = FrameOptions(rate, remove_dc_offset=False, preemphasis_coefficient=0.5, raw_energy=False)
    wave, weights = signal_of("noise", int(0.3 * rate)), mel_filters(MelOptions(num_filters), frame)
    power, _, energy = by_formula(wave, frame)
    for is_power, lines in (True, power), (False, np.sqrt(power)):
        expected = (lines @ weights).astype(float)
        spectrum = spectrum_of(frame, weights, is_power, energy=True)
        np.testing.assert_allclose(computed(spectrum, [wave], frame), expected, rtol=1e-12)
        np.testing.assert_allclose(
            spectrum.log_energy(len(power), 0.0), np.log(energy).astype(float), rtol=1e-13
        )
        logarithms = computed(spectrum_of(frame, weights, is_power, logarithms=True), [wave], frame)
        np.testing.assert_allclose(logarithms, np.log(expected), rtol=1e-13, atol=1e-12)


def test_dense_filters_and_numpy_equal_kernels():
    frame = FrameOptions(8000.0)
    weights = np.random.default_rng(1).random((129, 5))
    wave = signal_of("noise", 8000)
    for logarithms in (False, True):
        for energy in (False, True):
            kernels = KernelSpectrum(frame, weights, True, logarithms, energy)
            by_numpy = Spectrum(frame, weights, True, logarithms)
            np.testing.assert_allclose(
                computed(kernels, [wave], frame), computed(by_numpy, [wave], frame), rtol=1e-13
            )
    np.testing.assert_allclose(kernels.log_energy(98, 1.0), by_numpy.log_energy(98, 1.0), rtol=1e-13)


def test_other_sizes_use_numpy():
    for frame in FrameOptions(8000.0, round_to_power_of_two=False), FrameOptions(8000.0, frame_length=5.0):
        spectrum, wave = spectrum_of(frame, None), signal_of("noise", 2000)
        assert isinstance(spectrum, Spectrum)
        assert_close(computed(spectrum, [wave], frame), by_formula(wave, frame)[0], wave)


@pytest.mark.parametrize("snip", [True, False])
def test_bits_do_not_depend_on_other_frames(snip):
    """Neither on the frames that are computed next to them, nor on values that are not numbers in these."""
    frame = FrameOptions(8000.0, snip_edges=snip)
    lengths = (1999, 100, 201, 5003, 8000 * 6)
    waves = [signal_of("noise", num) for num in lengths]
    extractor = Extractor(FbankOptions(frame=frame, use_energy=True))
    bad = waves[0].copy()
    bad[::50] = np.nan
    together = extractor([bad, *waves])
    assert np.isnan(together[0]).all() and [len(x) for x in together[1:]] == list(
        map(frame.num_frames, lengths)
    )
    for wave, features in zip(waves, together[1:]):
        np.testing.assert_array_equal(extractor([wave])[0], features)


@njit(nogil=True)
def logs(values, floor, out):
    for i in range(len(values)):
        out[i] = floored_log(values[i], floor)


def test_logarithms_equal_numpy():
    values = np.exp(np.random.default_rng(2).uniform(-700, 700, 100000))
    values[:4] = np.sqrt(0.5), np.nextafter(np.sqrt(0.5), 0), np.finfo(float).max, 2.0**-1022
    found = np.empty_like(values)
    logs(values, 2.3e-308, found)
    np.testing.assert_allclose(found[4:], np.log(values[4:]), rtol=5e-16)
    np.testing.assert_allclose(found[:4], np.log(np.maximum(values[:4], 2.3e-308)), rtol=5e-16)
    special = np.array([np.nan, np.inf, -np.inf, -1.0, 0.0, EPSILON, 1.0])
    logs(special, EPSILON, out := np.empty(7))
    np.testing.assert_array_equal(out, [np.nan, np.inf, *[np.log(EPSILON)] * 4, 0.0])


DIGEST = """
import hashlib, numpy as np
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.options import *
wave = (1000 * np.random.default_rng(0).standard_normal(20000)).astype(np.float32)
for rate in (8000.0, 16000.0):
    features = Extractor(FbankOptions(FrameOptions(rate), MelOptions(40)))([wave])[0]
    print(hashlib.sha256(features.tobytes()).hexdigest())
"""


@pytest.mark.skipif(not has_avx512(), reason="this processor has no AVX-512")
def test_bits_are_those_of_a_processor_without_avx512():
    found = {
        subprocess.run(
            [sys.executable, "-c", DIGEST], env=environment(name), capture_output=True, text=True, check=True
        ).stdout
        for name in ("this", "avx2")
    }
    assert len(found) == 1
