"""Audio entries: the samples read are those written; messages name damaged files."""

import io
import itertools
import os
import struct
import tracemalloc

import audio_counts
import numpy as np
import pytest
import soundfile
from data_dirs import write_tone

from pyasr.base.errors import UserError
from pyasr.data.audio import audio_headers, audio_sizes
from pyasr.data.audio.audio_reading import UnusableAudio, decode_audio, read_audio, resample, write_audio


@pytest.mark.parametrize("suffix", ["wav", "flac"])
def test_written_samples_are_read_back(suffix, tmp_path):
    samples = np.random.default_rng(0).integers(-32768, 32768, 4000).astype(np.float32)
    path = tmp_path / f"a.{suffix}"
    write_audio(path, samples, 8000)
    for rx in (str(path), f"cat {path} |"):
        read, rate = read_audio(rx)
        assert rate == 8000 and read.dtype == np.float32 and np.array_equal(read, samples)


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_U8", "PCM_24", "FLOAT", "ULAW"])
def test_samples_equal_those_of_soundfile(channels, subtype):
    """16 bits are decoded without libsndfile."""
    values = np.random.default_rng(0).integers(-32768, 32768, (777, channels)).astype(np.int16)
    soundfile.write(file := io.BytesIO(), values, 16000, format="WAV", subtype=subtype)
    file.seek(0)
    expected = soundfile.read(file, dtype="float32", always_2d=True)[0] * np.float32(32768)
    samples, rate = decode_audio(file, "a.wav")
    assert rate == 16000 and samples.dtype == np.float32 and samples.flags.writeable
    np.testing.assert_array_equal(samples, expected)
    if subtype == "PCM_16":
        np.testing.assert_array_equal(samples, values)


def test_changed_headers_of_16_bits_read_as_by_soundfile():
    """Every byte of the header is changed in turn: the same samples, or an error."""
    values = np.arange(-500, 500, dtype=np.int16)
    soundfile.write(file := io.BytesIO(), values, 16000, format="WAV", subtype="PCM_16")
    content = file.getvalue()
    assert len(content) == 44 + 2000
    num_read = 0
    for place, change in itertools.product(range(44), (1, 2, 128)):
        changed = bytearray(content)
        changed[place] ^= change
        try:
            samples, rate = decode_audio(io.BytesIO(changed), "a.wav")
        except UserError:
            continue
        expected, rate_expected = soundfile.read(io.BytesIO(changed), dtype="float32", always_2d=True)
        num_read += 1
        assert rate == rate_expected
        np.testing.assert_array_equal(samples, expected * np.float32(32768))
    assert num_read > 20


@pytest.mark.parametrize("suffix", ["wav", "flac"])
def test_full_disk_raises_os_error(suffix, tmp_path):
    (tmp_path / f"a.{suffix}").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        write_audio(tmp_path / f"a.{suffix}", np.zeros(8000, np.float32), 8000)


def test_archive_offset_is_read(tmp_path):
    write_tone(tmp_path / "a.wav")
    content = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "b.ark").write_bytes(b"key " + content)
    assert np.array_equal(read_audio(f"{tmp_path}/b.ark:4")[0], read_audio(str(tmp_path / "a.wav"))[0])


