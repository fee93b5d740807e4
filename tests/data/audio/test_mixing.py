"""Noise and rooms in recordings, against explicit sums in float64."""

import numpy as np
import pytest
import soundfile

from pyasr.base.errors import UserError
from pyasr.data.audio.audio_reading import write_audio
from pyasr.data.audio.mixing import convolved, direct_path, distorted, power_of, source_duration_s
from pyasr.data.tables.distortion import Distortion, Noise, complaint

RATE = 8000


@pytest.fixture
def speech():
    return (1000 * np.random.default_rng(0).standard_normal(6000)).astype(np.float32)


def tone(path, hertz, seconds, amplitude=1000.0):
    write_audio(
        path,
        (amplitude * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32),
        RATE,
    )
    return str(path)


def response_file(path, response):
    write_audio(path, np.float32(response), RATE)
    return str(path)


def amplitude_at(samples, hertz):
    """The amplitude of a tone in samples with a whole number of its periods."""
    return 2 * abs(np.mean(samples * np.exp(-2j * np.pi * hertz * np.arange(len(samples)) / RATE)))


@pytest.mark.parametrize("num_samples, num_taps", [(1, 1), (5, 9), (3000, 1), (3000, 700), (100, 4000)])
def test_convolution_equals_explicit_sum(num_samples, num_taps):
    rng = np.random.default_rng(num_samples)
    x, h = rng.standard_normal(num_samples), rng.standard_normal(num_taps)
    np.testing.assert_allclose(convolved(x, h), np.convolve(x, h), atol=1e-9)


def test_room_keeps_alignment_level_and_length(tmp_path, speech):
    """An echo of half the amplitude after 40 ms: the sum is aligned with the speech for any delay of the
    direct path."""
    response = np.zeros(900)
    response[[300, 620]] = 20000, 10000
    changed = distorted(speech, RATE, Distortion(response_file(tmp_path / "rir.wav", response)))
    echo = speech + 0.5 * np.concatenate([np.zeros(320), speech[:-320]])
    expected = echo * np.sqrt(power_of(speech) / power_of(echo))
    assert changed.dtype == np.float32 and changed.shape == speech.shape
    np.testing.assert_allclose(changed, expected, atol=0.05)
    assert power_of(changed) == pytest.approx(power_of(speech), rel=1e-5)


def test_first_of_several_channels_is_used(tmp_path, speech):
    rng, mixed = np.random.default_rng(1), []
    for num_channels in (1, 2, 8):
        both = np.concatenate(
            [
                np.random.default_rng(2).uniform(-0.5, 0.5, (500, 1)),
                rng.uniform(-0.5, 0.5, (500, num_channels - 1)),
            ],
            1,
        )
        path = str(tmp_path / f"{num_channels}.wav")
        soundfile.write(path, both, RATE)
        mixed.append(
            distorted(
                speech, RATE, Distortion(path, (Noise(path, 10.0), Noise(path, 5.0, at_s=0.1, rir=path)))
            )
        )
        assert source_duration_s(path) == 500 / RATE
    assert (
        np.array_equal(mixed[0], mixed[1])
        and np.array_equal(mixed[0], mixed[2])
        and not np.array_equal(mixed[0], speech)
    )


def test_direct_path_precedes_louder_reflection():
    response = np.array([0, 0.1, 0.3, 0.8, 0.5, 0, 0, -1, 0.4])
    assert direct_path(response) == 3 and direct_path(np.array([1.0])) == 0


@pytest.mark.parametrize("snr_db", [20, 0, -5])
def test_background_noise_has_snr_over_whole_recording(tmp_path, snr_db):
    """Speech and noise are tones, so that each can be measured in the mixture; the noise is shorter than the
    speech and repeated."""
    speech = np.float32(3000 * np.sin(2 * np.pi * 500 * np.arange(8000) / RATE))
    noise = Noise(tone(tmp_path / "noise.wav", 1250, 0.1, 7000), snr_db, start=0.5)
    mixed = distorted(speech, RATE, Distortion(noises=(noise,)))
    ratio = 20 * np.log10(amplitude_at(mixed, 500) / amplitude_at(mixed, 1250))
    assert ratio == pytest.approx(snr_db, abs=0.01) and power_of(mixed) == pytest.approx(
        power_of(speech), rel=1e-4
    )


def test_foreground_noise_starts_at_given_time(tmp_path, speech):
    """Outside of the noise, mixture and speech are proportional; the difference is the noise at its ratio,
    truncated at the end."""
    noise = Noise(tone(tmp_path / "noise.wav", 1000, 0.25), 10, at_s=0.6)
    mixed = distorted(speech, RATE, Distortion(noises=(noise,)))
    scale = mixed[0] / speech[0]
    added = mixed / scale - speech
    assert np.abs(added[:4800]).max() < 0.01 and len(added[4800:]) == 1200 < 2000
    assert power_of(added[4800:]) == pytest.approx(power_of(speech) / 10, rel=1e-3)


