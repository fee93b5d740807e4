"""Check from the first and last bytes whether a FLAC, Ogg or MP3 file is complete; its header does not give
the bytes of the audio.

    FLAC  the last frame is complete, and ends with the last sample that the header counts
    Ogg   the last page is complete, belongs to the stream of the first page, and is marked as the last
    MP3   the file has the number of bytes that the Xing header counts; a file without such a header cannot be
          checked

Damage within the file, and joined files of equal length, are found only by reading all of it.
"""

from __future__ import annotations

from typing import BinaryIO

from pyasr.data.audio import flac_length, mp3_length

_TAIL_BYTES = 1 << 16  # of nearly all FLAC frames, and of all Ogg pages (27 + 255 + 255 * 255)
_TAG_BYTES = 128
_PAGE, _HEAD_BYTES, _LAST_PAGE, _MARK_AT, _STREAM = b"OggS", 27, 4, 5, slice(14, 18)


def ends_well(file: BinaryIO, head: bytes, num_bytes: int) -> bool:
    """Whether a file of `num_bytes` that begins with `head` is certainly complete; if False, read all of it
    to find out."""
    if flac_length.is_flac(head):
        return flac_length.has_counted_end(head, _tail(file, num_bytes))
    if head[:4] == _PAGE:
        return _ends_with_last_page(head, _tail(file, num_bytes))
    return _has_promised_size(file, num_bytes)


def _tail(file: BinaryIO, num_bytes: int) -> bytes:
    file.seek(max(num_bytes - _TAIL_BYTES, 0))
    return file.read()


def _ends_with_last_page(head: bytes, tail: bytes) -> bool:
    at = tail.rfind(_PAGE)
    page = tail[at : at + _HEAD_BYTES] if at >= 0 else b""
    if len(page) < _HEAD_BYTES or not page[_MARK_AT] & _LAST_PAGE or page[_STREAM] != head[_STREAM]:
        return False
    body = at + _HEAD_BYTES + page[-1]
    return body + sum(tail[at + _HEAD_BYTES : body]) == len(tail)


def _has_promised_size(file: BinaryIO, num_bytes: int) -> bool:
    """Whether the frames have the size given by the Xing header in the first one; ID3 tags before and after
    them are not counted."""
    begin = mp3_length.begin_of_frames(file)
    file.seek(begin)
    head = file.read(mp3_length.FRAME_BYTES)
    file.seek(max(num_bytes - _TAG_BYTES, 0))
    end = num_bytes - (_TAG_BYTES if file.read(3) == b"TAG" else 0)
    return mp3_length.has_promised_size(head, end - begin)
