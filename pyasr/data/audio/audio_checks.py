"""Check that recordings exist and are complete, from headers and last bytes or by reading them to the end."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import BinaryIO

from pyasr.base.errors import UserError
from pyasr.base.files import pipes
from pyasr.data.audio import audio_ends, audio_headers, audio_sizes, audio_tails, shorten, sphere
from pyasr.data.audio.audio_reading import AudioAdvice, UnusableAudio, read_channels
from pyasr.data.audio.channels import pick
from pyasr.io.ark import archive_of
from pyasr.io.content import open_file, readable

_HEAD_BYTES, _MAX_TAIL_BYTES = 4096, 1 << 20
_WITH_SIZES = (b"RIFF", b"RIFX", b"RF64", b"riff", b"FORM", b"caff", b".snd", b"NIST")
_WITHOUT_SIZES = re.compile(rb"fLaC|OggS|ID3|\xff[\xe2-\xfb]")
_SHORTEN_TAIL_BYTES = 8
_ALIGNMENT = 512  # a multiple of the alignment of chunks after the audio in all formats


@dataclass(frozen=True)
class Look:
    """The result of checking a recording."""

    complaint: str = ""  # '' if nothing is wrong
    seconds: float | None = None  # None if the recording was not read
    rate: int = 0  # sampling rate in Hz; 0 if the recording was not read
    by_hand: str = ""  # what the user has to do if the recording itself may be intact


def inspect_audio(rx: str, how: str, label: str = "") -> Look:
    """Check the audio of `rx`, an entry of wav.scp.

    label  channel named by `reco2file_and_channel`; without one, 'read' complains about a file of several
           channels
    how    'no': no check; 'exists': the file exists, and has the size or the end that its header implies;
           'read': the file can be read to its end
    """
    if how == "no" or how == "exists" and pipes.is_command(rx):
        return Look()
    if how == "read":
        return _read(rx, label)
    if not os.path.isfile(rx):
        return Look() if os.path.exists(rx) or os.path.exists(archive_of(rx)) else Look("no such audio file")
    try:
        if has_declared_size(rx):
            return Look()
    except UserError as error:
        return Look(str(error).removeprefix(f"{rx}: "), by_hand="make the file readable")
    found = _read(rx, label)
    return Look(found.complaint, by_hand=found.by_hand)


def _read(rx: str, label: str) -> Look:
    try:
        samples, rate = read_channels(rx)
        pick(samples.shape[1], label, rx)
    except UserError as error:
        complaint, _, advice = str(error).removeprefix(f"{rx}: ").rpartition("; ")
        if advice == AudioAdvice.uncounted:  # the recording may be complete, and the fix would remove it
            complaint += f"; to keep it, {advice.partition(', or ')[0]}"
        return Look(complaint, by_hand="" if isinstance(error, UnusableAudio) else advice)
    return Look(seconds=len(samples) / rate, rate=rate)


def has_declared_size(path: str) -> bool:
    """Whether an audio file has the size that its header gives or, in formats without such a size, is
    complete by its last bytes.

    Reads the first bytes of the file; the last ones only in these formats and if something follows the audio.
    If False, read all of it to find out whether it is complete.
    """
    with open_file(path) as file, readable(path):
        head, num_bytes = file.read(_HEAD_BYTES), os.fstat(file.fileno()).st_size
        if head[:4] not in _WITH_SIZES:
            return bool(_WITHOUT_SIZES.match(head)) and audio_ends.ends_well(file, head, num_bytes)
        if sphere.is_shortened(head):
            return _is_complete_stream(file, head, num_bytes)
        begin, size = audio_sizes.promised(head)
        if not begin or size < 0:
            return audio_headers.is_of_stream(head)
        end = begin + size
        if num_bytes in (end, audio_sizes.num_bytes_of_all_channels(head)):
            return True
        if not end < num_bytes <= end + _MAX_TAIL_BYTES:
            return False
        file.seek(end)
        at = _ALIGNMENT + end % _ALIGNMENT
        return audio_tails.is_tail(head[:4].ljust(at, b"\0") + file.read(), at)


def _is_complete_stream(file: BinaryIO, head: bytes, num_bytes: int) -> bool:
    """The same for a SPHERE file compressed by shorten."""
    begin = sphere.head_bytes(head)
    if not shorten.is_stream(head[begin:]) or sphere.counts(head)[0] == 0:
        return False
    file.seek(max(begin, num_bytes - _SHORTEN_TAIL_BYTES))
    return shorten.seems_complete(file.read(), num_bytes - begin)
