"""Audio of wav.scp entries: files, and commands whose output is audio (`sph2pipe ... |`).

A damaged recording is an error and never yields a shorter utterance: a file must contain all audio that its
header counts.
"""

from __future__ import annotations

import io
import os
import re
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.files import pipes
from pyasr.base.system_errors import SystemRefusal
from pyasr.data.audio import audio_headers, audio_sizes, audio_tails, flac_length, shorten, sphere
from pyasr.io.content import check_unpacked, open_file, read_file, readable
from pyasr.io.object_kinds import PEEK_BYTES, kind_of

INT16_SCALE = 32768.0
ONLY = -1
_OFFSET = re.compile(r"(.+):([0-9]{1,18})$")
_NOT_STARTED = (126, 127)  # exit status of bash if a command is not executable or not found
_BLOCK_VALUES = 1 << 20
_HEAD_BYTES = 1 << 16  # first bytes of an audio file in an archive, which include its header
# ratio of decoded to stored bytes; speech in Opus at 6 kbit/s decodes to 256 times its size, with pauses to
# more
_MAX_EXPANSION = 600
_MAX_EXPANSION_FLAC = 6000  # a block of 16384 samples of silence takes 11 bytes
_MAX_EXPANSION_SHORTEN = 2000  # a block of 256 samples of silence takes 5 bits
_MIN_RATE, _MAX_RATE = 100, 1_000_000
_JOINED = "several recordings joined in one file, of which only the first would be read"
# RIFF, its size, WAVE, fmt, its size, code, channels, rate, bytes per second, bytes of a sample of all
# channels, bits, data, its size
_PLAIN_HEAD = struct.Struct("<4sI4s4sIHHIIHH4sI")
_RESAMPLE_TAPER = 0.05  # fraction of the new band over which resampling fades out
_RESAMPLE_PAD_S = 0.05


class UnusableAudio(UserError):
    """A missing or damaged recording. Errors that a table, an installed program or an option can correct are
    plain UserErrors."""


@dataclass(frozen=True)
class AudioAdvice:
    """Advice that ends each message about unusable audio; the defaults are for a data directory."""

    damaged: str = "replace the file or remove its utterances"
    unreadable: str = "replace the file or remove its utterances"  # of an unknown format
    joined: str = (
        "split it into one file per recording, convert it to a single WAV file, or remove its utterances"
    )
    uncounted: str = (
        "rewrite its header, for example by 'sox --ignore-length FILE NEW.wav', or remove its utterances"
    )
    unending: str = "let the command write WAV, or encode the recording again"


def read_audio(rx: str, name: str = "", channel: int = ONLY) -> tuple[np.ndarray, int]:
    """(float32 samples at int16 scale, shape (num_samples,), sampling rate in Hz) of one wav.scp entry.

    rx       a path, `path:offset` into an archive of WAV files, or a command ending in `|` if
             `pyasr.base.files.pipes` permits commands
    name     the recording or utterance, for messages
    channel  the channel to read, 0 is the left one; ONLY: the audio must have a single channel

    Formats are WAV, FLAC, Ogg, MP3, SPHERE, AIFF, AU, W64, RF64 and CAF. Raises UserError, with `name` and
    the file, if the audio is missing, truncated, not audio, lacks the channel, or has several channels but
    one is expected. The error is an UnusableAudio if the recording itself is missing or damaged.
    """
    samples, rate = read_channels(rx, name)
    check_channel(samples.shape[1], channel, _where(rx, name))
    return np.ascontiguousarray(samples[:, max(channel, 0)]), rate


def read_channels(rx: str, name: str = "") -> tuple[np.ndarray, int]:
    """`read_audio` with all channels: (float32 samples, shape (num_samples, num_channels), rate in Hz)."""
    where = _where(rx, name)
    return decode_audio(_content(rx, where), where)


def _where(rx: str, name: str) -> str:
    return f"{name}: {rx}" if name else rx


def check_channel(num_channels: int, channel: int, where: str) -> None:
    """Raise UserError, beginning with `where`, if a recording lacks this channel, or has several channels but
    one is expected."""
    if channel == ONLY and num_channels > 1:
        choices = "0 or 1" if num_channels == 2 else f"0 to {num_channels - 1}"
        by_table = "name the channel of each recording in reco2file_and_channel"
        advice = f"choose one with --channel {choices} of the feature extraction step, or {by_table}"
        raise UserError(f"{where}: {num_channels} channels, expected 1; {advice}")
    if channel >= num_channels:
        raise UserError(
            f"{where}: no channel {channel}, the file has {num_channels}, counted from 0; give another "
            "--channel"
        )


