"""SPHERE compressed by shorten: all codings against desphere, an independent decoder, and against the coded
samples."""

import io
import tracemalloc

import desphere
import numpy as np
import pytest
import soundfile
from shorten_encoder import (
    MU_LAW,
    Coding,
    mu_law_codes,
    plain_sphere,
    shortened,
    shortened_sphere,
    sphere_header,
)

from pyasr.base.errors import UserError
from pyasr.data.audio.audio_checks import Look, inspect_audio
from pyasr.data.audio.audio_lengths import seconds_of
from pyasr.data.audio.audio_reading import UnusableAudio, audio_head, decode_audio, read_audio
from pyasr.data.audio.shorten import seems_complete

WAYS = {
    "best": {},
    "order 0": {"orders": (0,)},
    "order 1": {"orders": (1,)},
    "order 2": {"orders": (2,)},
    "order 3": {"orders": (3,)},
    "orders in turns": {"choice": "turns"},
    "linear prediction": {"orders": (), "lpc": (1, 2, 5)},
    "linear prediction with random weights": {
        "orders": (1,),
        "lpc": (1, 4, 12),
        "choice": "turns",
        "num_means": 3,
    },
    "means": {"orders": (0,), "num_means": 7},
    "no means": {"orders": (0, 1), "num_means": 0, "lpc": (2,)},
    "shifts": {"shifts": (0, 1, 2, 5, 12, 3), "num_means": 2, "orders": (0, 2), "choice": "turns"},
    "no zero blocks": {"with_zeros": False},
    "small blocks": {"block": 16},
    "blocks of other sizes": {"blocks": ((256, 2), (40, 3), (1, 5), (256, 2), (2, 4), (150, 1), (231, 3))},
    "skipped bytes": {"num_skipped": 5},
}


