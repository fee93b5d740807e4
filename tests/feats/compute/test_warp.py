"""Vocal tract length perturbation: the matrix against warped signals and against its definition."""

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.compute.mel import mel_scale
from pyasr.feats.compute.warp import Warper
from pyasr.feats.options import FbankOptions, FrameOptions, MelOptions, MfccOptions

FRAME, MEL = FrameOptions(sample_frequency=8000.0), MelOptions(40, 20.0, -200.0)
FBANK = FbankOptions(frame=FRAME, mel=MEL)
HIRES = MfccOptions(frame=FRAME, mel=MEL, num_ceps=40, use_energy=False)
SMALL = MfccOptions(frame=FRAME, use_energy=False)


@pytest.mark.parametrize("options", [FBANK, HIRES])
def test_factor_one_is_identity(options):
    np.testing.assert_allclose(Warper(options).matrix(1.0), np.eye(40), atol=1e-5)


@pytest.mark.parametrize("factor", [0.85, 0.95, 1.1])
def test_smooth_spectrum_is_sampled_at_warped_frequencies(factor):
    warper = Warper(FBANK)
    hertz = 700 * np.expm1(warper.centres / 1127)
    place = np.where(hertz <= 0.8 * 3800 * min(factor, 1) / factor, factor * hertz, np.nan)
    spectrum = lambda f: np.sin(mel_scale(f) / 300)
    inside = ~np.isnan(place) & (place > hertz[0])
    np.testing.assert_allclose(
        (spectrum(hertz) @ warper.matrix(factor))[inside], spectrum(place[inside]), atol=0.01
    )


@pytest.mark.parametrize("factor", [0.88, 1.12])
def test_warping_is_monotonic_and_keeps_ends(factor):
    warper, hertz = Warper(FBANK), np.linspace(0, 3800, 500)
    warped = warper.warped_hz(hertz, factor)
    assert warped[0] == 0 and warped[-1] == pytest.approx(3800) and (np.diff(warped) > 0).all()


def test_cepstra_are_warped_like_their_filter_bank():
    rng = np.random.default_rng(0)
    wave = [(1000 * rng.standard_normal(8000)).astype(np.float32)]
    fbank, mfcc = Extractor(FBANK)(wave)[0], Extractor(HIRES)(wave)[0]
    back = np.linalg.inv(Warper(HIRES)._cosine)
    np.testing.assert_allclose(
        mfcc @ Warper(HIRES).matrix(0.9) @ back, fbank @ Warper(FBANK).matrix(0.9), atol=1e-2
    )


@pytest.mark.parametrize("options", [FBANK, HIRES, SMALL])
@pytest.mark.parametrize("factor", [0.88, 1.12])
def test_warping_compensates_vocal_tract_length(options, factor):
    """Noise is filtered with resonances at F, and at F / factor. Warped by `factor`, the first signal equals
    the second."""
    rng = np.random.default_rng(0)

    def noise(scale):
        spectrum = np.fft.rfft(rng.standard_normal(80000))
        hertz = np.fft.rfftfreq(80000, 1 / 8000)
        shape = sum(1 / (1 + ((hertz - f * scale) / 150) ** 2) for f in (500, 1300, 2200)) + 0.01
        return np.fft.irfft(1e5 * spectrum * shape).astype(np.float32)

    original, target = (x.mean(0) for x in Extractor(options)([noise(1), noise(1 / factor)]))
    left, before = np.abs(original @ Warper(options).matrix(factor) - target), np.abs(original - target)
    assert left.mean() < 0.4 * before.mean()


def test_energy_cannot_be_warped():
    with pytest.raises(UserError, match="--use-energy=false"):
        Warper(MfccOptions(frame=FRAME))
