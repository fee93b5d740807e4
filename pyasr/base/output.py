"""Outputs that are either complete or not there: write beside, rename over.

A step's output directory OUT is written as OUT.tmp and renamed when the step has ended well, with `.done.json` inside: the options
and the fingerprints of the inputs it was made from.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
from pathlib import Path

from pyasr.base.errors import UpToDate, UserError

DONE = ".done.json"
_HASH_WHOLE_BELOW = 4 << 20


@contextlib.contextmanager
def atomic_write(path: Path, mode: str = "w"):
    """A file object for `path`; the file appears under its name only when the block ends without an exception."""
    path = Path(path)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with scratch.open(mode) as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        scratch.replace(path)
    except OSError as error:
        raise disk_error(error, path) from error
    finally:
        scratch.unlink(missing_ok=True)


def disk_error(error: OSError, path: Path) -> Exception:
    """A UserError for the causes a user can put right, otherwise `error` itself."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UserError(f"{path}: the disk is full; free some space and run the same command again")
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return UserError(f"{path}: cannot be written ({error.strerror}); check the directory's permissions")
    if error.errno == errno.ENOENT:
        return UserError(f"{error.filename or path}: no such file or directory")
    return error


def fingerprint(path: Path) -> str:
    """What identifies the content of a file, or of a stage output by its done-file; 'missing' if there is nothing.

    Files up to 4 MiB are hashed whole; larger ones by size, time and their first and last MiB.
    """
    path = Path(path)
    if path.is_dir():
        path = path / DONE
    if not path.exists():
        return "missing"
    size, digest = path.stat().st_size, hashlib.sha256()
    with path.open("rb") as f:
        if size <= _HASH_WHOLE_BELOW:
            digest.update(f.read())
        else:
            digest.update(f"{size} {path.stat().st_mtime_ns}".encode() + f.read(1 << 20))
            f.seek(-(1 << 20), os.SEEK_END)
            digest.update(f.read())
    return digest.hexdigest()[:16]


def read_done(directory: Path) -> dict | None:
    """The content of a complete output's done-file, or None."""
    try:
        return json.loads((Path(directory) / DONE).read_text())
    except (OSError, ValueError):
        return None  # harmless: an output without a readable done-file is simply not complete


def differences(old: dict, new: dict, prefix: str = "") -> list[str]:
    """Readable differences between two option dictionaries: ['num_gauss: 1000 -> 2000']."""
    lines = []
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            lines += differences(a, b, f"{prefix}{key}.")
        elif a != b:
            lines.append(f"{prefix}{key}: {a} -> {b}")
    return lines


def check_current(out: Path, options: dict, inputs: dict[str, str], force: bool, also: list[Path] = ()) -> None:
    """Raise UpToDate if `out` is complete and current, UserError if it was made with other options (unless `force`).

    Returns when the output has to be made: it is not there, an input has changed, or one of the files in `also` is gone.
    """
    done = read_done(out)
    if done is None or force:
        return
    changed = differences(done["options"], options)
    if changed:
        raise UserError(f"{out} exists with other options ({'; '.join(changed)}); give --force to make it anew, or another output name")
    stale = [name for name, value in inputs.items() if done["inputs"].get(name) != value]
    missing = [str(path) for path in also if not Path(path).exists()]
    if not stale and not missing:
        raise UpToDate(f"{out} is up to date")
    print(f"{out} is out of date: {', '.join(stale + missing)} changed; making it anew", flush=True)


@contextlib.contextmanager
def stage_output(out: Path, options: dict, inputs: list[Path], *, force: bool = False, resume: bool = False, also: list[Path] = ()):
    """The scratch directory `OUT.tmp` in which a step makes its output; renamed to OUT with its done-file when the block ends well.

    options  the step's options as JSON values; compared with those of an existing output
    inputs   files and stage outputs that were read; a changed one makes the output out of date
    resume   keep what an interrupted run with the same options and inputs left in OUT.tmp (checkpoints)
    also     further files that belong to the output but lie outside OUT

    Raises UpToDate when there is nothing to do, UserError when OUT was made with other options and `force` is not given.
    """
    out = Path(out)
    for path in inputs:
        if not Path(path).exists():
            raise UserError(f"{path}: no such file or directory")
    prints = {str(path): fingerprint(path) for path in inputs}
    check_current(out, options, prints, force, also)
    scratch = out.with_name(out.name + ".tmp")
    started = {"options": options, "inputs": prints}
    _prepare_scratch(scratch, started, keep=resume and not force)
    begin = time.time()
    try:
        yield scratch
    except OSError as error:
        raise disk_error(error, out) from error
    with atomic_write(scratch / DONE) as f:
        json.dump({**started, "seconds": round(time.time() - begin, 3)}, f, indent=1)
    (scratch / ".started.json").unlink()
    _swap(scratch, out)


def _prepare_scratch(scratch: Path, started: dict, keep: bool) -> None:
    """An empty scratch directory, or the interrupted run's where that can be resumed."""
    marker = scratch / ".started.json"
    if scratch.exists():
        if keep and marker.exists() and json.loads(marker.read_text() or "{}") == started:
            print(f"{scratch}: resuming an interrupted run", flush=True)
            return
        shutil.rmtree(scratch)
    try:
        (scratch / "log").mkdir(parents=True)
    except OSError as error:
        raise disk_error(error, scratch) from error
    with atomic_write(marker) as f:
        json.dump(started, f)


def _swap(scratch: Path, out: Path) -> None:
    """Put the finished scratch directory in the place of the old output."""
    old = out.with_name(out.name + ".old")
    if old.exists():
        shutil.rmtree(old)
    if out.exists():
        out.rename(old)
    scratch.rename(out)
    shutil.rmtree(old, ignore_errors=True)
