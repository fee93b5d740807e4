"""Outputs that are either complete or absent: they are written under a scratch name and renamed.

A step writes its output directory OUT as OUT.tmp and renames it at the successful end. What it does before
depends on the states of OUT and OUT.tmp (`OutputState`, `ScratchState`); docs/outputs.md has the table. A
directory that no step wrote is never removed.

The done-file `.done.json` records the options, the fingerprints of inputs and files, and what computed the
output (`pyasr.base.outputs.run_record`). During the rename, the previous output is `.OUT.old`. Its foreign
content, and changed files of an output, are kept in `.OUT.changed` (`pyasr.base.outputs.displaced_files`).
"""

from __future__ import annotations

import contextlib
import enum
import filecmp
import io
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from pyasr.base.errors import UpToDate, UserError
from pyasr.base.files import durable
from pyasr.base.files.foreign_json import read_object
from pyasr.base.files.places import remove_tree
from pyasr.base.outputs.comparison import RunContent
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
from pyasr.base.outputs.lock import claimed
from pyasr.base.outputs.run_record import run_record
from pyasr.base.outputs.run_times import RUNS, timed_run
from pyasr.base.outputs.written_digests import forget_digests, note_digest, noted_digests, open_hashed
from pyasr.base.system_errors import disk_error

_MAX_NAMED = 5
_HALF_WRITTEN = re.compile(r"\..+\.\d+\.tmp")  # of killed processes, by atomic_write


class OutputState(enum.Enum):
    """State of OUT when a step begins."""

    FOREIGN = "foreign"
    ABSENT = "absent"
    DIFFERING = "differing"
    OUT_OF_DATE = "out of date"
    UP_TO_DATE = "up to date"


class ScratchState(enum.Enum):
    """State of OUT.tmp when a step begins to write it."""

    FOREIGN = "foreign"
    ABSENT = "absent"
    RESUMABLE = "resumable"
    PRECIOUS = "precious"
    OUTDATED = "outdated"


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
    _finish(out)
    run = RunContent(options, {str(path): fingerprint(path) for path in inputs}, complete)
    _remove_leftovers(out)
    _leave_output(out, run, force, also, outdated)
    _refuse_foreign(_replaced(out))
    _check_at_rest(out)
    if check:
        check()
    scratch = _scratch_of(out)
    try:
        with claimed(scratch):
            _enter_scratch(scratch, run, resume, force, precious, may_change)
            with timed_run(scratch) as seconds, _unchanged(run.inputs, scratch):
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
            _write_done(scratch, {**run.record(), **made, **run_record()})
            take_over(also)
            _swap(out)
    except OSError as error:
        raise disk_error(error, out) from error


def _leave_output(out: Path, run: RunContent, force: bool, also: Sequence[Path], outdated: str) -> None:
    """Return if OUT has to be computed. Raises UpToDate, or UserError if it must not be replaced."""
    state, found, damaged = _state_of_output(out, run, force, also, outdated)
    match state:
        case OutputState.FOREIGN:
            _refuse_foreign(out)
        case OutputState.DIFFERING:
            raise UserError(
                f"{out} exists with other options ({'; '.join(found)}); give --force to replace it, or "
                "another output name"
            )
        case OutputState.UP_TO_DATE:
            raise UpToDate(f"{out} is up to date")
        case OutputState.OUT_OF_DATE:
            keep_changed(out, damaged)
            reason = f"{', '.join(found[:_MAX_NAMED])} changed" if found else outdated
            print(f"{out} is out of date: {reason}; computing it again", flush=True)


def _state_of_output(
    out: Path, run: RunContent, force: bool, also: Sequence[Path], outdated: str
) -> tuple[OutputState, list[str], list[str]]:
    """State of OUT; the options or files in which it differs from what the run would compute; its own changed
    files."""
    if _is_foreign(out):
        return OutputState.FOREIGN, [], []
    done = read_done(out)
    if done is None or force:
        return OutputState.ABSENT, [], []
    if changed := run.other_options(done):
        return OutputState.DIFFERING, changed, []
    damaged = changed_files(out, done)
    lost = [str(path) for path in also if not _is_copy(Path(path), out / Path(path).name)]
    found = [*run.other_inputs(done), *(str(out / name) for name in damaged), *lost]
    return OutputState.OUT_OF_DATE if found or outdated else OutputState.UP_TO_DATE, found, damaged


def _is_copy(path: Path, original: Path) -> bool:
    """Whether `path` exists and has the content of `original`, if that exists."""
    return path.exists() and (not original.exists() or filecmp.cmp(path, original, shallow=False))


