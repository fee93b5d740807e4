r"""A writer of TensorBoard event files that does not need TensorBoard.

    with EventWriter(Path("exp/dnn/tensorboard"), first_step=0) as events:
        events.add(200_000, {"train/objective": -2.31, "learning_rate": 0.1})

An event file is a sequence of little-endian records (TensorFlow's TFRecord):

    uint64 length | uint32 masked CRC-32C of the length | content | uint32 masked CRC-32C of the content
    mask(c) = ((c >> 15 | c << 17) + 0xa282ead8) mod 2^32

whose contents are protocol buffers, of which these fields are written (TensorFlow's event.proto and
summary.proto):

    Event       1: double wall_time (s)   2: int64 step   3: string file_version   5: Summary summary
                7: SessionLog session_log
    Summary     1: repeated Value         Value  1: string tag   2: float simple_value
    SessionLog  1: enum status (1: START)

A file begins with the version "brain.Event:2", then a session log. The session log makes TensorBoard drop
later steps of earlier files in the directory, as needed when a job resumes from a checkpoint.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

from pyasr.base import protobuf
from pyasr.base.system_errors import keeping_name

_POLYNOMIAL = 0x82F63B78  # CRC-32C (Castagnoli), bits reversed


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC-32C of `data`."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """Masked CRC-32C of `data`, as stored in records."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(content: bytes) -> bytes:
    """One record of an event file."""
    length = struct.pack("<Q", len(content))
    return (
        length
        + struct.pack("<I", masked_crc32c(length))
        + content
        + struct.pack("<I", masked_crc32c(content))
    )


def _event(step: int, what: bytes) -> bytes:
    numbered = protobuf.integer(2, step) if step else b""  # protocol buffers omit fields that are 0
    return protobuf.double(1, time.time()) + numbered + what


def _value(tag: str, number: float) -> bytes:
    return protobuf.content(1, tag) + protobuf.single(2, number)


class EventWriter:
    """One event file in `directory`, for scalars from `first_step` on. Each call of `add` writes to the file
    at once."""

    def __init__(self, directory: Path, first_step: int):
        directory.mkdir(parents=True, exist_ok=True)
        # read in the order of names
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = (directory / name).open("wb", buffering=0)
        self._write(_event(0, protobuf.content(3, "brain.Event:2")))
        self._write(_event(first_step, protobuf.content(7, protobuf.integer(1, 1))))

    def add(self, step: int, scalars: dict[str, float]) -> None:
        """Write the scalars of a step; a tag such as `train/objective` is a curve in the group `train`."""
        values = b"".join(protobuf.content(1, _value(tag, number)) for tag, number in scalars.items())
        self._write(_event(step, protobuf.content(5, values)))

    def _write(self, content: bytes) -> None:
        with keeping_name(self._file.name):
            self._file.write(record(content))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *_) -> None:
        self.close()
