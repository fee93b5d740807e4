"""Audio files of all formats with modified headers that count another number of samples than the file has."""

import io
import re
import struct

import numpy as np
import soundfile

FORMS = ("WAV", "RIFX", "RF64", "W64", "AIFF", "AU", "CAF", "NIST", "FLAC", "MP3")
NUM_SAMPLES, RATE = 8000, 8000


def samples(num_channels: int = 1, num: int = NUM_SAMPLES) -> np.ndarray:
    """Random samples, int16 (num, num_channels)."""
    return np.random.default_rng(0).integers(-3000, 3000, (num, num_channels)).astype(np.int16)


def encoded(form: str, values: np.ndarray) -> bytes:
    """A file written by libsndfile."""
    file = io.BytesIO()
    coding = "MPEG_LAYER_III" if form == "MP3" else "PCM_16"
    soundfile.write(
        file, values, RATE, coding, "BIG" if form == "RIFX" else None, "WAV" if form == "RIFX" else form
    )
    return file.getvalue()


def counted(form: str, content: bytes, num_bytes: int) -> bytes:
    """The file with another number of bytes of audio in its header."""
    if form == "FLAC":
        return of_flac(content, num_bytes // 2)
    if form == "MP3":
        at = max(content.find(b"Info"), content.find(b"Xing"))
        frames, whole = struct.unpack_from(">II", content, at + 8)
        share = num_bytes / (2 * NUM_SAMPLES)
        return (
            content[: at + 8]
            + struct.pack(">II", int(frames * share), int(whole * share))
            + content[at + 16 :]
        )
    if form == "NIST":
        head = re.sub(rb"sample_count -i [0-9]+", b"sample_count -i %d" % (num_bytes // 2), content[:1024])
        return head[:1024].ljust(1024, b"\0") + content[1024:]
    at, number = {
        "WAV": (content.find(b"data") + 4, struct.pack("<I", num_bytes)),
        "RIFX": (content.find(b"data") + 4, struct.pack(">I", num_bytes)),
        "RF64": (content.find(b"ds64") + 16, struct.pack("<q", num_bytes)),
        "W64": (content.find(b"data") + 16, struct.pack("<q", num_bytes + 24)),
        "AIFF": (content.find(b"SSND") + 4, struct.pack(">I", num_bytes + 8)),
        "AU": (8, struct.pack(">I", num_bytes)),
        "CAF": (content.find(b"data") + 4, struct.pack(">q", num_bytes + 4)),
    }[form]
    return content[:at] + number + content[at + len(number) :]


def of_flac(content: bytes, num_samples: int) -> bytes:
    """A FLAC file with the given number of samples in its header (RFC 9639, 8.2)."""
    report = int.from_bytes(content[18:26], "big") >> 36 << 36 | num_samples
    return content[:18] + report.to_bytes(8, "big") + content[26:]


def without_xing(content: bytes) -> bytes:
    """An MP3 file of MPEG 2 without the frame that has the Xing header."""
    return content[content.index(content[:2], 4) :]


def chunk(form: str, name: bytes, body: bytes) -> bytes:
    """A chunk that may follow the audio in files of this format; b"" if the format has no chunks."""
    if form == "W64":
        return (name + bytes(12) + struct.pack("<q", len(body) + 24) + body).ljust(
            24 + len(body) + -len(body) % 8, b"\0"
        )
    kind = {"WAV": "<4sI", "RF64": "<4sI", "RIFX": ">4sI", "AIFF": ">4sI", "CAF": ">4sq"}.get(form)
    filling = b"" if form == "CAF" else bytes(len(body) % 2)
    return struct.pack(kind, name, len(body)) + body + filling if kind else b""
