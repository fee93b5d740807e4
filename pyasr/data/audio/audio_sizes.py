"""The amount of audio according to file headers. libsndfile silently shortens a recording whose end is
missing or not counted.

libsndfile itself reports truncated FLAC and MP3 files, except for MP3 files without a Xing header, which give
no length.
"""

from __future__ import annotations

import struct
from itertools import dropwhile
from typing import Literal

from pyasr.data.audio import audio_tails, flac_length, mp3_length, sphere

# formats in which truncation is detected
FORMS = {"WAV", "WAVEX", "RF64", "W64", "AIFF", "AU", "NIST", "OGG", "FLAC", "MP3", "CAF"}
# sizes written into pipes
_OF_STREAMS = range(0x7F000000, 0x7F000100), range(0x7FFF0000, 0x80010000), range(0xFFFF0000, 1 << 32)
_ORDERS: dict[bytes, Literal["little", "big"]] = {b"RIFF": "little", b"RIFX": "big", b"FORM": "big"}
_OGG_HEAD_BYTES, _OGG_FIRST_PAGE, _OGG_LAST_PAGE = 27, 2, 4
MAX_UINT32 = 0xFFFFFFFF  # size of the data chunk of RF64 if the ds64 chunk has the real size (EBU Tech 3306)


def is_of_stream(size: int) -> bool:
    """Whether a size is one that programs write into pipes because the length is unknown; the audio then
    extends to the end of the file."""
    return any(size in sizes for sizes in _OF_STREAMS)


def num_bytes(head: bytes) -> int | None:
    """Bytes of an audio file that begins with `head`, according to its header; None if the header does not
    give them."""
    begin, size = promised(head)
    if not begin or size <= 0:
        return None
    order = _ORDERS.get(head[:4])
    whole = 8 + int.from_bytes(head[4:8], order) if order else 0
    return max(begin + size, 0 if is_of_stream(whole - 8) else whole)


def num_bytes_of_all_channels(head: bytes) -> int:
    """Bytes of a SPHERE file with several channels if its header counts the samples of all channels together;
    0 for other files."""
    count, num_channels, num_bytes_of_one = sphere.counts(head)
    is_meant = sphere.is_sphere(head) and num_channels > 1 and not sphere.is_shortened(head)
    return sphere.head_bytes(head) + count * num_bytes_of_one if is_meant else 0


def missing_audio(content: bytes) -> str:
    """A clause about audio that the header counts and the file lacks; '' if it is complete or the header does
    not give a length."""
    if content[:4] == b"OggS":
        return "" if _has_last_page(content) else "its last page is missing"
    begin, size = promised(content)
    there = max(len(content) - begin, 0)
    return f"{there} of {size} bytes of audio found" if size > there else ""


def uncounted_audio(content: bytes) -> str:
    """A clause about bytes after the counted audio that are not chunks, tags or padding; '' if none."""
    if flac_length.is_flac(content):
        counts = "more frames follow than its header counts, and the last is incomplete"
        return (
            counts
            if flac_length.num_samples(content) is None and flac_length.has_more_frames(content)
            else ""
        )
    begin, size = promised(content)
    end = begin + size
    if (
        not size
        or end >= len(content)
        or audio_tails.is_tail(content, end)
        or audio_tails.is_filling(content, end)
    ):
        return ""
    return (
        f"its header counts {size} bytes of audio, but {len(content) - end} bytes follow that are not "
        "other chunks"
    )


def promised(content: bytes) -> tuple[int, int]:
    """(offset of the audio, its bytes according to the header); (0, 0) if the header does not give them."""
    kind = content[:4]
    if kind in (b"RIFF", b"RIFX"):
        return _known(*chunk(content, 12, ">4sI" if kind == b"RIFX" else "<4sI", 2, b"data"))
    if kind == b"RF64":
        return of_rf64(content)
    if kind == b"riff":  # W64: names of 16 bytes, sizes with the 24 bytes of name and size
        return chunk(content, 40, "<4s12xq", 8, b"data", num_counted=24)
    if kind == b"FORM":
        return _known(*chunk(content, 12, ">4sI", 2, b"SSND"))
    if kind == b"caff":
        return chunk(content, 8, ">4sq", 1, b"data")
    if kind == b".snd" and len(content) >= 12:
        return _known(*struct.unpack_from(">II", content, 4))
    if sphere.is_sphere(content) and not sphere.is_shortened(content):
        return _of_sphere(content)
    return 0, 0


