"""Outputs are complete or absent, whatever happens between two writes."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pyasr.base.errors import UpToDate, UserError
from pyasr.base.outputs import lock, output
from pyasr.base.outputs.fingerprint import DONE, fingerprint, read_done
from pyasr.base.outputs.output import STARTED, atomic_write, stage_output


@pytest.fixture
def place(tmp_path):
    (tmp_path / "in").write_text("input")
    return tmp_path


def make(place, content="made", options=None, **keywords):
    with stage_output(place / "out", options or {"a": 1}, [place / "in"], **keywords) as out:
        (out / "result").write_text(content)


def content_of(place) -> str:
    return (place / "out" / "result").read_text()


def test_output_is_created_once_then_up_to_date(place):
    make(place)
    assert sorted(path.name for path in place.iterdir()) == ["in", "out"]
    assert sorted(path.name for path in (place / "out").iterdir()) == [DONE, "log", "result"]
    with pytest.raises(UpToDate, match="is up to date"):
        make(place)


def test_changed_input_recomputes_output(place, capsys):
    make(place)
    (place / "in").write_text("other")
    make(place, "again")
    assert content_of(place) == "again" and f"out of date: {place / 'in'} changed" in capsys.readouterr().out


def test_removed_input_recomputes_output(place, capsys):
    """For example a table that a step reads only if the data directory has it."""
    optional = place / "optional"
    optional.write_text("")

    def make_of_what_is_there():
        with stage_output(
            place / "out", {}, [path for path in (place / "in", optional) if path.exists()]
        ) as out:
            (out / "result").write_text(str(optional.exists()))

    make_of_what_is_there()
    optional.unlink()
    make_of_what_is_there()
    assert (
        content_of(place) == "False" and f"out is out of date: {optional} changed" in capsys.readouterr().out
    )
    with pytest.raises(UpToDate):
        make_of_what_is_there()


def test_other_options_are_refused_without_force(place):
    make(place)
    with pytest.raises(
        UserError,
        match=r"exists with other options \(a: 1 -> 2\); give --force to replace it, or another output name",
    ):
        make(place, options={"a": 2})
    assert content_of(place) == "made"
    make(place, "forced", options={"a": 2}, force=True)
    assert content_of(place) == "forced"


def test_missing_options_of_earlier_version_have_defaults(place):
    make(place, options={"a": 1, "b": {"c": 2}})

    def complete(saved):
        return {"a": 7, "e": {"f": ""}, **saved, "b": {"c": 8, "d": 3, **saved["b"]}}

    with pytest.raises(UpToDate):
        make(place, options={"a": 1, "b": {"c": 2, "d": 3}, "e": {"f": ""}}, complete=complete)
    with pytest.raises(UserError, match=r"exists with other options \(b.d: 3 -> 4; e.f:  -> x\)"):
        make(place, options={"a": 1, "b": {"c": 2, "d": 4}, "e": {"f": "x"}}, complete=complete)


def test_lost_output_file_recomputes_output(place):
    (place / "also").write_text("")
    make(place, also=[place / "also"])
    (place / "also").unlink()
    make(place, "again", also=[place / "also"])
    assert content_of(place) == "again"


def test_missing_input_is_refused(place):
    (place / "in").unlink()
    with pytest.raises(UserError, match="in: no such file or directory"):
        make(place)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("name", ["home", "file"])
def test_directory_not_written_by_a_step_is_never_replaced(place, name):
    (place / "home").mkdir()
    (place / "home" / "thesis.tex").write_text("years of work")
    (place / "file").write_text("work")
    for force in (False, True):
        with pytest.raises(UserError, match="was not written by a step"):
            with stage_output(place / name, {}, [], force=force):
                pass
    assert (place / "home" / "thesis.tex").exists() and (place / "file").exists()


@pytest.mark.parametrize("name", [".", "..", "/"])
def test_impossible_output_names_are_refused(name, place, monkeypatch):
    monkeypatch.chdir(place)
    with pytest.raises(UserError, match="cannot be an output directory|was not written by a step"):
        with stage_output(Path(name), {}, []):
            pass


def test_failing_block_keeps_old_output_and_log(place):
    make(place)
    with pytest.raises(ZeroDivisionError):
        with stage_output(place / "out", {"a": 1}, [place / "in"], force=True) as out:
            (out / "log" / "x.log").write_text("the cause")
            raise ZeroDivisionError
    assert content_of(place) == "made" and (place / "out.tmp" / "log" / "x.log").exists()


@pytest.mark.parametrize("number", range(40))
def test_interruption_before_any_change_on_disk(number, place, monkeypatch):
    """Die at the N-th change of the filesystem; the next run succeeds, and a reader never sees an incomplete
    output."""
    make(place, "old")
    (place / "in").write_text("changed")
    calls = dying_after(number, monkeypatch)
    try:
        make(place, "new")
        ended = True
    except Died:
        ended = False
    monkeypatch.undo()
    if (place / "out").exists():
        assert content_of(place) in ("old", "new") and output.read_done(place / "out")
    try:
        make(place, "new")
    except UpToDate:
        pass
    assert content_of(place) == "new"
    assert (
        sorted(path.name for path in place.iterdir()) == ["in", "out"]
        and not (place / "out" / STARTED).exists()
    )
    if number == 39:
        assert ended, f"{calls} changes: more than this test looks at"


class Died(BaseException):
    """Simulates kill -9: code of the step has no effect after it, because all later calls that change the
    disk raise it again."""


def dying_after(number, monkeypatch) -> list[int]:
    """Make the (number + 1)-th call that changes the filesystem, and all later ones, raise Died."""
    calls = [0]

    def wrap(real):
        def call(*words, **keywords):
            calls[0] += 1
            if calls[0] > number:
                raise Died
            return real(*words, **keywords)

        return call

    for owner, name in [
        (os, "rename"),
        (os, "replace"),
        (os, "unlink"),
        (os, "rmdir"),
        (os, "mkdir"),
        (os, "fsync"),
        (shutil, "rmtree"),
    ]:
        monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))
    for name in ("rename", "replace", "unlink", "mkdir", "write_text"):
        monkeypatch.setattr(Path, name, wrap(getattr(Path, name)))
    return calls


def test_two_runs_of_one_step(place):
    """The second is refused while the first one runs, but not after the first was killed."""
    code = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_output import stage_output
place = Path({str(place)!r})
with stage_output(place / "out", {{"a": 1}}, [place / "in"]) as out:
    (out / "here").write_text("")
    time.sleep(60)
"""
    first = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 120
    while not (place / "out.tmp" / "here").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(UserError, match="another process is writing this output"):
        make(place)
    assert (place / "out.tmp" / "here").exists()
    first.send_signal(signal.SIGKILL)
    first.wait()
    make(place)
    assert content_of(place) == "made"


