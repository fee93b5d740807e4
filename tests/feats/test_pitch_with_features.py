"""Pitch in addition to other features: columns, frames, noise, and warping."""

import dataclasses

import numpy as np
import pytest
from signals import speech_like

from pyasr.base.cli.options import parse
from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.compute.pitch_features import PitchExtractor
from pyasr.feats.compute.warp import Warper
from pyasr.feats.options import (
    FbankOptions,
    FrameOptions,
    MfccOptions,
    PitchOptions,
    PlpOptions,
    ProcessPitchOptions,
)

PITCH = PitchOptions(add_pitch=True)


def frame(**values):
    return FrameOptions(sample_frequency=8000.0, **values)


@pytest.mark.parametrize("kind, dim", [(MfccOptions, 13), (PlpOptions, 13), (FbankOptions, 23)])
def test_columns_of_features_and_pitch(kind, dim):
    wave = speech_like(8000)
    alone, both = kind(frame=frame()), kind(frame=frame(dither=1.0), pitch=PITCH)
    extractor = Extractor(both)
    found = extractor([wave], ["utt"], seed=5)[0]
    assert found.shape[1] == extractor.dim == dim + 3 and found.dtype == np.float32
    np.testing.assert_allclose(
        found[:, :dim], Extractor(dataclasses.replace(both, pitch=alone.pitch))([wave], ["utt"], seed=5)[0]
    )
    pitch = PitchExtractor(PITCH, frame())(wave, generator(5, "pitch", "utt"))  # of the audio without dither
    np.testing.assert_array_equal(found[:, dim:], pitch[: len(found)])


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize("snip_edges", [True, False])
def test_number_of_frames_is_smaller_of_both(rate, snip_edges):
    """As in Kaldi's paste-feats, numbers of frames may differ by up to two, and the smaller one is used."""
    options = FrameOptions(sample_frequency=float(rate), snip_edges=snip_edges)
    pitch, both = PitchExtractor(PITCH, options), Extractor(MfccOptions(frame=options, pitch=PITCH))
    wave = speech_like(rate)
    for length in [0, 1, 60, *range(rate // 40 - 3, rate // 40 + 4), *range(rate // 10, rate // 10 + 200, 3)]:
        nums = options.num_frames(length), len(pitch(wave[:length], np.random.default_rng(0)))
        assert abs(nums[0] - nums[1]) <= 2
        assert len(both([wave[:length]])[0]) == min(nums)


def test_features_do_not_depend_on_batch():
    wave = speech_like(8000)
    extractor = Extractor(MfccOptions(frame=frame(), pitch=PITCH))
    together = extractor([wave[:3000], wave, wave[3000:]], ["a", "b", "c"])
    np.testing.assert_allclose(extractor([wave], ["b"])[0], together[1], atol=1e-5)


def test_options_come_from_several_files(tmp_path):
    (tmp_path / "plp.conf").write_text("--sample-frequency=8000\n--num-mel-bins=15  # few\n")
    (tmp_path / "pitch.conf").write_text("--sample-frequency=8000\n--max-f0=500\n--add-raw-log-pitch=true\n")
    options, _ = parse(
        PlpOptions,
        ["--config", str(tmp_path / "plp.conf"), "--config", str(tmp_path / "pitch.conf"), "--add-pitch"],
    )
    assert (
        Extractor(options).dim == 13 + 4
        and options.pitch.track.max_f0 == 500
        and options.mel.num_mel_bins == 15
    )


def test_pitch_delay_shifts_features():
    """Like process-kaldi-pitch-feats --delay: frame t has the values of frame t - delay, and `delay` more
    frames are returned."""
    wave, late = speech_like(8000), PitchOptions(process=ProcessPitchOptions(delay=3))
    plain, found = (PitchExtractor(options, frame())(wave, generator(1, "x")) for options in (PITCH, late))
    np.testing.assert_array_equal(found, plain[[0, 0, 0, *range(len(plain))]])


def test_first_plp_column_is_last_in_htk_order():
    wave = speech_like(8000)
    for use_energy in (True, False):
        plain, htk = (
            Extractor(PlpOptions(frame=frame(), use_energy=use_energy, htk_compat=kind))([wave])[0]
            for kind in (False, True)
        )
        np.testing.assert_allclose(htk, np.concatenate([plain[:, 1:], plain[:, :1]], axis=1), rtol=1e-6)


def test_vtlp_does_not_change_pitch():
    with_pitch, without = (
        MfccOptions(frame=frame(), use_energy=False, pitch=pitch) for pitch in (PITCH, PitchOptions())
    )
    matrix = Warper(with_pitch).matrix(0.9)
    np.testing.assert_array_equal(matrix[:13, :13], Warper(without).matrix(0.9))
    np.testing.assert_array_equal(matrix[13:], np.eye(16)[13:])
    np.testing.assert_array_equal(matrix[:, 13:], np.eye(16)[:, 13:])


def test_vtlp_of_plp_is_refused():
    with pytest.raises(UserError, match="--vtlp supports only MFCC and filter-bank features"):
        Warper(PlpOptions(frame=frame(), use_energy=False))
