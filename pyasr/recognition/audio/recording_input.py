"""Read recordings: files of any rate and number of channels, samples in memory, raw samples from a pipe."""

from __future__ import annotations

import io
import os
import wave
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError, printable
from pyasr.base.memory_errors import enough_for
from pyasr.data.audio import audio_tails
from pyasr.data.audio.audio_reading import INT16_SCALE, AudioAdvice, decode_audio
from pyasr.data.audio.audio_sizes import is_of_stream
from pyasr.io.content import read_file

SUFFIXES = (
    ".wav",
    ".flac",
    ".ogg",
    ".oga",
    ".opus",
    ".mp3",
    ".sph",
    ".aif",
    ".aiff",
    ".au",
    ".w64",
    ".rf64",
    ".caf",
)
# unsupported audio formats
OTHER_SUFFIXES = (".m4a", ".mp4", ".aac", ".amr", ".3gp", ".webm", ".mka", ".wma", ".ape", ".wv")
MIX, EACH = CHANNELS = ("mix", "each")
_ADVICE = AudioAdvice(
    damaged="replace the file",
    unreadable="convert it, for example with 'ffmpeg -i FILE -f wav - | utils/transcribe.py MODEL -'",
    joined="split it into one file each, or join them into one WAV file",
    uncounted="rewrite its header, for example with 'sox --ignore-length FILE NEW.wav'",
    unending="encode it as a WAV or FLAC file",
)
_TOO_LONG = (
    "cut it into shorter ones, or stream it, for example with 'ffmpeg -i FILE -f wav - | "
    "utils/transcribe.py --stream true MODEL -'"
)
# memory for a block is allocated before it is read, whatever its header says
_BLOCK_S, _MAX_BLOCK_BYTES = 0.1, 1 << 20
_MAX_FLOAT = 256.0  # 48 dB above full scale
_MAX_TAIL_BYTES = 1 << 20  # of other chunks that are examined
_EXTENSIBLE, _EXTENSIBLE_BYTES, _SKIPPED_BYTES = b"\xfe\xff", 40, 1 << 16
# KSDATAFORMAT_SUBTYPE_PCM in the extension of a header
_PCM = bytes.fromhex("0100000000001000800000aa00389b71")


@dataclass(frozen=True)
class Recording:
    """One channel: float32 `samples` (num_samples,) at int16 scale, `rate` in Hz; channels count from 1."""

    file: str
    channel: str
    samples: np.ndarray
    rate: float


def find_audio(paths: tuple[Path, ...]) -> list[tuple[Path, Path]]:
    """(file or pipe, folder) for the given files and pipes, and for all audio files below the given
    directories, sorted by name. `-` stays.

    The folder is relative to the given directory, `.` for a given file. Links to folders are followed; a
    folder counts once, under its real path if that is below the directory, too. A warning lists audio in
    unsupported formats.

    Raises UserError for a missing path, an unreadable folder and a directory without audio.
    """
    found: list[tuple[Path, Path]] = []
    for path in paths:
        if str(path) == "-" or path.is_file() or path.is_fifo():
            found.append((path, Path()))
            continue
        if not path.is_dir():
            fault = (
                "a device; give a file, or - for standard input"
                if path.exists()
                else "no such file or directory"
            )
            raise UserError(f"{path}: {fault}")
        files = sorted(
            file
            for file in _files_below(path)
            if file.suffix.lower() in SUFFIXES + OTHER_SUFFIXES and file.is_file()
        )
        inside = [file for file in files if file.suffix.lower() in SUFFIXES]
        if other := [file for file in files if file.suffix.lower() in OTHER_SUFFIXES]:
            message = f"{path}: skipped {len(other)} files in unsupported formats (the first is {other[0]})"
            log.warning(printable(f"{message}; convert them, for example with 'ffmpeg -i FILE FILE.wav'"))
        if not inside:
            raise UserError(
                f"{path}: no audio in this directory (files that end in {', '.join(SUFFIXES)}); give the "
                "files"
            )
        found += [(file, file.parent.relative_to(path)) for file in inside]
    return found


