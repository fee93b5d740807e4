"""Outputs that are either complete or absent: they are written under a scratch name and renamed.

A step writes its output directory OUT as OUT.tmp and renames it at the successful end. The done-file
`.done.json` in it records the options, the fingerprints of inputs and files, and what computed the output
(`pyasr.base.outputs.run_record`). During the rename, the previous output is `.OUT.old`. A directory under one
of these names that no step wrote is never removed.

An output with a changed, damaged or missing file is computed again. Its changed files, and foreign content of
a replaced output, are kept in `.OUT.changed` (`pyasr.base.outputs.displaced_files`).
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
from collections.abc import Callable, Sequence
from pathlib import Path

from pyasr.base.errors import UpToDate, UserError
from pyasr.base.files import durable
from pyasr.base.files.foreign_json import read_object
from pyasr.base.files.places import remove_tree
from pyasr.base.outputs.displaced_files import STARTED, keep_changed, keep_others, short_name, unfinished_runs
from pyasr.base.outputs.fingerprint import (
    DONE,
    changed_files,
    content_of,
    file_states,
    files_below,
    fingerprint,
    read_done,
)
from pyasr.base.outputs.run_record import run_record
from pyasr.base.outputs.run_times import RUNS, timed_run
from pyasr.base.outputs.written_digests import forget_digests, note_digest, noted_digests, open_hashed
from pyasr.base.system_errors import disk_error

_MOST_NAMED = 5
_LOCK_WAITS_S = (0.05, 0.1, 0.2)
_HALF_WRITTEN = re.compile(r"\..+\.\d+\.tmp")  # of atomic_write


@contextlib.contextmanager
def atomic_write(path: Path, mode: str = "w"):
    """Open `path` for writing; the file appears under its name only if the block ends without an
    exception."""
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
        with contextlib.suppress(OSError):  # harmless: it was renamed, or the first error is reported
            scratch.unlink()


class PathText(str):
    """A path in options: paths to the same file or directory are equal."""


def differences(old: dict, new: dict, prefix: str = "") -> list[str]:
    """Differences between two option dictionaries as text: ['num_gauss: 1000 -> 2000']."""
    lines = []
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            lines += differences(a, b, f"{prefix}{key}.")
        elif not _is_same(a, b):
            lines.append(f"{prefix}{key}: {_shown(a)} -> {_shown(b)}")
    return lines


def _shown(value):
    """A value in a difference; a group of options that only one side has is abbreviated."""
    return "its options" if isinstance(value, dict) else value


def _is_same(old, new) -> bool:
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        return len(old) == len(new) and all(map(_is_same, old, new))
    is_path = isinstance(new, PathText) and isinstance(old, str)
    return old == new or is_path and os.path.realpath(old) == os.path.realpath(new)


def check_current(
    out: Path,
    options: dict,
    inputs: dict[str, str],
    force: bool,
    also: Sequence[Path] = (),
    complete: Callable[[dict], dict] = dict,
    outdated: str = "",
) -> None:
    """Raise UpToDate if `out` is complete and current, UserError if it was computed with other options
    (unless `force`).

    Returns if the output has to be computed: it does not exist, an input was changed, added or removed, a
    file of the output or of `also` was changed, or it is `outdated`. A directory that was not written by a
    step is never replaced, not even with `force`.
    """
    _refuse_to_replace(out)
    done = read_done(out)
    if done is None or force:
        return
    changed = differences(complete(done["options"]), options)
    if changed:
        raise UserError(
            f"{out} exists with other options ({'; '.join(changed)}); give --force to replace it, or "
            "another output name"
        )
    stale = _stale(done["inputs"], inputs)
    damaged = changed_files(out, done)
    lost = [str(path) for path in also if not _is_copy(Path(path), out / Path(path).name)]
    if not stale and not damaged and not lost and not outdated:
        raise UpToDate(f"{out} is up to date")
    keep_changed(out, damaged)
    what = [*stale, *(str(out / name) for name in damaged), *lost]
    reason = f"{', '.join(what[:_MOST_NAMED])} changed" if what else outdated
    print(f"{out} is out of date: {reason}; computing it again", flush=True)


def _refuse_to_replace(path: Path) -> None:
    if _is_strange(path):
        raise UserError(
            f"{path} exists and was not written by a step; move it away, or give another output name"
        )


def _is_strange(path: Path) -> bool:
    """Whether the path exists but was not written by a step: a file, a link, or a nonempty directory without
    a done-file."""
    return (
        path.is_symlink()
        or path.exists()
        and not (path / DONE).exists()
        and (not path.is_dir() or any(path.iterdir()))
    )


def _stale(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Inputs that were changed, added or removed; different paths to one place count as one input."""
    found, expected = (
        {os.path.realpath(name): value for name, value in prints.items()} for prints in (before, now)
    )
    names = {os.path.realpath(name): name for name in (*now, *before)}
    return [name for place, name in names.items() if found.get(place) != expected.get(place)]