def _known(begin: int, size: int) -> tuple[int, int]:
    """(begin, size); (0, 0) for the size of a stream, whose audio extends to the end of the file."""
    return (0, 0) if is_of_stream(size) else (begin, size)


def chunk(
    content: bytes, at: int, form: str, multiple: int, wanted: bytes, num_counted: int = 0
) -> tuple[int, int]:
    """(begin, size) of the first chunk named `wanted` from the byte `at` on; (0, 0) if no such chunk exists.

    form         name and size of a chunk, as a format of `struct`
    multiple     alignment of chunks in bytes
    num_counted  bytes of name and size that are counted in the size
    """
    head = struct.Struct(form)
    while at + head.size <= len(content):
        name, size = head.unpack_from(content, at)
        at, size = at + head.size, max(size - num_counted, 0)
        if name == wanted:
            return at, size
        at += size + -size % multiple
    return 0, 0


def of_rf64(content: bytes) -> tuple[int, int]:
    """(offset of the audio, its bytes) of an RF64 file, by the ds64 chunk if it gives a size, as libsndfile
    reads it."""
    begin, size = chunk(content, 12, "<4sI", 2, b"data")
    sizes, num_bytes = chunk(content, 12, "<4sI", 2, b"ds64")
    counted = (
        struct.unpack_from("<q", content, sizes + 8)[0] if 16 <= num_bytes <= len(content) - sizes else 0
    )
    return (begin, counted) if counted > 0 or size == MAX_UINT32 else _known(begin, size)


def _of_sphere(content: bytes) -> tuple[int, int]:
    """(offset, bytes) by the lines of NIST's header such as `sample_count -i 9000`. The count is samples per
    channel or, if the size of the file shows it, samples of all channels together, as in the first release of
    Switchboard."""
    begin, (count, num_channels, num_bytes) = sphere.head_bytes(content), sphere.counts(content)
    together = count * num_bytes
    return begin, together if len(content) - begin == together else together * num_channels


def is_flac_stream(content: bytes) -> bool:
    """Whether it is a FLAC file whose length is neither in the header nor in the last frame; libsndfile
    cannot read it."""
    has_no_length = (
        flac_length.is_flac(content)
        and not flac_length.num_declared_samples(content)
        and not flac_length.is_without_audio(content)
    )
    return has_no_length and flac_length.num_samples(content) is None


def is_joined(content: bytes) -> bool:
    """Whether several files are joined; libsndfile would read at most the first.

    The first pages of the parallel streams of an Ogg file are together at its start; a first page after other
    pages begins another file.
    """
    if content[:4] == b"fLaC":
        return flac_length.is_joined(content)
    if content[:4] == b"OggS":
        marks = dropwhile(lambda mark: mark & _OGG_FIRST_PAGE, _marks_of_pages(content))
        return any(mark & _OGG_FIRST_PAGE for mark in marks)
    begin, size = promised(content)
    return (
        size > 0 and audio_tails.begins_file(content, begin + size)
        if begin
        else mp3_length.is_joined(content)
    )


def _has_last_page(content: bytes) -> bool:
    """Whether the last page of an Ogg file is complete and marked as the last of its stream."""
    return bool(_marks_of_pages(content)[-1] & _OGG_LAST_PAGE)


def _marks_of_pages(content: bytes) -> list[int]:
    """The header types of the pages of an Ogg file (RFC 3533); 0 for a truncated page."""
    at, marks = 0, []
    while content[at : at + 4] == b"OggS" and at + _OGG_HEAD_BYTES <= len(content):
        mark, body = content[at + 5], at + _OGG_HEAD_BYTES + content[at + _OGG_HEAD_BYTES - 1]
        at = body + sum(content[at + _OGG_HEAD_BYTES : body])
        marks.append(mark if at <= len(content) else 0)
    return marks or [0]