@pytest.mark.parametrize("form", ["wav", "rifx", "nist", "flac", "long-head", "streamed"])
def test_entry_in_archive_is_read_without_the_next(form, tmp_path):
    """The next entry is not part of the audio, and is not read if the header gives the length: the archive
    may exceed the memory."""
    if form in ("wav", "long-head", "streamed"):
        write_tone(tmp_path / "a.wav")
    else:
        kind = {"rifx": ("WAV", "BIG"), "nist": ("NIST", "FILE"), "flac": ("FLAC", "FILE")}[form]
        soundfile.write(
            tmp_path / "a.wav", np.sin(np.arange(1600) / 5), 8000, "PCM_16", format=kind[0], endian=kind[1]
        )
    content = (tmp_path / "a.wav").read_bytes()
    if form == "long-head":
        content = content[:36] + b"LIST" + struct.pack("<I", 1 << 17) + bytes(1 << 17) + content[36:]
        content = content[:4] + struct.pack("<I", len(content) - 8) + content[8:]
    if form == "streamed":
        content = (
            content[:4]
            + struct.pack("<I", 0xFFFFFFFF)
            + content[8:40]
            + struct.pack("<I", 0xFFFFFFFF)
            + content[44:]
        )
    (tmp_path / "whole").write_bytes(content)
    with open(tmp_path / "b.ark", "wb") as archive:
        archive.write(b"one " + content + b"two ")
        archive.write(content)
        if form in ("wav", "rifx", "nist"):
            archive.truncate(1 << 35)
    expected, rate = read_audio(str(tmp_path / "whole"))
    tracemalloc.start()
    of_both = [read_audio(f"{tmp_path}/b.ark:{offset}") for offset in (4, 8 + len(content))]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert of_both[1][1] == rate and np.array_equal(of_both[1][0], expected) and peak < 16 << 20
    assert form == "streamed" or np.array_equal(of_both[0][0], expected)


def test_audio_truncated_at_end_of_archive_is_refused(tmp_path):
    write_tone(tmp_path / "a.wav")
    (tmp_path / "b.ark").write_bytes(b"key " + (tmp_path / "a.wav").read_bytes()[:-100])
    for offset, message in ((4, "cut short, 3100 of 3200 bytes of audio found"), (9999, "the file is empty")):
        with pytest.raises(UnusableAudio, match=message):
            read_audio(f"{tmp_path}/b.ark:{offset}")


@pytest.mark.parametrize(
    "size", [0, 0x7FFF0000, 0x7FFFFF00, 0x7FFFFFDB, 0x7FFFF024, 0x80000000, 0xFFFFFFDB, 0xFFFFFFFF]
)
@pytest.mark.parametrize("whole_size", [0, 8, 36, 3236, 0xFFFFFFFF])
def test_streamed_wav_has_unknown_size(size, whole_size, tmp_path):
    write_tone(tmp_path / "a.wav")
    content = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "b.wav").write_bytes(
        content[:4] + struct.pack("<I", whole_size) + content[8:40] + struct.pack("<I", size) + content[44:]
    )
    assert np.array_equal(read_audio(str(tmp_path / "b.wav"))[0], read_audio(str(tmp_path / "a.wav"))[0])


@pytest.mark.parametrize("form", ["RIFX", "RF64", "AU"])
def test_other_formats_written_to_a_pipe(form):
    """The sizes in the headers are those written before the audio."""
    file, samples = io.BytesIO(), np.random.default_rng(0).integers(-32768, 32768, 1600).astype(np.int16)
    soundfile.write(
        file, samples, 8000, "PCM_16", "BIG" if form == "RIFX" else None, "WAV" if form == "RIFX" else form
    )
    content = bytearray(file.getvalue())
    at, num_bytes = {
        "RIFX": (content.find(b"data") + 4, 4),
        "RF64": (content.find(b"ds64") + 8, 28),
        "AU": (8, 4),
    }[form]
    content[at : at + num_bytes] = bytes(num_bytes)
    read, rate = decode_audio(io.BytesIO(content), "a")
    assert rate == 8000 and np.array_equal(read[:, 0], samples.astype(np.float32))
    head = bytes(content[: -2 * len(samples)])
    assert audio_headers.with_size(head) == head


def test_wav_without_audio_before_other_chunks(tmp_path):
    write_tone(tmp_path / "a.wav", 0.0)
    content = (tmp_path / "a.wav").read_bytes() + b"LIST" + struct.pack("<I", 5) + b"INFOx\0"
    assert decode_audio(io.BytesIO(content), "a")[0].shape == (0, 1)


def test_wav_of_three_gigabytes_is_not_a_stream(tmp_path):
    write_tone(tmp_path / "a.wav")
    content = (tmp_path / "a.wav").read_bytes()
    with pytest.raises(UserError, match="cut short, 3200 of 3221225472 bytes"):
        decode_audio(io.BytesIO(content[:40] + struct.pack("<I", 3 << 30) + content[44:]), "a")