def _is_copy(path: Path, original: Path) -> bool:
    """Whether `path` exists and has the content of `original`, if that exists."""
    return path.exists() and (not original.exists() or filecmp.cmp(path, original, shallow=False))


@contextlib.contextmanager
def stage_output(
    out: Path,
    options: dict,
    inputs: list[Path],
    *,
    force: bool = False,
    resume: bool = False,
    precious: str = "",
    may_change: tuple[str, ...] = (),
    also: Sequence[Path] = (),
    complete: Callable[[dict], dict] = dict,
    check: Callable[[], None] | None = None,
    outdated: str = "",
):
    """The scratch directory `OUT.tmp` for the output of a step; renamed to OUT with its done-file if the
    block ends without an exception.

    options     options of the step as JSON values; compared with those of an existing output
    inputs      files and stage outputs that are read; if one has changed, the output is out of date
    resume      keep the files (checkpoints) that an interrupted run with the same options and inputs left in
                OUT.tmp
    precious    pattern of files in OUT.tmp that a run with other options does not delete without `force`. It
                also marks the output as expensive: it is kept if the output around it is replaced
    may_change  options that may differ from those of the interrupted run that is resumed
    also        files outside OUT that belong to it: copies of the files of these names in OUT
    complete    function that converts saved options of an earlier run to the form of this version
    check       function that raises UserError for unsuitable inputs; called before anything is written
    outdated    reason why an output with these options and inputs has to be computed again

    Raises UpToDate if there is nothing to do. Raises UserError if OUT was computed with other options and
    `force` is not given, an interrupted run with other options left precious files, another process is
    writing OUT or an output inside it, an input is part of OUT, or an input changed while it was read.
    """
    out = Path(out)
    if out.is_symlink():  # the output is written to the target of the link
        out = out.resolve()
    _check_places(out, inputs)
    scratch = _scratch_of(out)
    # an earlier run was killed between its last write and the renaming, or is about to rename
    if _is_finished(scratch):
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
            made = {
                "content": content_of(files),
                "files": files,
                "seconds": seconds(),
                "precious": bool(precious),
            }
            _write_done(scratch, {**started, **made, **run_record()})
            take_over(also)
            _swap(scratch, out)
    except OSError as error:
        raise disk_error(error, out) from error


def _check_places(out: Path, inputs: list[Path]) -> None:
    """Raise UserError if OUT cannot be an output, or an input does not exist or is part of OUT."""
    if out.name in ("", ".."):
        raise UserError(f"'{out}' cannot be an output directory; give a directory of its own")
    if "\n" in str(out.absolute()):
        raise UserError(
            f"'{out.absolute()}' has a line break in its name, which Kaldi's tables do not allow; rename it"
        )
    for path in inputs:
        if not Path(path).exists():
            raise UserError(f"{path}: no such file or directory")
    check_apart(out, inputs)


