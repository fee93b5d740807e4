"""Correct audio headers that count no audio or less than the file has, so that libsndfile reads all of it."""

from __future__ import annotations

import struct

from pyasr.data.audio import audio_sizes, audio_tails, flac_length, mp3_length
from pyasr.data.audio.audio_sizes import MAX_UINT32, chunk, of_rf64, promised

_WRAP = 1 << 32
_AIFF_HEAD_BYTES, _CAF_HEAD_BYTES = 8, 4  # within the audio chunk, before the samples


def with_size(content: bytes) -> bytes:
    """A WAV, RF64, AU, AIFF or CAF file with its true size in the header. Headers are corrected that have the
    size of an empty file or of a stream, or a size that is too small by a multiple of 2^32; other files are
    unchanged."""
    if not (numbers := _lost_sizes(content)):
        return content
    if content[:4] == b"RIFF" and len(content) > MAX_UINT32:
        return _as_rf64(content)
    filled_in = bytearray(content)
    for at, number in numbers.items():
        filled_in[at : at + len(number)] = number
    return bytes(filled_in)


def is_of_stream(head: bytes) -> bool:
    """Whether a file that begins with `head`, which includes the begin of the audio, has a header without the
    size of the audio."""
    return bool(_lost_sizes(head))


def _lost_sizes(content: bytes) -> dict[int, bytes]:
    """{position in the header: bytes of the true size} if the header lacks it and there is audio, else {}."""
    known = {
        b"RIFF": _size_of_wav,
        b"RIFX": _size_of_wav,
        b"RF64": _size_of_rf64,
        b".snd": _size_of_au,
        b"FORM": _size_of_aiff,
        b"caff": _size_of_caf,
    }.get(content[:4])
    return known(content) if known else {}


def _lacks_size(content: bytes, begin: int, size: int, least: int = 0) -> bool:
    """Whether all bytes from `begin` on are audio although the header has another `size`; `least`: the size
    of a chunk without audio."""
    there = len(content) - begin
    if not 0 < begin < len(content) or size == there:
        return False
    if size > there:
        return audio_sizes.is_of_stream(size)
    is_lost = audio_sizes.is_of_stream(size) or (there - size) % _WRAP == 0 or size <= least
    return is_lost and not audio_tails.is_tail(content, begin + size)


def _size_of_wav(content: bytes) -> dict[int, bytes]:
    order = ">" if content[:4] == b"RIFX" else "<"
    begin, size = chunk(content, 12, f"{order}4sI", 2, b"data")
    if not _lacks_size(content, begin, size):
        return {}
    return {begin - 4: struct.pack(f"{order}I", min(len(content) - begin, MAX_UINT32))}


def _as_rf64(content: bytes) -> bytes:
    """A WAV file of 4 GiB or more as RF64, which has 64-bit sizes (EBU Tech 3306)."""
    begin, _ = chunk(content, 12, "<4sI", 2, b"data")
    sizes = struct.pack("<4sIqqqI", b"ds64", 28, len(content) + 28, len(content) - begin, 0, 0)
    all_ones = struct.pack("<I", MAX_UINT32)
    return b"".join(
        (
            b"RF64",
            all_ones,
            content[8:12],
            sizes,
            content[12 : begin - 4],
            all_ones,
            memoryview(content)[begin:],
        )
    )


def _size_of_rf64(content: bytes) -> dict[int, bytes]:
    begin, size = of_rf64(content)
    sizes, num_bytes = chunk(content, 12, "<4sI", 2, b"ds64")
    if num_bytes < 16 or sizes > begin or not _lacks_size(content, begin, size):
        return {}
    return {
        begin - 4: struct.pack("<I", MAX_UINT32),
        sizes: struct.pack("<qq", len(content) - 8, len(content) - begin),
    }


def _size_of_au(content: bytes) -> dict[int, bytes]:
    begin, size = struct.unpack_from(">II", content, 4) if len(content) >= 12 else (0, 0)
    return (
        {8: struct.pack(">I", min(len(content) - begin, MAX_UINT32))}
        if _lacks_size(content, begin, size)
        else {}
    )


def _size_of_aiff(content: bytes) -> dict[int, bytes]:
    begin, size = chunk(content, 12, ">4sI", 2, b"SSND")
    if not _lacks_size(content, begin, size, _AIFF_HEAD_BYTES):
        return {}
    return {begin - 4: struct.pack(">I", min(len(content) - begin, MAX_UINT32))}


def _size_of_caf(content: bytes) -> dict[int, bytes]:
    """CAF allows the size -1 for the last chunk."""
    begin, size = chunk(content, 8, ">4sq", 1, b"data")
    if size >= 0 and not _lacks_size(content, begin, size, _CAF_HEAD_BYTES) or not 0 < begin < len(content):
        return {}
    return {begin - 8: struct.pack(">q", len(content) - begin)}


def readable(content: bytes) -> bytes:
    """The content to pass to libsndfile, so that it reads all audio of a complete file and nothing else."""
    return _with_length(_without_tail(content))


def _without_tail(content: bytes) -> bytes:
    """A W64 or SPHERE file without the bytes after its audio, which libsndfile would read as audio; other
    files unchanged."""
    begin, size = promised(content)
    return (
        content[: begin + size]
        if content[:4] in (b"riff", b"NIST") and size > 0 and begin + size < len(content)
        else content
    )


def _with_length(content: bytes) -> bytes:
    """A FLAC or MP3 file with its true length in the header, if that counts less; other files unchanged."""
    if not flac_length.is_flac(content):
        return mp3_length.with_length(content)
    num = flac_length.num_samples(content) or 0
    return (
        flac_length.with_length(content, num) if num > flac_length.num_declared_samples(content) else content
    )