def speech(num_channels: int, num: int = 2000, seed: int = 0) -> np.ndarray:
    """Synthetic speech, int16 (num, num_channels), of varying loudness with an offset; one part is digital
    silence, another has zero low bits."""
    rng, time = np.random.default_rng(seed), np.arange(num)[:, None]
    loudness = 4000 * np.abs(np.sin(time / 300 + np.arange(num_channels)))
    samples = (
        loudness * np.sin(time / 7 + np.arange(num_channels)) + rng.normal(40, 30, (num, num_channels))
    ).astype(np.int16)
    samples[num // 3 : num // 2] = 0
    samples[num // 2 : 3 * num // 4] &= ~15
    samples[:20] = rng.integers(-32768, 32768, (20, num_channels))
    return samples


def as_theirs(content: bytes) -> np.ndarray:
    """The samples decoded by desphere, int16 (num_samples, num_channels)."""
    return soundfile.read(io.BytesIO(desphere.transcode_bytes(content)), dtype="int16", always_2d=True)[0]


def ours(content: bytes) -> np.ndarray:
    return decode_audio(io.BytesIO(content), "a")[0]


CODINGS = ["ulaw", "pcm", "pcm, high byte first"]


def both(samples: np.ndarray, coding: str, **how) -> tuple[bytes, bytes]:
    """(compressed file, plain file)"""
    words = (samples.shape[1], 8000, coding[:4].strip(","), coding.endswith("first"))
    return shortened_sphere(samples, *words, **how), plain_sphere(samples, *words)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("num_channels", [1, 2])
@pytest.mark.parametrize("coding", CODINGS)
def test_decoder_inverts_encoder(coding, num_channels, version, way):
    samples = speech(num_channels)
    content, plain = both(samples, coding, version=version, **WAYS[way])
    found = ours(content)
    assert (
        found.dtype == np.float32
        and np.array_equal(found, ours(plain))
        and (coding == "ulaw" or np.array_equal(found, samples))
    )


@pytest.mark.parametrize("way", sorted(WAYS.keys() - {"shifts", "skipped bytes"}))
@pytest.mark.parametrize("coding", CODINGS)
def test_decoder_agrees_with_desphere(coding, way):
    """desphere supports neither version 1 nor skipped 7-bit bytes, and interprets means as those of samples
    without their dropped bits."""
    samples = speech(2)
    for more in [{}] if coding == "ulaw" else [{"shifts": (0,)}, {"shifts": (12, 1, 0), "num_means": 0}]:
        content, _ = both(samples, coding, **{**WAYS[way], **more})
        assert np.array_equal(ours(content), as_theirs(content))


@pytest.mark.parametrize("shift", range(13))
def test_mu_law_codes_with_dropped_bits(shift):
    """All codes are decoded; desphere's formula is valid for codes of multiples of the step."""
    codes, step = np.tile(np.arange(256, dtype=np.uint8), 2), 8 << shift
    content, plain = both(codes[:, None], "ulaw", shifts=(shift,), with_zeros=False)
    assert np.array_equal(ours(content), ours(plain))
    levels = np.arange(-32635 // step * step + step, 32635, step)
    content, plain = both(mu_law_codes(levels)[:, None], "ulaw", shifts=(shift,), with_zeros=False)
    assert np.array_equal(ours(content), as_theirs(content)) and np.array_equal(ours(content), ours(plain))


@pytest.mark.parametrize("coding", ["ulaw", "pcm"])
def test_samples_equal_libsndfile_on_plain_file(coding, tmp_path):
    samples = speech(2)
    (tmp_path / "plain.sph").write_bytes(plain_sphere(samples, 2, coding=coding))
    (tmp_path / "a.sph").write_bytes(shortened_sphere(samples, 2, coding=coding))
    theirs, _ = soundfile.read(tmp_path / "plain.sph", dtype="int16")
    for channel in (0, 1):
        found, rate = read_audio(f"{tmp_path}/a.sph", channel=channel)
        assert rate == 8000 and np.array_equal(found, theirs[:, channel])


def test_short_and_empty_files():
    for num in (0, 1, 2, 3, 255, 256, 257):
        samples = speech(2)[:num]
        for coding in ("ulaw", "pcm"):
            assert np.array_equal(
                ours(shortened_sphere(samples, 2, coding=coding)),
                ours(plain_sphere(samples, 2, coding=coding)),
            )


def test_every_truncation_error_names_the_file(tmp_path):
    """The result never has fewer samples."""
    content = shortened_sphere(speech(2, 600), 2)
    end = len(content.rstrip(b"\0"))
    for num_left in (*range(1024, 1060), *range(1060, end - 20, 37), *range(end - 20, end)):
        (tmp_path / "a.sph").write_bytes(content[:num_left])
        with pytest.raises(
            UnusableAudio,
            match=rf"^utt: {tmp_path}/a.sph: cut short, [0-9]+ of 600 samples found; replace the file or",
        ):
            read_audio(f"{tmp_path}/a.sph", "utt", channel=0)


@pytest.mark.parametrize(
    "count, message",
    [
        (1999, "a: its header counts 1999 samples, but more follow; replace"),
        (2001, "a: its header counts 2001 samples, but it has 2000; replace"),
        (3999, "a: its header counts 3999 samples, but it has 2000"),
        (8000, "a: its header counts 8000 samples, but it has 2000"),
        (0, "a: its header counts 0 samples, but more follow"),
        (10**14, "bytes that unpack to more than"),
    ],
)
def test_header_contradicting_stream_is_refused(count, message):
    with pytest.raises(UserError, match=message):
        ours(shortened_sphere(speech(2), 2, sample_count=count))


def test_header_that_counts_all_channels():
    samples = speech(2)
    assert np.array_equal(
        ours(shortened_sphere(samples, 2, sample_count=4000)), ours(plain_sphere(samples, 2))
    )
    with pytest.raises(UnusableAudio):
        ours(shortened_sphere(samples[:, 0], 1, sample_count=4000))


def headed(
    stream: bytes, coding: str = "ulaw,embedded-shorten-v2.00", channels: int = 1, count: int = 4
) -> bytes:
    return sphere_header(count, channels, 8000, coding) + stream


STREAM = shortened(np.full((4, 1), 200, np.uint8), MU_LAW, Coding())


@pytest.mark.parametrize(
    "content, message",
    [
        (
            headed(STREAM, "alaw,embedded-shorten-v2.00"),
            "shorten samples of type 8 do not match the coding alaw of its header",
        ),
        (
            headed(STREAM, "pcm,embedded-shorten-v2.00"),
            "shorten samples of type 8 do not match the coding pcm of its header",
        ),
        (headed(STREAM, channels=2), "1 channels, but the header gives 2"),
        (headed(b"ajkg\3" + STREAM[5:]), "its audio does not begin like a shorten stream of version 1 or 2"),
        (headed(b"xjkg\2" + STREAM[5:]), "its audio does not begin like a shorten stream of version 1 or 2"),
        (headed(STREAM, channels=0), "1 channels, but the header gives 0"),
        (
            headed(STREAM + headed(STREAM)),
            "several recordings joined in one file, of which only the first would be read",
        ),
    ],
)
def test_unsupported_coding_is_reported(content, message):
    with pytest.raises(UnusableAudio, match=f"^a: {message}"):
        ours(content)


def bits(*fields: tuple[int, int]) -> bytes:
    """A stream of (number, plain bits) in Rice code, padded with zero bytes."""
    text = "".join(
        "0" * (number >> num) + "1" + (f"{number & ((1 << num) - 1):0{num}b}" if num else "")
        for number, num in fields
    )
    return b"ajkg\2" + int(text.ljust(-(-len(text) // 32) * 32, "0"), 2).to_bytes(
        4 * -(-len(text) // 32), "big"
    )


def numbers(*values: int) -> list[tuple[int, int]]:
    return [field for value in values for field in ((value.bit_length(), 2), (value, value.bit_length()))]


MONO = numbers(8, 1, 256, 0, 0, 0)


@pytest.mark.parametrize(
    "fields",
    [
        [*MONO, (9, 2)],
        [*MONO, (40, 2)],  # an invalid command
        # more dropped bits than codes of mu-law have
        [*MONO, (6, 2), (13, 2), (8, 2), (4, 2)],
        [*MONO, (5, 2), *numbers(0), (8, 2), (4, 2)],  # blocks without samples
        [*MONO, (5, 2), *numbers(1 << 30), (8, 2), (4, 2)],
        [*MONO, (7, 2), (0, 3), (300, 2), *[(0, 1)] * 700, (4, 2)],  # an order above that of the header
        [*MONO, (0, 2), (32, 3), *[(0, 1)] * 300, (4, 2)],  # too many plain bits
        [*MONO, (5, 2), *numbers(1), (0, 2), (7, 3), (300, 8), (4, 2)],  # a value that is not a code
        [*numbers(8, 2, 1, 0, 0, 0), (8, 2), (4, 2)],  # the second channel is missing
        [*numbers(8, 2, 2, 0, 0, 0), (8, 2), (5, 2), *numbers(1), (8, 2), (4, 2)],
        numbers(8, 1, 256, 1 << 20, 0, 0),
        numbers(8, 1, 256, 0, 1 << 20, 0),
        [*numbers(8, 1, 1 << 31, 0, 0, 0), (8, 2), (4, 2)],
    ],
)
def test_impossible_streams_are_refused(fields):
    num_channels = 2 if fields[2:4] == numbers(2) else 1
    with pytest.raises(UnusableAudio, match="^a: damaged, "):
        ours(headed(bits(*fields), channels=num_channels, count=256))


def test_memory_is_bounded_by_file_size(tmp_path):
    """The numbers in the headers do not matter."""
    lies = [
        headed(bits(*numbers(8, 1, size, 0, 0, 0), (8, 2), (4, 2)), count=count)
        for size in (256, 65536, 1 << 31)
        for count in (256, 10**7, 10**18)
    ]
    ours(headed(STREAM))
    tracemalloc.start()
    for content in lies[1:]:
        with pytest.raises(UserError):
            ours(content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def test_files_in_an_archive(tmp_path):
    """A file is read to its end, and no more of a large archive is read than the file may have."""
    both = [
        shortened_sphere(speech(1, 3000, seed), coding=coding) for seed, coding in enumerate(("ulaw", "pcm"))
    ]
    with open(tmp_path / "a.ark", "wb") as archive:
        archive.write(b"one " + both[0] + b"two " + both[1])
        archive.truncate(1 << 33)
    tracemalloc.start()
    for place, content in ((4, both[0]), (8 + len(both[0]), both[1])):
        assert np.array_equal(read_audio(f"{tmp_path}/a.ark:{place}")[0], ours(content)[:, 0])
        assert audio_head(f"{tmp_path}/a.ark:{place}") == (8000, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_commands_may_output_shorten(tmp_path):
    (tmp_path / "a.sph").write_bytes(shortened_sphere(speech(1)))
    assert np.array_equal(read_audio(f"cat {tmp_path}/a.sph |")[0], read_audio(f"{tmp_path}/a.sph")[0])


def test_header_check_reads_headers_and_ends(tmp_path):
    path, content = tmp_path / "a.sph", shortened_sphere(speech(2), 2, 16000)
    path.write_bytes(content)
    assert audio_head(str(path)) == (16000, 2) and inspect_audio(str(path), "exists") == Look()
    assert inspect_audio(str(path), "read", "B") == Look(seconds=2000 / 16000, rate=16000)
    path.write_bytes(content[:-100])
    assert all("cut short" in inspect_audio(str(path), how, "B").complaint for how in ("exists", "read"))
    for broken, message in (
        (content[:1024], "cut short, 0 of 2000"),
        (content.replace(b"ajkg", b"bjkg"), "does not begin like a shorten stream"),
    ):
        path.write_bytes(broken)
        assert message in inspect_audio(str(path), "exists", "B").complaint


@pytest.mark.parametrize("coding", ["ulaw", "pcm"])
def test_complete_streams_are_recognised_by_last_bytes(coding):
    """Most streams of any length; no stream that was cut at a disk block, and very few that were cut
    elsewhere."""
    streams = [shortened_sphere(speech(2)[:num], 2, 16000, coding)[1024:] for num in range(1, 100)]
    assert sum(seems_complete(stream[-8:], len(stream)) for stream in streams) > 75
    noise = np.random.default_rng(0).normal(0, 500, (20_000, 2)).astype(np.int16)
    stream = shortened_sphere(noise, 2, 16000, coding)[1024:]
    taken = [seems_complete(stream[end - 8 : end], end) for end in range(8, len(stream))]
    assert len(taken) > 10_000 and sum(taken) < len(taken) / 200
    assert not any(seems_complete(stream[end - 8 : end], end) for end in range(3072, len(stream), 512))


def test_streams_truncated_in_silence_are_detected():
    """Blocks of zeros, whose command has the bits 00100, end like the end command."""
    stream = shortened_sphere(np.zeros((200_000, 2), np.int16), 2, 16000, "pcm")[1024:]
    assert seems_complete(stream[-8:], len(stream)) and not any(
        seems_complete(stream[end - 8 : end], end) for end in range(16, len(stream) - 4)
    )


def test_data_after_stream_is_not_truncation(tmp_path):
    """Such a file is decoded to check it."""
    path = tmp_path / "a.sph"
    path.write_bytes(shortened_sphere(speech(2), 2, 16000) + bytes(100))
    assert inspect_audio(str(path), "exists", "A") == Look() and seconds_of(path) == 2000 / 16000
