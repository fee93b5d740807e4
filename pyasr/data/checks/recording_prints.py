"""Detection of replaced recordings: DATA/.recordings has digests of all recordings, and done-files of outputs
computed from audio have the fingerprint of this file.

    RECORDING DIGEST               digest of its size and a few blocks, not of its times; none for commands,
                                   whose output is unknown
    RECORDING DIGEST:CHANNEL       the same for one of several channels of a file, by `reco2file_and_channel`;
                                   the first channel is 0
    reco2distortion:PATH DIGEST    digest of an impulse response or a noise that is applied to recordings, its
                                   blanks as %20
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from urllib.parse import quote

from pyasr.base import log
from pyasr.base.files.pipes import is_command
from pyasr.base.system_errors import is_absence, keeping_name
from pyasr.data.audio.audio_reading import ONLY
from pyasr.data.audio.channels import named_channels
from pyasr.data.tables.datadir import DISTORTION, DataDir
from pyasr.io.tables import Table
from pyasr.io.text_tables import write_table

PRINTS_FILE = ".recordings"
_BLOCK_BYTES, _NUM_BLOCKS = 1 << 12, 4
_THREADS, _AT_ONCE, _BLOCK, _MAX_NAMED = 8, 64, 4096, 5
_MISSING = "missing"


@contextlib.contextmanager
def recording_prints(data: Path, channel: int = ONLY) -> Iterator[list[Path]]:
    """Update DATA/.recordings to the present recordings; yields [DATA/.recordings], to be added to the inputs
    of an output that is computed from them.

    channel  the channel of all recordings, or ONLY if `reco2file_and_channel` may name it

    If the block raises, the previous file is restored. Yields [] if DATA is not writable.
    """
    path = Path(data) / PRINTS_FILE
    if not os.access(data, os.W_OK):
        yield []
        return
    before, now = Table.read(path) if path.exists() else {}, _prints_of(DataDir(data), channel)
    replaced = [name for name, message in now.items() if before.get(name, message) != message]
    if replaced:
        named = ", ".join(replaced[:_MAX_NAMED]) + (" ..." if len(replaced) > _MAX_NAMED else "")
        log.info(f"{data}: {len(replaced)} recordings have changed: {named}")
    write_table(path, now)
    try:
        yield [path]
    except BaseException:
        if before:
            write_table(path, before)
        else:
            path.unlink(missing_ok=True)
        raise


def _prints_of(data: DataDir, channel: int) -> Table:
    channels = named_channels(data) if channel == ONLY and data.has("wav.scp") else {}
    return Table.of(
        (name, f"{message}:{channels[name]}" if name in channels else message)
        for name, message in prints(audio_of(data))
    )


def audio_of(data: DataDir) -> Iterator[tuple[str, str]]:
    """(name in DATA/.recordings, entry) of all audio that is read for the recordings of a data directory."""
    sources = {source for found in data.reco2distortion.values() for source in found.sources}
    yield from data.wav_scp.items() if data.has("wav.scp") else ()
    yield from ((f"{DISTORTION}:{quote(source, safe='/')}", source) for source in sorted(sources))


def prints(audio: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """(name, digest) of the (name, entry) pairs that are files."""
    files = ((name, rx.strip()) for name, rx in audio if not is_command(rx))
    with ThreadPoolExecutor(_THREADS) as pool:  # files on a network are read concurrently
        while found := list(islice(files, _BLOCK)):
            parts = [[place for _, place in found[i : i + _AT_ONCE]] for i in range(0, len(found), _AT_ONCE)]
            digests = chain.from_iterable(pool.map(lambda part: list(map(_digest, part)), parts))
            yield from zip((name for name, _ in found), digests)


def _digest(rx: str) -> str:
    """The digest of a file, or of an archive from an offset on."""
    path, offset = rx, 0
    before, _, after = rx.rpartition(":")
    if before and after.isdecimal() and not os.path.exists(rx):
        path, offset = before, int(after)
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return _MISSING
        file = os.open(path, os.O_RDONLY)
    except OSError as error:
        if not (is_absence(error) or isinstance(error, PermissionError)):
            raise
        return _MISSING  # harmless: reading the recording reports the error
    try:
        with keeping_name(path):
            return _digest_of(file, found.st_size, offset)
    finally:
        os.close(file)


def _digest_of(file: int, size: int, offset: int) -> str:
    digest = hashlib.sha256(f"{size} {offset}".encode())
    for i in range(_NUM_BLOCKS):
        digest.update(
            os.pread(
                file, _BLOCK_BYTES, offset + i * max(size - offset - _BLOCK_BYTES, 0) // (_NUM_BLOCKS - 1)
            )
        )
    return digest.hexdigest()[:16]