def check_apart(out: Path, inputs: list[Path]) -> None:
    """Raise UserError if an input is OUT or inside it, by any path: replacing OUT would remove it."""
    wholes = [whole for whole in (Path(out).resolve(), Path(os.path.abspath(out))) if whole.name]
    replaced = {place for whole in wholes for place in (whole, _scratch_of(whole), _replaced(whole))}
    for path in map(Path, inputs):
        for place in (path.resolve(), path.parent.resolve() / path.name, Path(os.path.abspath(path))):
            if replaced & {place, *place.parents}:
                raise UserError(
                    f"{path} is an input and would be replaced by the output {out}; give another output name"
                )


def _scratch_of(out: Path) -> Path:
    return out.with_name(out.name + ".tmp")


def _check_at_rest(out: Path) -> None:
    """Raise UserError if another process is writing an output inside this one, which would be moved."""
    for run in unfinished_runs(out):
        with _claimed(run):
            pass


@contextlib.contextmanager
def _unchanged(prints: dict[str, str], scratch: Path):
    """Check at the end of the block that the inputs still have these fingerprints. If not, the scratch
    directory cannot be resumed."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(UserError, OSError):  # harmless: the first error is reported
            _check_unchanged(prints, scratch)
        raise
    _check_unchanged(prints, scratch)


def _check_unchanged(prints: dict[str, str], scratch: Path) -> None:
    try:
        around = scratch.resolve().parents  # an output inside an input changes it
        changed = [
            name
            for name, value in prints.items()
            if Path(name).resolve() not in around and fingerprint(Path(name)) != value
        ]
        if changed:
            raise UserError(
                f"{', '.join(changed[:_MOST_NAMED])} changed while it was read; run the same command again"
            )
    except UserError:
        _forget(scratch)
        raise


def adopt(directory: Path) -> None:
    """Record the current files of a directory in its done-file, if it has one, after changes on purpose."""
    done = read_done(directory)
    if done and changed_files(directory, done):
        states = file_states(directory)
        files = {name: states[name] for name in done["files"] if name in states}
        _write_done(directory, {**done, "files": files, "content": content_of(files)})


def take_over(files: Sequence[Path]) -> None:
    """Remove these files from the done-files of the outputs that contain them."""
    for path in map(Path, files):
        done = read_done(path.parent)
        if done and done.get("files", {}).pop(path.name, None):
            _write_done(path.parent, done)


def _write_done(directory: Path, done: dict) -> None:
    with atomic_write(directory / DONE) as f:
        json.dump(done, f, indent=1)


@contextlib.contextmanager
def _claimed(scratch: Path):
    """Lock the scratch directory against a second run of the same step. The kernel releases the lock when
    this process ends.

    Locks of directories are local to the host: on NFS, runs on other hosts do not see them.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    directory = os.open(scratch, os.O_RDONLY)
    try:
        if not _is_locked(scratch, directory):
            raise UserError(
                f"{scratch} is in use: another process is writing this output; wait until it has ended"
            )
        yield
    finally:
        os.close(directory)


def _is_locked(scratch: Path, directory: int) -> bool:
    """Try to lock the scratch directory, which was opened as `directory`; whether that succeeded. Waits for
    programs that only test the lock and hold it for a moment."""
    for wait_s in (*_LOCK_WAITS_S, None):
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _is_at(scratch, directory)  # false if the run that held the lock has renamed the directory
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
    """The recorded options (completed) and inputs of an interrupted run; None if there is no valid record."""
    try:
        started = read_object(marker)
    except (FileNotFoundError, ValueError):
        return None  # harmless: the output is computed from scratch
    return {**started, "options": complete(started["options"])}


def _is_same_run(before: dict, now: dict, may_change: tuple[str, ...]) -> bool:
    """Whether two runs have the same inputs and the same options except `may_change`."""
    old, new = (
        {name: value for name, value in run["options"].items() if name not in may_change}
        for run in (before, now)
    )
    return not differences(old, new) and not _stale(before["inputs"], now["inputs"])


