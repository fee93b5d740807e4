"""Fingerprints: identifiers of the content of files and directories.

Two files or directories with the same content have the same fingerprint, independent of times, hosts and
commands.

A done-file records the size, time and digest of each file of its output. A file that was damaged or changed
is found by comparing sizes and times; a file is read only if its time differs.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import read_object
from pyasr.base.files.table_paths import root_of
from pyasr.base.system_errors import is_absence, naming

DONE = ".done.json"
# q/: submitted scripts and output of the scheduler, which may arrive after the step has ended
_ASIDE = ("log/", "q/", ".")
_BLOCK_BYTES, _MAX_BLOCKS = 1 << 20, 256
# bytes per block and number of blocks read from archives that are not part of a stage output
_OF_ARCHIVES = 1 << 16, 16
_FROM_OFFSET = re.compile(r":[0-9]+(\[[0-9:, ]*\])?\s*$")
_MISSING = "missing"


def fingerprint(path: Path) -> str:
    """Fingerprint of a file, of a table (.scp) together with the stage outputs that it refers to, or of a
    directory; 'missing' if the path does not exist.

    A stage output is identified by the content it had when it was completed; any other directory is read.
    Raises UserError if a file of a stage output has changed since.
    """
    path = Path(path)
    if path.is_dir():
        done = read_done(path) or {}
        _check_as_made(path, done)
        return done.get("content") or content_of(file_states(path))
    if not path.exists():
        return _MISSING
    digest = _file_digest(path)
    for content in _contents_pointed_into(path) if path.suffix == ".scp" else ():
        digest.update(content.encode())
    return digest.hexdigest()[:16]


def _folder_fingerprint(directory: Path, done: dict, folder: str) -> str:
    """Fingerprint of a folder of a stage output, from the done-file; '' if the folder had no files."""
    files = {name: state for name, state in done.get("files", {}).items() if name.startswith(f"{folder}/")}
    _check_as_made(directory, {**done, "files": files})
    return content_of(files) if files else ""


def _check_as_made(directory: Path, done: dict) -> None:
    if changed := changed_files(directory, done):
        found = f"{directory}: {changed[0]} was changed, damaged or removed after the step had written it"
        own = f"remove {directory / DONE} if the change is your own"
        raise UserError(f"{found}; run '{done.get('command', 'the same command')}' again, or {own}")


def file_states(
    directory: Path, known: Mapping[tuple[int, int, int], str] = MappingProxyType({})
) -> dict[str, list]:
    """Map of file name -> [bytes, time of the last change in ns, digest], for all files in a directory that
    count as its content.

    known  {(inode, bytes, time of the last change in ns): digest} of files that need not be read
    """
    names = sorted(str(path.relative_to(directory)) for path in files_below(directory) if path.is_file())
    return {name: file_state(Path(directory) / name, known) for name in names if counts(name)}


def files_below(directory: Path) -> Iterator[Path]:
    """Files and links below a directory, at any depth. Unlike `rglob`, raises OSError for a folder that
    cannot be listed."""
    for folder, folders, files in os.walk(directory, onerror=_refuse):
        yield from (Path(folder, name) for name in files)
        yield from (Path(folder, name) for name in folders if os.path.islink(Path(folder, name)))


def _refuse(error: OSError) -> None:
    if not is_absence(error):
        raise error


def counts(name: str) -> bool:
    """Whether the file of this name is part of the content of its directory; hidden files and files in log/
    and q/ are not."""
    return not name.startswith(_ASIDE)


def content_of(states: dict[str, list]) -> str:
    """Fingerprint of a directory with these files."""
    digest = hashlib.sha256()
    for name, (_, _, file_digest) in states.items():
        digest.update(f"{name}\0{file_digest}\n".encode())
    return digest.hexdigest()[:16]


def changed_files(directory: Path, done: dict) -> list[str]:
    """Files of a stage output that differ from its done-file."""
    return [
        name for name, state in done.get("files", {}).items() if not is_still(Path(directory) / name, state)
    ]


def file_state(path: Path, known: Mapping[tuple[int, int, int], str] = MappingProxyType({})) -> list:
    """[bytes, time of last change in ns, digest] of a file, for `is_still`; `known` as of `file_states`."""
    found = path.stat()
    digest = known.get((found.st_ino, found.st_size, found.st_mtime_ns))
    return [found.st_size, found.st_mtime_ns, digest or digest_of(path)]


def is_still(path: Path, state: list) -> bool:
    """Whether a file still has the recorded state; it is read only if its time differs."""
    try:
        found = path.stat()
    except OSError as error:
        if not is_absence(error):
            raise
        return False
    return found.st_size == state[0] and (found.st_mtime_ns == state[1] or digest_of(path) == state[2])


def read_done(directory: Path) -> dict | None:
    """Content of the done-file of a complete output; None if the output is incomplete. Raises OSError if the
    file cannot be read, because the output may be complete."""
    try:
        done = read_object(Path(directory) / DONE)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None  # harmless: an output without a valid done-file is incomplete
    complete = all(isinstance(done.get(name, {}), dict) for name in ("options", "inputs", "files"))
    return done if complete and {"options", "inputs"} <= done.keys() else None


def digest_of(path: Path) -> str:
    """Digest of a file as recorded in done-files."""
    return _file_digest(path).hexdigest()


def is_hashed_as_a_whole(num_bytes: int) -> bool:
    """Whether the digest of a file of this size covers all bytes, not sampled blocks."""
    return num_bytes <= _BLOCK_BYTES * _MAX_BLOCKS


def _file_digest(path: Path, blocks: tuple[int, int] | None = None):
    """SHA-256 of a file. For a file larger than `blocks` (bytes per block, number of blocks): of its size and
    of that many evenly spaced blocks from the first to the last."""
    block_bytes, max_blocks = blocks or (_BLOCK_BYTES, _MAX_BLOCKS)
    size, digest = path.stat().st_size, hashlib.sha256()
    if size > block_bytes * max_blocks:
        digest.update(str(size).encode())
    with naming(path), path.open("rb") as f:
        for begin in _blocks(size, block_bytes, max_blocks):
            f.seek(begin)
            digest.update(f.read(block_bytes))
    return digest


def _blocks(size: int, block_bytes: int, max_blocks: int) -> Iterable[int]:
    if size <= block_bytes * max_blocks:
        return range(0, size, block_bytes)
    return (i * (size - block_bytes) // (max_blocks - 1) for i in range(max_blocks))


def _contents_pointed_into(table: Path) -> Iterator[str]:
    """Fingerprints of the stage outputs, or folders of them, that contain files named in the second column of
    a table, and digests of other archives (FILE:OFFSET). Commands and other files are ignored."""
    with table.open(encoding="utf-8", errors="surrogateescape") as f:
        named = _named_in(f)
    places: dict[str, list[str]] = {}
    for place in named:
        places.setdefault(os.path.dirname(place), []).append(place)
    root, around = root_of(table, [of_folder[0] for of_folder in places.values()]), {}
    for name in sorted(filter(None, places)):
        if ((directory := root / name) / DONE).exists():
            yield fingerprint(directory)
            continue
        output = directory.parent
        if output not in around:
            around[output] = read_done(output) or {}
        found = _folder_fingerprint(output, around[output], directory.name)
        archives = [root / place[:-1] for place in sorted(places[name]) if place.endswith(":")]
        yield found or "".join(
            _file_digest(path, _OF_ARCHIVES).hexdigest() for path in archives if path.is_file()
        )


def _named_in(lines: Iterable[str]) -> dict[str, None]:
    """The different values of `_without_offset` of the second columns, in their order. Lines that name the
    archive of the line before, as most of a large table do, are skipped at once."""
    named: dict[str, None] = {}
    archive = "\n"
    for line in lines:
        place = line.partition(" ")[2]
        if (
            place.startswith(archive)
            and (offset := place[len(archive) : -1]).isdecimal()
            and offset.isascii()
        ):
            continue
        for place in line.split(maxsplit=1)[1:]:
            named[found := _without_offset(place)] = None
            archive = found if found.endswith(":") else "\n"
    return named


def _without_offset(place: str) -> str:
    """`FILE:` for an entry FILE:OFFSET, with or without a range of rows; other entries unchanged."""
    file, colon, offset = place.rpartition(":")
    digits = offset.rstrip()
    return f"{file}:" if colon and digits.isdigit() and digits.isascii() else _FROM_OFFSET.sub(":", place)
