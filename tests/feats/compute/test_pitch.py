"""Pitch against Kaldi's answers (fixtures/kaldi_feats.npz), plain loops, and voices of known pitch, also in
noise."""

import tracemalloc

import numpy as np
import pytest
from make_kaldi_feats import PITCH, PROCESS
from signals import speech_like, voice

from pyasr.base.errors import UserError
from pyasr.feats.compute.pitch import PitchTracker, best_path
from pyasr.feats.compute.pitch_features import (
    PitchExtractor,
    process_pitch,
    voicing_feature,
    voicing_probability,
)
from pyasr.feats.compute.resample import resample
from pyasr.feats.options import FrameOptions, PitchOptions, ProcessPitchOptions, TrackOptions


@pytest.fixture(scope="module")
def kaldi(root):
    return np.load(root / "tests/fixtures/kaldi_feats.npz")


def tracker(rate, snip_edges=True, resample_freq=4000, **options):
    return PitchTracker(
        TrackOptions(resample_frequency=resample_freq, **options),
        FrameOptions(sample_frequency=rate, snip_edges=snip_edges),
    )


def states(lags_s, hertz):
    """Index of the nearest searched lag."""
    return np.abs(np.log(lags_s * hertz[:, None])).argmin(1)


def loops(track, wave):
    """(costs of all frames and lags, correlations without ballast) in float64, computed from the formulas
    with plain loops."""
    options, rate, frame = track.options, track.options.resample_frequency, track.frame
    c, z = options.lowpass_cutoff, options.lowpass_filter_width

    def sinc(t, cutoff, zeros):
        window = 0.5 * (1 + np.cos(2 * np.pi * cutoff / zeros * t)) if abs(t) < zeros / (2 * cutoff) else 0
        return window * (np.sin(2 * np.pi * cutoff * t) / (np.pi * t) if t else 2 * cutoff)

    fine = frame.sample_frequency
    num = int(np.ceil(len(wave) * rate / fine))
    near = [
        range(max(0, int((i / rate - 0.001) * fine)), min(len(wave), int((i / rate + 0.001) * fine) + 2))
        for i in range(num)
    ]
    x = np.array([sum(wave[n] * sinc(i / rate - n / fine, c, z) for n in near[i]) / fine for i in range(num)])
    ballast = options.nccf_ballast * (track.window * x.var()) ** 2
    x = np.concatenate([x, np.zeros(500)])
    lags = range(track.first_lag, track.last_lag + 1)
    costs, plain = [], []
    for begin in range(0, num - track.window + 1, track.shift):
        y = x[begin:] - x[begin : begin + track.window].mean()
        w = y[: track.window]
        rows = []
        for added in (ballast, 0):
            row = []
            for lag in lags:
                v = y[lag : lag + track.window]
                norm = (w @ w) * (v @ v) + added
                row.append(w @ v / np.sqrt(norm) if norm > 0 else 0)
            read = [
                sum(
                    value * sinc(time - lag / rate, rate / 2, options.upsample_filter_width)
                    for value, lag in zip(row, lags)
                )
                / rate
                for time in track.lags_s
            ]
            rows.append(np.array(read))
        costs.append(1 - rows[0] * (1 - options.soft_min_f0 * track.lags_s))
        plain.append(rows[1])
    return np.array(costs), np.array(plain)


def path_cost(costs, path, factor):
    return costs[np.arange(len(path)), path].sum() + factor * (np.diff(path).astype(float) ** 2).sum()


def viterbi(costs, factor):
    """Lowest cost, by comparing all pairs of states."""
    jumps = factor * (np.arange(costs.shape[1])[:, None] - np.arange(costs.shape[1])) ** 2
    forward = costs[0]
    for cost in costs[1:]:
        forward = (forward[None] + jumps).min(1) + cost
    return forward.min()


@pytest.mark.parametrize("name", PITCH)
def test_pitch_equals_kaldi(name, kaldi):
    """In silence and noise, float32 decides between paths of equal cost. There, the two may differ by some
    steps of 0.5 %."""
    rate, options = PITCH[name]
    ours, theirs = tracker(rate, **options)(speech_like(rate)), kaldi[name]
    assert ours.shape == theirs.shape and ours.dtype == np.float32
    off = np.abs(np.log(ours[:, 1] / theirs[:, 1]))
    voiced = theirs[:, 0] > 0.5
    assert voiced.sum() > 40 and off[voiced].max() < 1e-4 and off.max() < 0.05
    np.testing.assert_allclose(ours[off < 1e-4, 0], theirs[off < 1e-4, 0], atol=1e-4)


