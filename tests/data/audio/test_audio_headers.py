"""Headers that count less than the file contains: all audio is read, or the file is refused; other chunks and
tags are not audio."""

import io
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from audio_counts import FORMS, NUM_SAMPLES, RATE, chunk, counted, encoded, of_flac, samples, without_xing
from data_dirs import make_data_dir

from pyasr.data.audio import audio_headers, flac_length
from pyasr.data.audio.audio_reading import UnusableAudio, decode_audio, read_audio

REPAIRED = ("FLAC", "MP3")  # whose frames tell how many there are
FEWER = (
    "its header counts .* but .* follow that are not other chunks; rewrite its header, for example by "
    "'sox --ignore-length"
)


def decoded(content: bytes) -> np.ndarray:
    return decode_audio(io.BytesIO(content), "a")[0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_channels", [1, 2])
def test_header_that_counts_half(form, num_channels):
    content = encoded(form, samples(num_channels))
    whole, less = decoded(content), counted(form, content, NUM_SAMPLES)
    if form in REPAIRED:
        np.testing.assert_array_equal(decoded(less), whole)
    else:
        with pytest.raises(UnusableAudio, match=f"^a: {FEWER}"):
            decoded(less)


@pytest.mark.parametrize("form", FORMS)
def test_header_that_counts_nothing(form):
    """A file of a killed program."""
    content = encoded(form, samples())
    np.testing.assert_array_equal(decoded(counted(form, content, 0)), decoded(content))


@pytest.mark.parametrize("form", ["WAV", "RIFX", "AIFF", "AU"])
@pytest.mark.parametrize("lost", [1, 3])
def test_header_with_overflowed_size(form, lost, monkeypatch):
    """32-bit sizes of files over 4 GiB; reduced to 12 bits here."""
    monkeypatch.setattr(audio_headers, "_WRAP", 1 << 12)
    content = encoded(form, samples())
    less = counted(form, content, 2 * NUM_SAMPLES - (lost << 12))
    np.testing.assert_array_equal(decoded(less), decoded(content))


def test_wav_over_four_gigabytes_is_read_as_rf64():
    """A WAV file of more than 4 GiB is read as RF64, because sizes in WAV have 32 bits."""
    content = encoded("WAV", samples(2))
    larger = audio_headers._as_rf64(counted("WAV", content, 10))
    assert larger[:4] == b"RF64"
    np.testing.assert_array_equal(decoded(larger), decoded(content))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name, body", [(b"LIST", b"INFOINAM\4\0\0\0name"), (b"id3 ", b"odd"), (b"xyzw", bytes(999))], ids=len
)
@pytest.mark.parametrize("tag", [b"", b"TAG" + bytes(125)], ids=len)
def test_trailing_chunks_are_not_audio(form, name, body, tag):
    content = encoded(form, samples())
    np.testing.assert_array_equal(decoded(content + chunk(form, name, body) + tag), decoded(content))


def test_malformed_trailing_chunks_are_not_audio():
    """Without padding after an odd number of bytes, and with truncated tags."""
    file = io.BytesIO()
    soundfile.write(file, np.zeros(1001), RATE, "PCM_U8", format="WAV")
    content = file.getvalue()[: file.getvalue().index(b"data") + 8 + 1001]
    for tail in (
        b"LIST" + struct.pack("<I", 4) + b"INFO",
        b"\0" + chunk("WAV", b"xyzw", b"1234"),
        b"id3 " + struct.pack("<I", 900) + b"ID3",
    ):
        assert len(decoded(content + tail)) == 1001