def spoil_stereo(path):
    soundfile.write(path, np.zeros((100, 2)), 8000)


SPOILED = {
    "missing": (lambda p: p.unlink(), "no such file"),
    "empty": (lambda p: p.write_bytes(b""), "the file is empty"),
    "truncated": (lambda p: p.write_bytes(p.read_bytes()[:2000]), "cut short, 1956 of 3200 bytes"),
    "text": (lambda p: p.write_bytes(b"hello\n" * 50), "not readable as audio"),
    "stereo": (spoil_stereo, "2 channels, expected 1"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_damaged_audio_error_names_utterance_and_file(name, tmp_path):
    path = tmp_path / "a.wav"
    write_tone(path)
    spoil, message = SPOILED[name]
    spoil(path)
    with pytest.raises(UserError) as caught:
        read_audio(str(path), "utt-1")
    assert message in str(caught.value) and f"utt-1: {path}" in str(caught.value)


def test_truncated_flac_is_refused(tmp_path):
    path = tmp_path / "a.flac"
    write_audio(path, np.random.default_rng(0).normal(0, 3000, 80000).astype(np.float32), 8000)
    path.write_bytes(path.read_bytes()[:50000])
    with pytest.raises(UserError, match="a.flac"):
        read_audio(str(path))


def checksum(content: bytes, polynomial: int, num_bits: int) -> bytes:
    rest = 0
    for byte in content:
        rest ^= byte << (num_bits - 8)
        for _ in range(8):
            rest = rest << 1 ^ (polynomial | 1 << num_bits if rest >> (num_bits - 1) else 0)
    return rest.to_bytes(num_bits // 8, "big")


def constant_flac(value: int, num_bits: int, blocks: list[int]) -> bytes:
    """A FLAC file of one channel at 16 kHz (RFC 9639) with blocks of the given sizes, each with one constant
    subframe."""
    size = max(blocks, default=4096)
    report = 16000 << 44 | (num_bits - 1) << 36 | sum(blocks)
    content = (
        b"fLaC\x80\0\0\x22"
        + struct.pack(">HH", size, size)
        + bytes(6)
        + report.to_bytes(8, "big")
        + bytes(16)
    )
    for number, num_samples in enumerate(blocks):
        head = (
            b"\xff\xf8\x70"
            + bytes([{8: 1, 16: 4, 24: 6}[num_bits] << 1, number])
            + struct.pack(">H", num_samples - 1)
        )
        block = head + checksum(head, 0x07, 8) + b"\0" + value.to_bytes(num_bits // 8, "big", signed=True)
        content += block + checksum(block, 0x8005, 16)
    return content


@pytest.mark.parametrize("num_bits", [8, 16, 24])
@pytest.mark.parametrize("value", [0, 100, -100])
@pytest.mark.parametrize("blocks", [[], [1], [16], [4096, 4096, 1], [65535]], ids=len)
def test_flac_of_constant_signal(blocks, value, num_bits):
    samples, rate = decode_audio(io.BytesIO(constant_flac(value, num_bits, blocks)), "a")
    assert (
        rate == 16000
        and samples.shape == (sum(blocks), 1)
        and (samples == value * 2.0 ** (16 - num_bits)).all()
    )


def test_joined_flac_files_are_refused(tmp_path):
    one, other = noise("FLAC", "PCM_16", 0), constant_flac(0, 16, [4096])
    for content in (one + other, other + one):
        with pytest.raises(UnusableAudio, match=JOINED):
            decode_audio(io.BytesIO(content), "a")
    (tmp_path / "a.ark").write_bytes(b"one " + one + b"two " + other)
    assert len(read_audio(f"{tmp_path}/a.ark:4")[0]) == 8000


def test_truncated_flac_stream_is_refused(tmp_path):
    """Neither the header nor the last frame gives the length."""
    path = tmp_path / "a.flac"
    write_audio(path, np.random.default_rng(0).normal(0, 3000, 8000).astype(np.float32), 8000)
    path.write_bytes(audio_counts.of_flac(path.read_bytes(), 0)[:-50])
    with pytest.raises(
        UserError,
        match=r"^a: cat .* \|: a FLAC stream without its length in the header; let the command write WAV",
    ):
        read_audio(f"cat {path} |", "a")


FORMS = [
    ("WAV", "PCM_16"),
    ("WAV", "GSM610"),
    ("WAVEX", "PCM_24"),
    ("RF64", "PCM_16"),
    ("W64", "PCM_16"),
    ("NIST", "PCM_16"),
    ("NIST", "ULAW"),
    ("AIFF", "PCM_16"),
    ("AIFF", "ALAW"),
    ("AU", "PCM_16"),
    ("AU", "ULAW"),
    ("OGG", "VORBIS"),
    ("OGG", "OPUS"),
    ("FLAC", "PCM_16"),
    ("CAF", "PCM_16"),
    ("MP3", "MPEG_LAYER_III"),
]


@pytest.mark.parametrize(("form", "coding"), FORMS)
def test_truncation_never_gives_fewer_samples(form, coding, tmp_path):
    """A file that is cut anywhere, also within the header, is an error and never yields fewer samples."""
    path = tmp_path / "a"
    samples = np.random.default_rng(0).normal(0, 0.1, (9001, 2))[:, : 1 if coding == "GSM610" else 2]
    soundfile.write(path, samples, 8000, coding, format=form)
    whole = path.read_bytes()
    assert len(decode_audio(io.BytesIO(whole), "a")[0]) >= len(samples)
    for num_left in (20, 50, 80, 110, 500, 1100, len(whole) * 2 // 3, len(whole) - 12):
        with pytest.raises(UserError):
            decode_audio(io.BytesIO(whole[:num_left]), "a")


def test_big_endian_wav(tmp_path):
    soundfile.write(tmp_path / "a", np.zeros(1000), 8000, "PCM_16", "BIG", "WAV")
    content = (tmp_path / "a").read_bytes()
    assert content[:4] == b"RIFX" and len(decode_audio(io.BytesIO(content), "a")[0]) == 1000
    with pytest.raises(UserError, match="a: cut short, 1956 of 2000 bytes of audio found; replace"):
        decode_audio(io.BytesIO(content[:2000]), "a")


def test_ogg_truncated_between_pages_is_refused(tmp_path):
    soundfile.write(tmp_path / "a", np.random.default_rng(0).normal(0, 0.1, 20000), 8000, format="OGG")
    content = (tmp_path / "a").read_bytes()
    with pytest.raises(UserError, match="a: cut short, its last page is missing; replace"):
        decode_audio(io.BytesIO(content[: content.rindex(b"OggS")]), "a")


def noise(form: str, coding: str, seed: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.random.default_rng(seed).normal(0, 0.1, 8000), 8000, coding, format=form)
    return file.getvalue()


JOINED = (
    "a: several recordings joined in one file, of which only the first would be read; split it into "
    "one file per recording"
)


def pages(content: bytes) -> list[bytes]:
    begins = [at for at in range(len(content)) if content.startswith(b"OggS", at)]
    return [content[begin:end] for begin, end in zip(begins, [*begins[1:], len(content)])]


@pytest.mark.parametrize("coding", ["VORBIS", "OPUS"])
def test_joined_ogg_files_are_refused(coding):
    """Parallel streams, whose first pages are together at the begin, are not joined files."""
    one, other = noise("OGG", coding, 0), noise("OGG", coding, 1)
    with pytest.raises(UnusableAudio, match=JOINED):
        decode_audio(io.BytesIO(one + other), "a")
    side_by_side = pages(one)[:1] + pages(other)[:1] + pages(one)[1:] + pages(other)[1:]
    assert (
        not audio_sizes.is_joined(b"".join(side_by_side))
        and len(decode_audio(io.BytesIO(one), "a")[0]) == 8000
    )


ID3_BEFORE, ID3_BEHIND = b"ID3\4\0\0\0\0\1\0" + bytes(128), b"TAG" + bytes(125)
APE = b"APETAGEX" + struct.pack("<IIII", 2000, 40, 0, 0) + bytes(8 + 40)


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_joined_mp3_files_are_refused(rate):
    file = io.BytesIO()
    soundfile.write(file, np.random.default_rng(0).normal(0, 0.1, rate), rate, format="MP3")
    one = file.getvalue()
    for alone in (one, ID3_BEFORE + one + ID3_BEHIND, one + APE + ID3_BEHIND):
        assert len(decode_audio(io.BytesIO(alone), "a")[0]) == rate
        for two in (alone + alone, one + ID3_BEFORE + alone):
            with pytest.raises(UnusableAudio, match=JOINED):
                decode_audio(io.BytesIO(two), "a")


def test_mp3_entries_in_archive_are_not_joined_files(tmp_path):
    one = noise("MP3", "MPEG_LAYER_III", 0)
    (tmp_path / "a.ark").write_bytes(b"one " + one + b"two " + one)
    assert len(read_audio(f"{tmp_path}/a.ark:4")[0]) == 8000


def test_high_compression_rates_are_accepted(tmp_path, monkeypatch):
    """Opus at 6 kbit/s and 48 kHz, half of it silence; digital silence in FLAC, but not in the longest blocks
    of FLAC."""
    monkeypatch.setattr("pyasr.io.content._ALWAYS_BYTES", 0)
    rng, bursts = np.random.default_rng(0), np.repeat([1.0, 0.0] * 10, 24000)
    speech = bursts * rng.normal(0, 0.1, len(bursts))
    soundfile.write(tmp_path / "a.opus", speech, 48000, format="OGG", subtype="OPUS", compression_level=1.0)
    packed = (tmp_path / "a.opus").stat().st_size
    assert len(read_audio(str(tmp_path / "a.opus"))[0]) == len(bursts) and 4 * len(bursts) > 100 * packed
    soundfile.write(tmp_path / "b.flac", np.zeros(1_440_000, np.int16), 48000)
    assert not read_audio(str(tmp_path / "b.flac"))[0].any()
    (tmp_path / "c.flac").write_bytes(constant_flac(0, 16, [65535] * 20))
    with pytest.raises(UserError, match="c.flac: [0-9]+ bytes that unpack to more than"):
        read_audio(str(tmp_path / "c.flac"))


def test_formats_without_end_mark_are_refused_in_archives(tmp_path):
    soundfile.write(tmp_path / "a.voc", np.zeros(1000), 8000)
    with pytest.raises(
        UserError,
        match=(
            "a.voc: audio in the format VOC, in which truncation is not detected; convert it to WAV or FLAC"
        ),
    ):
        read_audio(str(tmp_path / "a.voc"))


def test_named_pipes_are_refused(tmp_path):
    """Reading a pipe without a writer would never end."""
    os.mkfifo(tmp_path / "a")
    with pytest.raises(
        UserError, match="a: a named pipe, which can be read once only; give a file, or a command"
    ):
        read_audio(str(tmp_path / "a"))


def test_failing_command_is_reported(tmp_path):
    with pytest.raises(UserError, match=r"status 3 \(no disk today\)"):
        read_audio("echo no disk today >&2; exit 3 |", "rec1")
    with pytest.raises(UserError, match="wrote no audio"):
        read_audio("true |", "rec1")


@pytest.mark.parametrize(("rate", "new_rate"), [(11025, 8000), (16000, 8000), (8000, 16000)])
def test_resampled_tones_keep_amplitude_and_phase(rate, new_rate):
    """A tone below both Nyquist frequencies keeps its amplitude and phase; a tone above the new one is
    removed."""
    time, new_time = np.arange(rate) / rate, np.arange(new_rate) / new_rate
    for hz in (100, 1000, 3500):
        got = resample(np.sin(2 * np.pi * hz * time), rate, new_rate)
        middle = slice(new_rate // 10, -new_rate // 10)
        assert len(got) == new_rate and np.abs(got - np.sin(2 * np.pi * hz * new_time))[middle].max() < 2e-3
    if new_rate < rate:
        got = resample(np.sin(2 * np.pi * 1.1 * new_rate / 2 * time), rate, new_rate)
        assert np.abs(got[new_rate // 10 : -new_rate // 10]).max() < 2e-3