def audio_head(rx: str) -> tuple[int, int] | None:
    """(sampling rate in Hz, number of channels) from the header of a file in wav.scp; None for a command, and
    if they are unknown."""
    if pipes.is_command(rx):
        return None
    import soundfile

    path, offset = _place(rx)
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            head = file.read(_HEAD_BYTES) if os.path.isfile(path) else b""
        if sphere.is_shortened(head):
            return sphere.rate_hz(head), sphere.counts(head)[1]
        with soundfile.SoundFile(io.BytesIO(head)) as audio:
            return audio.samplerate, audio.channels
    except (OSError, soundfile.LibsndfileError, RuntimeError, ValueError):
        return None


def decode_audio(
    content: io.BytesIO, where: str, advice: AudioAdvice = AudioAdvice()
) -> tuple[np.ndarray, int]:
    """(float32 samples at int16 scale, shape (num_samples, num_channels), sampling rate in Hz) of the bytes
    of an audio file.

    Raises UserError, from `where` to `advice`, if they are truncated or not audio.
    """
    if plain := _of_plain_wav(content.getvalue()):
        return plain
    whole = audio_headers.with_size(content.getvalue())
    _check_extent(whole, where, advice)
    samples, rate = (_of_shorten if sphere.is_shortened(whole) else _of_library)(whole, where, advice)
    if not _MIN_RATE <= rate <= _MAX_RATE or not np.isfinite(samples).all():
        what = (
            f"a sampling rate of {rate} Hz"
            if np.isfinite(samples).all()
            else "samples that are NaN or infinite"
        )
        raise UnusableAudio(f"{where}: {what}; {advice.damaged}")
    return samples, rate


def _of_plain_wav(content: bytes) -> tuple[np.ndarray, int] | None:
    """`decode_audio` for WAV files of 16 bits of which the header and all sizes are as most programs write
    them; None for others."""
    if len(content) <= _PLAIN_HEAD.size:
        return None
    numbers = _PLAIN_HEAD.unpack_from(content)
    channels, rate, size = numbers[6], numbers[7], len(content) - _PLAIN_HEAD.size
    formats = 1, channels, rate, 2 * rate * channels, 2 * channels, 16
    is_plain = numbers == (b"RIFF", len(content) - 8, b"WAVE", b"fmt ", 16, *formats, b"data", size)
    if not is_plain or channels not in (1, 2) or size % (2 * channels) or not _MIN_RATE <= rate <= _MAX_RATE:
        return None
    samples = np.frombuffer(content, "<i2", offset=_PLAIN_HEAD.size).astype(np.float32)
    return samples.reshape(-1, channels), rate


def _of_library(content: bytes, where: str, advice: AudioAdvice) -> tuple[np.ndarray, int]:
    """`decode_audio` for the formats that libsndfile reads."""
    import soundfile

    try:
        with soundfile.SoundFile(_ForLibrary(audio_headers.readable(content))) as audio:
            if audio.format not in audio_sizes.FORMS:
                found = f"audio in the format {audio.format}, in which truncation is not detected"
                raise UserError(f"{where}: {found}; convert it to WAV or FLAC")
            rate, promised = audio.samplerate, 0 if flac_length.is_without_audio(content) else audio.frames
            samples = (
                _samples(audio, len(content), where)
                if promised
                else np.zeros((0, audio.channels), np.float32)
            )
    except (soundfile.LibsndfileError, RuntimeError) as error:
        cause = _other_kind(content) or getattr(error, "error_string", str(error)).strip().rstrip(".")
        raise UnusableAudio(f"{where}: not readable as audio ({cause}); {advice.unreadable}") from None
    if len(samples) < promised:
        raise UnusableAudio(
            f"{where}: cut short, {len(samples)} of {promised} samples found; {advice.damaged}"
        )
    return samples * np.float32(INT16_SCALE), rate


