"""What tells whether a recording has been replaced by another of the same name: DATA/.recordings, of which the done-files of all that is
made of audio have the fingerprint.

    RECORDING DIGEST               of its size and a few blocks, whatever its times; nothing of commands, whose output is not known before
    RECORDING DIGEST:CHANNEL       the same of one of several channels of a file, as `reco2file_and_channel` names it, the first is 0
    reco2distortion:PATH DIGEST    of an impulse response or a noise that recordings are mixed with, its blanks as %20
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from pyasr.base import log
from pyasr.base.files.pipes import is_command
from pyasr.base.outputs.fingerprint import fingerprint, read_done
from pyasr.base.system_errors import is_absence, keeping_name
from pyasr.data.audio.audio_reading import ONLY
from pyasr.data.audio.channels import named_channels
from pyasr.data.tables.datadir import DISTORTION, DataDir
from pyasr.io.text_tables import read_table, write_table

PRINTS_FILE = ".recordings"
_BLOCK_BYTES, _NUM_BLOCKS = 1 << 12, 4
_THREADS, _AT_ONCE, _MOST_NAMED = 8, 64, 5
_MISSING = "missing"


@contextlib.contextmanager
def recording_prints(data: Path, output: Path, others: list[Path], channel: int = ONLY) -> Iterator[list[Path]]:
    """DATA/.recordings, as the recordings are now, for the inputs of `output`; `others` are its other inputs, `channel` is that of all
    recordings, or ONLY where `reco2file_and_channel` may name it.

    Where nothing comes of it, and the block raises, the file is what it was before.

    An output that an earlier version has made, which did not look at recordings, and that is up to date otherwise, stays so: there is none.
    Nor is there where DATA is somebody else's, which cannot be written in.
    """
    done = read_done(output)
    path = Path(data) / PRINTS_FILE
    is_older = done and str(path) not in done["inputs"] and all(done["inputs"].get(str(other)) == fingerprint(other) for other in others)
    if is_older or not os.access(data, os.W_OK):
        yield []
        return
    before, now = read_table(path) if path.exists() else {}, _prints_of(DataDir(data), channel)
    replaced = [name for name in now if before.get(name, now[name]) != now[name]]
    if replaced:
        named = ", ".join(replaced[:_MOST_NAMED]) + (" ..." if len(replaced) > _MOST_NAMED else "")
        log.info(f"{data}: {len(replaced)} recordings are others than they were: {named}")
    write_table(path, now)
    try:
        yield [path]
    except BaseException:
        if before:
            write_table(path, before)
        else:
            path.unlink(missing_ok=True)
        raise


def _prints_of(data: DataDir, channel: int) -> dict[str, str]:
    found = prints(audio_of(data))
    channels = named_channels(data) if channel == ONLY and data.has("wav.scp") else {}
    return found | {name: f"{found[name]}:{place}" for name, place in channels.items()}


def audio_of(data: DataDir) -> dict[str, str]:
    """{name in DATA/.recordings: entry} of all audio that reading the recordings of a data directory takes."""
    sources = {source for found in data.reco2distortion.values() for source in found.sources}
    recordings = data.wav_scp if data.has("wav.scp") else {}
    return recordings | {f"{DISTORTION}:{quote(source, safe='/')}": source for source in sorted(sources)}


def prints(audio: dict[str, str]) -> dict[str, str]:
    """{name: digest} of those entries that are files."""
    named = {name: rx.strip() for name, rx in audio.items() if not is_command(rx)}
    places = list(named.values())
    parts = [places[i:i + _AT_ONCE] for i in range(0, len(places), _AT_ONCE)]
    with ThreadPoolExecutor(_THREADS) as pool:  # files on a network are waited for together
        return dict(zip(named, chain.from_iterable(pool.map(lambda part: list(map(_digest, part)), parts))))


def _digest(rx: str) -> str:
    """Of a file, or of an archive from an offset on."""
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
        return _MISSING  # harmless: who reads the recording tells
    try:
        with keeping_name(path):
            return _digest_of(file, found.st_size, offset)
    finally:
        os.close(file)


def _digest_of(file: int, size: int, offset: int) -> str:
    digest = hashlib.sha256(f"{size} {offset}".encode())
    for i in range(_NUM_BLOCKS):
        digest.update(os.pread(file, _BLOCK_BYTES, offset + i * max(size - offset - _BLOCK_BYTES, 0) // (_NUM_BLOCKS - 1)))
    return digest.hexdigest()[:16]
