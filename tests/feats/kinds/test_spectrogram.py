"""Spectrograms against Kaldi's formula in float64, and their use in other programs."""

import numpy as np
import pytest
from data_dirs import make_data_dir
from signals import speech_like
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.compute.warp import Warper
from pyasr.feats.extraction.streamed_features import OnlineExtractor
from pyasr.feats.options import (
    FrameOptions,
    MfccOptions,
    PitchOptions,
    SpectrogramOptions,
    UtteranceOptions,
    read_feature_options,
)
from pyasr.feats.origin import origin_of, same_features
from pyasr.io.ark import load_all
from pyasr.recognition.features.front_end import PlainFeatures, load_features


def by_formula(
    wave: np.ndarray, rate: int, size: int, raw_energy: bool = True, floor: float = 0.0
) -> np.ndarray:
    """compute-spectrogram-feats, frame by frame, with a sum over samples for each bin: ln max(P[k], eps), and
    ln energy for k = 0."""
    num, shift, eps = int(0.025 * rate), int(0.01 * rate), np.finfo(np.float32).eps
    i, lines = np.arange(num), np.arange(size // 2 + 1)
    window = (0.5 - 0.5 * np.cos(2 * np.pi * i / (num - 1))) ** 0.85
    waves = np.exp(-2j * np.pi * np.outer(i, lines) / size)
    rows = []
    for begin in range(0, len(wave) - num + 1, shift):
        d = wave[begin : begin + num].astype(np.float64)
        d = d - d.mean()
        x = window * np.array([0.03 * d[0], *(d[1:] - 0.97 * d[:-1])])
        energy = max(
            np.log(max(np.sum((d if raw_energy else x) ** 2), eps)), np.log(floor) if floor else -np.inf
        )
        rows.append([energy, *np.log(np.maximum(np.abs(x @ waves) ** 2, eps))[1:]])
    return np.array(rows)


@pytest.mark.parametrize("rate, rounded, size", [(8000, True, 256), (8000, False, 200), (16000, True, 512)])
@pytest.mark.parametrize("raw_energy, floor", [(True, 0.0), (False, 0.0), (True, 1e12)])
def test_spectrogram_equals_formula(rate, rounded, size, raw_energy, floor):
    frame = FrameOptions(sample_frequency=float(rate), round_to_power_of_two=rounded, raw_energy=raw_energy)
    extractor = Extractor(SpectrogramOptions(frame=frame, energy_floor=floor))
    wave = np.round(speech_like(rate)[: rate // 4])
    found = extractor([wave, np.zeros(rate // 10, np.float32)])
    assert extractor.dim == size // 2 + 1
    np.testing.assert_allclose(found[0], by_formula(wave, rate, size, raw_energy, floor), atol=1e-4)
    np.testing.assert_allclose(found[1][:, 1:], np.log(np.finfo(np.float32).eps), atol=1e-5)


def test_odd_frame_length_without_rounding_is_refused():
    frame = FrameOptions(sample_frequency=11025.0, round_to_power_of_two=False)
    with pytest.raises(
        UserError,
        match="--round-to-power-of-two=false needs frames of an even number of samples, not 275; change",
    ):
        Extractor(SpectrogramOptions(frame=frame))


@pytest.mark.parametrize("kind", [SpectrogramOptions, MfccOptions])
def test_utterance_mean_is_subtracted(kind):
    frame, wave = FrameOptions(sample_frequency=8000.0), speech_like(8000)
    plain = Extractor(kind(frame=frame))([wave])[0]
    options = kind(
        frame=frame, utterance=UtteranceOptions(subtract_mean=True), pitch=PitchOptions(add_pitch=True)
    )
    found = Extractor(options)([wave, wave[:10]])
    np.testing.assert_allclose(found[0][:, :-3], (plain - plain.mean(0))[: len(found[0])], atol=1e-4)
    assert len(found[1]) == 0
    with pytest.raises(UserError, match="the mean of the whole utterance is subtracted"):
        OnlineExtractor(kind(frame=frame, utterance=UtteranceOptions(subtract_mean=True)), "a")


@pytest.fixture
def data(tmp_path):
    """12 tones of 0.2 s."""
    return make_data_dir(tmp_path / "data")


def test_spectrogram_step_and_dependent_programs(data):
    run_here("make_spectrogram.py", "--nj", 2, "--sample-frequency", 8000, "--frame-length", 20, data)
    made = load_all(data / "feats.scp")
    assert made and {matrix.shape[1] for matrix in made.values()} == {129}
    options = read_feature_options(data, "a test wants to know")
    assert isinstance(options, SpectrogramOptions) and options == load_features(
        data / "feats" / "options.json"
    )
    assert same_features(
        options, SpectrogramOptions(frame=FrameOptions(8000.0, 20.0, dither=1.0))
    ) and origin_of(data)
    assert PlainFeatures(options).extract(speech_like(8000)).shape[1] == 129
    with pytest.raises(UserError, match="--vtlp supports only MFCC and filter-bank features"):
        Warper(options)
    (data / "spk2warp").write_text(
        "".join(f"{line.split()[0]} 0.9\n" for line in (data / "spk2utt").read_text().splitlines())
    )
    with pytest.raises(
        UserError, match="spectrograms cannot be warped; remove spk2warp and utt2warp from the data directory"
    ):
        run_here("make_spectrogram.py", "--sample-frequency", 8000, data)


def test_utterances_below_minimum_duration_get_no_features(data):
    with pytest.raises(
        UserError,
        match="of 12 utterances are too short for one frame or --min-duration: .* or raise --max-short",
    ):
        run_here("make_spectrogram.py", "--sample-frequency", 8000, "--min-duration", 0.5, data)
    run_here("make_spectrogram.py", "--sample-frequency", 8000, "--min-duration", 0.2, data)
    assert len(load_all(data / "feats.scp")) == 12
