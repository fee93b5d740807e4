"""The check of a recording without reading it agrees with reading it; intact files are recognised from their
ends."""

import io
import re

import pytest
import soundfile
from audio_counts import FORMS, NUM_SAMPLES, chunk, counted, encoded, of_flac, samples, without_xing

from pyasr.data.audio import audio_checks, flac_length
from pyasr.data.audio.audio_checks import Look, inspect_audio

pytestmark = pytest.mark.filterwarnings("error")  # of what libsndfile prints
WITH_SIZES = sorted(set(FORMS) - {"FLAC", "MP3"})
# sizes as pipes have them
STREAM = {"WAV": 0xFFFFFFF0, "RIFX": 0x7FFFFFF0, "AU": 0xFFFFFFF0, "AIFF": 0x7FFFFFF0}
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
def test_header_check_reports_same_errors_as_reading(form, change, tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(BROKEN[change](form, encoded(form, samples())))
    found, right = (inspect_audio(str(path), how) for how in ("exists", "read"))
    assert found.complaint == right.complaint != "" and found.seconds is None
    assert ("to keep it, rewrite its header, for example by 'sox" in found.complaint) == (
        "bytes follow that" in found.complaint
    )


@pytest.mark.parametrize("form", WITH_SIZES)
@pytest.mark.parametrize("change", SOUND)
def test_valid_files_are_not_read(form, change, tmp_path, monkeypatch):
    path = tmp_path / "a.wav"
    path.write_bytes(SOUND[change](form, encoded(form, samples())))
    assert inspect_audio(str(path), "read").complaint == ""
    monkeypatch.setattr(audio_checks, "_read", never_read)
    assert inspect_audio(str(path), "exists") == Look()


@pytest.mark.parametrize("form", WITH_SIZES)
@pytest.mark.parametrize("change", NEARLY)
def test_files_that_need_reading_are_read_and_accepted(form, change, tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(NEARLY[change](form, encoded(form, samples())))
    assert inspect_audio(str(path), "exists") == Look()


def compressed(form: str, num: int = 30000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples(num=num), 8000, format=form)
    return file.getvalue()


def parts(form: str, content: bytes) -> list[int]:
    """Begins of the frames of a FLAC file or of the pages of an Ogg file."""
    marks = re.finditer(rb"\xff\xf8[\x10-\xef]" if form == "FLAC" else b"OggS", content)
    return [
        mark.start()
        for mark in marks
        if form != "FLAC" or flac_length._last_sample(content, mark.start(), 4096)
    ]


ENDS = {
    "a byte is missing": lambda form, content: content[:-1],
    "some bytes are missing": lambda form, content: content[:-100],
    "half is missing": lambda form, content: content[: len(content) // 2],
    "the last part is missing": lambda form, content: content[: parts(form, content)[-1]],
    "joined with a longer one": lambda form, content: content + compressed(form, 50000),
    "followed by something": lambda form, content: content + b"something else",
}


@pytest.mark.parametrize(
    "form, change",
    [
        (form, change)
        for form in ("FLAC", "OGG", "MP3")
        for change in ENDS
        if form != "MP3" or change not in ("a byte is missing", "the last part is missing")
    ],
)
def test_compressed_file_ends_give_same_errors_as_reading(form, change, tmp_path):
    path = tmp_path / "a.flac"
    path.write_bytes(ENDS[change](form, compressed(form)))
    found, right = (inspect_audio(str(path), how) for how in ("exists", "read"))
    assert found.complaint == right.complaint
    assert ("missing" in change) <= (right.complaint != "")


COMPRESSED = {
    "as it was written": lambda form, content: content,
    "a tag behind": lambda form, content: content + (b"" if form == "OGG" else b"TAG" + bytes(125)),
    "tags before": lambda form, content: (
        (2 * (b"ID3\3\0\0\0\0\1\0" + bytes(128)) if form == "MP3" else b"") + content
    ),
    "without a count": lambda form, content: without_xing(content) if form == "MP3" else content,
}


@pytest.mark.parametrize("form", ["FLAC", "MP3", "OGG"])
@pytest.mark.parametrize("change", COMPRESSED)
@pytest.mark.parametrize("num", [1, 4096, 30000])
def test_valid_compressed_files_are_not_read(form, change, num, tmp_path, monkeypatch):
    path = tmp_path / "a.flac"
    path.write_bytes(COMPRESSED[change](form, compressed(form, num)))
    monkeypatch.setattr(audio_checks, "_read", never_read)
    assert inspect_audio(str(path), "exists") == Look()


def test_flac_without_count_is_read(tmp_path):
    """The last frame gives the length; otherwise the complaint is that of reading the file."""
    path, content = tmp_path / "a.flac", of_flac(compressed("FLAC"), 0)
    for there, complaint in (
        (content, ""),
        (content[:-100], "a FLAC stream without its length in the header"),
    ):
        path.write_bytes(there)
        assert inspect_audio(str(path), "exists").complaint == complaint


def test_sphere_header_counting_all_channels(tmp_path, monkeypatch):
    file = io.BytesIO()
    soundfile.write(file, samples(2), 8000, "ULAW", format="NIST")
    (tmp_path / "a.sph").write_bytes(counted("NIST", file.getvalue(), 2 * 2 * NUM_SAMPLES))
    monkeypatch.setattr(audio_checks, "_read", never_read)
    assert inspect_audio(f"{tmp_path}/a.sph", "exists") == Look()


@pytest.mark.parametrize(
    "content, message", [(b"", "the file is empty"), (b"<html>not found</html>", "not readable as audio")]
)
def test_file_without_audio_is_reported(content, message, tmp_path):
    (tmp_path / "a.wav").write_bytes(content)
    assert message in inspect_audio(f"{tmp_path}/a.wav", "exists").complaint
    assert (
        inspect_audio(f"{tmp_path}/a.wav", "no")
        == inspect_audio(f"cat {tmp_path}/a.wav |", "exists")
        == Look()
    )
