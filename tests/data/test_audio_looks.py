"""What is told of a recording without reading it is what reading it tells, and sound files are known by their ends alone."""

import io

import pytest
import soundfile
from audio_counts import FORMS, NUM_SAMPLES, chunk, counted, encoded, samples

from pyasr.data import audio_looks
from pyasr.data.audio_looks import Look, look_at_audio

pytestmark = pytest.mark.filterwarnings("error")  # of what libsndfile prints
WITH_SIZES = sorted(set(FORMS) - {"FLAC", "MP3"})
STREAM = {"WAV": 0xFFFFFFF0, "RIFX": 0x7FFFFFF0, "AU": 0xFFFFFFF0, "AIFF": 0x7FFFFFF0}  # sizes as pipes have them
BROKEN = {
    "counts half": lambda form, content: counted(form, content, NUM_SAMPLES),
    "counts more": lambda form, content: counted(form, content, 2 * NUM_SAMPLES + 2),
    "cut short": lambda form, content: content[:-100],
    "cut in the header": lambda form, content: content[:30],
    "joined": lambda form, content: content + content,
    "followed by something": lambda form, content: content + b"something else",
}
SOUND = {
    "as it was written": lambda form, content: content,
    "a chunk behind": lambda form, content: content + chunk(form, b"LIST", b"INFOINAM\4\0\0\0name"),
    "a tag behind": lambda form, content: content + b"TAG" + bytes(125),
    "of a pipe": lambda form, content: counted(form, content, STREAM[form]) if form in STREAM else content,
}
NEARLY = {  # sound, as reading tells
    "counts nothing": lambda form, content: counted(form, content, 0),
    "filled up": lambda form, content: content.ljust(-(-len(content) // 512) * 512, b"\0"),
}


def never_read(rx):
    raise AssertionError(f"{rx} is read")


@pytest.mark.parametrize("form", WITH_SIZES)
@pytest.mark.parametrize("change", BROKEN)
def test_what_is_wrong_is_told_as_by_reading(form, change, tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(BROKEN[change](form, encoded(form, samples())))
    found, right = (look_at_audio(str(path), how) for how in ("exists", "read"))
    assert found.complaint == right.complaint != "" and found.seconds is None
    assert ("to keep it, write its header anew, as by 'sox" in found.complaint) == ("bytes follow that" in found.complaint)


@pytest.mark.parametrize("form", WITH_SIZES)
@pytest.mark.parametrize("change", SOUND)
def test_sound_files_are_not_read(form, change, tmp_path, monkeypatch):
    path = tmp_path / "a.wav"
    path.write_bytes(SOUND[change](form, encoded(form, samples())))
    assert look_at_audio(str(path), "read").complaint == ""
    monkeypatch.setattr(audio_looks, "_read", never_read)
    assert look_at_audio(str(path), "exists") == Look()


@pytest.mark.parametrize("form", WITH_SIZES)
@pytest.mark.parametrize("change", NEARLY)
def test_files_that_only_reading_clears(form, change, tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(NEARLY[change](form, encoded(form, samples())))
    assert look_at_audio(str(path), "exists") == Look()


@pytest.mark.parametrize("form", ["FLAC", "MP3", "OGG"])
def test_forms_without_a_size_are_taken(form, tmp_path, monkeypatch):
    path = tmp_path / "a.flac"
    soundfile.write(path, samples(), 8000, format=form)
    monkeypatch.setattr(audio_looks, "_read", never_read)
    assert look_at_audio(str(path), "exists") == Look()


def test_sphere_header_that_counts_all_channels(tmp_path, monkeypatch):
    file = io.BytesIO()
    soundfile.write(file, samples(2), 8000, "ULAW", format="NIST")
    (tmp_path / "a.sph").write_bytes(counted("NIST", file.getvalue(), 2 * 2 * NUM_SAMPLES))
    monkeypatch.setattr(audio_looks, "_read", never_read)
    assert look_at_audio(f"{tmp_path}/a.sph", "exists") == Look()


@pytest.mark.parametrize("content, told", [(b"", "the file is empty"), (b"<html>not found</html>", "not readable as audio")])
def test_what_is_no_audio(content, told, tmp_path):
    (tmp_path / "a.wav").write_bytes(content)
    assert told in look_at_audio(f"{tmp_path}/a.wav", "exists").complaint
    assert look_at_audio(f"{tmp_path}/a.wav", "no") == look_at_audio(f"cat {tmp_path}/a.wav |", "exists") == Look()
