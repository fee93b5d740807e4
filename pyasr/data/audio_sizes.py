"""How much audio the headers of files promise; libsndfile silently shortens a recording whose end is missing.

The ends of FLAC and MP3 are not looked at here: libsndfile tells itself when they are missing, but of an MP3 file without a Xing header,
which promises nothing.
"""

from __future__ import annotations

import re
import struct
from itertools import dropwhile

from pyasr.data import mp3_length

FORMS = {"WAV", "WAVEX", "RF64", "W64", "AIFF", "AU", "NIST", "OGG", "FLAC", "MP3", "CAF"}  # whose missing ends are told
_OF_STREAMS = range(0x7FFF0000, 0x80010000), range(0xFFFF0000, 1 << 32)  # programs that stream audio write a size near the greatest
_FLAC_HEADS, _FLAC_LAST_BLOCK = (b"fLaC\x00\x00\x00\x22", b"fLaC\x80\x00\x00\x22"), 0x80
_OGG_HEAD_BYTES, _OGG_FIRST_PAGE, _OGG_LAST_PAGE = 27, 2, 4
_GREATEST = 0xFFFFFFFF  # of RF64's chunk data: its chunk ds64 tells the size (EBU Tech 3306)


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
    """A file whose audio has the size 0, as is written before there is any, with the size of what is there: WAV, RF64 and AU; others as
    they are."""
    known = {b"RIFF": _size_of_wav, b"RIFX": _size_of_wav, b"RF64": _size_of_rf64, b".snd": _size_of_au}.get(content[:4])
    numbers = known(content) if known else {}
    if not numbers:
        return content
    filled_in = bytearray(content)
    for at, number in numbers.items():
        filled_in[at:at + len(number)] = number
    return bytes(filled_in)


def _size_of_wav(content: bytes) -> dict[int, bytes]:
    """{position: bytes of the header that tell the size of what is there} where the size is 0 and there is audio, else {}."""
    order = ">" if content[:4] == b"RIFX" else "<"
    begin, size = _chunk(content, 12, f"{order}4sI", 2, b"data")
    if not begin or size or _are_chunks(content, begin, order):
        return {}
    return {begin - 4: struct.pack(f"{order}I", min(len(content) - begin, _GREATEST))}


def _size_of_rf64(content: bytes) -> dict[int, bytes]:
    begin, size = _of_rf64(content)
    sizes, num_bytes = _chunk(content, 12, "<4sI", 2, b"ds64")
    if not begin or size or num_bytes < 16 or sizes > begin or _are_chunks(content, begin, "<"):
        return {}
    return {begin - 4: struct.pack("<I", _GREATEST), sizes: struct.pack("<qq", len(content) - 8, len(content) - begin)}


def _size_of_au(content: bytes) -> dict[int, bytes]:
    begin, size = struct.unpack_from(">II", content, 4) if len(content) >= 12 else (0, 0)
    if not 0 < begin < len(content) or size:
        return {}
    return {8: struct.pack(">I", min(len(content) - begin, _GREATEST))}


def _are_chunks(content: bytes, at: int, order: str) -> bool:
    """Whether a WAV file has whole chunks, or nothing, from the byte `at` on; `order` of bytes as `struct` has it."""
    while at + 8 <= len(content) and all(32 <= letter < 127 for letter in content[at:at + 4]):
        size = struct.unpack_from(f"{order}I", content, at + 4)[0]
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
    """The size in the chunk ds64, where the one of the chunk data is all ones."""
    begin, size = _chunk(content, 12, "<4sI", 2, b"data")
    sizes, num_bytes = _chunk(content, 12, "<4sI", 2, b"ds64")
    if size == _GREATEST and 16 <= num_bytes <= len(content) - sizes:
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
    return _is_flac_of_no_number(content) and not is_flac_without_audio(content)


def is_flac_without_audio(content: bytes) -> bool:
    """Whether it is a FLAC file that ends where its audio would begin: of no samples."""
    return _is_flac_of_no_number(content) and _end_of_flac_head(content) == len(content)


def _is_flac_of_no_number(content: bytes) -> bool:
    return content[:4] == b"fLaC" and len(content) >= 26 and not int.from_bytes(content[21:26], "big") & ((1 << 36) - 1)


def _end_of_flac_head(content: bytes) -> int:
    """Where the blocks of a FLAC file end that stand before its audio: of a mark, the size in three bytes, and as much content."""
    at, is_last = 4, False
    while not is_last and at + 4 <= len(content):
        is_last = content[at] >= _FLAC_LAST_BLOCK
        at += 4 + int.from_bytes(content[at + 1:at + 4], "big")
    return at


def holds_several(content: bytes) -> bool:
    """Whether it is several Ogg, FLAC or MP3 files one after the other, of which libsndfile gives the first.

    In an archive there is a key and a blank before each FLAC file. First pages of streams that go side by side in an Ogg file stand
    together at its begin; one behind other pages begins another file.
    """
    if content[:4] == b"fLaC":
        others = (content.find(head, 1) for head in _FLAC_HEADS)
        return any(at > 0 and content[at - 1] != ord(" ") for at in others)
    if content[:4] != b"OggS":
        return mp3_length.goes_on(content)
    marks = dropwhile(lambda mark: mark & _OGG_FIRST_PAGE, _marks_of_pages(content))
    return any(mark & _OGG_FIRST_PAGE for mark in marks)


def _has_last_page(content: bytes) -> bool:
    """Whether the last page of an Ogg file is whole, and marked as the last of its stream."""
    return bool(_marks_of_pages(content)[-1] & _OGG_LAST_PAGE)


def _marks_of_pages(content: bytes) -> list[int]:
    """The marks of an Ogg file's pages (RFC 3533); 0 for one that is cut short."""
    at, marks = 0, []
    while content[at:at + 4] == b"OggS" and at + _OGG_HEAD_BYTES <= len(content):
        mark, body = content[at + 5], at + _OGG_HEAD_BYTES + content[at + _OGG_HEAD_BYTES - 1]
        at = body + sum(content[at + _OGG_HEAD_BYTES:body])
        marks.append(mark if at <= len(content) else 0)
    return marks or [0]
