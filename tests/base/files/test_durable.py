"""Renamed files survive a power failure: order of the system calls, recorded by strace."""

import errno
import os
import re
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from pyasr.base.files import durable
from pyasr.base.files.places import remove_tree
from pyasr.base.outputs.output import atomic_write, stage_output

CODE = """
from pathlib import Path
from pyasr.base.outputs.output import atomic_write, stage_output
with stage_output(Path("out"), {}, []) as out:
    (out / "part").mkdir()
    (out / "part" / "model").write_text("model")
    with atomic_write(out / "table") as f:
        f.write("table")
"""
NEEDS_STRACE = pytest.mark.skipif(not shutil.which("strace"), reason="no strace (apt-get install strace)")


def calls(tmp_path) -> list[tuple[str, str]]:
    """(name, file) of the calls that change or sync files below the directory, in order; for a rename, the
    new name."""
    trace, here = tmp_path / "trace", tmp_path / "here"
    here.mkdir()
    command = [
        "strace",
        "-y",
        "-o",
        trace,
        "-e",
        "trace=write,fsync,fdatasync,rename,renameat,renameat2",
        sys.executable,
        "-c",
        CODE,
    ]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True)
    if "ptrace" in done.stderr:
        pytest.skip(f"strace may not follow processes here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    found = []
    for line in trace.read_text().splitlines():
        name, file = line.partition("(")[0], re.search(rf"<{here}/?([^>]*)>", line)
        if name.startswith("rename"):
            found.append(("rename", re.findall(r'"([^"]*)"', line)[-1]))
        elif file:
            found.append((name, re.sub(r"\.\d+\.tmp$", "", file[1])))
    return found


@NEEDS_STRACE
def test_atomic_write_calls_write_fsync_rename_fsync_of_directory(tmp_path):
    found = calls(tmp_path)

    def at(name, file):
        return max(i for i, call in enumerate(found) if call == (name, file))

    renamed = at("rename", "out")
    assert (
        at("write", "out.tmp/part/model")
        < at("fsync", "out.tmp/part/model")
        < at("rename", "out.tmp/.done.json")
        < renamed
    )
    assert (
        at("write", "out.tmp/.table")
        < at("fsync", "out.tmp/.table")
        < at("rename", "out.tmp/table")
        < at("fsync", "out.tmp/table")
    )
    assert at("fsync", "out.tmp/part") < at("rename", "out.tmp/.done.json") < at("fsync", "out.tmp") < renamed
    assert found[renamed + 1] == ("fsync", "")  # the parent directory of out


def test_filesystem_without_directory_fsync_is_accepted(tmp_path, monkeypatch):
    for number, raised in ((errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)):

        def fsync(_, number=number):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", fsync)
        (tmp_path / "x").write_text("")
        if raised:
            with pytest.raises(OSError) as error:
                durable.rename(tmp_path / "x", tmp_path / "y")
            assert error.value.filename == str(tmp_path)
        else:
            durable.rename(tmp_path / "x", tmp_path / "y")
        assert (tmp_path / "y").exists()


def test_writable_but_unreadable_directory_is_accepted(tmp_path, monkeypatch):
    """As a user other than root, who ignores permissions; from inside, because tmp_path is in directories of
    the test's user."""
    (tmp_path / "x").write_text("")
    tmp_path.chmod(0o333)
    monkeypatch.chdir(tmp_path)

    def work() -> None:
        if not os.geteuid():
            os.setuid(65534)
        with pytest.raises(PermissionError):
            os.listdir(".")
        durable.rename(Path("x"), Path("y"))
        with atomic_write(Path("table")) as f:
            f.write("1\n")
        with stage_output(Path("out"), {}, []) as out:
            (out / "model").write_text("model")

    assert status_of(work) == 0
    tmp_path.chmod(0o700)
    assert (
        sorted(path.name for path in tmp_path.iterdir()) == ["out", "table", "y"]
        and (tmp_path / "out/model").read_text() == "model"
    )


def status_of(work) -> int:
    """The exit status of a process that calls this function: 1 if it raises an exception."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def test_move_syncs_both_directories(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(durable, "sync", synced.append)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a/x").write_text("")
    durable.rename(tmp_path / "a/x", tmp_path / "b/x")
    assert synced == [tmp_path / "b", tmp_path / "a"]


def test_tree_sync_starts_with_files(tmp_path, monkeypatch):
    synced = []
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/x").write_text("")
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(durable, "sync", synced.append)
    durable.sync_tree(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in synced] == ["a/b/x", "a/b", "a", "."]


def test_outputs_are_renamed_in_one_function(root):
    """Any other rename would have to implement the order of calls itself."""
    pattern = re.compile(
        r"os\.(rename|replace|renames)\(|\.rename\(|\.replace\([^,()]+(\([^()]*\))?\)|shutil\.move\("
    )
    sources = [
        *(root / "pyasr").rglob("*.py"),
        *(root / "steps").glob("*.py"),
        *(root / "utils").glob("*.py"),
    ]
    # the latter runs before the environment exists
    own = {
        root / "pyasr/base/files/durable.py",
        root / "utils/build_environment.py",
        root / "pyasr/base/compiled/kernel_objects.py",
    }  # a cache: a file that is lost is written again
    lines = [
        f"{path}: {line}"
        for path in sources
        if path not in own
        for line in path.read_text().splitlines()
        if pattern.search(line) and "durable.rename(" not in line
    ]
    assert lines == []


def test_tree_removal_error_names_whole_path(tmp_path, monkeypatch):
    file = tmp_path / "tree" / "part" / "file"
    file.parent.mkdir(parents=True)
    file.touch()

    def failing(path, *, dir_fd=None):
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "unlink", failing)
    with pytest.raises(OSError) as caught:
        remove_tree(tmp_path / "tree")
    assert caught.value.filename == str(file)
    monkeypatch.undo()
    remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
