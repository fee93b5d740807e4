"""Outputs that are either complete or not there: write beside, rename over.

A step's output directory OUT is written as OUT.tmp and renamed when the step has ended well, with `.done.json` inside: the options,
the fingerprints of the inputs it was made from and of what it holds, and what made it. The output of before is `.OUT.old` meanwhile.
What no step has made is never removed, under whichever of these names it is found.

An output of which a file was damaged, changed or lost since is made anew; its changed files are kept in `.OUT.changed`, beside it, and so
is what others have put into an output that is replaced (`pyasr.base.outputs.displaced_files`).
"""

from __future__ import annotations

import contextlib
import fcntl
import filecmp
import io
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from pyasr.base.errors import UpToDate, UserError
from pyasr.base.files import durable
from pyasr.base.files.foreign_json import read_object
from pyasr.base.files.places import remove_tree
from pyasr.base.outputs.displaced_files import STARTED, keep_changed, keep_others, short_name, unfinished_runs
from pyasr.base.outputs.fingerprint import DONE, changed_files, content_of, file_states, files_below, fingerprint, read_done
from pyasr.base.outputs.run_record import run_record
from pyasr.base.outputs.run_times import RUNS, timed_run
from pyasr.base.outputs.written_digests import forget_digests, note_digest, noted_digests, open_hashed
from pyasr.base.system_errors import disk_error

_MOST_NAMED = 5
_LOCK_WAITS_S = (0.05, 0.1, 0.2)
_HALF_WRITTEN = re.compile(r"\..+\.\d+\.tmp")  # of atomic_write


@contextlib.contextmanager
def atomic_write(path: Path, mode: str = "w"):
    """A file object for `path`; the file appears under its name only when the block ends without an exception."""
    path = Path(path)
    scratch = path.with_name(f".{short_name(path.name)}.{os.getpid()}.tmp")
    try:
        written = open_hashed(scratch)
        with written if "b" in mode else io.TextIOWrapper(written, encoding="utf-8") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        durable.rename(scratch, path)
        note_digest(path, written)
    except OSError as error:
        if str(error.filename) == str(scratch):
            error.filename = str(path if path.parent.is_dir() else path.parent)
        raise disk_error(error, path) from error
    finally:
        with contextlib.suppress(OSError):  # harmless: it is gone, or the first error is reported
            scratch.unlink()


class PathText(str):
    """A path in options: it is no other one where it leads to the same place by another way."""


def differences(old: dict, new: dict, prefix: str = "") -> list[str]:
    """Readable differences between two option dictionaries: ['num_gauss: 1000 -> 2000']."""
    lines = []
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            lines += differences(a, b, f"{prefix}{key}.")
        elif not _is_same(a, b):
            lines.append(f"{prefix}{key}: {_shown(a)} -> {_shown(b)}")
    return lines


def _shown(value):
    """A value of a difference; a group of options that only one of the two sides has is not listed."""
    return "its options" if isinstance(value, dict) else value


def _is_same(old, new) -> bool:
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        return len(old) == len(new) and all(map(_is_same, old, new))
    is_path = isinstance(new, PathText) and isinstance(old, str)
    return old == new or is_path and os.path.realpath(old) == os.path.realpath(new)


def check_current(out: Path, options: dict, inputs: dict[str, str], force: bool, also: list[Path] = (),
                  complete: Callable[[dict], dict] = dict, outdated: str = "") -> None:  # fmt: skip
    """Raise UpToDate if `out` is complete and current, UserError if it was made with other options (unless `force`).

    Returns when the output has to be made: it is not there, an input has changed, come or gone, one of its files or of those in `also`
    is not as it was made, or it is `outdated`. A directory that no step has made is never replaced, not even with `force`: it may be
    anything.
    """
    _refuse_to_replace(out)
    done = read_done(out)
    if done is None or force:
        return
    changed = differences(complete(done["options"]), options)
    if changed:
        raise UserError(f"{out} exists with other options ({'; '.join(changed)}); to make it again, remove it or give this step --force")
    stale = _stale(done["inputs"], inputs)
    damaged = changed_files(out, done)
    lost = [str(path) for path in also if not _is_copy(Path(path), out / Path(path).name)]
    if not stale and not damaged and not lost and not outdated:
        raise UpToDate(f"{out} is up to date")
    keep_changed(out, damaged)
    what = [*stale, *(str(out / name) for name in damaged), *lost]
    reason = f"{', '.join(what[:_MOST_NAMED])} changed" if what else outdated
    print(f"{out} is out of date: {reason}; making it again", flush=True)


