"""PLP against Kaldi's answers (fixtures/kaldi_feats.npz), and against other ways to compute the same
quantities."""

import numpy as np
import pytest
from make_kaldi_feats import EVERY, PLP
from signals import speech_like, windowed_frames

from pyasr.base.errors import UserError
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.kinds.plp import autocorrelation_matrix, lpc_cepstra
from pyasr.feats.options import FrameOptions, MelOptions, PlpOptions


@pytest.fixture(scope="module")
def kaldi(root):
    return np.load(root / "tests/fixtures/kaldi_feats.npz")


def options(rate, **values):
    return PlpOptions(frame=FrameOptions(sample_frequency=rate), **values)


def loud(rate):
    """Frames of the signal without digital silence."""
    return windowed_frames(speech_like(rate), rate)[1] > 0


@pytest.mark.parametrize("name", PLP)
def test_plp_equals_kaldi(name, kaldi):
    rate, warp, values = PLP[name]
    ours = Extractor(options(rate, **values))([speech_like(rate)], warp=warp)[0]
    np.testing.assert_allclose(
        ours[loud(rate)][EVERY], kaldi[name], atol=2e-3 if "compress_factor" in values else 2e-4
    )


def mel(hertz):
    return 1127 * np.log(1 + hertz / 700)


def dense(wave, rate, num_bins=23, order=12, num_ceps=13):
    """PLP in float64: LPC from the normal equations, cepstra as Fourier coefficients of the model's log
    spectrum."""
    frames, _ = windowed_frames(wave, rate)
    power = np.abs(np.fft.rfft(frames)) ** 2
    edges = np.linspace(mel(20), mel(rate / 2), num_bins + 2)
    rows = []
    for spectrum in power:
        energies = []
        for left, centre, right in zip(edges, edges[1:], edges[2:]):
            lines = mel(np.arange(len(spectrum) - 1) * rate / (2 * (len(spectrum) - 1)))
            weights = np.minimum((lines - left) / (centre - left), (right - lines) / (right - centre)).clip(0)
            hertz = 700 * (np.exp(centre / 1127) - 1)
            loudness = (hertz**2 / (hertz**2 + 1.6e5)) ** 2 * (hertz**2 + 1.44e6) / (hertz**2 + 9.61e6)
            energies.append((weights @ spectrum[:-1] * loudness) ** 0.33333)
        ends = np.array([energies[0], *energies, energies[-1]])
        # the spectrum of a real, even sequence at 2 (num_bins + 1) points
        r = np.fft.irfft(ends)[: order + 1]
        toeplitz = r[np.abs(np.arange(order)[:, None] - np.arange(order))]
        a = np.linalg.solve(toeplitz, r[1:])
        gain = r[0] - a @ r[1:]
        log_spectrum = np.log(gain / np.abs(np.fft.rfft([1, *-a], 4096)) ** 2)
        cepstra = np.fft.irfft(log_spectrum)[:num_ceps]
        k = np.arange(num_ceps)
        rows.append(cepstra * (1 + 11 * np.sin(np.pi * k / 22)))
    return np.array(rows)


@pytest.mark.parametrize("rate", [8000, 16000])
def test_plp_equals_independent_computation(rate):
    wave = speech_like(rate)[: int(0.5 * rate)]
    np.testing.assert_allclose(
        Extractor(options(rate, use_energy=False))([wave])[0], dense(wave, rate), atol=1e-4
    )


def test_autocorrelations_equal_spectrum():
    energies = np.random.default_rng(0).random((4, 23))
    ends = np.hstack([energies[:, :1], energies, energies[:, -1:]])
    np.testing.assert_allclose(
        energies @ autocorrelation_matrix(23, 12), np.fft.irfft(ends)[:, :13], atol=1e-12
    )


def test_known_poles_are_recovered():
    poles = np.array([0.9 * np.exp(0.5j), 0.7 * np.exp(2j)])
    poles = np.concatenate([poles, poles.conj()])
    a = np.poly(poles).real
    r = np.fft.irfft(9 / np.abs(np.fft.rfft(a, 4096)) ** 2)[:5]
    # ln of prod 1 / (1 - p z^-1)
    expected = [np.log(9), *((poles[None] ** np.arange(1, 9)[:, None]).sum(1).real / np.arange(1, 9))]
    np.testing.assert_allclose(lpc_cepstra(r[None], 5)[0], expected[:5], rtol=1e-9)


def test_plp_of_silence_is_finite():
    for use_energy in (True, False):
        assert np.isfinite(
            Extractor(options(8000, use_energy=use_energy))([np.zeros(4000, np.float32)])[0]
        ).all()


def test_energy_replaces_c0():
    wave = speech_like(8000)
    with_energy, without = (
        Extractor(options(8000, use_energy=use, energy_floor=1e6))([wave])[0] for use in (True, False)
    )
    np.testing.assert_array_equal(with_energy[:, 1:], without[:, 1:])
    np.testing.assert_allclose(with_energy[:, 0], windowed_frames(wave, 8000)[1].clip(np.log(1e6)), atol=1e-4)


@pytest.mark.parametrize(
    "values, sentence",
    [
        ({"num_ceps": 14}, "--num-ceps 14 is more than --lpc-order 12 plus one"),
        ({"mel": MelOptions(high_freq=5000.0)}, "do not form a band below 4000 Hz"),
    ],
)
def test_impossible_options_are_refused(values, sentence):
    with pytest.raises(UserError, match=sentence):
        Extractor(options(8000, **values))
