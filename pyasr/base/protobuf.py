"""Encoder of protocol buffers without their library: a message is the concatenation of its encoded fields.

Each function encodes one field; a nested message is a field of bytes.
"""

from __future__ import annotations

import struct

_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # wire types


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers are in two's complement
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes(encoded) + bytes([value])


def _key(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def integer(number: int, value: int) -> bytes:
    """An int32, int64, enum or bool."""
    return _key(number, _VARINT) + _varint(value)


def double(number: int, value: float) -> bytes:
    """A double."""
    return _key(number, _DOUBLE) + struct.pack("<d", value)


def single(number: int, value: float) -> bytes:
    """A float."""
    return _key(number, _FLOAT) + struct.pack("<f", value)


def content(number: int, value: bytes | str) -> bytes:
    """Bytes, a message, or a string."""
    raw = value.encode() if isinstance(value, str) else value
    return _key(number, _BYTES) + _varint(len(raw)) + raw
