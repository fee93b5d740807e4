"""Memory-mapped tables derived from a file: created once, created again when outdated, and kept in memory if
no file can be written."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import shutil
import signal
import threading
import time

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.base.system_errors import SystemRefusal
from pyasr.io.mapped_files import mapped
from pyasr.io.mapped_files.mapped import MappedTables, derived


class Source:
    """A file and tables derived from it: its bytes, and their number; `made` counts how often they were
    computed."""

    def __init__(self, directory):
        self.path, self.made = directory / "source.bin", 0
        self.path.write_bytes(bytes(range(200)))

    def make(self) -> MappedTables:
        self.made += 1
        content = self.path.read_bytes()
        return MappedTables(
            {"bytes": np.frombuffer(content, np.uint8).reshape(2, -1), "none": np.zeros(0, np.float32)},
            {"size": len(content)},
        )

    def tables(self, **options) -> MappedTables:
        return derived(self.path, "kind", "0123abcd", self.make, **options)

    @property
    def kept(self):
        return self.path.with_name(".source.bin.kind.0123abcd")

    def check(self, tables: MappedTables, times_made: int) -> None:
        content = self.path.read_bytes()
        assert tables.arrays["bytes"].tobytes() == content and tables.arrays["bytes"].shape == (
            2,
            len(content) // 2,
        )
        assert (
            tables.values == {"size": len(content)}
            and tables.arrays["none"].dtype == np.float32
            and not len(tables.arrays["none"])
        )
        assert not any(array.flags.writeable for array in tables.arrays.values())
        assert self.made == times_made


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "MIN_BYTES", 0)
    monkeypatch.delenv(mapped.VARIABLE, raising=False)
    (tmp_path / "in").mkdir()
    return Source(tmp_path / "in")


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_tables_are_created_once_and_mapped(source):
    for _ in range(2):
        tables = source.tables()
        source.check(tables, 1)
        assert isinstance(_owner(tables.arrays["bytes"]), mmap.mmap)
    assert names(source.path.parent) == [source.kept.name, "source.bin"]


def _owner(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return getattr(array, "obj", array)


def test_missing_source_gives_one_sentence(source):
    source.path.unlink()
    with pytest.raises(UserError, match="source.bin: no such file"):
        source.tables()
    assert not source.made


def test_source_error_is_reported_without_warnings(source, caplog):
    refusal = SystemRefusal("source.bin: the disk or the filesystem failed", errno.EIO)

    def fail():
        raise refusal

    source.make = fail
    with pytest.raises(SystemRefusal) as caught:
        source.tables()
    assert caught.value is refusal and not caplog.text and names(source.path.parent) == ["source.bin"]


def test_small_sources_are_not_mapped(source, monkeypatch):
    monkeypatch.setattr(mapped, "MIN_BYTES", 201)
    source.check(source.tables(), 1)
    assert names(source.path.parent) == ["source.bin"]


def test_changed_source_is_logged_and_open_tables_stay_valid(source):
    before = source.tables()
    source.path.write_bytes(bytes(range(100, 200)))
    source.check(source.tables(), 2)
    assert before.arrays["bytes"].tobytes() == bytes(range(200))
    content, found = source.path.read_bytes(), source.path.stat()
    source.path.write_bytes(content[::-1])  # as many bytes
    os.utime(source.path, ns=(0, found.st_mtime_ns + 1))
    source.check(source.tables(), 3)
    source.path.write_bytes(content[::-1])  # another time alone
    source.check(source.tables(), 3)


def test_outdated_and_partial_tables_are_removed(source):
    derived(source.path, "kind", "aaaaaaaa", source.make)
    derived(source.path, "other", "aaaaaaaa", source.make)
    (source.path.parent / f".{source.kept.name}.17.tmp").write_bytes(b"half")
    source.tables()
    derived(source.path, "kind", "bbbbbbbb", source.make)
    assert len(names(source.path.parent)) == 5
    source.path.write_bytes(b"next")
    source.tables()
    assert names(source.path.parent) == [source.kept.name, ".source.bin.other.aaaaaaaa", "source.bin"]


def _flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(0, time.time_ns()))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(bytes(500)),
        lambda path: path.write_bytes(path.read_bytes()[:30]),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: _flip(path, 8),
        lambda path: _flip(path, 25),
        lambda path: _flip(path, -100),
    ],
)
def test_damaged_tables_are_created_again(source, spoil):
    source.tables()
    spoil(source.kept)
    source.check(source.tables(), 2)
    source.check(source.tables(), 2)


def test_copied_tables_are_used(source, tmp_path):
    source.tables()
    shutil.copytree(source.path.parent, tmp_path / "copy")
    for path in (tmp_path / "copy").iterdir():
        os.utime(path)
    assert derived(tmp_path / "copy/source.bin", "kind", "0123abcd", source.make).values == {"size": 200}
    assert source.made == 1


def test_cache_directory_has_tables_of_sources_with_equal_names(source, tmp_path, monkeypatch):
    monkeypatch.setenv(mapped.VARIABLE, str(tmp_path / "new/mapped"))
    (tmp_path / "else").mkdir()
    other = Source(tmp_path / "else")
    other.path.write_bytes(b"else")
    for _ in range(2):
        source.check(source.tables(), 1)
        other.check(other.tables(), 1)
    assert len(names(tmp_path / "new/mapped")) == 2 and names(source.path.parent) == ["source.bin"]


def test_tables_stay_in_memory_if_nothing_is_writable(source, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(mapped.VARIABLE, str(source.path / "no directory"))
    for times in (1, 2):
        source.check(source.tables(), times)
    assert (
        "source.bin: cannot write its tables, so each job has its own copy in memory; set PYASR_MAPPED to a "
        "writable directory"
    ) in caplog.text


def test_full_disk_leaves_no_file_and_next_directory_is_tried(source, tmp_path, caplog):
    source.path.write_bytes(bytes(40_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        source.check(source.tables(), 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(source.path.parent) == ["source.bin"] and "exceeds the size limit" in caplog.text
    source.kept.with_name(f"{source.kept.name}.lock").mkdir()  # neither can root write a file of this name
    source.check(source.tables(more=[tmp_path / "more"]), 2)
    assert len(names(tmp_path / "more")) == 1
    source.check(source.tables(more=[tmp_path / "more"]), 2)


def test_concurrent_processes_create_tables_once(source):
    make, found = source.make, []

    def slowly():
        time.sleep(0.05)
        return make()

    source.make = slowly
    threads = [threading.Thread(target=lambda: found.append(source.tables())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    for tables in found:
        source.check(tables, 1)


def test_killed_creation_is_repeated_by_another_process(source):
    child = os.fork()
    if not child:
        source.make = lambda: os.kill(os.getpid(), signal.SIGKILL)
        source.tables()
    os.waitpid(child, 0)
    source.check(source.tables(), 1)
    assert names(source.path.parent) == [source.kept.name, "source.bin"]


def test_source_changed_while_read_is_not_stored(source):
    make = source.make

    def changing():
        tables = make()
        source.path.write_bytes(b"1234")
        return tables

    source.make = changing
    assert source.tables().values == {"size": 200}
    assert names(source.path.parent) == ["source.bin"]