def _files_below(path: Path) -> Iterator[Path]:
    seen, links = set(), [path]
    while links:
        for folder, names, files in os.walk(links.pop(0), onerror=_refuse):
            if (real := os.path.realpath(folder)) in seen:
                names.clear()
                continue
            seen.add(real)
            yield from (Path(folder, name) for name in files)
            names.sort()
            # `walk` does not follow these
            links += [Path(folder, name) for name in names if os.path.islink(Path(folder, name))]


def _refuse(error: OSError) -> None:
    raise UserError(f"{error.filename}: {error.strerror}; make the folder readable, or give the files")


def read_recordings(path: Path, channels: str = MIX) -> list[Recording]:
    """The channels of an audio file, or their mean. Raises UserError for a file that is missing, damaged, not
    audio or too long for memory, and for a device."""
    with within_memory(str(path)):
        return split_channels(
            Path(path).name, *decode_audio(io.BytesIO(read_file(path)), str(path), _ADVICE), channels
        )


def of_bytes(content: bytes, name: str, channels: str = MIX) -> list[Recording]:
    """`read_recordings` for the bytes of an audio file."""
    return split_channels(name, *decode_audio(io.BytesIO(content), name, _ADVICE), channels)


def within_memory(name: str) -> AbstractContextManager:
    """Context for the use of a whole recording with this name; raises UserError if memory runs out."""
    return enough_for(name, "the whole recording", _TOO_LONG)


def of_raw(content: bytes, name: str, rate: int) -> Recording:
    """One channel of 16-bit samples, little-endian. Raises UserError for an incomplete sample."""
    if len(content) % 2:
        found = f"{len(content)} bytes are not a whole number of 16-bit samples"
        raise UserError(f"{name}: {found}; give raw samples, or omit --raw-rate")
    return Recording(name, "1", np.frombuffer(content, "<i2").astype(np.float32), rate)


def split_channels(name: str, samples: np.ndarray, rate: int, channels: str) -> list[Recording]:
    """The channels of (num_samples, num_channels), or their mean."""
    if channels == MIX or samples.shape[1] == 1:
        return [Recording(name, "1", samples.mean(1, dtype=np.float32), rate)]
    return [
        Recording(name, str(number), np.ascontiguousarray(samples[:, number - 1]), rate)
        for number in range(1, samples.shape[1] + 1)
    ]


def file_blocks(path: Path) -> tuple[str, float, Iterator[np.ndarray]]:
    """(name, rate, blocks of floats between -1 and 1) of a file; channels are averaged."""
    (recording,) = read_recordings(path)
    samples = recording.samples / np.float32(INT16_SCALE)
    size = max(round(_BLOCK_S * recording.rate), 1)
    return (
        recording.file,
        recording.rate,
        (samples[begin : begin + size] for begin in range(0, len(samples), size)),
    )


class Readable(Protocol):
    """A pipe or a binary file."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; none at the end."""


def live_blocks(file: Readable, raw_rate: int | None = None) -> tuple[str, int, Iterator[np.ndarray]]:
    """`file_blocks` for a pipe, as data arrives: 16-bit WAV or, with `raw_rate`, raw samples of one channel.
    Raises UserError otherwise."""
    if raw_rate:
        return "stdin", raw_rate, _blocks_of(lambda num: file.read(2 * num), raw_rate, 1)
    try:
        audio = wave.open(_Streamed(file), "rb")  # type: ignore[call-overload]
    except EOFError:
        raise UserError(
            "stdin: standard input is empty, or ends within the header of a WAV stream; pipe audio into it"
        ) from None
    except wave.Error as error:
        raise UserError(
            f"stdin: not a WAV stream ({error}); give --raw-rate for raw samples, or omit --stream"
        ) from None
    if audio.getsampwidth() != 2:
        raise UserError(
            f"stdin: samples of {8 * audio.getsampwidth()} bits; a stream needs 16 bits, as from 'sox FILE "
            "-b 16 -t wav -'"
        )
    num_bytes = 2 * audio.getnchannels()
    size = audio.getnframes() * num_bytes
    has_length = size and not is_of_stream(size)
    # without a length, to the end of the pipe
    read = audio.readframes if has_length else lambda num: file.read(num * num_bytes)
    blocks = _blocks_of(read, audio.getframerate(), audio.getnchannels())
    return "stdin", audio.getframerate(), _until_tail(blocks, file, size) if has_length else blocks