def _of_shorten(content: bytes, where: str, advice: AudioAdvice) -> tuple[np.ndarray, int]:
    """`decode_audio` for SPHERE files compressed by shorten. Headers of the first release of Switchboard
    count the samples of all channels together."""
    count, num_channels, _ = sphere.counts(content)
    check_unpacked(4 * count * num_channels, len(content), where, _MAX_EXPANSION_SHORTEN)
    begin = sphere.head_bytes(content)
    try:
        found = shorten.decode(content[begin:], num_channels, sphere.coding(content), count)
    except ValueError as error:
        raise UnusableAudio(f"{where}: {error}; {advice.damaged}") from None
    num = len(found.samples)
    if not found.is_whole:
        raise UnusableAudio(f"{where}: cut short, {num} of {count} samples found; {advice.damaged}")
    if count not in (num, num * num_channels):
        raise UnusableAudio(f"{where}: its header counts {count} samples, but it has {num}; {advice.damaged}")
    if audio_tails.begins_file(content, begin + found.num_bytes):
        raise UnusableAudio(f"{where}: {_JOINED}; {advice.joined}")
    return found.samples.astype(np.float32), sphere.rate_hz(content)


class _ForLibrary(io.BytesIO):
    """A buffer that ignores libsndfile's attempts to seek before the start of some broken files."""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return super().seek(offset, whence) if whence != os.SEEK_SET or offset >= 0 else self.tell()


def _other_kind(content: bytes) -> str:
    """A clause that names the Kaldi object found instead of audio; '' if it is unknown."""
    kind = kind_of(content[:PEEK_BYTES])
    return f"found {kind}" if kind and not kind.endswith(" file") else ""


def _check_extent(content: bytes, where: str, advice: AudioAdvice) -> None:
    """Raise UserError for an audio file that libsndfile would read only partly, or not at all."""
    if audio_sizes.is_flac_stream(content):
        raise UserError(f"{where}: a FLAC stream without its length in the header; {advice.unending}")
    if missing := audio_sizes.missing_audio(content):
        raise UnusableAudio(f"{where}: cut short, {missing}; {advice.damaged}")
    if audio_sizes.is_joined(content):
        raise UnusableAudio(f"{where}: {_JOINED}; {advice.joined}")
    if further := audio_sizes.uncounted_audio(content):
        raise UnusableAudio(f"{where}: {further}; {advice.uncounted}")


