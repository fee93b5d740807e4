"""Length of an MP3 file according to its frames, if its Xing header is wrong or missing (ISO 11172-3,
13818-3; Xing and LAME).

libsndfile trusts the Xing header. Without one it estimates the length from the bit rate of the first frame;
it then truncates a file of variable bit rate, or the file appears to be truncated.
"""

from __future__ import annotations

import re
import struct
from typing import BinaryIO

_LAYER_3, _MPEG_1, _MONO = 1, 3, 3
_KBITS_1 = 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320
_KBITS_2 = 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160
_RATES, _DIVISORS = (44100, 48000, 32000), {_MPEG_1: 1, 2: 2, 0: 4}  # divisors of MPEG 1, 2 and 2.5
_XING_WITHIN, _XING_BYTES, _HAS_FRAMES, _HAS_BYTES = 64, 16, 1, 2
_ID3V1_BYTES, _ID3V2_HEAD_BYTES, _APE_HEAD_BYTES = 128, 10, 32
_SAME_STREAM = 0xFFFE0C00  # synchronisation, version, layer and rate, which are equal in all frames of a file
_HEAD_BYTES, _RESUMED_WITHIN, _MAX_KEY = 4, 1 << 16, 1000
FRAME_BYTES = _XING_WITHIN + _XING_BYTES  # bytes of the first frame that include its Xing header
_KEY = re.compile(rb"\s*[^\s\x00-\x1f\x7f]{1,%d}[ \t]" % _MAX_KEY)


def is_joined(content: bytes) -> bool:
    """Whether another file follows the frames counted by the Xing header: several files were joined, with or
    without tags between them."""
    begin = _after_tags(content, 0)
    end = begin + _promised(content, begin)
    if end == begin:
        return False
    first = _after_tags(content, end)
    second = first + _frame_bytes(content, first)
    return second > first and _frame_bytes(content, second) > 0 and (first > end or _xing(content, first) > 0)


def begin_of_frames(file: BinaryIO) -> int:
    """The end of the tags before the frames of an open file."""
    at = 0
    while True:
        file.seek(at)
        if not (size := tag_bytes(file.read(_APE_HEAD_BYTES))):
            return at
        at += size


def has_promised_size(head: bytes, num_bytes: int) -> bool:
    """Whether the frames of a file, `num_bytes` without tags, have the size given by the Xing header in the
    first frame `head`; True if the header gives no size."""
    return (_promised(head, 0) or num_bytes) == num_bytes


def with_length(content: bytes) -> bytes:
    """The file with a Xing header that counts all its frames, if its own header counts fewer, or if it has a
    variable bit rate and no Xing header; other files unchanged."""
    begin = _after_tags(content, 0)
    if not (size := _frame_bytes(content, begin)):
        return content
    xing = _xing(content, begin)
    marks, message = struct.unpack_from(">II", content, xing + 4) if xing else (0, 0)
    num, end, is_variable = _count(content, begin + size if xing else begin)
    if not marks & _HAS_FRAMES:
        head = _xing_frame(content[begin : begin + _HEAD_BYTES], num, end - begin) if is_variable else b""
        return content[:begin] + head + content[begin:]
    if message >= num:
        return content
    numbers = (num, end - begin) if marks & _HAS_BYTES else (num,)
    return (
        content[: xing + 8]
        + struct.pack(f">{len(numbers)}I", *numbers)
        + content[xing + 8 + 4 * len(numbers) :]
    )


def _xing_frame(head: bytes, num: int, num_bytes: int) -> bytes:
    """A silent frame like that of `head` with the number of the following frames, which mpg123, libsndfile's
    decoder, reads as a header."""
    # without a checksum, at a bit rate that is set below
    head = bytes([head[0], head[1] | 1, head[2] & 0x0D, head[3]])
    is_first, is_mono = head[1] >> 3 & 3 == _MPEG_1, head[3] >> 6 == _MONO
    side = {(True, False): 32, (True, True): 17, (False, False): 17, (False, True): 9}[is_first, is_mono]
    for kbits in range(1, 15):
        head = bytes([head[0], head[1], head[2] & 0x0F | kbits << 4, head[3]])
        if (size := _frame_bytes(head, 0)) >= _HEAD_BYTES + side + _XING_BYTES:
            break
    message = b"Xing" + struct.pack(">III", _HAS_FRAMES | _HAS_BYTES, num, num_bytes + size)
    return (head + bytes(side) + message).ljust(size, b"\0")


