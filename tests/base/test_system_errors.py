"""System errors: one sentence for each, with the name of the file, for any type of exception."""

import errno
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyasr.base.errors import UserError
from pyasr.base.files.places import is_there
from pyasr.base.outputs import fingerprint, output
from pyasr.base.outputs.displaced_files import keep_copy
from pyasr.base.system_errors import SystemRefusal, as_user_error, disk_error, keeping_name, naming
from pyasr.io import content
from pyasr.io.ark import ArkReader
from pyasr.io.mapped_files.arrays import load_arrays, save_arrays
from pyasr.tensor.file import save_tensors
from pyasr.train.job import checkpoint_index, checkpoints
from pyasr.train.job.checkpoint_index import INDEX, read_index

STEP = """
import os, sys
from dataclasses import dataclass
from pyasr.base import log
from pyasr.base.cli.options import argument
from pyasr.base.cli.step import run_step

@dataclass(frozen=True)
class Step:
    what: str = argument("what to do")

def main(options):
    exec(options.what)

run_step(Step, main, "doc")
"""
CASES = {
    "raise OSError(5, os.strerror(5), 'data/x')": (
        "data/x: the disk or the filesystem failed (Input/output error); see 'dmesg', and run"
    ),
    "raise OSError(116, os.strerror(116), 'data/x')": (
        "data/x: removed or replaced on the file server while it was in use (Stale"
    ),
    "raise OSError(24, os.strerror(24), 'data/x')": (
        "data/x: too many files are open in this process; raise the limit with 'ulimit -n 4096'"
    ),
    "raise InterruptedError(4, os.strerror(4), 'data/x')": (
        "data/x: interrupted by a signal; run the same command again"
    ),
    "raise OSError(71, os.strerror(71), 'data/x')": (
        "data/x: the system refused (Protocol error); correct the cause, and run the same command"
    ),
    "raise BlockingIOError(11, os.strerror(11))": (
        "the system allows no more processes or threads (Resource temporarily unavailable)"
    ),
    "raise MemoryError('Unable to allocate 2 GiB')": "memory ran out (Unable to allocate 2 GiB)",
    "raise RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')": (
        "memory ran out (CUDA out of memory. Tried to allocate 2 GiB)"
    ),
    'raise RuntimeError("can\'t start new thread")': (
        "the system allows no more processes or threads (can't start new thread)"
    ),
    "raise ImportError('libx.so: failed to map segment: Cannot allocate memory')": (
        "memory ran out (libx.so: failed to map segment"
    ),
}


@pytest.mark.parametrize("what", CASES)
def test_system_error_ends_step_with_one_sentence(what, tmp_path):
    done = subprocess.run([sys.executable, "-c", STEP, what], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("-c: error: ") and CASES[what] in done.stderr, (
        done.stderr
    )
    assert len(done.stderr.splitlines()) == 1


def test_programming_error_keeps_traceback(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", STEP, "raise KeyError('x')"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1 and "Traceback" in done.stderr and as_user_error(KeyError("x")) is None


@pytest.mark.parametrize(
    "what",
    ["print('a line')", "log.info('a line')", "print('a' * 100_000)", "raise OSError(5, 'failed', 'x')"],
)
def test_full_disk_at_standard_output_is_reported(what, tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", STEP, what], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (
        done.returncode == 1 and len(done.stderr.splitlines()) == 1 and done.stderr.startswith("-c: error: ")
    ), done.stderr


def test_every_errno_has_a_sentence_with_file_name():
    for number in errno.errorcode:
        report = disk_error(OSError(number, os.strerror(number), "data/x"))
        if number in (errno.EPIPE, errno.ESHUTDOWN):
            assert isinstance(report, BrokenPipeError)
            continue
        assert (
            isinstance(report, SystemRefusal)
            and report.errno == number
            and str(report).startswith("data/x: ")
        ), errno.errorcode[number]
        assert len(str(report)) > len("data/x: ") + 10 and "{" not in str(report)


def test_error_without_file_name_gets_name_from_context(tmp_path):
    with pytest.raises(UserError, match="^here: the disk or the filesystem failed"), naming("here"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(UserError, match="^own: "), naming("here"):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "own")
    with pytest.raises(OSError) as raised, keeping_name("here"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    assert raised.value.filename == "here" and not isinstance(raised.value, UserError)
    with pytest.raises(OSError) as raised:
        fail_without_a_name()
    assert str(as_user_error(raised.value)).startswith(
        "tests/base/test_system_errors.py:fail_without_a_name: the disk"
    )


def fail_without_a_name():
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_copytree_error_reports_first_reason(tmp_path):
    error = shutil.Error(
        [("a/x", "b/x", "[Errno 28] No space left on device: 'b/x'"), ("a/y", "b/y", "[Errno 28] ...")]
    )
    assert (
        str(as_user_error(error)) == "b/x: the disk is full; free some space and run the same command again"
    )


def failing(monkeypatch, owner, name: str, number: int, of: str) -> None:
    """Make a system function fail for paths that end in `of`."""
    real = getattr(owner, name)

    def call(path, *words, **keywords):
        if str(path).endswith(of):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *words, **keywords)

    monkeypatch.setattr(owner, name, call)


def test_output_with_unreadable_done_file_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "in").write_text("")
    with output.stage_output(tmp_path / "out", {"a": 1}, [tmp_path / "in"]) as out:
        (out / "result").write_text("hours of work")
    failing(monkeypatch, Path, "read_bytes", errno.ESTALE, ".done.json")
    with pytest.raises(OSError, match="Stale file handle.*out/.done.json"):
        with output.stage_output(tmp_path / "out", {"a": 2}, [tmp_path / "in"]) as out:
            pytest.fail("it would be replaced")


def test_interrupted_run_with_unreadable_options_keeps_checkpoints(tmp_path, monkeypatch):
    def run():
        with output.stage_output(tmp_path / "out", {"a": 1}, [], resume=True) as out:
            (out / "checkpoint").write_text("hours of work")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    failing(monkeypatch, Path, "read_bytes", errno.EIO, ".started.json")
    with pytest.raises(UserError, match="out.tmp/.started.json: the disk or the filesystem failed"):
        run()
    assert (tmp_path / "out.tmp/checkpoint").read_text() == "hours of work"


def test_unlistable_folder_is_not_treated_as_empty(tmp_path, monkeypatch):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "x").write_text("")
    assert list(fingerprint.file_states(tmp_path)) == ["part/x"]
    failing(monkeypatch, os, "scandir", errno.EACCES, "part")
    with pytest.raises(OSError):
        fingerprint.file_states(tmp_path)


