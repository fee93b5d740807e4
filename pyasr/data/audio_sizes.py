"""How much audio the headers of files promise; libsndfile silently shortens a recording whose end is missing.

FLAC and MP3 are not looked at here: libsndfile tells itself when their ends are missing, but of an MP3 file without a Xing header, which
promises nothing.
"""

from __future__ import annotations

import re
import struct

FORMS = {"WAV", "WAVEX", "RF64", "W64", "AIFF", "AU", "NIST", "OGG", "FLAC", "MP3", "CAF"}  # whose missing ends are told
_OF_STREAMS = range(0x7FFF0000, 0x80010000), range(0xFFFF0000, 1 << 32)  # programs that stream audio write a size near the greatest
_OGG_HEAD_BYTES, _OGG_LAST_PAGE = 27, 4


def is_of_stream(size: int) -> bool:
    """Whether a header that has this size does not tell how much audio there is: of a pipe, what comes is all."""
    return any(size in sizes for sizes in _OF_STREAMS)


def num_bytes(head: bytes) -> int | None:
    """How many bytes a WAV or SPHERE file that begins with `head` has, by its header; None where that does not tell, or of another form."""
    begin, size = _promised(head)
    if head[:4] not in (b"RIFF", b"RIFX", b"NIST") or not begin or not size:
        return None
    whole = 0 if head[:4] == b"NIST" else 8 + int.from_bytes(head[4:8], "big" if head[:4] == b"RIFX" else "little")
    return max(begin + size, 0 if is_of_stream(whole - 8) else whole)


def what_is_missing(content: bytes) -> str:
    """What the header of an audio file promises and is not there, as part of a sentence; '' where all is, or the header does not tell."""
    if content[:4] == b"OggS":
        return "" if _has_last_page(content) else "its last page is missing"
    begin, size = _promised(content)
    there = max(len(content) - begin, 0)
    return f"{there} of {size} bytes of audio are there" if size > there else ""


def with_size(content: bytes) -> bytes:
    """A WAV file whose audio has the size 0, as is written before there is any, with the size of what is there; others as they are."""
    begin, size = _chunk(content, 12, "<4sI", 2, b"data") if content[:4] == b"RIFF" else (0, 0)
    if not begin or size or _are_chunks(content, begin):
        return content
    return content[:begin - 4] + struct.pack("<I", min(len(content) - begin, 0xFFFFFFFF)) + content[begin:]


def _are_chunks(content: bytes, at: int) -> bool:
    """Whether a WAV file has whole chunks, or nothing, from the byte `at` on."""
    while at + 8 <= len(content) and all(32 <= letter < 127 for letter in content[at:at + 4]):
        size = int.from_bytes(content[at + 4:at + 8], "little")
        at += 8 + size + size % 2
    return at in (len(content), len(content) + 1)


def _promised(content: bytes) -> tuple[int, int]:
    """(where the audio begins, how many bytes it has by the header); (0, 0) where the header does not tell."""
    kind = content[:4]
    if kind in (b"RIFF", b"RIFX"):
        return _known(*_chunk(content, 12, ">4sI" if kind == b"RIFX" else "<4sI", 2, b"data"))
    if kind == b"RF64":
        return _of_rf64(content)
    if kind == b"riff":  # W64: names of 16 bytes, sizes with the 24 bytes of name and size
        return _chunk(content, 40, "<4s12xq", 8, b"data", num_counted=24)
    if kind == b"FORM":
        return _chunk(content, 12, ">4sI", 2, b"SSND")
    if kind == b"caff":
        return _chunk(content, 8, ">4sq", 1, b"data")
    if kind == b".snd" and len(content) >= 12:
        return _known(*struct.unpack_from(">II", content, 4))
    if kind == b"NIST":
        return _of_sphere(content)
    return 0, 0


def _known(begin: int, size: int) -> tuple[int, int]:
    """(0, 0) for a size of a stream: what is there is all."""
    return (0, 0) if is_of_stream(size) else (begin, size)


def _chunk(content: bytes, at: int, form: str, multiple: int, wanted: bytes, num_counted: int = 0) -> tuple[int, int]:
    """(begin, size) of the first chunk of a name from the byte `at` on, (0, 0) where there is none.

    form         name and size of a chunk, as `struct` has it
    multiple     chunks begin at multiples of so many bytes
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


def _of_rf64(content: bytes) -> tuple[int, int]:
    """The size in the chunk ds64, where the one of the chunk data is all ones (EBU Tech 3306)."""
    begin, size = _chunk(content, 12, "<4sI", 2, b"data")
    sizes, num_bytes = _chunk(content, 12, "<4sI", 2, b"ds64")
    if size == 0xFFFFFFFF and 16 <= num_bytes <= len(content) - sizes:
        return begin, struct.unpack_from("<q", content, sizes + 8)[0]
    return _known(begin, size)


def _of_sphere(content: bytes) -> tuple[int, int]:
    """The number of samples in NIST's header, lines such as `sample_count -i 9000`."""
    begin = _sphere_head_bytes(content)
    counts = {name: int(count) for name, count in re.findall(rb"^(\w+) -i ([0-9]{1,18})\s", content[:begin], re.MULTILINE)}
    return begin, counts.get(b"sample_count", 0) * counts.get(b"channel_count", 1) * counts.get(b"sample_n_bytes", 1)


def _sphere_head_bytes(content: bytes) -> int:
    size = re.match(rb"NIST_1A\n *([0-9]{1,9})\n", content)
    return int(size[1]) if size else 0


def is_shortened(content: bytes) -> bool:
    """Whether it is a SPHERE file compressed by shorten, as of Switchboard and Fisher, which libsndfile cannot read."""
    return bool(re.search(rb"^sample_coding -s[0-9]+ \S*embedded-shorten", content[:_sphere_head_bytes(content)], re.MULTILINE))


def is_flac_stream(content: bytes) -> bool:
    """Whether it is a FLAC file without the number of its samples, as pipes give, unreadable to libsndfile (RFC 9639, 8.2)."""
    return content[:4] == b"fLaC" and len(content) >= 26 and not int.from_bytes(content[21:26], "big") & ((1 << 36) - 1)


def _has_last_page(content: bytes) -> bool:
    """Whether the last whole page of an Ogg stream is marked as the last of its stream (RFC 3533)."""
    at, marks = 0, 0
    while content[at:at + 4] == b"OggS" and at + _OGG_HEAD_BYTES <= len(content):
        body = at + _OGG_HEAD_BYTES + content[at + _OGG_HEAD_BYTES - 1]
        at, marks = body + sum(content[at + _OGG_HEAD_BYTES:body]), content[at + 5]
    return at <= len(content) and bool(marks & _OGG_LAST_PAGE)
