"""MFCC and filter banks against kaldi-native-fbank for all options that change them, and against the formulas
in float64."""

import sys
from pathlib import Path

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.options import FbankOptions, FrameOptions, MelOptions, MfccOptions

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from dense_features import dense_features  # noqa: E402

TOLERANCE = 5e-3


def waveforms(rate):
    """Noise over a tone and an offset, at lengths around one and several frames; int16 scale."""
    rng = np.random.default_rng(1)
    window = int(0.025 * rate)
    lengths = (window, window + int(0.01 * rate) - 1, window + int(0.01 * rate), 3 * window + 17, rate + 123)
    return [
        np.round(300 + 5000 * np.sin(0.05 * np.arange(n)) + 1000 * rng.standard_normal(n)).astype(np.float32)
        for n in lengths
    ]


def reference(options, waves):
    knf = pytest.importorskip("kaldi_native_fbank")
    is_mfcc = isinstance(options, MfccOptions)
    theirs = knf.MfccOptions() if is_mfcc else knf.FbankOptions()
    frame, mel = options.frame, options.mel
    theirs.frame_opts.samp_freq, theirs.frame_opts.dither = frame.sample_frequency, 0
    theirs.frame_opts.frame_length_ms = frame.frame_length
    theirs.frame_opts.frame_shift_ms = frame.frame_shift
    theirs.frame_opts.preemph_coeff = frame.preemphasis_coefficient
    theirs.frame_opts.remove_dc_offset = frame.remove_dc_offset
    theirs.frame_opts.window_type, theirs.frame_opts.snip_edges = frame.window_type, frame.snip_edges
    theirs.mel_opts.num_bins = mel.num_mel_bins
    theirs.mel_opts.low_freq = mel.low_freq
    theirs.mel_opts.high_freq = mel.high_freq
    theirs.frame_opts.round_to_power_of_two = frame.round_to_power_of_two
    theirs.htk_compat = options.htk_compat
    theirs.use_energy = options.use_energy
    theirs.energy_floor = options.energy_floor
    theirs.raw_energy = frame.raw_energy
    if is_mfcc:
        theirs.num_ceps, theirs.cepstral_lifter = options.num_ceps, options.cepstral_lifter
    else:
        theirs.use_log_fbank, theirs.use_power = options.use_log_fbank, options.use_power
    features = []
    for wave in waves:
        online = (knf.OnlineMfcc if is_mfcc else knf.OnlineFbank)(theirs)
        online.accept_waveform(frame.sample_frequency, wave.tolist())
        online.input_finished()
        features.append(np.array([online.get_frame(t) for t in range(online.num_frames_ready)]))
    return features


def check(options):
    waves = waveforms(int(options.frame.sample_frequency))
    ours, theirs = Extractor(options)(waves), reference(options, waves)
    assert [len(x) for x in ours] == [len(x) for x in theirs]
    for x, y in zip(ours, theirs):
        assert x.dtype == np.float32
        scale = 1 if getattr(options, "use_log_fbank", True) else np.abs(y).max()
        assert np.abs(x - y).max() / scale < TOLERANCE


@pytest.mark.parametrize("rate", [8000.0, 11025.0, 16000.0, 22050.0, 44100.0])
@pytest.mark.parametrize("snip_edges", [True, False])
@pytest.mark.parametrize("window", ["povey", "hamming", "hanning", "rectangular", "blackman"])
def test_windows_and_edges_equal_kaldi_native_fbank(rate, snip_edges, window):
    check(MfccOptions(frame=FrameOptions(sample_frequency=rate, snip_edges=snip_edges, window_type=window)))