@pytest.mark.parametrize("there", [False, True])
def test_linked_output_is_written_at_link_target(place, there):
    disk = place / "disk" / "far"
    disk.parent.mkdir()
    if there:
        disk.mkdir()
    (place / "out").symlink_to(disk)
    make(place)
    (place / "in").write_text("other")
    make(place, "again")
    assert (place / "out").is_symlink() and (disk / "result").read_text() == "again" and read_done(disk)
    assert [path.name for path in disk.parent.iterdir()] == ["far"]
    with pytest.raises(UpToDate):
        make(place)


def test_output_being_renamed_by_another_run(place, monkeypatch):
    """The done-file in OUT.tmp exists, but before OUT.tmp is locked, the other run renames it."""
    make(place)
    (place / "out").rename(place / "out.tmp")
    (place / "out.tmp" / STARTED).touch()
    claim = output.claimed

    def late_claim(scratch):
        scratch.rename(place / "out")
        return claim(scratch)

    monkeypatch.setattr(output, "claimed", late_claim)
    with pytest.raises(UpToDate):
        make(place, "made a second time")
    assert content_of(place) == "made"


def test_lock_of_renamed_output_is_released(place, monkeypatch):
    """Neither the finished output nor the output of a third run under the old name is changed."""
    flock = lock.fcntl.flock

    def late_lock(directory, how):
        monkeypatch.undo()
        (place / "out.tmp").rename(place / "out")
        if third:
            (place / "out.tmp").mkdir()
        flock(directory, how)

    for third in (False, True):  # noqa: B007
        monkeypatch.setattr(lock.fcntl, "flock", late_lock)
        with (
            pytest.raises(UserError, match="another process is writing this output"),
            output.claimed(place / "out.tmp"),
        ):
            pytest.fail("claimed")
        (place / "out").rmdir()


