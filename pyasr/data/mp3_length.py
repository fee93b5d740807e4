"""How far an MP3 file goes by its Xing header, which libsndfile believes (ISO 11172-3, 13818-3; the header is that of Xing and LAME)."""

from __future__ import annotations

import struct

_LAYER_3, _MPEG_1 = 1, 3
_KBITS_1 = 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320
_KBITS_2 = 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160
_RATES, _DIVISORS = (44100, 48000, 32000), {_MPEG_1: 1, 2: 2, 0: 4}  # divisors of MPEG 1, 2 and 2.5
_XING_WITHIN, _XING_BYTES, _HAS_FRAMES, _HAS_BYTES = 64, 16, 1, 2
_ID3V1_BYTES, _ID3V2_HEAD_BYTES, _APE_HEAD_BYTES = 128, 10, 32


def goes_on(content: bytes) -> bool:
    """Whether frames follow those that the first frame's Xing header counts, as where MP3 files are joined, behind tags or not."""
    begin = _after_tags(content, 0)
    end = begin + _promised(content, begin)
    if end == begin:
        return False
    first = _after_tags(content, end)
    second = first + _frame_bytes(content, first)
    return second > first and _frame_bytes(content, second) > 0


def _promised(content: bytes, at: int) -> int:
    """Bytes of all frames by the Xing header in the frame that begins there; 0 where there is none, or it does not tell."""
    if not _frame_bytes(content, at):
        return 0
    head = content[at : at + _XING_WITHIN]
    begin = max(head.find(b"Xing"), head.find(b"Info"))
    if begin < 0 or at + begin + _XING_BYTES > len(content):
        return 0
    marks, *numbers = struct.unpack_from(">III", content, at + begin + 4)
    return numbers[1 if marks & _HAS_FRAMES else 0] if marks & _HAS_BYTES else 0


def _frame_bytes(content: bytes, at: int) -> int:
    """Bytes of the frame of layer III that begins there; 0 where there is none."""
    head = int.from_bytes(content[at : at + 4], "big")
    version, layer, kbits, rate, padding = head >> 19 & 3, head >> 17 & 3, head >> 12 & 15, head >> 10 & 3, head >> 9 & 1
    if head >> 21 != 0x7FF or version not in _DIVISORS or layer != _LAYER_3 or kbits in (0, 15) or rate == 3:
        return 0
    numerator = 144_000 * _KBITS_1[kbits - 1] if version == _MPEG_1 else 72_000 * _KBITS_2[kbits - 1]
    return numerator // (_RATES[rate] // _DIVISORS[version]) + padding


def _after_tags(content: bytes, at: int) -> int:
    """Where the tags end that begin there: ID3 and APE, which stand before the frames and behind them."""
    while size := _tag_bytes(content[at : at + _APE_HEAD_BYTES]):
        at += size
    return at


def _tag_bytes(head: bytes) -> int:
    if head[:3] == b"TAG":
        return _ID3V1_BYTES
    if head[:3] == b"ID3" and len(head) >= _ID3V2_HEAD_BYTES:
        size = sum((byte & 127) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0)))
        return size + _ID3V2_HEAD_BYTES * (2 if head[5] & 16 else 1)  # with a footer or without
    if head[:8] == b"APETAGEX" and len(head) == _APE_HEAD_BYTES:
        return int.from_bytes(head[12:16], "little") + _APE_HEAD_BYTES
    return 0