def _enter_scratch(
    scratch: Path, run: RunContent, resume: bool, force: bool, precious: str, may_change: tuple[str, ...]
) -> None:
    """Prepare OUT.tmp for the run: with the files of the run that it resumes, or empty. Raises UserError
    instead of deleting files of the user, and `precious` ones."""
    state, why = _state_of_scratch(scratch, run, resume, force, precious, may_change)
    match state:
        case ScratchState.FOREIGN:
            raise UserError(
                f"{scratch} has files that were not written by a step; move it away, or give another output "
                "name"
            )
        case ScratchState.PRECIOUS:
            raise UserError(
                f"{scratch}: {why}; give those options to resume it, or --force to start from scratch"
            )
        case ScratchState.RESUMABLE:
            print(f"{scratch}: resuming an interrupted run", flush=True)
            for path in list(scratch.rglob(".*.tmp")):
                if _HALF_WRITTEN.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            return
        case ScratchState.OUTDATED:
            print(f"{scratch}: {why}; its files are discarded", flush=True)
    _forget(scratch)
    _empty(scratch, STARTED)
    (scratch / "log").mkdir()
    with atomic_write(scratch / STARTED) as f:
        json.dump({**run.record(), "forced": force}, f)


def _state_of_scratch(
    scratch: Path, run: RunContent, resume: bool, force: bool, precious: str, may_change: tuple[str, ...]
) -> tuple[ScratchState, str]:
    """State of OUT.tmp, and how its run differs from this one. With `force`, only a run that was started with
    `force` is resumable."""
    names = {entry.name for entry in scratch.iterdir()}
    if STARTED not in names and (names - {"log"} or any(scratch.glob("log/*"))):
        return ScratchState.FOREIGN, ""
    try:
        before = read_object(scratch / STARTED)
    except (FileNotFoundError, ValueError):
        return ScratchState.ABSENT, ""  # harmless: the output is computed from scratch
    changed, stale = "; ".join(run.other_options(before)), run.other_inputs(before)
    may_resume = resume and (before.get("forced") or not force)
    if may_resume and not stale and not run.other_options(before, may_change):
        return ScratchState.RESUMABLE, ""
    if (
        changed
        and precious
        and not force
        and any(path.relative_to(scratch).match(precious) for path in files_below(scratch))
    ):
        return ScratchState.PRECIOUS, f"an interrupted run with other options ({changed})"
    if changed:
        return ScratchState.OUTDATED, f"an interrupted run had other options ({changed})"
    if stale:
        return ScratchState.OUTDATED, f"{', '.join(stale[:_MAX_NAMED])} changed since an interrupted run"
    return ScratchState.ABSENT, ""


def _forget(scratch: Path) -> None:
    """Make the scratch directory impossible to resume; it is still recognised as written by a step."""
    (scratch / STARTED).write_text("", encoding="utf-8")


def _finish(out: Path) -> None:
    """Rename OUT.tmp if it is complete: its run was killed before the rename, or is about to rename. Without
    the record of a run, it is an output that the user renamed."""
    scratch = _scratch_of(out)
    if _is_finished(scratch):
        with claimed(scratch):
            if _is_finished(scratch):
                _swap(out)


def _is_finished(scratch: Path) -> bool:
    return (scratch / DONE).exists() and (scratch / STARTED).exists()


def _swap(out: Path) -> None:
    """Replace OUT by the finished OUT.tmp."""
    scratch, old = _scratch_of(out), _replaced(out)
    (scratch / RUNS).unlink(missing_ok=True)
    for path in (out, old):
        _refuse_foreign(path)
    _discard(old)
    if out.exists():
        _check_at_rest(out)
        keep_others(out)
        durable.rename(out, old)
    durable.rename(scratch, out)
    _remove_leftovers(out)


def _remove_leftovers(out: Path) -> None:
    """Remove the record of the run and the replaced output once the new output exists, also those of an
    earlier run that was killed before."""
    if (out / DONE).exists():
        with contextlib.suppress(OSError):  # harmless: the next run tries again
            (out / STARTED).unlink(missing_ok=True)
            if not _is_foreign(old := _replaced(out)):
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


def _scratch_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.tmp")


def _replaced(out: Path) -> Path:
    """The path of a replaced output until it is removed."""
    return out.with_name(f".{short_name(out.name)}.old")


def _is_foreign(path: Path) -> bool:
    """Whether the path exists but was not written by a step: a file, a link, or a nonempty directory without
    a done-file."""
    return (
        path.is_symlink()
        or path.exists()
        and not (path / DONE).exists()
        and (not path.is_dir() or any(path.iterdir()))
    )


def _refuse_foreign(path: Path) -> None:
    if _is_foreign(path):
        raise UserError(
            f"{path} exists and was not written by a step; move it away, or give another output name"
        )


def _check_at_rest(out: Path) -> None:
    """Raise UserError if another process is writing an output inside this one, which would be moved."""
    for run in unfinished_runs(out):
        with claimed(run):
            pass


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
                f"{', '.join(changed[:_MAX_NAMED])} changed while it was read; run the same command again"
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
