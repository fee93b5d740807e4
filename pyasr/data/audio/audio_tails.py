"""The bytes after the audio in a file: other chunks, tags, padding; in an archive, the next entry.

Chunks after the audio (LIST, id3, cue, PEAK and many others) are normal in WAV, RF64, W64, AIFF and CAF
files.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from pyasr.data.audio.mp3_length import tag_bytes

_FORMS = rb"RIFF|RIFX|RF64|FORM|caff|riff\x2e\x91\xcf\x11|\.snd|NIST_1A|fLaC|OggS"
_FILE = re.compile(_FORMS)
_ENTRY = re.compile(
    rb"\s*(?:[^\s\x00-\x1f\x7f]{1,1000}[ \t]+)?(?:" + _FORMS + rb"|ID3|\xff[\xe2-\xfb]|PK\x03\x04)"
)
_FILLED_TO, _MAX_FILLING = 512, 4096
_TAR_MARK, _TAR_MARK_AT = b"ustar", 257
_TAG_HEAD_BYTES = 32
_OFTEN_CUT = {
    b"LIST",
    b"list",
    b"id3 ",
    b"ID3 ",
    b"bext",
    b"iXML",
    b"_PMX",
    b"JUNK",
    b"junk",
    b"FLLR",
    b"PAD ",
    b"free",
}
PEEK_BYTES = 4096


@dataclass(frozen=True)
class _Chunks:
    """Layout of the chunks of a format.

    form         name and size, as a format of `struct`
    multiple     alignment of chunks in bytes, in files that follow the standard
    num_counted  bytes of name and size that are counted in the size
    """

    form: struct.Struct
    multiple: int
    num_counted: int = 0

    def ends(self, content: bytes, at: int) -> Iterator[int]:
        """Possible ends of the chunk that begins at `at`; none if it is not a chunk."""
        if at + self.form.size > len(content) or not all(
            32 <= letter < 127 for letter in content[at : at + 4]
        ):
            return
        name, size = self.form.unpack_from(content, at)
        end = at + self.form.size + max(size - self.num_counted, 0)
        if _FILE.match(content, at):
            return
        if end > len(content) and name in _OFTEN_CUT:
            yield len(content)
        elif 0 <= end <= len(content):
            yield from {end, min(end + -end % self.multiple, len(content))}


_WAV, _AIFF = _Chunks(struct.Struct("<4sI"), 2), _Chunks(struct.Struct(">4sI"), 2)
_CHUNKS = {
    b"RIFF": _WAV,
    b"RF64": _WAV,
    b"RIFX": _AIFF,
    b"FORM": _AIFF,
    b"caff": _Chunks(struct.Struct(">4sq"), 1),
    b"riff": _Chunks(struct.Struct("<4s12xq"), 8, num_counted=24),
}


def is_tail(content: bytes, at: int) -> bool:
    """Whether only complete chunks and tags, if any, follow the audio of a file, which ends at byte `at`."""
    chunks = _CHUNKS.get(content[:4])
    places = [at, *([at + -at % chunks.multiple] if chunks else [])]
    known = set(places)
    while places:
        at = places.pop()
        if at >= len(content):
            return True
        tag = tag_bytes(content[at : at + _TAG_HEAD_BYTES])
        ends = {at + tag} if tag else set(chunks.ends(content, at)) if chunks else set()
        places += sorted(ends - known)
        known |= ends
    return False


def is_tail_of_wav(rest: bytes) -> bool:
    """Whether other chunks, or nothing, follow the audio of a WAV stream."""
    return is_tail(b"RIFF" + bytes(8) + rest, 12)


def is_filling(content: bytes, at: int) -> bool:
    """Whether only zeros follow, up to the end of a disk block."""
    return len(content) % _FILLED_TO == 0 and len(content) - at < _MAX_FILLING and not any(content[at:])


def begins_file(content: bytes, at: int) -> bool:
    """Whether another audio file begins at the byte `at`, or after one byte of padding."""
    return any(_FILE.match(content, place) for place in (at, at + at % 2))


def begins_entry(content: bytes) -> bool:
    """Whether `content`, the rest of an archive, begins with another entry or is empty; zeros, with which
    archives are padded, may precede it."""
    rest = content.lstrip(b"\0")
    return not rest or bool(_ENTRY.match(rest)) or rest[_TAR_MARK_AT:].startswith(_TAR_MARK)