def _refuse_to_replace(path: Path) -> None:
    if _is_strange(path):
        raise UserError(f"{path} exists and was not made by a step; move it away, or give another output name")


def _is_strange(path: Path) -> bool:
    """Whether something is there that no step has made: a file, a link, a directory that is not empty and has no done-file."""
    return path.is_symlink() or path.exists() and not (path / DONE).exists() and (not path.is_dir() or any(path.iterdir()))


def _stale(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Inputs that have other fingerprints than before, were not there then, or are no longer there; by whatever path they are named."""
    found, expected = ({os.path.realpath(name): value for name, value in prints.items()} for prints in (before, now))
    names = {os.path.realpath(name): name for name in (*now, *before)}
    return [name for place, name in names.items() if found.get(place) != expected.get(place)]


def _is_copy(path: Path, original: Path) -> bool:
    """Whether it is there, and what it was copied from has the same content."""
    return path.exists() and (not original.exists() or filecmp.cmp(path, original, shallow=False))


@contextlib.contextmanager
def stage_output(out: Path, options: dict, inputs: list[Path], *, force: bool = False, resume: bool = False, precious: str = "",
                 may_change: tuple[str, ...] = (), also: list[Path] = (), complete: Callable[[dict], dict] = dict,
                 check: Callable[[], None] | None = None, outdated: str = ""):  # fmt: skip
    """The scratch directory `OUT.tmp` in which a step makes its output; renamed to OUT with its done-file when the block ends well.

    options  the step's options as JSON values; compared with those of an existing output
    inputs   files and stage outputs that were read; a changed one makes the output out of date
    resume   keep what an interrupted run with the same options and inputs left in OUT.tmp (checkpoints)
    precious pattern of files in OUT.tmp that other options do not throw away without `force`; the mark of outputs that take long to be
             made, and stay where what they were made from is replaced around them
    may_change options that may differ from those of the interrupted run when it is gone on with
    also     further files that belong to the output but lie outside OUT: copies of its files of these names, where it has such
    complete function from the options that an existing output or an interrupted run was made with, as its version has written them down,
             to their form today
    check    function that raises UserError for inputs which do not fit; called before anything is written, if the output has to be made
    outdated why an output with these options and inputs has to be made again, where the step knows of a reason

    Raises UpToDate when there is nothing to do, UserError when OUT was made with other options and `force` is not given, an interrupted
    run with other options has left precious files, another process is making an output in OUT, an input would be replaced with OUT, or has
    changed while it was read.
    """
    out = Path(out)
    if out.is_symlink():  # made where it leads
        out = out.resolve()
    if out.name in ("", ".."):
        raise UserError(f"'{out}' is no name for an output; give a directory of its own")
    if "\n" in str(out.absolute()):
        raise UserError(f"'{out.absolute()}' has a line break in its name, which no table of Kaldi's can hold; rename it")
    for path in inputs:
        if not Path(path).exists():
            raise UserError(f"{path}: no such file or directory")
    check_apart(out, inputs)
    scratch = _scratch_of(out)
    if _is_finished(scratch):  # an earlier run was killed between its last write and the renaming, or is about to rename
        with _claimed(scratch):
            if _is_finished(scratch):
                _swap(scratch, out)
    prints = {str(path): fingerprint(path) for path in inputs}
    _remove_leftovers(out)
    check_current(out, options, prints, force, also, complete, outdated)
    _refuse_to_replace(_replaced(out))
    _check_at_rest(out)
    if check:
        check()
    started = {"options": options, "inputs": prints}
    try:
        with _claimed(scratch):
            _prepare_scratch(scratch, started, resume, force, precious, may_change, complete)
            with timed_run(scratch) as seconds, _unchanged(prints, scratch):
                yield scratch
            durable.sync_tree(scratch)
            files = file_states(scratch, noted_digests(scratch))
            forget_digests(scratch)
            made = {"content": content_of(files), "files": files, "seconds": seconds(), "precious": bool(precious)}
            _write_done(scratch, {**started, **made, **run_record()})
            take_over(also)
            _swap(scratch, out)
    except OSError as error:
        raise disk_error(error, out) from error


def check_apart(out: Path, inputs: list[Path]) -> None:
    """Raise UserError where an input is OUT or lies in it, under whatever name: making OUT would remove it."""
    wholes = [whole for whole in (Path(out).resolve(), Path(os.path.abspath(out))) if whole.name]
    replaced = {place for whole in wholes for place in (whole, _scratch_of(whole), _replaced(whole))}
    for path in map(Path, inputs):
        for place in (path.resolve(), path.parent.resolve() / path.name, Path(os.path.abspath(path))):
            if replaced & {place, *place.parents}:
                raise UserError(f"{path} is to be read, and would be replaced by the output {out}; give another output name")


def _scratch_of(out: Path) -> Path:
    return out.with_name(out.name + ".tmp")


def _check_at_rest(out: Path) -> None:
    """Raise UserError where another process is making an output in this one, which would be moved under its hands."""
    for run in unfinished_runs(out):
        with _claimed(run):
            pass


@contextlib.contextmanager
def _unchanged(prints: dict[str, str], scratch: Path):
    """Insist that inputs keep these fingerprints. What was made from others is not gone on with, however the block ends."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(UserError, OSError):  # harmless: the first error is the one to tell
            _check_unchanged(prints, scratch)
        raise
    _check_unchanged(prints, scratch)


def _check_unchanged(prints: dict[str, str], scratch: Path) -> None:
    try:
        around = scratch.resolve().parents  # what is made in an input changes it
        changed = [name for name, value in prints.items() if Path(name).resolve() not in around and fingerprint(name) != value]
        if changed:
            raise UserError(f"{', '.join(changed[:_MOST_NAMED])} changed while it was read; run the same command again")
    except UserError:
        _forget(scratch)
        raise


def adopt(directory: Path) -> None:
    """Have the done-file of a directory, if there is one, say that its files are as they are now: they were changed on purpose."""
    done = read_done(directory)
    if done and changed_files(directory, done):
        states = file_states(directory)
        files = {name: states[name] for name in done["files"] if name in states}
        _write_done(directory, {**done, "files": files, "content": content_of(files)})


def take_over(files: list[Path]) -> None:
    """These files are no longer those of the outputs in which they lie."""
    for path in map(Path, files):
        done = read_done(path.parent)
        if done and done.get("files", {}).pop(path.name, None):
            _write_done(path.parent, done)


def _write_done(directory: Path, done: dict) -> None:
    with atomic_write(directory / DONE) as f:
        json.dump(done, f, indent=1)


@contextlib.contextmanager
def _claimed(scratch: Path):
    """Hold the scratch directory against a second run of the same step; the kernel's lock goes when this process ends, however it ends.

    Locks of directories are the host's own: on NFS a run on another host does not see them.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    directory = os.open(scratch, os.O_RDONLY)
    try:
        if not _is_locked(scratch, directory):
            raise UserError(f"{scratch} is in use: another process is making this output; wait until it has ended")
        yield
    finally:
        os.close(directory)


def _is_locked(scratch: Path, directory: int) -> bool:
    """Whether this process has the lock of the scratch directory, which was opened as `directory`, now. Programs that only look whether it
    is locked hold it for a moment, which this waits for."""
    for wait_s in (*_LOCK_WAITS_S, None):
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _is_at(scratch, directory)  # not where the run that held it has renamed it since
        except BlockingIOError:
            if wait_s is not None:
                time.sleep(wait_s)
    return False


def _is_at(path: Path, directory: int) -> bool:
    """Whether `path` is the directory that was opened as `directory`."""
    try:
        return os.path.samestat(path.stat(), os.fstat(directory))
    except FileNotFoundError:
        return False


def _read_started(marker: Path, complete: Callable[[dict], dict]) -> dict | None:
    """What an interrupted run has put down of its options, completed, and of its inputs."""
    try:
        started = read_object(marker)
    except (FileNotFoundError, ValueError):
        return None  # harmless: it is made anew
    return {**started, "options": complete(started["options"])}


def _is_same_run(before: dict, now: dict, may_change: tuple[str, ...]) -> bool:
    """Whether two runs have the same options, but for some, and the same inputs."""
    options = ({name: value for name, value in run["options"].items() if name not in may_change} for run in (before, now))
    return not differences(*options) and not _stale(before["inputs"], now["inputs"])


def _prepare_scratch(scratch: Path, started: dict, resume: bool, force: bool, precious: str, may_change: tuple[str, ...],
                     complete: Callable[[dict], dict]) -> None:  # fmt: skip
    """Empty the scratch directory, but for an interrupted run that can be resumed: with `force` one that has begun anew by it. Raises
    UserError rather than delete `precious` files."""
    _check_own(scratch)
    marker = scratch / STARTED
    before = _read_started(marker, complete)
    if resume and before and (before.get("forced") or not force) and _is_same_run(before, started, may_change):
        print(f"{scratch}: resuming an interrupted run", flush=True)
        _remove_half_written(scratch)
        return
    changed = differences(before["options"], started["options"]) if before else []
    if changed and precious and not force and any(path.relative_to(scratch).match(precious) for path in files_below(scratch)):
        found = f"an interrupted run with other options ({'; '.join(changed)})"
        raise UserError(f"{scratch}: {found}; give those options to resume it, or --force to start again")
    if changed:
        print(f"{scratch}: an interrupted run had other options ({'; '.join(changed)}); its files are discarded", flush=True)
    elif before and (stale := _stale(before["inputs"], started["inputs"])):
        print(f"{scratch}: {', '.join(stale[:_MOST_NAMED])} changed since an interrupted run; its files are discarded", flush=True)
    _forget(scratch)
    _empty(scratch, STARTED)
    (scratch / "log").mkdir()
    with atomic_write(marker) as f:
        json.dump({**started, "forced": force}, f)


def _check_own(scratch: Path) -> None:
    """Raise UserError where the scratch directory holds what no interrupted run has left: somebody else's, which may be anything."""
    found = {entry.name for entry in scratch.iterdir()}
    if STARTED not in found and (found - {"log"} or any(scratch.glob("log/*"))):
        raise UserError(f"{scratch} is to be written in, but holds what no step has left there; move it away, or give another output name")


def _forget(scratch: Path) -> None:
    """Have nobody go on with what is in the scratch directory; it stays one that a step has made."""
    (scratch / STARTED).write_text("", encoding="utf-8")


def _remove_half_written(scratch: Path) -> None:
    """Remove what processes that were killed have left of `atomic_write`."""
    for path in [path for path in scratch.rglob(".*.tmp") if _HALF_WRITTEN.fullmatch(path.name)]:
        path.unlink(missing_ok=True)


def _is_finished(scratch: Path) -> bool:
    """Whether a run has made all of it, and has only to give it its name. Without the marker it is an output that somebody has renamed."""
    return (scratch / DONE).exists() and (scratch / STARTED).exists()


def _swap(scratch: Path, out: Path) -> None:
    """Put the finished scratch directory in the place of the old output."""
    (scratch / RUNS).unlink(missing_ok=True)
    old = _replaced(out)
    for path in (out, old):
        _refuse_to_replace(path)
    _discard(old)
    if out.exists():
        _check_at_rest(out)
        keep_others(out)
        durable.rename(out, old)
    durable.rename(scratch, out)
    _remove_leftovers(out)


def _replaced(out: Path) -> Path:
    """Where an output is from when it is replaced until it is removed."""
    return out.with_name(f".{short_name(out.name)}.old")


def _remove_leftovers(out: Path) -> None:
    """Once the new output is there: what is left of the old one and of the making, also of a run that was killed before it came to this."""
    if (out / DONE).exists():
        with contextlib.suppress(OSError):  # harmless: it is looked for again by the next run
            (out / STARTED).unlink(missing_ok=True)
            if not _is_strange(old := _replaced(out)):
                _discard(old)


def _discard(old: Path) -> None:
    """Remove a replaced output, if there is one. The done-file goes last: by it the next run knows what a killed one has left."""
    if old.exists():
        _empty(old, DONE)
        remove_tree(old)


def _empty(directory: Path, but: str) -> None:
    """Remove all from a directory but the file of this name."""
    for entry in directory.iterdir():
        if entry.name != but:
            remove_tree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
