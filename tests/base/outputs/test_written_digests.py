"""Digests computed while files are written: the same as before in done-files, without reading the files
again."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from pyasr.base.outputs import fingerprint
from pyasr.base.outputs.fingerprint import DONE, file_states, read_done
from pyasr.base.outputs.output import atomic_write, stage_output
from pyasr.base.outputs.written_digests import noted_digests
from pyasr.decode.lattices.lattice_io import LatticeWriter
from pyasr.io.ark import ArkWriter
from pyasr.io.int_vectors import write_int_vectors

JOB = """
import sys
from pathlib import Path
import numpy as np
from pyasr.io.ark import ArkWriter
out, job = Path(sys.argv[1]), int(sys.argv[2])
with ArkWriter(out / f"raw.{job}.ark", out / f"raw.{job}.scp") as writer:
    for i in range(4):
        writer.write(f"{job}-{i}", np.random.default_rng(job).random((500, 40), np.float32))
"""


def write_all(out: Path) -> None:
    """A file of each kind that a job, a rank or the step itself writes."""
    random = np.random.default_rng(1)
    with ArkWriter(out / "feats.ark", out / "feats.scp") as writer:
        writer.write("a", random.random((1000, 40), np.float32))
    write_int_vectors(out / "ali.1.gz", {f"a-{i}": random.integers(0, 9999, 5000) for i in range(20)})
    with LatticeWriter(out / "lat.1.gz"):
        pass
    with atomic_write(out / "words.txt") as f:
        f.writelines(f"w\u00f6rd{i} {i}\n" for i in range(20_000))
    with atomic_write(out / "table.npy", "wb") as f:
        np.save(f, random.random(20_000))  # bypasses the file object
    with atomic_write(out / "arrays.npz", "wb") as f:
        np.savez(f, a=random.random(20_000))  # headers are written last
    (out / "others.bin").write_bytes(bytes(100_000))


@pytest.fixture
def read():
    """Names of the files that are read for their digests."""
    names, digest = [], fingerprint._file_digest
    with patch.object(
        fingerprint,
        "_file_digest",
        lambda path, *blocks: names.append(Path(path).name) or digest(path, *blocks),
    ):
        yield names


def test_digests_equal_those_of_finished_files(tmp_path, read):
    with stage_output(tmp_path / "out", {}, []) as out:
        write_all(out)
        noted = noted_digests(out)
        read.clear()
    small = {"feats.scp", "lat.1.gz"}
    assert set(read) == {*small, "others.bin"} and len(noted) == 5
    found = read_done(tmp_path / "out")["files"]
    assert found == file_states(tmp_path / "out") and found.keys() > small
    for name, (_, _, digest) in found.items():
        assert digest == hashlib.sha256((tmp_path / "out" / name).read_bytes()).hexdigest()
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.name not in found) == [
        DONE,
        "log",
    ]
    assert not any((tmp_path / "out/log").iterdir())


def test_step_does_not_read_files_of_its_jobs(tmp_path, read):
    with stage_output(tmp_path / "out", {}, []) as out:
        for job in (1, 2):
            subprocess.run([sys.executable, "-c", JOB, out, str(job)], check=True)
        os.rename(out / "raw.2.ark", out / "raw.3.ark")
    assert sorted(read) == ["raw.1.scp", "raw.2.scp"]
    assert read_done(tmp_path / "out")["files"] == file_states(tmp_path / "out")


def test_files_changed_after_writing_are_read(tmp_path, read):
    with stage_output(tmp_path / "out", {}, []) as out:
        for name in ("longer", "replaced", "other"):
            with atomic_write(out / name, "wb") as f:
                f.write(bytes(100_000))
        with (out / "longer").open("ab") as f:
            f.write(b"more")
        (out / "replaced").unlink()
        (out / "replaced").write_bytes(bytes([1]) * 100_000)
        state = (out / "other").stat()
        (out / "other").write_bytes(bytes([2]) * 100_000)
        os.utime(out / "other", ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert sorted(read) == ["longer", "other", "replaced"]
    assert read_done(tmp_path / "out")["files"] == file_states(tmp_path / "out")


def test_large_files_are_sampled_by_job(tmp_path, read):
    """As in earlier versions: the positions of the samples depend on the size."""
    with patch.object(fingerprint, "_BLOCK_BYTES", 1000), patch.object(fingerprint, "_MAX_BLOCKS", 80):
        with stage_output(tmp_path / "out", {}, []) as out:
            with atomic_write(out / "large", "wb") as f:
                for number in range(100):
                    f.write(bytes([number]) * 1000)
            assert read == ["large"]
        assert read == ["large"]
        assert read_done(tmp_path / "out")["files"] == file_states(tmp_path / "out")


def test_files_outside_output_have_no_digests(tmp_path):
    with stage_output(tmp_path / "out", {}, []) as out:
        with atomic_write(tmp_path / "other", "wb") as f:
            f.write(bytes(100_000))
        assert not noted_digests(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out"]