def test_atomic_write_keeps_old_file_on_any_exception(tmp_path):
    path = tmp_path / "x"
    with atomic_write(path) as f:
        f.write("old é")
    for exception in (ValueError, KeyboardInterrupt):
        with pytest.raises(exception):
            with atomic_write(path, "wb") as f:
                f.write(b"half")
                raise exception
    assert path.read_text("utf-8") == "old é" and list(tmp_path.iterdir()) == [path]


def test_longest_names_of_atomic_write(tmp_path):
    """Linux allows 255 bytes; two files are written at the same time."""
    first, second = (tmp_path / (end.rjust(250, "n") + "né.x") for end in "ab")
    with atomic_write(first) as f, atomic_write(second) as g:
        f.write("first")
        g.write("second")
    assert (first.read_text(), second.read_text()) == ("first", "second") and len(
        list(tmp_path.iterdir())
    ) == 2
    too_long = first.with_suffix(".xy")
    with pytest.raises(
        UserError, match=f"^{too_long}: the name is too long for the filesystem; give a shorter one$"
    ):
        with atomic_write(too_long) as f:
            f.write("third")
    assert len(list(tmp_path.iterdir())) == 2


def test_unwritable_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "directory").mkdir()
    for name, message in {
        "nodir/x": "nodir: no such file or directory",
        "file/x": "file: Not a directory; check the path",
        "directory": "directory: Is a directory; check the path",
    }.items():
        with pytest.raises(UserError, match=f"^{tmp_path}/{message}$"):
            with atomic_write(tmp_path / name) as f:
                f.write("a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory", "file"]


def test_full_disk_in_atomic_write(tmp_path, monkeypatch):
    def full(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        UserError, match="x: the disk is full; free some space and run the same command again"
    ):
        with atomic_write(tmp_path / "x") as f:
            f.write("a")
    assert list(tmp_path.iterdir()) == []


