"""Damage to files, drawn with a seeded generator: bits, truncation, numbers, blocks, and text that is
difficult to parse."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable

LARGEST = 1 << 16  # maximum growth of a mutated file in bytes
_INTEGERS = (0, 1, -1, 2, 5, 127, 255, 256, 1 << 15, 1 << 20, 10**6, 1 << 24, 1 << 28, 10**9, (1 << 31) - 1,
             -(1 << 31), 1 << 31, 1 << 32, 10**12, 1 << 40, (1 << 63) - 1, -(1 << 63))  # fmt: skip
_FLOATS = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e38, 1e-45, 1e300)
_WORDS = (b"0", b"-1", b"1", b"2", b"999", b"99999999", b"2147483647", b"2147483648", b"-2147483649",
          b"4294967296", b"1000000000000", b"9223372036854775808", b"9" * 400, b"9" * 5000, b"nan", b"-nan",
          b"inf", b"-Infinity", b"1e400", b"1e-400", b"-1e30", b"0x10", b"1_000", "²".encode(), "٣".encode(),
          b"1.5", b"", b".", b"-", b"e", b"#", b"|", b"<eps>", b"[", b"]", b"{", b"}", b"\\end\\", b"</s>",
          b"..", b"/", b"/dev/zero", b"a/\0b", b"x" * 300)  # fmt: skip
_BYTES = (b"\0", b"\n", b"\r", b"\t", b" ", b"\xff", b"\xc3", b"\x1b[2J", b"\x1f\x8b", b"\0B",
          b"\xe2\x80\xa8", b"\xc2\xa0", b"[", b"]", b":", b"=", b",")  # fmt: skip
_NUMBER = re.compile(rb"[-+]?[0-9][0-9.eE]*")
_WORD = re.compile(rb"\S+")


def _place(rng: random.Random, data: bytes, size: int = 0) -> int:
    """A random position, more often near the head, where the counts are."""
    most = max(len(data) - size, 0)
    return rng.randint(0, min(most, 64)) if rng.random() < 0.4 else rng.randint(0, most)


def flip_bits(rng: random.Random, data: bytes) -> bytes:
    """Flip one to eight bits."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        if changed:
            changed[min(_place(rng, data, 1), len(changed) - 1)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(rng: random.Random, data: bytes) -> bytes:
    """Remove the end or, rarely, the beginning."""
    at = rng.randint(0, max(len(data) - 1, 0))
    return data[at:] if rng.random() < 0.1 else data[:at]


def _number(rng: random.Random) -> bytes:
    """A number of 1 to 8 bytes in either byte order."""
    order = rng.choice("<<<>")
    if rng.random() < 0.25:
        code = rng.choice("fd")
        return struct.pack(order + code, rng.choice(_FLOATS if code == "d" else _FLOATS[:-1]))
    size = rng.choice((1, 2, 4, 4, 4, 8))
    value = rng.choice(_INTEGERS) & ((1 << 8 * size) - 1)
    return value.to_bytes(size, "little" if order == "<" else "big")


def overwrite_number(rng: random.Random, data: bytes) -> bytes:
    """Replace some bytes by another number."""
    number = _number(rng)
    at = _place(rng, data, len(number))
    return data[:at] + number + data[at + len(number) :]


def insert_number(rng: random.Random, data: bytes) -> bytes:
    """Insert a number."""
    at = _place(rng, data)
    return data[:at] + _number(rng) + data[at:]


def swap_bytes(rng: random.Random, data: bytes) -> bytes:
    """Reverse the order of four bytes."""
    at = _place(rng, data, 4)
    return data[:at] + data[at : at + 4][::-1] + data[at + 4 :]


def _block(rng: random.Random, data: bytes) -> tuple[int, int]:
    at = _place(rng, data)
    return at, at + rng.choice((1, 4, 5, 16, 64, 256))


def duplicate_block(rng: random.Random, data: bytes) -> bytes:
    """Repeat a block once or a thousand times."""
    begin, end = _block(rng, data)
    times = rng.choice((1, 1, 3, 1000))
    return data[:end] + (data[begin:end] * times)[:LARGEST] + data[end:]


def delete_block(rng: random.Random, data: bytes) -> bytes:
    """Delete a block."""
    begin, end = _block(rng, data)
    return data[:begin] + data[end:]


def move_block(rng: random.Random, data: bytes) -> bytes:
    """Copy a block to another position."""
    begin, end = _block(rng, data)
    at = _place(rng, data)
    return data[:at] + data[begin:end] + data[at:]


def insert_bytes(rng: random.Random, data: bytes) -> bytes:
    """Insert separators of text formats, bytes that are not text, or control codes of terminals."""
    at = _place(rng, data)
    return data[:at] + rng.choice(_BYTES) + data[at:]


def _replace(rng: random.Random, data: bytes, pattern: re.Pattern) -> bytes:
    found = list(pattern.finditer(data))
    if not found:
        return flip_bits(rng, data)
    match = rng.choice(found)
    return data[: match.start()] + rng.choice(_WORDS) + data[match.end() :]


def replace_number(rng: random.Random, data: bytes) -> bytes:
    """Replace a written number by another word."""
    return _replace(rng, data, _NUMBER)


def replace_word(rng: random.Random, data: bytes) -> bytes:
    """Replace a word by another word."""
    return _replace(rng, data, _WORD)


def shuffle_lines(rng: random.Random, data: bytes) -> bytes:
    """Exchange two lines."""
    lines = data.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


_ANY = (flip_bits, truncate, duplicate_block, delete_block, move_block, insert_bytes)
_OF_BINARY = (overwrite_number, overwrite_number, overwrite_number, insert_number, swap_bytes)
_OF_TEXT = (replace_number, replace_number, replace_number, replace_word, shuffle_lines)


def mutators(data: bytes) -> tuple[Callable[[random.Random, bytes], bytes], ...]:
    """Kinds of damage that apply to a file."""
    return _ANY + (_OF_BINARY if b"\0" in data else _OF_TEXT)


def mutate(rng: random.Random, data: bytes) -> bytes:
    """The file with one to three mutations."""
    kinds = mutators(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(kinds)(rng, data)
    return data
