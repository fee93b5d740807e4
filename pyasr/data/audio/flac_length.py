"""Number of samples in a FLAC file according to its frames, for headers that count fewer or none (RFC 9639).

A frame begins with two bytes of synchronisation and its own header, which has its position in the stream, its
number of samples and a checksum of 8 bits; it ends with a checksum of 16 bits. The last frame of a file
therefore gives the length of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

HEADER_BYTES = 42  # the marker fLaC and the first metadata block
_LAST_BLOCK, _LENGTH_BITS, _LENGTH_END = 0x80, (1 << 36) - 1, 26
_HEAD = b"fLaC\x00\x00\x00\x22", b"fLaC\x80\x00\x00\x22"
_KEY = re.compile(rb"[^\s\x00-\x1f\x7f]{1,1000}[ \t]")  # before a file in an archive
_MAX_KEY, _MAX_FRAME_BYTES, _MAX_CHECKED = 1001, 2 << 20, 4
_MIN_FRAME, _MAX_FRAME_HEAD = 9, 16
_RATE_BYTES = {12: 1, 13: 2, 14: 2}
_ID3V1_BYTES = 128


def num_declared_samples(content: bytes) -> int:
    """Number of samples according to the header; 0: unknown, as in a stream."""
    return int.from_bytes(content[21:_LENGTH_END], "big") & _LENGTH_BITS


def is_flac(content: bytes) -> bool:
    return content[:4] == b"fLaC" and len(content) >= _LENGTH_END


def is_without_audio(content: bytes) -> bool:
    """Whether it is a FLAC file without samples: it ends where its audio would begin."""
    return is_flac(content) and not num_declared_samples(content) and _end_of_head(content) == len(content)


def is_joined(content: bytes) -> bool:
    """Whether several files are joined; in an archive a key and a blank precede each file."""
    return any(at > 0 and content[at - 1] not in b" \t" for at in (content.find(head, 1) for head in _HEAD))


def num_samples(content: bytes) -> int | None:
    """Number of samples according to the last frame; None if the file does not end with a complete frame."""
    end, slack = _end(content)
    num_checked = 0
    for at, last in _frames(content, end):
        if last == num_declared_samples(content) or _is_whole(content, at, end, slack):
            return last
        num_checked += 1
        if num_checked == _MAX_CHECKED:
            break
    return None


def stream_info(content: bytes) -> tuple[int, int, int]:
    """(sampling rate in Hz, number of channels, number of samples or 0 if unknown) from a FLAC header."""
    number = int.from_bytes(content[18:_LENGTH_END], "big")
    return number >> 44, (number >> 41 & 7) + 1, number & _LENGTH_BITS


def has_more_frames(content: bytes) -> bool:
    """Whether the file has more frames than its header counts, and the last one is incomplete."""
    declared, (end, _) = num_declared_samples(content), _end(content)
    return declared > 0 and next((last for _, last in _frames(content, end)), 0) > declared


def has_counted_end(head: bytes, tail: bytes) -> bool:
    """Whether a file ends with the last sample that its header counts, in a complete frame; `tail` are its
    last bytes."""
    end = _without_tag(tail)
    found = islice(_frames_in(tail, 0, end, _block_size(head)), _MAX_CHECKED)
    return any(last == num_declared_samples(head) and _is_whole(tail, at, end, slack=0) for at, last in found)


def with_length(content: bytes, num: int) -> bytes:
    """The file with this number of samples in its header."""
    number = int.from_bytes(content[18:_LENGTH_END], "big") & ~_LENGTH_BITS | num
    return content[:18] + number.to_bytes(8, "big") + content[_LENGTH_END:]


def _end(content: bytes) -> tuple[int, int]:
    """(end of the file, or begin of the next one in an archive; maximum number of bytes before it that may be
    the key of that one)"""
    nexts = [at for at in (content.find(head, 1) for head in _HEAD) if at > 0]
    if nexts:
        return min(nexts), _MAX_KEY
    return _without_tag(content), 0


def _without_tag(content: bytes) -> int:
    """The end of the file without an ID3 tag."""
    return len(content) - (_ID3V1_BYTES if content[-_ID3V1_BYTES:][:3] == b"TAG" else 0)


def _frames(content: bytes, end: int) -> Iterator[tuple[int, int]]:
    """`_frames_in` for the last part of a whole file."""
    return _frames_in(content, max(_end_of_head(content), end - _MAX_FRAME_BYTES), end, _block_size(content))


def _block_size(head: bytes) -> int:
    """Samples per frame, for files whose frames have equal lengths."""
    return int.from_bytes(head[8:10], "big")


def _frames_in(content: bytes, first: int, end: int, block_size: int) -> Iterator[tuple[int, int]]:
    """(offset, number of samples of the file up to the end of the frame) of each frame that begins between
    `first` and `end`, backwards."""
    at = end
    while (at := content.rfind(b"\xff", first, at)) >= 0:
        if (
            content[at + 1 : at + 2] in (b"\xf8", b"\xf9")
            and (last := _last_sample(content, at, block_size)) is not None
        ):
            yield at, last


def _last_sample(content: bytes, at: int, block_size: int) -> int | None:
    """Number of samples up to the end of the frame that begins at `at`; None if no frame begins there."""
    head = content[at : at + _MAX_FRAME_HEAD]
    if len(head) < _MIN_FRAME or head[3] & 1 or head[2] & 15 == 15 or head[2] < 16:
        return None
    number, size = _coded_number(head[4:11])
    if not size:
        return None
    place, code = 4 + size, head[2] >> 4
    num_bytes = {6: 1, 7: 2}.get(code, 0)
    extra = int.from_bytes(head[place : place + num_bytes], "big") + 1
    place += num_bytes + _RATE_BYTES.get(head[2] & 15, 0)
    if place >= len(head) or _checksum(head[:place], 0x07, 8) != head[place]:
        return None
    num = extra if num_bytes else 192 if code == 1 else 576 << (code - 2) if code < 6 else 256 << (code - 8)
    is_variable = head[1] & 1
    return (number if is_variable else number * block_size) + num


def _coded_number(content: bytes) -> tuple[int, int]:
    """(number, size of its code in bytes), coded as in UTF-8, up to 36 bits; (0, 0) for anything else."""
    first = content[0]
    size = 8 - (first ^ 0xFF).bit_length() if first >= 0x80 else 1
    rest = content[1:size]
    if size > 7 or first >= 0x80 and size < 2 or any(byte >> 6 != 2 for byte in rest):
        return 0, 0
    number = first & (0x7F >> (size if size > 1 else 0))
    for byte in rest:
        number = number << 6 | byte & 63
    return number, size


def _is_whole(content: bytes, at: int, end: int, slack: int) -> bool:
    """Whether the frame that begins at `at` ends at `end`, or at most `slack` bytes before it, with the key
    of an archive between."""
    sums = _checksums(content[at:end], 0x8005, 16)
    if not slack:
        return sums[-1] == 0
    return any(
        sums[place - at - 1] == 0 and _KEY.fullmatch(content, place, end)
        for place in range(max(end - slack, at + 1), end)
    )


def _checksum(content: bytes, polynomial: int, num_bits: int) -> int:
    return _checksums(content, polynomial, num_bits)[-1]


def _checksums(content: bytes, polynomial: int, num_bits: int) -> list[int]:
    """The cyclic redundancy checks of all prefixes of `content`."""
    table, most, rest, found = _table(polynomial, num_bits), (1 << num_bits) - 1, 0, []
    for byte in content:
        rest = rest << 8 & most ^ table[rest >> (num_bits - 8) ^ byte]
        found.append(rest)
    return found


@lru_cache
def _table(polynomial: int, num_bits: int) -> list[int]:
    """The remainders of the values of the highest byte."""
    return [_remainder(byte << (num_bits - 8), polynomial, num_bits) for byte in range(256)]


def _remainder(rest: int, polynomial: int, num_bits: int) -> int:
    for _ in range(8):
        rest = rest << 1 ^ (polynomial | 1 << num_bits if rest >> (num_bits - 1) else 0)
    return rest


def _end_of_head(content: bytes) -> int:
    """The end of the metadata blocks before the audio; a block has a type byte, its size in three bytes, and
    its content."""
    at, is_last = 4, False
    while not is_last and at + 4 <= len(content):
        is_last = content[at] >= _LAST_BLOCK
        at += 4 + int.from_bytes(content[at + 1 : at + 4], "big")
    return at