def test_noise_is_reverberated_in_room(tmp_path, speech):
    response = np.zeros(50)
    response[[10, 30]] = 10000, 10000
    noise = Noise(
        tone(tmp_path / "noise.wav", 200, 0.5), 0, at_s=0.0, rir=response_file(tmp_path / "rir.wav", response)
    )
    mixed = distorted(speech, RATE, Distortion(noises=(noise,)))
    plain = np.sin(2 * np.pi * 200 * np.arange(4000) / RATE)
    # half a period later: silent but for the first 20
    expected = plain + np.concatenate([np.zeros(20), plain[:-20]])
    added = mixed[:4000] / (mixed[5000] / speech[5000]) - speech[:4000]
    assert np.corrcoef(added, expected)[0, 1] > 0.999 and power_of(added[20:]) < 0.01 * power_of(added[:20])


def test_noise_sections_and_other_sampling_rates(tmp_path, speech):
    """The second half second of a file at twice the rate, the only part with sound."""
    time = np.arange(16000) / 16000
    write_audio(
        tmp_path / "noise.wav", np.float32(1000 * np.sin(2 * np.pi * 1000 * time) * (time >= 0.5)), 16000
    )
    mixed = distorted(
        speech, RATE, Distortion(noises=(Noise(str(tmp_path / "noise.wav"), -40, begin_s=0.5),))
    )
    assert amplitude_at(mixed, 1000) == pytest.approx(np.sqrt(2 * power_of(speech)), rel=0.02)


def test_clipping_mixture_is_scaled_down(tmp_path):
    loud = np.float32(32000 * np.sin(2 * np.pi * 500 * np.arange(8000) / RATE))
    mixed = distorted(loud, RATE, Distortion(noises=(Noise(tone(tmp_path / "noise.wav", 1250, 1.0), 0),)))
    assert np.abs(mixed).max() <= 32767 and amplitude_at(mixed, 500) == pytest.approx(
        amplitude_at(mixed, 1250), rel=1e-3
    )


def test_silence_and_empty_distortion(tmp_path, speech):
    noise = Distortion(noises=(Noise(tone(tmp_path / "noise.wav", 1250, 1.0), 0),))
    assert not distorted(np.zeros(100, np.float32), RATE, noise).any()
    assert distorted(speech, RATE, Distortion()) is speech


def test_unusable_sources_are_refused(tmp_path, speech):
    with pytest.raises(
        UserError,
        match=r"nowhere.wav: no such file or directory; repair the file, or create the copies again with",
    ):
        distorted(speech, RATE, Distortion("nowhere.wav"))
    with pytest.raises(UserError, match="all samples of the impulse response are 0"):
        distorted(speech, RATE, Distortion(response_file(tmp_path / "zero.wav", np.zeros(10))))
    with pytest.raises(UserError, match="no audio between 5 s and 6 s"):
        distorted(
            speech,
            RATE,
            Distortion(noises=(Noise(tone(tmp_path / "noise.wav", 1250, 1.0), 0, begin_s=5.0, end_s=6.0),)),
        )


def test_distortion_survives_text_round_trip():
    noises = (
        Noise('a "b".wav', 10.0, start=0.25),
        Noise("sox x - |", -5.0, 0.0, begin_s=0.5, end_s=1.25, rir="größe.wav"),
    )
    for distortion in (Distortion(), Distortion("r.wav"), Distortion("r.wav", noises)):
        assert Distortion.parse(str(distortion)) == distortion and complaint(str(distortion)) == ""
    assert str(Distortion()) == "{}" and Distortion("r.wav", noises).sources == [
        "r.wav",
        'a "b".wav',
        "sox x - |",
        "größe.wav",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "null",
        '{"rir": 3}',
        '{"rir": ""}',
        '{"what": 1}',
        '{"noises": 3}',
        '{"noises": [1]}',
        '{"noises": [{"audio": "a"}]}',
        '{"noises": [{"audio": "a", "snr_db": NaN}]}',
        '{"noises": [{"audio": "a", "snr_db": "1"}]}',
        '{"noises": [{"audio": "a", "snr_db": 1, "at_s": -1}]}',
        '{"noises": [{"audio": "a", "snr_db": 1, "start": 2}]}',
        '{"noises": [{"audio": "a", "snr_db": 1, "x": 2}]}',
        '{"noises": [{"audio": "a", "snr_db": 1, "begin_s": 2, "end_s": 1}]}',
        "[" * 100000,
        '{"noises": [{"audio": "a", "snr_db": 1, "begin_s": null}]}',
    ],
)
def test_invalid_distortion_is_refused(text):
    assert complaint(text)