@pytest.mark.parametrize(
    "options",
    [
        dict(num_ceps=40, use_energy=False, mel=MelOptions(40, 20.0, -200.0)),
        dict(use_energy=False, cepstral_lifter=0.0),
        dict(energy_floor=1e9),
        dict(use_energy=True, frame=FrameOptions(sample_frequency=8000.0, raw_energy=False)),
        dict(
            frame=FrameOptions(sample_frequency=8000.0, remove_dc_offset=False, preemphasis_coefficient=0.0)
        ),
        dict(frame=FrameOptions(sample_frequency=8000.0, frame_length=20.0, frame_shift=12.5)),
        dict(htk_compat=True),
        dict(htk_compat=True, use_energy=False),
        dict(htk_compat=True, use_energy=False, cepstral_lifter=0.0),
        dict(frame=FrameOptions(sample_frequency=8000.0, round_to_power_of_two=False)),
        dict(frame=FrameOptions(sample_frequency=16000.0, round_to_power_of_two=False), htk_compat=True),
    ],
)
def test_mfcc_options_equal_kaldi_native_fbank(options):
    check(MfccOptions(**{"frame": FrameOptions(sample_frequency=8000.0), **options}))


@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(use_energy=True),
        dict(use_energy=True, htk_compat=True),
        dict(htk_compat=True),
        dict(frame=FrameOptions(sample_frequency=8000.0, round_to_power_of_two=False), use_energy=True),
        dict(use_power=False),
        dict(use_log_fbank=False),
        dict(mel=MelOptions(40, 100.0, 3800.0)),
    ],
)
def test_fbank_options_equal_kaldi_native_fbank(options):
    check(FbankOptions(**{"frame": FrameOptions(sample_frequency=8000.0), **options}))


def near_silence(rate):
    """Steady tones over digital silence, as in synthesised music, a constant, and noise of the last bit;
    int16 scale."""
    t = np.arange(rate)
    tone = 20000 * np.sin(2 * np.pi * 200 * t / rate)
    last_bit = np.random.default_rng(0).integers(0, 2, rate)
    waves = [
        np.zeros(rate),
        12000 + 0 * t,
        tone,
        np.round(tone),
        1000 * (t % 32 < 16),
        last_bit,
        tone * (t > rate // 2) + last_bit,
    ]
    return [wave.astype(np.float32) for wave in waves]


@pytest.mark.parametrize(
    "options",
    [
        MfccOptions(frame=FrameOptions(8000.0), use_energy=False),
        MfccOptions(
            frame=FrameOptions(8000.0), use_energy=False, num_ceps=40, mel=MelOptions(40, 20.0, -200.0)
        ),
        FbankOptions(frame=FrameOptions(8000.0), mel=MelOptions(40, 20.0, -200.0)),
    ],
)
def test_near_silence_equals_float64(options):
    """Next to a steady tone, a filter's energy is below the rounding error of float32. Computed in float32,
    these features differ by 0.014."""
    waves = near_silence(8000)
    for ours, wave in zip(Extractor(options)(waves), waves):
        np.testing.assert_allclose(ours, dense_features(options, wave), atol=1e-4)


def test_features_do_not_depend_on_batch():
    rng = np.random.default_rng(2)
    waves = [rng.standard_normal(n).astype(np.float32) * 1000 for n in (5000, 100, 20001, 263, 90000)]
    extractor = Extractor(MfccOptions(frame=FrameOptions(sample_frequency=8000.0)))
    together = extractor(waves)
    for wave, features in zip(waves, together):
        np.testing.assert_allclose(extractor([wave])[0], features, atol=1e-3)
    assert together[1].shape == (0, 13)


def test_dither_depends_only_on_utterance_and_seed():
    options = MfccOptions(frame=FrameOptions(sample_frequency=8000.0, dither=1.0))
    waves = [np.zeros(8000, np.float32)] * 2
    first = Extractor(options)(waves, ["a", "b"], seed=3)
    again = Extractor(options)(waves[:1], ["b"], seed=3)
    np.testing.assert_allclose(first[1], again[0], atol=1e-3)
    assert np.abs(first[0] - first[1]).max() > 0.1


@pytest.mark.parametrize(
    "mel, sentence",
    [(MelOptions(23, 20.0, 5000.0), "do not form a band below 4000 Hz"), (MelOptions(200), "use fewer")],
)
def test_impossible_filters_are_refused(mel, sentence):
    with pytest.raises(UserError, match=sentence):
        Extractor(MfccOptions(frame=FrameOptions(sample_frequency=8000.0), mel=mel, num_ceps=13))
