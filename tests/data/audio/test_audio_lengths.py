"""Lengths from headers equal those of decoded files; files whose headers do not give the length are
decoded."""

import io

import pytest
import soundfile
from audio_counts import FORMS, NUM_SAMPLES, RATE, counted, encoded, samples
from shorten_encoder import plain_sphere, shortened_sphere

from pyasr.data.audio import audio_lengths
from pyasr.data.audio.audio_lengths import seconds_of
from pyasr.data.audio.audio_reading import UnusableAudio, read_audio


def never_read(*arguments, **keywords):
    raise AssertionError("it is read")


@pytest.mark.parametrize("num_channels", [1, 2])
@pytest.mark.parametrize("form", sorted(set(FORMS) - {"MP3"}))
def test_lengths_come_from_headers(form, num_channels, tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(encoded(form, samples(num_channels)))
    monkeypatch.setattr(audio_lengths, "read_audio", never_read)
    assert seconds_of(tmp_path / "a") == NUM_SAMPLES / RATE == seconds_of(f"{tmp_path}/a")


@pytest.mark.parametrize("make", [plain_sphere, shortened_sphere])
@pytest.mark.parametrize("coding", ["ulaw", "pcm", "mu-law"])
def test_sphere_length_comes_from_header(make, coding, tmp_path, monkeypatch):
    (tmp_path / "a.sph").write_bytes(make(samples(2), 2, 16000, coding))
    monkeypatch.setattr(audio_lengths, "read_audio", never_read)
    assert seconds_of(tmp_path / "a.sph") == NUM_SAMPLES / 16000


def test_sphere_header_counting_all_channels(tmp_path, monkeypatch):
    (tmp_path / "a.sph").write_bytes(plain_sphere(samples(2), 2, sample_count=2 * NUM_SAMPLES))
    monkeypatch.setattr(audio_lengths, "read_audio", never_read)
    assert seconds_of(tmp_path / "a.sph") == NUM_SAMPLES / RATE


@pytest.mark.parametrize(
    "form, change",
    [
        ("WAV", lambda content: counted("WAV", content, 0xFFFFFFF0)),
        ("FLAC", lambda content: counted("FLAC", content, 0)),
        ("MP3", lambda content: content),
        ("OGG", lambda content: content),
        ("WAV", lambda content: content.ljust(-(-len(content) // 512) * 512, b"\0")),
    ],
    ids=["streamed WAV", "streamed FLAC", "MP3", "Ogg", "filled up"],
)
def test_files_without_length_in_header_are_decoded(form, change, tmp_path):
    file = io.BytesIO()
    soundfile.write(file, samples(2), RATE, format=form)
    (tmp_path / "a").write_bytes(change(file.getvalue()))
    assert (
        seconds_of(tmp_path / "a")
        == len(read_audio(f"{tmp_path}/a", channel=0)[0]) / RATE
        == NUM_SAMPLES / RATE
    )


@pytest.mark.parametrize(
    "content, message",
    [
        (plain_sphere(samples(2), 2)[:-100], "cut short, 15900 of 16000 bytes of audio found"),
        (encoded("WAV", samples())[:-100], "cut short"),
        (b"", "the file is empty"),
        (b"<html>", "not readable as audio"),
        (
            plain_sphere(samples(2), 2).replace(b"sample_rate -i 8000", b"sample_rate -i 0   "),
            "not readable as audio",
        ),
        (None, "no such file"),
    ],
    ids=["cut SPHERE", "cut WAV", "empty", "text", "no rate", "missing"],
)
def test_invalid_recording_is_reported(content, message, tmp_path):
    if content is not None:
        (tmp_path / "a.sph").write_bytes(content)
    with pytest.raises(UnusableAudio, match=f"{tmp_path}/a.sph: .*{message}"):
        seconds_of(tmp_path / "a.sph")
