"""Memory limit of a rank's frames, checked against the free memory before any of it is allocated."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.base.figures import figure
from pyasr.base.host import host_memory

ALIGNMENT_BYTES = 4  # per frame, always in memory
_FRAME_BYTES, _MAX_BYTES = 80, 1_000_000_000  # default limit of features sorted by pdf: per frame, in total
_SMALL_BYTES = 128_000_000  # minimum of the default limit
_MIN_BYTES = 2_000_000  # a block of features
_SHARE = 0.8  # of the memory that the alignment leaves free
_MB = 1_000_000


@dataclass(frozen=True)
class MemoryOptions:
    """Memory limit of a rank's frames."""

    heading = "resources"

    max_store_mb: int = option(
        0,
        "memory of a rank for frames, MB; frames that do not fit are read from disk in each "
        "iteration; 0: 84 bytes per frame, but 128 to 1000 MB",
        minimum=0,
    )


def reserve(
    data: Path, num_frames: int, options: MemoryOptions, comm, kept_bytes: int = ALIGNMENT_BYTES
) -> int:
    """Bytes for features, in addition to `kept_bytes` for each of this rank's frames (its alignment). Every
    rank must call this.

    Logs the memory of a rank. The result is smaller than the limit if less memory is free. Raises UserError
    if the limit, or the memory that is free for each rank of this host, is too small for the kept bytes and a
    block of features.
    """
    kept = kept_bytes * num_frames
    room = _wanted(num_frames, kept, options)
    num_sharing, free = comm.split_by_host().size, host_memory.free_bytes()
    if free is not None and kept + room > free / num_sharing:
        room = _within(free / num_sharing, data, num_frames, kept)
    total, most = comm.reduce_scalar(num_frames), comm.reduce_scalar(kept + room, "max")
    if comm.rank == 0:
        log.info(f"{total:.0f} frames: up to {figure(most / _MB)} MB of memory per rank")
    return room


def _wanted(num_frames: int, kept: int, options: MemoryOptions) -> int:
    if not options.max_store_mb:
        return min(max(_FRAME_BYTES * num_frames, _SMALL_BYTES), _MAX_BYTES)
    room = _MB * options.max_store_mb - kept
    if room < _MIN_BYTES:
        found = f"too little for {num_frames} frames and a block of features"
        raise UserError(
            f"--max-store-mb {options.max_store_mb} is {found}; give {-(-(kept + _MIN_BYTES) // _MB)} or more"
        )
    return room


def _within(free: float, data: Path, num_frames: int, kept: int) -> int:
    """Bytes for features if only `free` bytes are available, fewer than the limit."""
    room = int(_SHARE * (free - kept))
    if room < _MIN_BYTES:
        needed = f"{num_frames} frames of a rank need at least {figure((kept + _MIN_BYTES) / _MB)} MB"
        raise UserError(
            f"{data}: too little memory: {needed}, but {figure(max(free, 0) / _MB)} MB are free for each "
            "rank; use more ranks on more hosts (--nj), or raise the memory limit of the job"
        )
    log.warning(
        f"{data}: only {figure(free / _MB)} MB of memory are free for each rank: features use "
        f"{figure(room / _MB)} MB and are read from disk more often"
    )
    return room


def zeros(shape: tuple[int, ...], dtype, room: int, folder: Path) -> np.ndarray:
    """An array of zeros, in memory or, if it is larger than `room` bytes, in a memory-mapped temporary file
    in `folder`, which is deleted with the array.

    Raises OSError if the disk is full.
    """
    num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if num_bytes <= room:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        # otherwise a write to a full disk would kill the process
        os.posix_fallocate(file.fileno(), 0, num_bytes)
        return np.memmap(file, dtype, "r+", shape=shape)