def _prepare_scratch(
    scratch: Path,
    started: dict,
    resume: bool,
    force: bool,
    precious: str,
    may_change: tuple[str, ...],
    complete: Callable[[dict], dict],
) -> None:
    """Empty the scratch directory unless it has an interrupted run that can be resumed. With `force`, only a
    run that was started with `force` is resumed. Raises UserError instead of deleting `precious` files."""
    _check_own(scratch)
    marker = scratch / STARTED
    before = _read_started(marker, complete)
    if (
        resume
        and before
        and (before.get("forced") or not force)
        and _is_same_run(before, started, may_change)
    ):
        print(f"{scratch}: resuming an interrupted run", flush=True)
        _remove_half_written(scratch)
        return
    changed = differences(before["options"], started["options"]) if before else []
    if (
        changed
        and precious
        and not force
        and any(path.relative_to(scratch).match(precious) for path in files_below(scratch))
    ):
        found = f"an interrupted run with other options ({'; '.join(changed)})"
        raise UserError(
            f"{scratch}: {found}; give those options to resume it, or --force to start from scratch"
        )
    if changed:
        print(
            f"{scratch}: an interrupted run had other options ({'; '.join(changed)}); its files are "
            "discarded",
            flush=True,
        )
    elif before and (stale := _stale(before["inputs"], started["inputs"])):
        print(
            f"{scratch}: {', '.join(stale[:_MOST_NAMED])} changed since an interrupted run; its files are "
            "discarded",
            flush=True,
        )
    _forget(scratch)
    _empty(scratch, STARTED)
    (scratch / "log").mkdir()
    with atomic_write(marker) as f:
        json.dump({**started, "forced": force}, f)


def _check_own(scratch: Path) -> None:
    """Raise UserError if the scratch directory has files but no record of an interrupted run: they belong to
    the user."""
    found = {entry.name for entry in scratch.iterdir()}
    if STARTED not in found and (found - {"log"} or any(scratch.glob("log/*"))):
        raise UserError(
            f"{scratch} has files that were not written by a step; move it away, or give another output name"
        )


def _forget(scratch: Path) -> None:
    """Make the scratch directory impossible to resume; it is still recognised as written by a step."""
    (scratch / STARTED).write_text("", encoding="utf-8")


def _remove_half_written(scratch: Path) -> None:
    """Remove scratch files that killed processes left in `atomic_write`."""
    for path in [path for path in scratch.rglob(".*.tmp") if _HALF_WRITTEN.fullmatch(path.name)]:
        path.unlink(missing_ok=True)


def _is_finished(scratch: Path) -> bool:
    """Whether a run has completed the scratch directory except for the rename. Without the marker it is an
    output renamed by the user."""
    return (scratch / DONE).exists() and (scratch / STARTED).exists()


def _swap(scratch: Path, out: Path) -> None:
    """Replace the old output by the finished scratch directory."""
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
    """The path of a replaced output until it is removed."""
    return out.with_name(f".{short_name(out.name)}.old")


def _remove_leftovers(out: Path) -> None:
    """Remove the marker and the replaced output once the new output exists, also those of an earlier run that
    was killed before."""
    if (out / DONE).exists():
        with contextlib.suppress(OSError):  # harmless: the next run tries again
            (out / STARTED).unlink(missing_ok=True)
            if not _is_strange(old := _replaced(out)):
                _discard(old)


def _discard(old: Path) -> None:
    """Remove a replaced output, if there is one; its done-file last, by which the next run recognises it
    after a kill."""
    if old.exists():
        _empty(old, DONE)
        remove_tree(old)


def _empty(directory: Path, but: str) -> None:
    """Remove everything from a directory except the entry of this name."""
    for entry in directory.iterdir():
        if entry.name != but:
            remove_tree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