def test_inaccessible_file_is_not_treated_as_absent(tmp_path, monkeypatch):
    (tmp_path / "x").write_text("")
    assert is_there(tmp_path / "x") and not is_there(tmp_path / "y") and not is_there(tmp_path / "x" / "y")
    failing(monkeypatch, os, "lstat", errno.EIO, "x")
    with pytest.raises(OSError):
        is_there(tmp_path / "x")


def test_failing_copy_leaves_no_file(tmp_path, monkeypatch):
    (tmp_path / "x").write_text("changed")

    def half(source, target, **_):
        Path(target).write_text("chan")
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(target))

    monkeypatch.setattr(shutil, "copy2", half)
    with pytest.raises(OSError):
        keep_copy(tmp_path / "x", tmp_path / "kept" / "x")
    assert list((tmp_path / "kept").iterdir()) == []
    monkeypatch.undo()
    assert keep_copy(tmp_path / "x", tmp_path / "kept" / "x").read_text() == "changed"


class Unclosable(io.BytesIO):
    """A file whose closing fails."""

    def close(self):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_errors_of_copystat_and_close_name_the_file(tmp_path, monkeypatch):
    (tmp_path / "x").touch()
    monkeypatch.setattr(content, "open", lambda *words: Unclosable(), raising=False)
    with pytest.raises(UserError, match=f"^{tmp_path}/x: the disk or the filesystem failed"):
        content.read_file(tmp_path / "x")
    monkeypatch.setattr(shutil, "copystat", lambda *words, **keywords: Unclosable().close())
    with pytest.raises(OSError) as caught:
        keep_copy(tmp_path / "x", tmp_path / "kept")
    assert caught.value.filename == str(tmp_path / "kept") and [path.name for path in tmp_path.iterdir()] == [
        "x"
    ]


def test_unreadable_arrays_are_not_reported_as_damaged(tmp_path, monkeypatch):
    save_arrays(tmp_path / "a.npz", x=[1])
    assert "x" in load_arrays(tmp_path / "a.npz")
    monkeypatch.setattr(
        "zipfile.ZipFile.read", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, os.strerror(errno.EIO)))
    )
    with pytest.raises(UserError, match=f"^{tmp_path}/a.npz: the disk or the filesystem failed"):
        load_arrays(tmp_path / "a.npz")


def test_unreadable_checkpoint_is_not_reported_as_damaged(tmp_path, monkeypatch):
    (tmp_path / INDEX).write_text('{"number": 1, "files": ["x.pt"]}')
    assert read_index(tmp_path)["files"] == ["x.pt"]
    failing(monkeypatch, Path, "read_text", errno.ESTALE, INDEX)
    with pytest.raises(
        UserError,
        match=(
            r"checkpoint.json: removed or replaced on the file server while it was in use \(Stale[^;]*\); "
            r"make sure that"
        ),
    ):
        read_index(tmp_path)
    monkeypatch.undo()
    save_tensors(tmp_path / "x.pt", {})
    monkeypatch.setattr(
        "zipfile.ZipFile.testzip", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, os.strerror(errno.EIO)))
    )
    with pytest.raises(UserError, match=f"^{tmp_path}/x.pt: the disk or the filesystem failed"):
        checkpoints._load(tmp_path / "x.pt")


def test_checkpoints_count_as_removed_even_if_removal_fails(tmp_path, monkeypatch):
    """Otherwise the same command would find an index of removed files."""
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    for name, text in ((INDEX, '{"number": 1, "files": ["x.pt"]}'), ("x.pt", "")):
        (directory / name).write_text(text)

    def failing_at_once(directory):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory / "x.pt"))

    monkeypatch.setattr(checkpoint_index, "remove_tree", failing_at_once)
    with pytest.raises(OSError):
        checkpoint_index.remove_checkpoints(directory)
    assert read_index(directory)["files"] == []
    monkeypatch.undo()
    checkpoint_index.remove_checkpoints(directory)
    assert not directory.exists()


def test_failing_close_of_read_archive_prints_nothing(monkeypatch):
    class BadFile:
        def close(self):
            raise OSError(errno.EINTR, os.strerror(errno.EINTR))

    report, reader = [], ArkReader()
    monkeypatch.setattr(sys, "unraisablehook", report.append)
    reader._path, reader._file = "a.ark", BadFile()
    del reader
    assert report == []


def test_failing_fork_is_not_reported_as_concurrent_run(tmp_path):
    with pytest.raises(UserError, match="no more processes or threads"):
        with output.stage_output(tmp_path / "out", {}, []):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