def _count(content: bytes, at: int) -> tuple[int, int, bool]:
    """(number of frames from `at` on, end of the last one, whether their bit rates differ)"""
    num, like, end, rates = 0, content[at : at + _HEAD_BYTES], at, set()
    while True:
        size = _frame_bytes(content, at) if _is_same_stream(content, at, like) else 0
        if size and at + size <= len(content):
            num, end = num + 1, at + size
            rates.add(content[at + 2] >> 4)
        if not (step := size or _gap(content, at, like)):
            return num, end, len(rates) > 1
        at += step


def _gap(content: bytes, at: int, like: bytes) -> int:
    """Bytes of damage or tags before the next two frames of the stream; 0 at its end, or if another file of
    an archive begins."""
    place, end = _after_tags(content, at), min(len(content), at + _RESUMED_WITHIN)
    if place > at:
        return place - at
    while (place := content.find(like[:1], place + 1, end)) >= 0:
        second = place + _frame_bytes(content, place)
        if (
            _is_same_stream(content, place, like)
            and second > place
            and _is_same_stream(content, second, like)
        ):
            return 0 if _KEY.fullmatch(content, max(at, place - _MAX_KEY), place) else place - at
    return 0


def _is_same_stream(content: bytes, at: int, like: bytes) -> bool:
    one, other = int.from_bytes(content[at : at + _HEAD_BYTES], "big"), int.from_bytes(like, "big")
    return not (one ^ other) & _SAME_STREAM


def _promised(content: bytes, at: int) -> int:
    """Bytes of all frames according to the Xing header in the frame at `at`; 0 without header or number."""
    begin = _xing(content, at)
    if not begin:
        return 0
    marks, *numbers = struct.unpack_from(">III", content, begin + 4)
    return numbers[1 if marks & _HAS_FRAMES else 0] if marks & _HAS_BYTES else 0


def _xing(content: bytes, at: int) -> int:
    """Offset of the Xing header in the frame that begins at `at`; 0 if it has none."""
    if not _frame_bytes(content, at):
        return 0
    head = content[at : at + _XING_WITHIN]
    begin = max(head.find(b"Xing"), head.find(b"Info"))
    return 0 if begin < 0 or at + begin + _XING_BYTES > len(content) else at + begin


def _frame_bytes(content: bytes, at: int) -> int:
    """Bytes of the frame of layer III that begins at `at`; 0 if no frame begins there."""
    head = int.from_bytes(content[at : at + 4], "big")
    version = head >> 19 & 3
    layer = head >> 17 & 3
    kbits = head >> 12 & 15
    rate = head >> 10 & 3
    padding = head >> 9 & 1
    if head >> 21 != 0x7FF or version not in _DIVISORS or layer != _LAYER_3 or kbits in (0, 15) or rate == 3:
        return 0
    numerator = 144_000 * _KBITS_1[kbits - 1] if version == _MPEG_1 else 72_000 * _KBITS_2[kbits - 1]
    return numerator // (_RATES[rate] // _DIVISORS[version]) + padding


def _after_tags(content: bytes, at: int) -> int:
    """End of the tags that begin at `at`: ID3 and APE, which can precede and follow the frames."""
    while size := tag_bytes(content[at : at + _APE_HEAD_BYTES]):
        at += size
    return at


def tag_bytes(head: bytes) -> int:
    """Bytes of the tag (ID3 or APE) that begins with `head`; 0 if it is not a tag."""
    if head[:3] == b"TAG":
        return _ID3V1_BYTES
    if head[:3] == b"ID3" and len(head) >= _ID3V2_HEAD_BYTES:
        size = sum((byte & 127) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0)))
        return size + _ID3V2_HEAD_BYTES * (2 if head[5] & 16 else 1)  # with a footer or without
    if head[:8] == b"APETAGEX" and len(head) == _APE_HEAD_BYTES:
        return int.from_bytes(head[12:16], "little") + _APE_HEAD_BYTES
    return 0