def test_full_disk_in_stage_output(place):
    with pytest.raises(UserError, match="the disk is full"):
        with stage_output(place / "out", {}, [place / "in"]):
            with open("/dev/full", "w") as f:
                f.write("x")
    assert not (place / "out").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_full_disk_on_real_filesystem(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True
    ).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        (disk / "in").write_text("input")
        with (
            pytest.raises(UserError, match="array.npy: the disk is full"),
            atomic_write(disk / "array.npy", "wb") as f,
        ):
            np.save(f, np.zeros(25_000))
        with pytest.raises(UserError, match="the disk is full"):
            make(disk, "x" * 200_000)
        assert not (disk / "out").exists()
        make(disk, "small")
        assert content_of(disk) == "small"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_file_size_limit(tmp_path):
    """`ulimit -f`: one sentence, and no file."""
    code = f"""
import resource, signal
from pathlib import Path
from pyasr.base.outputs.output import atomic_write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
with atomic_write(Path({str(tmp_path / "x")!r})) as f:
    f.write("x" * 100000)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "x: the file exceeds the size limit" in done.stderr and list(tmp_path.iterdir()) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_fingerprints_depend_only_on_content(tmp_path):
    path = tmp_path / "x"
    assert fingerprint(path) == "missing"
    for content in (b"a", bytes(3 << 20)):
        path.write_bytes(content)
        first = fingerprint(path)
        os.utime(path, (1, 1))
        assert fingerprint(path) == first
        path.write_bytes(content[:-1] + b"b")
        assert fingerprint(path) != first


def test_large_files_are_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr("pyasr.base.outputs.fingerprint._BLOCK_BYTES", 16)
    monkeypatch.setattr("pyasr.base.outputs.fingerprint._MAX_BLOCKS", 4)
    content = np.random.default_rng(0).bytes(1000)
    prints = {fingerprint_of(tmp_path, content)}
    for changed in (
        content[:-1],
        content + b"x",
        b"x" + content[1:],
        content[:-1] + b"x",
        content[:336] + b"x" + content[337:],
    ):
        prints.add(fingerprint_of(tmp_path, changed))
    assert len(prints) == 6
    # between the blocks 0, 328, 656, 984
    assert fingerprint_of(tmp_path, content[:100] + b"x" + content[101:]) in prints


def fingerprint_of(directory, content: bytes) -> str:
    (directory / "x").write_bytes(content)
    return fingerprint(directory / "x")


def test_fingerprints_of_directories(tmp_path):
    """Names and contents of files count; logs, hidden files and files of the scheduler do not."""
    prints = []
    for number, (name, content, log) in enumerate(
        [("a", "1", "x"), ("a", "1", "y"), ("b", "1", "x"), ("a", "2", "x")]
    ):
        directory = tmp_path / str(number)
        for folder in ("log", "phones", "q"):
            (directory / folder).mkdir(parents=True)
        for path, text in (
            (f"phones/{name}", content),
            ("log/x", log),
            (f"q/{log}.sh", log),
            (".hidden", log),
        ):
            (directory / path).write_text(text)
        prints.append(fingerprint(directory))
    assert prints[0] == prints[1] and len(set(prints)) == 3


def test_input_recomputed_with_equal_content_keeps_output_up_to_date(place):
    def make_both(content, **keywords):
        make(place, content, **keywords)
        with stage_output(place / "next", {}, [place / "out"]):
            pass

    make_both("one")
    seconds = read_done(place / "out")["ended"], (place / "out" / DONE).stat().st_mtime_ns
    with pytest.raises(UpToDate, match="next is up to date"):
        make_both("one", force=True)
    assert (read_done(place / "out")["ended"], (place / "out" / DONE).stat().st_mtime_ns) != seconds
    make_both("two", force=True)


def test_fingerprint_of_table_includes_outputs_it_refers_to(place):
    """feats.scp has the same lines after features were computed with other options, as long as no length
    changes."""

    def table_print(content):
        make(place, content, force=True)
        return fingerprint(place / "feats.scp")

    (place / "feats.scp").write_text(
        f"utt1 {place}/out/result:5\nutt2\t{place}/out/result:9\nutt3 sox {place}/x.wav -t wav - |\nutt4\n"
    )
    assert table_print("one") == table_print("one") != table_print("two")


def test_fingerprint_of_table_includes_archives_not_written_by_a_step(place):
    """Archives rewritten by another program with the same offsets. Times do not count, nor do files that are
    not archives."""
    (place / "raw").mkdir()
    (place / "feats.scp").write_text(
        f"u1 {place}/raw/a.ark:5\nu2 {place}/raw/a.ark:70[0:3]\nu3 {place}/raw/u3.wav\nu4 cat {place}/raw/x "
        "|\n"
    )
    prints = []
    for name, content in (
        ("a.ark", b"one" * 10**6),
        ("a.ark", b"two" * 10**6),
        ("a.ark", b"one" * 10**6),
        ("u3.wav", b"three"),
    ):
        (place / "raw" / name).write_bytes(content)
        os.utime(place / "raw" / name, (len(prints), 1))
        prints.append(fingerprint(place / "feats.scp"))
    assert prints[0] != prints[1] and prints[0] == prints[2] == prints[3]


def test_fingerprint_of_table_includes_its_own_output_directory(place):
    """For example feats.scp of a data directory whose features and tables were written by one step."""

    def table_print(features, text):
        with stage_output(place / "out", {}, [], force=True) as out:
            (out / "feats").mkdir()
            (out / "feats" / "raw.ark").write_text(features)
            (out / "text").write_text(text)
        return fingerprint(place / "feats.scp")

    (place / "feats.scp").write_text(f"utt1 {place}/out/feats/raw.ark:5\n")
    assert table_print("one", "words") == table_print("one", "other words") != table_print("two", "words")
    (place / "out/text").write_text("corrected by hand")
    fingerprint(place / "feats.scp")
    (place / "out/feats/raw.ark").unlink()
    with pytest.raises(UserError, match="out: feats/raw.ark was changed, damaged or removed"):
        fingerprint(place / "feats.scp")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"options": 1, "inputs": {}}'])
def test_unreadable_done_file_means_incomplete(text, place):
    make(place)
    (place / "out" / DONE).write_text(text)
    make(place, "again")
    assert content_of(place) == "again" and json.loads((place / "out" / DONE).read_text())["options"] == {
        "a": 1
    }
