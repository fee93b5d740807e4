"""A small data file like `queen.1c`, written by hand."""

from __future__ import annotations

import struct
from pathlib import Path

BANK = b"B" * 20


def padded(text: str, align: int, at: int) -> bytes:
    """A counted string at offset `at`."""
    content = bytes([len(text)]) + text.encode()
    return content + b"\0" * (-(at + len(content)) % align if text else 0)


def numbered(strings: list[tuple[int, str]], at: int) -> bytes:
    content = b""
    for key, text in strings:
        head = b"\0\0" + struct.pack(">h", key)
        content += head + padded(text, 4, at + len(content) + 4)
    return content


def dialog() -> bytes:
    levels, talk_key = 1, 7
    joe_at = 32 + levels * 96
    joe = numbered([(0, "Hi!*15"), (10, "Who?*15And*XY100,100,015why?*20")], joe_at)
    person_at = joe_at + len(joe)
    person = numbered([(300, "Me.*15")], person_at)
    second_at = person_at + len(person)
    second = padded("You again?*15", 2, second_at)
    second += padded("Me again.*15", 2, second_at + len(second))
    head = (
        struct.pack(">5h", -levels, 0, talk_key, 1, 1)
        + b"\0" * 12
        + struct.pack(">3H", person_at, 0, second_at)
    )
    return BANK + head.ljust(joe_at, b"\0") + joe + person + second


def cutaway() -> bytes:
    text_at = 40
    strings = padded("", 2, text_at)
    for text in ("*FR*06", "*", "*00*FLThere!*07"):
        strings += padded(text, 2, text_at + len(strings))
    head = struct.pack(">hhhhH", 0, -3, 0, 0, text_at)
    return BANK + head.ljust(text_at, b"\0") + strings


def write_queen(path: Path) -> Path:
    sounds = (
        "07SSSSJ1 07000AJ1 07000AJ2 07000AJ3 07012CP1 07XXXXP1 07XXXXJ1 C10A_033 JOE00021 JOE00421 EFFECT"
    ).split()
    lines = (
        ["Nothing.*24", "A wall.*24", "name", "room"]
        + ["verb"] * 12
        + ["First.*01", "Second.*01"]
        + [""] * 38
    )
    files = {f"{name}.SB": b"mp3" for name in sounds} | {
        "X.DOG": dialog(),
        "C10A.CUT": cutaway(),
        "QUEEN.JAS": BANK + struct.pack(">4h", 1, 1, 0, 2),
        "QUEEN2.JAS": "\r\n".join(lines).encode(),
    }
    table, content, at = b"", b"", 15 + 21 * len(files)
    for name, data in files.items():
        table += struct.pack(">12sBII", name.encode(), 0, at + len(content), len(data))
        content += data
    path.write_bytes(b"QTBLCEM10\0\0\0\1" + struct.pack(">H", len(files)) + table + content)
    return path
