"""How much of a rank's memory its frames may take, and whether so much is free: found out before any of it is taken."""

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

ALIGNMENT_BYTES = 4  # of a frame, in memory all the time
_FRAME_BYTES, _MOST_BYTES = 80, 1_000_000_000  # for features by pdf unless the user says otherwise
_SMALL_BYTES = 128_000_000  # so much is taken however few frames there are
_LEAST_BYTES = 2_000_000  # a block of features
_SHARE = 0.8  # of what is free beside the alignment
_MB = 1_000_000


@dataclass(frozen=True)
class MemoryOptions:
    """How much memory a rank's frames may take."""

    max_store_mb: int = option(0, "memory for a rank's frames; what does not fit is read from disk in each iteration; "
                                  "0: 84 bytes a frame, 128 to 1000 MB", minimum=0)  # fmt: skip


def reserve(data: Path, num_frames: int, options: MemoryOptions, comm, kept_bytes: int = ALIGNMENT_BYTES) -> int:
    """Bytes for features beside what is kept of each of this rank's frames, its alignment. Every rank must call this.

    Logs what a rank takes, and takes less where less is free. Raises UserError where the limit, or what is free for each rank
    of this host, is not enough for what is kept and a block of features.
    """
    kept = kept_bytes * num_frames
    room = _wanted(num_frames, kept, options)
    num_sharing, free = comm.split_by_host().size, host_memory.free_bytes()
    if free is not None and kept + room > free / num_sharing:
        room = _within(free / num_sharing, data, num_frames, kept)
    total, most = comm.reduce_scalar(num_frames), comm.reduce_scalar(kept + room, "max")
    if comm.rank == 0:
        log.info(f"{total:.0f} frames: up to {figure(most / _MB)} MB of a rank's memory")
    return room


def _wanted(num_frames: int, kept: int, options: MemoryOptions) -> int:
    if not options.max_store_mb:
        return min(max(_FRAME_BYTES * num_frames, _SMALL_BYTES), _MOST_BYTES)
    room = _MB * options.max_store_mb - kept
    if room < _LEAST_BYTES:
        found = f"too little for what is kept of {num_frames} frames and a block of features"
        raise UserError(f"--max-store-mb {options.max_store_mb} is {found}; give {-(-(kept + _LEAST_BYTES) // _MB)} or more")
    return room


def _within(free: float, data: Path, num_frames: int, kept: int) -> int:
    """The room for features where `free` bytes are less than what was wanted."""
    room = int(_SHARE * (free - kept))
    if room < _LEAST_BYTES:
        needed = f"{num_frames} frames of a rank take at least {figure((kept + _LEAST_BYTES) / _MB)} MB"
        raise UserError(f"{data}: memory is not enough: {needed}, {figure(max(free, 0) / _MB)} MB are free for each rank; "
                        "give more ranks on more hosts (--nj), or a limit of memory that is higher")
    log.warning(f"{data}: {figure(free / _MB)} MB of memory are free for each rank: features take {figure(room / _MB)} MB, "
                "and are read from disk more often")
    return room


def zeros(shape: tuple[int, ...], dtype, room: int, folder: Path) -> np.ndarray:
    """An array of zeros in memory, or, where it takes more than `room` bytes, in a mapped file on the disk of `folder`, which goes
    with the array.

    Raises OSError where the disk has no room for it.
    """
    num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if num_bytes <= room:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, num_bytes)  # else a full disk would end the process at a write
        return np.memmap(file, dtype, "r+", shape=shape)
