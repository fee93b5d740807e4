"""Length of recordings, from the headers of their files."""

from __future__ import annotations

import os

from pyasr.data.audio import audio_sizes, flac_length, sphere
from pyasr.data.audio.audio_checks import has_declared_size
from pyasr.data.audio.audio_reading import read_audio

_HEAD_BYTES = 1 << 16


def seconds_of(path: str | os.PathLike) -> float:
    """Seconds of an audio file, the same for each channel. They are read from the header if it gives the
    length and the file has the size that the header implies; otherwise the file is decoded.

    A SPHERE header may count the samples of all channels together, as in the first release of Switchboard;
    the count of a file compressed by shorten is taken as that of one channel. Truncation of the latter is
    detected from its last bytes (`pyasr.data.audio.shorten.seems_complete`).

    Raises UnusableAudio if the file is missing, truncated or not audio.
    """
    seconds = _by_header(os.fspath(path))
    if seconds is None:
        samples, rate = read_audio(os.fspath(path), channel=0)
        seconds = len(samples) / rate
    return seconds


def _by_header(path: str) -> float | None:
    """Seconds; None if the header does not give the length."""
    if not os.path.isfile(path) or not has_declared_size(path):
        return None
    with open(path, "rb") as file:
        head, num_bytes = file.read(_HEAD_BYTES), os.fstat(file.fileno()).st_size
    if sphere.is_sphere(head):
        rate = sphere.rate_hz(head)
        return _num_of_sphere(head, num_bytes) / rate if rate else None
    return (
        _by_library(path)
        if audio_sizes.num_bytes(head) or flac_length.is_flac(head) and flac_length.num_declared_samples(head)
        else None
    )


def _num_of_sphere(head: bytes, num_bytes: int) -> float:
    """Samples per channel of a SPHERE file that begins with `head` and has `num_bytes` bytes."""
    count, num_channels, _ = sphere.counts(head)
    return count / num_channels if num_bytes == audio_sizes.num_bytes_of_all_channels(head) else count


def _by_library(path: str) -> float | None:
    import soundfile

    try:
        with soundfile.SoundFile(path) as audio:
            return audio.frames / audio.samplerate
    except (soundfile.LibsndfileError, RuntimeError, ZeroDivisionError):
        return None  # harmless: decoding the file reports the error