@pytest.mark.parametrize("form", ["WAV", "AU", "NIST", "W64"])
def test_padding_to_disk_block_is_not_audio(form):
    content = encoded(form, samples())
    filled = content.ljust(-(-(len(content) + 1) // 512) * 512, b"\0")
    np.testing.assert_array_equal(decoded(filled), decoded(content))


@pytest.mark.parametrize("form", sorted(set(FORMS) - {"MP3"}))
def test_joined_files_are_refused(form):
    content = encoded(form, samples())
    with pytest.raises(UnusableAudio, match="a: several recordings joined in one file"):
        decoded(content + content)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("follows", [b"two ", b"", bytes(700)], ids=len)
def test_short_header_counts_in_archive(form, follows, tmp_path):
    """A complete file is read before an entry of any format; a file whose header counts less is not
    truncated."""
    content = encoded(form, samples())
    path, begin = tmp_path / "a.ark", b"one "
    following = follows + (encoded(form, samples()[:3000]) if follows.strip(b"\0") else b"")
    if form not in REPAIRED or follows != bytes(700):
        path.write_bytes(begin + content + following)
        np.testing.assert_array_equal(read_audio(f"{path}:4")[0], decoded(content)[:, 0])
        path.write_bytes(begin + counted(form, content, NUM_SAMPLES) + following)
        if form in REPAIRED:
            np.testing.assert_array_equal(read_audio(f"{path}:4")[0], decoded(content)[:, 0])
        else:
            with pytest.raises(
                UnusableAudio,
                match=(
                    "its header counts [0-9]+ bytes.*(no other file of the archive begins|that are not "
                    "other chunks)"
                ),
            ):
                read_audio(f"{path}:4")


def test_short_header_counts_from_pipe_and_in_validation(tmp_path):
    make_data_dir(tmp_path / "data")
    path = tmp_path / "less.wav"
    path.write_bytes(counted("WAV", encoded("WAV", samples()), NUM_SAMPLES))
    with pytest.raises(UnusableAudio, match=f"^u: cat .*: {FEWER}"):
        read_audio(f"cat {path} |", "u")
    table = tmp_path / "data" / "wav.scp"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([f"{lines[0].split()[0]} {path}", *lines[1:]]) + "\n")
    program = Path(__file__).parents[3] / "utils" / "validate_data_dir.py"
    run = subprocess.run(
        [sys.executable, program, "--audio", "read", tmp_path / "data"], capture_output=True, text=True
    )
    assert (
        run.returncode == 1
        and "wav.scp:1:" in run.stdout
        and "bytes follow that are not other chunks" in run.stdout
    )


@pytest.mark.parametrize("coding", ["ULAW", "PCM_16"])
@pytest.mark.parametrize("num_channels", [2, 4])
def test_sphere_header_counting_all_channels(coding, num_channels, tmp_path):
    """Such headers are in the first release of Switchboard."""
    file = io.BytesIO()
    soundfile.write(file, samples(num_channels), RATE, coding, format="NIST")
    content = file.getvalue()
    every = counted("NIST", content, 2 * num_channels * NUM_SAMPLES)
    np.testing.assert_array_equal(decoded(every), decoded(content))
    (tmp_path / "a.ark").write_bytes(b"one " + every + b"two " + every)
    for place in (4, 8 + len(every)):
        np.testing.assert_array_equal(
            read_audio(f"{tmp_path}/a.ark:{place}", channel=1)[0], decoded(content)[:, 1]
        )
    with pytest.raises(UnusableAudio, match="cut short"):
        decoded(every[:-100])


@pytest.mark.parametrize("loud_first", [False, True])
def test_mp3_with_variable_bit_rate_without_count(loud_first):
    """libsndfile estimates the length from the first frame."""
    halves = [np.zeros(80000), np.random.default_rng(0).normal(0, 0.1, 80000)]
    file = io.BytesIO()
    soundfile.write(
        file,
        np.concatenate(halves[::-1] if loud_first else halves),
        16000,
        "MPEG_LAYER_III",
        format="MP3",
        bitrate_mode="VARIABLE",
    )
    bare = without_xing(file.getvalue())
    assert len(soundfile.read(io.BytesIO(bare))[0]) < 160000 or not loud_first
    assert 160000 <= len(decoded(bare)) <= 160000 + 2000


def test_truncated_flac_with_short_count_is_refused():
    content = of_flac(encoded("FLAC", samples()), 1000)
    with pytest.raises(
        UnusableAudio, match="a: more frames follow than its header counts, and the last is incomplete"
    ):
        decoded(content[:-100])


def test_flac_stream_with_variable_blocks():
    """One frame of 100 samples; its header has the position of its first sample."""
    head = b"\xff\xf9\x60" + bytes([4 << 1]) + b"\xe1\x80\x80" + bytes([99])
    frame = head + bytes([flac_length._checksum(head, 0x07, 8)]) + b"\0\0\x05"
    frame += flac_length._checksum(frame, 0x8005, 16).to_bytes(2, "big")
    report = (16000 << 44 | 15 << 36).to_bytes(8, "big")
    assert (
        flac_length.num_samples(
            b"fLaC\x80\0\0\x22" + struct.pack(">HH", 16, 4096) + bytes(6) + report + bytes(16) + frame
        )
        == 4096 + 100
    )
