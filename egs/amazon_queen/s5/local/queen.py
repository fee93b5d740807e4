"""Reader of `queen.1c`, the data file of Flight of the Amazon Queen: sounds and their words.

The file is a table of named byte ranges. Speech is in `.SB` entries (complete MP3 streams), the texts are in
dialogs (`.DOG`), cutaways (`.CUT`) and the list of replies (`QUEEN2.JAS`). A text is cut into segments at its
commands (`*` and two characters: postures, gestures); segment k of a text is spoken in sound k, and the
sound's name follows from the position of the text. Integers are big-endian.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

from pyasr.base.errors import UserError

_HEADER_BYTES = 15  # 'QTBL', version, compression, number of entries
_ENTRY = struct.Struct(">12sBII")
_BANK_BYTES = 20  # header of DOG, CUT and QUEEN.JAS entries
_FIRST_TEXT_COUNTS = 4  # QUEEN.JAS: rooms, names, objects, descriptions
_NUM_VERBS, _NUM_REPLIES = 12, 40
_COMMAND = re.compile(r"\*(?:XY.{11}|..)", re.DOTALL)


class QueenFile:
    """The entries of `queen.1c` by name, read on demand. Raises UserError if the file is something else or
    truncated."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.entries = self._read_table()

    def _read_table(self) -> dict[str, tuple[int, int]]:
        try:
            with self.path.open("rb") as f:
                head = f.read(_HEADER_BYTES)
                table = f.read(_ENTRY.size * int.from_bytes(head[13:15], "big"))
                size = f.seek(0, 2)
        except OSError as error:
            raise UserError(
                f"{self.path}: {error.strerror}; give the path of queen.1c with --corpus"
            ) from None
        if head[:4] != b"QTBL" or len(table) % _ENTRY.size or not table:
            raise UserError(
                f"{self.path}: not the data file queen.1c of Flight of the Amazon Queen; give another file "
                "with --corpus"
            )
        if head[12] != 1:
            raise UserError(
                f"{self.path}: its sounds are not MP3 (compression {head[12]}); use queen.1c of the Debian "
                "package"
            )
        entries = {
            name.rstrip(b"\0").decode("latin-1"): (at, length)
            for name, _, at, length in _ENTRY.iter_unpack(table)
        }
        if (
            max(at + length for at, length in entries.values()) > size
            or sum(length for _, length in entries.values()) > size
        ):
            raise UserError(f"{self.path}: truncated or damaged ({size} bytes); download it again")
        return entries

    def read(self, name: str) -> bytes:
        at, length = self.entries[name]
        with self.path.open("rb") as f:
            f.seek(at)
            return f.read(length)

    def names(self, suffix: str) -> list[str]:
        return sorted(name for name in self.entries if name.endswith(suffix))


def read_texts(queen: QueenFile) -> dict[str, str]:
    """{sound name without `.SB`: words with punctuation} of each sound with a text. Raises UserError for a
    damaged file."""
    texts: dict[str, str] = {}
    try:
        for prefix, text in _lines(queen):
            for index, segment in enumerate(segments(text), 1):
                sound = f"{prefix}{index:X}"
                if segment and f"{sound}.SB" in queen.entries:
                    texts.setdefault(sound, segment)
    except (KeyError, struct.error) as error:
        raise UserError(
            f"{queen.path}: damaged, its texts cannot be read ({error}); download it again"
        ) from None
    return texts


def segments(text: str) -> list[str]:
    """The separately spoken parts of a text, without commands. An empty part keeps its number.

    >>> segments("Wow!*15Look at that*XY120,300,025So big.")
    ['Wow!', 'Look at that', 'So big.']
    """
    parts = [part.strip() for part in _COMMAND.split(text)]
    return parts if parts[-1] else parts[:-1]


def _lines(queen: QueenFile):
    """(sound name without the segment, text) of all speech in the game."""
    for name in queen.names(".DOG"):
        yield from _dialog_lines(queen.read(name)[_BANK_BYTES:])
    for name in queen.names(".CUT"):
        yield from _cutaway_lines(name.removesuffix(".CUT"), queen.read(name)[_BANK_BYTES:])
    yield from _reply_lines(queen)


def _dialog_lines(data: bytes):
    """Joe's lines, the other person's, and the two lines of a second meeting."""
    levels, _, talk_key, num_joe, num_person = struct.unpack_from(">5h", data)
    person1, _, person2 = struct.unpack_from(">3H", data, 22)
    for who, start, count in (("J", 32 + abs(levels) * 96, num_joe), ("P", person1, num_person)):
        for line, (key, text) in enumerate(_numbered_strings(data, start, count)):
            is_first_of_joe = who == "J" and line == 0
            yield f"{talk_key:02d}{'SSSS' if is_first_of_joe else f'{key:04X}'}{who}", text
    text, at = _string(data, person2, 2)
    yield f"{talk_key:02d}XXXXP", text
    text, _ = _string(data, at, 2)
    yield f"{talk_key:02d}XXXXJ", text


def _numbered_strings(data: bytes, at: int, count: int):
    for _ in range(count + 1):
        if at + 5 > len(data):
            return
        key = struct.unpack_from(">h", data, at + 2)[0] & 0xFFFF
        text, at = _string(data, at + 4, 4)
        yield key, text


def _string(data: bytes, at: int, align: int) -> tuple[str, int]:
    """A string after its length byte, and the position of the next one: padded to a multiple of `align`, but
    an empty string is not."""
    if at >= len(data) or not data[at]:
        return "", at + 1
    end = at + 1 + data[at]
    return data[at + 1 : end].decode("latin-1"), -(-end // align) * align


def _cutaway_lines(base: str, data: bytes):
    count = abs(struct.unpack_from(">h", data, 2)[0])
    at = struct.unpack_from(">H", data, 8)[0]
    _, at = _string(data, at, 2)
    for number in range(1, count + 1):
        text, at = _string(data, at, 2)
        yield f"{base:_<5}{number:02d}", text


def _reply_lines(queen: QueenFile):
    """Joe's stock replies, and his remarks on things that he looks at."""
    _, num_names, _, num_descriptions = struct.unpack_from(
        f">{_FIRST_TEXT_COUNTS}h", queen.read("QUEEN.JAS"), _BANK_BYTES
    )
    num_rooms = struct.unpack_from(">h", queen.read("QUEEN.JAS"), _BANK_BYTES)[0]
    lines = queen.read("QUEEN2.JAS").decode("latin-1").split("\r\n")
    replies = num_descriptions + num_names + num_rooms + _NUM_VERBS
    for number, text in enumerate(lines[replies : replies + _NUM_REPLIES], 1):
        yield f"JOE{number:04d}", text
    for number, text in enumerate(lines[:num_descriptions], 1):
        yield f"JOE{number + _NUM_REPLIES:04d}", text