def test_pitch_equals_plain_definition():
    track = tracker(8000, min_f0=80, max_f0=300, delta_pitch=0.03)
    wave = speech_like(8000)[1200:4800]
    costs, plain = loops(track, wave)
    ours = track(wave)
    factor = 0.1 * np.log(1.03) ** 2
    path = states(track.lags_s, ours[:, 1])
    assert path_cost(costs, path, factor) == pytest.approx(viterbi(costs, factor), rel=1e-6)
    np.testing.assert_allclose(ours[:, 0], plain[np.arange(len(path)), path], atol=1e-5)


@pytest.mark.parametrize("factor", [1e-9, 1e-4, 0.01, 1.0, 100.0])
def test_viterbi_path_does_not_depend_on_blocks(factor):
    rng = np.random.default_rng(0)
    for flat in (False, True):
        costs = rng.random((80, 23)).astype(np.float32) * (0 if flat else 1)
        whole = best_path(iter([costs]), factor)
        assert path_cost(costs, whole, factor) == pytest.approx(
            viterbi(costs.astype(float), factor), rel=1e-6, abs=1e-9
        )
        for size in (1, 7, 33):
            np.testing.assert_array_equal(
                best_path((costs[i : i + size] for i in range(0, 80, size)), factor), whole
            )


@pytest.mark.parametrize("rate", [8000, 16000, 11025, 44100])
@pytest.mark.parametrize("length", [0, 1, 7, 4000])
def test_resampling_keeps_tone_within_band(rate, length):
    tone = np.sin(2 * np.pi * 200 * np.arange(length) / rate).astype(np.float32)
    low = resample(tone, rate, 4000, 1000.0, 6)
    assert len(low) == -(-length * 4000 // rate)
    middle = slice(30, -30)
    np.testing.assert_allclose(
        low[middle], np.sin(2 * np.pi * 200 * np.arange(len(low)) / 4000)[middle], atol=2e-3
    )


def errors(rate, pitch_hz, snr_db=None, seed=0):
    """|ln(f / truth)| for all frames of a voice except the first and the last."""
    wave = voice(pitch_hz, rate)
    if snr_db is not None:
        wave = wave + wave.std() * 10 ** (-snr_db / 20) * np.random.default_rng(seed).standard_normal(
            len(wave)
        )
    track = tracker(rate)
    found = track(1000 * wave)[:, 1]
    # a frame's 25 ms are compared with those one lag later
    centres = (np.arange(len(found)) * 0.010 + 0.0125 + 0.5 / found) * rate
    return np.abs(np.log(found / np.interp(centres, np.arange(len(pitch_hz)), pitch_hz)))[3:-8]


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize("pitch_hz", [62, 90, 120, 180, 260, 370])
def test_steady_voices_have_known_pitch(rate, pitch_hz):
    wrong = errors(rate, np.full(rate, float(pitch_hz)))
    assert wrong.max() < 0.006  # half of a step of the search is 0.0025


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize("first, last", [(80, 160), (300, 150), (100, 110)])
def test_glides_have_known_pitch(rate, first, last):
    wrong = errors(rate, np.geomspace(first, last, rate))
    assert np.median(wrong) < 0.006 and wrong.max() < 0.03


@pytest.mark.parametrize(
    "snr_db, octave_errors, median", [(20, 0.0, 0.003), (0, 0.0, 0.004), (-5, 0.01, 0.01)]
)
def test_voices_in_noise_have_few_octave_errors(snr_db, octave_errors, median):
    """Octave errors are frames whose pitch is wrong by more than 40 %."""
    wrong = np.concatenate(
        [
            errors(8000, np.geomspace(*ends, 16000), snr_db, seed)
            for seed, ends in enumerate([(90, 140), (220, 160), (120, 120), (300, 240)])
        ]
    )
    assert np.mean(wrong > np.log(1.4)) <= octave_errors
    assert np.median(wrong) < median


def test_filtered_pulses_and_pure_tone():
    pulses = np.zeros(8000)
    pulses[::64] = 1  # 125 Hz
    decay = np.exp(-np.arange(200) / 20) * np.cos(2 * np.pi * 700 * np.arange(200) / 8000)
    for wave in (np.convolve(pulses, decay)[:8000], np.sin(2 * np.pi * 125 * np.arange(8000) / 8000)):
        nccf, hertz = tracker(8000)(3000 * wave).T
        np.testing.assert_allclose(hertz[2:-8], 125, rtol=0.006)
        assert (nccf[2:-8] > 0.99).all()


def test_silence_and_constants_are_unvoiced():
    for wave in (np.zeros(4000), np.full(4000, 77.0)):
        nccf = tracker(8000)(wave.astype(np.float32))[:, 0]
        assert np.abs(nccf[2:]).max() < 1e-4
    features = PitchExtractor(PitchOptions(add_pitch=True), FrameOptions(sample_frequency=8000.0))(
        np.zeros(4000), np.random.default_rng(0)
    )
    assert np.isfinite(features).all()


def test_pitch_does_not_depend_on_amplitude():
    wave = speech_like(8000)
    np.testing.assert_allclose(tracker(8000)(wave / 32768), tracker(8000)(wave), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length, frames", [(0, 0), (1, 0), (198, 0), (200, 1), (278, 1), (280, 2)])
def test_utterances_of_zero_and_one_frame(length, frames):
    track, options = tracker(8000), ProcessPitchOptions()
    raw = track(speech_like(8000)[1000 : 1000 + length])
    assert raw.shape == (frames, 2)
    features = process_pitch(raw, options, np.random.default_rng(0))
    assert features.shape == (frames, 3) and np.isfinite(features).all()


def test_memory_of_half_an_hour_is_bounded():
    """The audio itself takes 58 MB as float32; back-pointers of all frames and lags would take 150 MB."""
    minute = np.tile(np.concatenate([speech_like(8000), np.zeros(2400, np.float32)]), 40)
    wave = np.tile(minute, 30)
    track = tracker(8000)
    tracemalloc.start()
    raw = track(wave)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(raw) == 1 + (len(wave) // 2 - 100) // 40 and peak < 125e6
    once = track(minute)[1000:4000]
    agree = np.abs(np.log(raw[1000:4000, 1] / once[:, 1])) < 1e-6
    assert agree.mean() > 0.99


@pytest.mark.parametrize("name", PROCESS)
def test_pitch_features_equal_kaldi(name, kaldi):
    options = ProcessPitchOptions(delta_pitch_noise_stddev=0.0, **PROCESS[name])
    ours = process_pitch(kaldi["pitch_8k"], options, np.random.default_rng(0))
    assert ours.shape[1] == options.dim
    np.testing.assert_allclose(ours, kaldi[name], atol=2e-5)


def test_voicing_features_equal_published_functions():
    """Functions of the paper: the probability of voicing is 1 at correlation 1, and low at correlation 0; the
    feature falls from 0.109 to -0.749."""
    assert voicing_probability(np.array([1.0]))[0] == pytest.approx(
        1 / (1 + np.exp(-(-5.2 + 5.4 + 4.8 - 2 * np.exp(-10) + 4.2)))
    )
    assert (
        voicing_probability(np.array([0.0]))[0] < 0.001
        and (np.diff(voicing_probability(np.linspace(0, 1, 100))) > 0).all()
    )
    np.testing.assert_allclose(
        voicing_feature(np.array([-2.0, -1.0, 1.0, 2.0])), [2.0001**0.15 - 1] * 2 + [0.0001**0.15 - 1] * 2
    )


def test_noise_is_added_to_delta_pitch():
    raw = np.stack([np.full(4000, 0.5), np.full(4000, 100.0)], axis=1)
    slope = process_pitch(raw, ProcessPitchOptions(), np.random.default_rng(0))[:, 2]
    assert slope.std() == pytest.approx(10 * 0.005, rel=0.05)
    np.testing.assert_array_equal(
        slope, process_pitch(raw, ProcessPitchOptions(), np.random.default_rng(0))[:, 2]
    )


@pytest.mark.parametrize(
    "rate, options, sentence",
    [
        (1600.0, {}, "--lowpass-cutoff 1000 needs more than 1600 samples per second"),
        (8000.0, {"max_f0": 1200}, "--max-f0 1200, --lowpass-cutoff 1000: these must increase in this order"),
        (8000.0, {"min_f0": 5}, "--soft-min-f0 10, --min-f0 5"),
        (8000.0, {"max_f0": 40}, "--min-f0 50, --max-f0 40"),
        (
            8000.0,
            {"max_f0": 900, "resample_frequency": 2000},
            "--max-f0 900 is too high for --resample-frequency 2000",
        ),
        (11025.0, {}, "--frame-shift 10 ms is not a whole number of samples at 11025 and 4000 Hz"),
        (8000.5, {}, "pitch needs a whole number of samples per second"),
    ],
)
def test_impossible_options_are_refused(rate, options, sentence):
    with pytest.raises(UserError, match=sentence):
        PitchTracker(TrackOptions(**options), FrameOptions(sample_frequency=rate))


def test_pitch_without_any_feature_is_refused():
    none = ProcessPitchOptions(add_pov_feature=False, add_normalized_log_pitch=False, add_delta_pitch=False)
    with pytest.raises(UserError, match="--add-pitch without any of its features"):
        PitchExtractor(PitchOptions(add_pitch=True, process=none), FrameOptions())