def _samples(audio, num_bytes: int, where: str) -> np.ndarray:
    """All samples, (num_samples, num_channels), decoded block by block, since a damaged header may give any
    number of samples."""
    blocks, num_unpacked = [np.zeros((0, audio.channels), np.float32)], 0
    while len(block := audio.read(max(_BLOCK_VALUES // audio.channels, 1), "float32", always_2d=True)):
        blocks.append(block)
        num_unpacked += block.nbytes
        check_unpacked(
            num_unpacked, num_bytes, where, _MAX_EXPANSION_FLAC if audio.format == "FLAC" else _MAX_EXPANSION
        )
    return np.concatenate(blocks)


def _content(rx: str, where: str) -> io.BytesIO:
    """The audio bytes of an entry."""
    if pipes.is_command(rx):
        pipes.admit(rx, where)
        return io.BytesIO(_output_of(rx.rstrip()[:-1], where))
    path, offset = _place(rx)
    if os.path.exists(path) and Path(path).is_fifo():
        raise UserError(
            f"{where}: a named pipe, which can be read once only; give a file, or a command that ends in |"
        )
    try:
        content = read_file(path) if path == rx else _of_archive(path, offset)
    except UserError as error:
        is_gone = not os.path.exists(path) and _is_missing(error)
        kind = UnusableAudio if is_gone or isinstance(error, UnusableAudio) else UserError
        raise kind(f"{where.removesuffix(rx)}{error}; correct wav.scp or remove its utterances") from None
    if not content:
        raise UnusableAudio(f"{where}: the file is empty; replace it or remove its utterances")
    return io.BytesIO(content)


def _place(rx: str) -> tuple[str, int]:
    """(path, offset) of an entry that is not a command; the offset is 0 for a file outside archives."""
    match = _OFFSET.match(rx)
    return (match[1], int(match[2])) if match and not os.path.exists(rx) else (rx, 0)


def _is_missing(error: UserError) -> bool:
    """Whether the file does not exist, as opposed to a file that exists but cannot be read at the moment."""
    return not isinstance(error, SystemRefusal) or error.is_absence


def _of_archive(path: str, offset: int) -> bytes:
    """The bytes of the audio file at `offset`; only as much of the archive is read as the header of the file
    requires.

    Raises UnusableAudio if neither another entry nor the end of the archive follows the bytes that the header
    counts.
    """
    with open_file(path) as archive, readable(path):
        archive.seek(offset)
        head = archive.read(_HEAD_BYTES)
        left = max(os.fstat(archive.fileno()).st_size - archive.tell(), 0)
        promised = audio_sizes.num_bytes(head)
        if promised is None:  # or the header is longer
            most = sphere.most_shortened_bytes(head) - len(head) if sphere.is_shortened(head) else left
            head, left = head + archive.read(max(min(most, left), 0)), 0
            promised = audio_sizes.num_bytes(head)
        if promised is None:
            return head
        promised = _shorter_end(archive, offset, head, promised)
        content = head[:promised] + archive.read(min(max(promised - len(head), 0), left))
        if not audio_tails.begins_entry(_bytes_at(archive, offset + promised)):
            raise UnusableAudio(
                f"{path}:{offset}: its header counts {promised} bytes, but no other file of the archive "
                "begins after them"
            )
    return content


def _shorter_end(archive: BinaryIO, offset: int, head: bytes, promised: int) -> int:
    """`promised`; for a SPHERE file whose header counts all channels together the smaller size, if another
    entry begins after it."""
    shorter, size = audio_sizes.num_bytes_of_all_channels(head), os.fstat(archive.fileno()).st_size
    fits = offset + promised <= size and audio_tails.begins_entry(_bytes_at(archive, offset + promised))
    return (
        shorter
        if shorter and not fits and audio_tails.begins_entry(_bytes_at(archive, offset + shorter))
        else promised
    )


def _bytes_at(archive: BinaryIO, place: int) -> bytes:
    """A few bytes of an archive at `place`; the file position is restored."""
    before = archive.tell()
    archive.seek(place)
    content = archive.read(audio_tails.PEEK_BYTES)
    archive.seek(before)
    return content


def _output_of(command: str, where: str) -> bytes:
    if "\0" in command:
        raise UserError(f"{where}: the command contains a zero byte; correct wav.scp")
    run = subprocess.run(command, shell=True, executable="/bin/bash", capture_output=True)
    if run.returncode:
        message = (run.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        if run.returncode in _NOT_STARTED or b"command not found" in run.stderr:
            raise UserError(
                f"{where}: the command cannot be started ({message}); install its programs, or convert the "
                "recording to a file"
            )
        raise UnusableAudio(
            f"{where}: the command failed with status {run.returncode} ({message}); run it by hand to see why"
        )
    if not run.stdout:
        raise UnusableAudio(f"{where}: the command wrote no audio; run it by hand to see why")
    return run.stdout


def resample(samples: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """`samples` (num_samples,) at `rate` Hz resampled to `new_rate` Hz: float32
    (ceil(num_samples * new_rate / rate),).

    Band-limited interpolation: the spectrum of the whole (zero-padded) signal is cut at the lower of the two
    Nyquist frequencies, with a raised-cosine edge below it that reduces ringing, and transformed back on the
    new grid. It causes no delay and no aliasing.
    """
    if rate == new_rate:
        return samples.astype(np.float32, copy=False)
    common = np.gcd(rate, new_rate)
    up, down = new_rate // common, rate // common
    num_blocks = -(-(len(samples) + int(_RESAMPLE_PAD_S * rate)) // down)
    spectrum = np.fft.rfft(samples, num_blocks * down)
    num_bins = num_blocks * min(up, down) // 2 + 1
    kept = np.zeros(num_blocks * up // 2 + 1, dtype=spectrum.dtype)
    position = np.arange(num_bins) / (num_bins - 1)
    edge = np.clip((1 - position) / _RESAMPLE_TAPER, 0, 1)
    kept[:num_bins] = spectrum[:num_bins] * (0.5 - 0.5 * np.cos(np.pi * edge)) * (up / down)
    return np.fft.irfft(kept, num_blocks * up)[: -(-len(samples) * up // down)].astype(np.float32)


def write_audio(path: Path, samples: np.ndarray, rate: int) -> None:
    """Write float32 `samples` at int16 scale as 16-bit WAV or FLAC, by the suffix of `path`. Samples beyond
    16 bits are clipped."""
    import soundfile

    whole, content = np.clip(np.rint(samples), -32768, 32767).astype(np.int16), io.BytesIO()
    soundfile.write(content, whole, rate, subtype="PCM_16", format=Path(path).suffix[1:])
    Path(path).write_bytes(content.getbuffer())  # soundfile does not report a full disk
