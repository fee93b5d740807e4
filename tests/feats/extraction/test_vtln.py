"""Warping of frequencies: the piecewise linear map, warped filters against Kaldi's, and tables of warp
factors."""

import numpy as np
import pytest
from make_kaldi_feats import EVERY, FBANK
from signals import speech_like, windowed_frames

from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import DataDir
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.compute.mel import warped_hz
from pyasr.feats.extraction.vtln import utterance_warps
from pyasr.feats.options import FbankOptions, FrameOptions, MelOptions, MfccOptions
from pyasr.io.text_tables import write_table

BAND, KNEES = (20.0, 4000.0), (100.0, 3500.0)


def by_cases(f, warp):
    """Kaldi's map, case by case."""
    low, high = KNEES[0] * max(1, warp), KNEES[1] * min(1, warp)
    if f < low:
        return BAND[0] + (low / warp - BAND[0]) / (low - BAND[0]) * (f - BAND[0])
    if f < high:
        return f / warp
    return BAND[1] + (BAND[1] - high / warp) / (BAND[1] - high) * (f - BAND[1])


@pytest.mark.parametrize("warp", [0.8, 0.95, 1.0, 1.2])
def test_warping_is_piecewise_linear(warp):
    hertz = np.linspace(20, 4000, 333)
    ours = warped_hz(hertz, warp, BAND, KNEES)
    np.testing.assert_allclose(ours, [by_cases(f, warp) for f in hertz], rtol=1e-12)
    assert ours[0] == 20 and ours[-1] == 4000 and (np.diff(ours) > 0).all()
    np.testing.assert_allclose(warped_hz(ours, 1 / warp, BAND, KNEES), hertz, rtol=1e-9)


@pytest.mark.parametrize("name", FBANK)
def test_warped_filters_equal_kaldi(name, root):
    rate, warp, mel = FBANK[name]
    mel = {"num_mel_bins" if key == "num_bins" else key: value for key, value in mel.items()}
    ours = Extractor(FbankOptions(frame=FrameOptions(sample_frequency=rate), mel=MelOptions(**mel)))(
        [speech_like(rate)], warp=warp
    )[0]
    loud = windowed_frames(speech_like(rate), rate)[1] > 0
    np.testing.assert_allclose(
        ours[loud][EVERY], np.load(root / "tests/fixtures/kaldi_feats.npz")[name], atol=5e-4
    )


@pytest.mark.parametrize(
    "warp, mel, sentence",
    [
        (
            1.1,
            MelOptions(low_freq=100.0),
            "--vtln-low 100 and --vtln-high 3500 Hz are not within the band of 100 to 4000 Hz",
        ),
        (
            0.9,
            MelOptions(high_freq=-600.0),
            "are not within the band of 20 to 3400 Hz for a warp factor of 0.9",
        ),
        (1.5, MelOptions(vtln_low=2500.0), "--vtln-low 2500 and --vtln-high 3500"),
    ],
)
def test_knees_outside_band_are_refused(warp, mel, sentence):
    extractor = Extractor(MfccOptions(frame=FrameOptions(sample_frequency=8000.0), mel=mel))
    with pytest.raises(UserError, match=sentence):
        extractor([speech_like(8000)], warp=warp)


@pytest.fixture
def data(tmp_path):
    write_table(tmp_path / "utt2spk", {"a-1": "a", "a-2": "a", "b-1": "b"})
    return tmp_path


def test_warp_tables_are_read(data):
    assert utterance_warps(DataDir(data)) == {"a-1": 1.0, "a-2": 1.0, "b-1": 1.0}
    write_table(data / "utt2warp", {"a-1": 1.1, "a-2": 0.9, "b-1": 1})
    assert utterance_warps(DataDir(data)) == {"a-1": 1.1, "a-2": 0.9, "b-1": 1.0}
    write_table(data / "spk2warp", {"a": 0.88, "b": 1.04})
    assert utterance_warps(DataDir(data)) == {"a-1": 0.88, "a-2": 0.88, "b-1": 1.04}


@pytest.mark.parametrize(
    "table, content, sentence",
    [
        ("spk2warp", {"a": 0.88}, "spk2warp: no line for b; 1 of 2 are missing"),
        ("spk2warp", {"a": 0.88, "b": 3.2}, "spk2warp: 'b 3.2' is not a warp factor from 0.5 to 2"),
        ("spk2warp", {"a": 0.88, "b": "x"}, "spk2warp:2: 'b x' does not end in a positive number"),
        ("utt2warp", {"a-1": 1, "b-1": 1}, "utt2warp: no line for a-2; 1 of 3 are missing"),
    ],
)
def test_invalid_warp_tables_are_refused(table, content, sentence, data):
    write_table(data / table, content)
    with pytest.raises(UserError, match=sentence):
        utterance_warps(DataDir(data))