def _until_tail(blocks: Iterator[np.ndarray], file: Readable, num_bytes: int) -> Iterator[np.ndarray]:
    """The blocks of `num_bytes` bytes of audio. Raises UserError if anything except other chunks follows in
    `file`."""
    yield from blocks
    rest = file.read(_MAX_TAIL_BYTES)
    if not audio_tails.is_tail_of_wav(rest):
        found = (
            f"its header declares {num_bytes} bytes of audio, but further bytes follow that are not "
            "other chunks"
        )
        raise UserError(
            f"stdin: {found}; rewrite the header, for example with 'sox --ignore-length FILE -t wav -'"
        )


class _Streamed:
    """A WAV stream for the module `wave`: begins with the chunk `fmt `, in which plain PCM replaces an
    extensible header.

    Its chunk RIFF has the maximum size, because a program that writes into a pipe does not know the size.
    """

    def __init__(self, file: Readable):
        self._file = file
        begin = file.read(12)
        self._begin = begin[:4] + b"\xff" * len(begin[4:8]) + begin[8:]
        if begin[:4] == b"RIFF" and begin[8:] == b"WAVE":
            self._begin += _format_chunk(file)

    def read(self, size: int = -1) -> bytes:
        begin, self._begin = self._begin[:size], self._begin[len(self._begin[:size]) :]
        return begin or self._file.read(size)


def _format_chunk(file: Readable) -> bytes:
    """The head of the chunk `fmt `, up to the fields on the samples; chunks before it are skipped."""
    while (head := file.read(8))[:4] not in (b"fmt ", b"data", b""):
        left = int.from_bytes(head[4:], "little")
        left += left % 2
        while skipped := len(file.read(min(left, _SKIPPED_BYTES))):
            left -= skipped
    if head[:4] != b"fmt ":
        return head
    kind = file.read(min(int.from_bytes(head[4:], "little"), _EXTENSIBLE_BYTES))
    is_plain = kind[:2] == _EXTENSIBLE and kind[24:] == _PCM
    return head + (_PCM[:2] + kind[2:] if is_plain else kind)


def _blocks_of(read, rate: int, num_channels: int) -> Iterator[np.ndarray]:
    """Blocks from `read`, a function of a number of samples, until it returns nothing."""
    size = max(min(round(_BLOCK_S * rate), _MAX_BLOCK_BYTES // (2 * num_channels)), 1)
    while content := read(size):
        whole = np.frombuffer(content[: len(content) // (2 * num_channels) * (2 * num_channels)], "<i2")
        yield whole.reshape(-1, num_channels).mean(1, dtype=np.float32) / np.float32(INT16_SCALE)


def at_int16_scale(samples) -> np.ndarray:
    """A caller's samples as float32 at int16 scale: 16-bit integers, their bytes, or floats with full scale
    1.0.

    Raises UserError for another type, a shape other than (num_samples,), and floats that are not finite or at
    integer scale.
    """
    if isinstance(samples, (bytes, bytearray, memoryview)):
        return of_raw(bytes(samples), "the samples", 0).samples
    samples = np.asarray(samples)
    if samples.ndim != 1:
        raise UserError(f"samples of shape {samples.shape}; give one channel, of shape (number of samples,)")
    if samples.dtype == np.int16:
        return samples.astype(np.float32)
    if samples.dtype.kind != "f":
        raise UserError(f"samples of type {samples.dtype}; give int16, or floats between -1 and 1")
    if not np.isfinite(samples).all():
        raise UserError("samples that are not finite numbers; check their source")
    if (most := np.abs(samples).max(initial=0.0)) > _MAX_FLOAT:
        raise UserError(f"samples of up to {most:g}; give floats between -1 and 1, or whole numbers as int16")
    return samples.astype(np.float32) * np.float32(INT16_SCALE)
