"""Reading whole files: compressed files, names that are not files, and files that unpack to implausible
sizes."""

import gzip
import io
import os
import struct
import zipfile

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.decode.lattices.lattice_io import read_lattices
from pyasr.io.ark import load_matrix, read_ark
from pyasr.io.content import read_content, read_file
from pyasr.io.int_vectors import read_int_vectors
from pyasr.io.kaldi_objects import KaldiReader
from pyasr.io.mapped_files.arrays import load_arrays
from pyasr.lang.ngrams.arpa import read_arpa
from pyasr.tensor.file import load_object


def test_content_of_plain_and_gzipped_files(tmp_path):
    members = gzip.compress(b"one ") + gzip.compress(b"two")
    for content, expected in ((b"one two", b"one two"), (members, b"one two"), (b"", b"")):
        (tmp_path / "a").write_bytes(content)
        assert read_content(tmp_path / "a") == expected


def test_content_of_a_pipe(tmp_path):
    reading, writing = os.pipe()
    os.write(writing, gzip.compress(b"words"))
    os.close(writing)
    assert read_content(f"/dev/fd/{reading}") == b"words"
    os.close(reading)


@pytest.mark.parametrize(
    "name, message",
    [
        ("/dev/zero", "a device, not a file"),
        ("a\0b", "a zero byte"),
        ("x" * 300, "the name is too long"),
        ("/", "Is a directory"),
        ("/nowhere/x", "no such file"),
    ],
)
def test_directories_and_devices_are_refused(name, message):
    with pytest.raises(UserError, match=message):
        read_file(name)


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    """80 KB that unpack to 80 MB of zeros after a header with as many states."""
    path = tmp_path_factory.mktemp("bomb") / "bomb.gz"
    head = (
        b"utt "
        + struct.pack("<i", 2125659606)
        + b"\6\0\0\0vector\x08\0\0\0lattice4"
        + struct.pack("<iiQqqq", 2, 0, 3, 0, 1 << 40, 0)
    )
    with gzip.open(path, "wb") as f:
        f.write(head)
        for _ in range(80):
            f.write(bytes(1 << 20))
    return path


@pytest.mark.parametrize(
    "read",
    [
        read_content,
        read_int_vectors,
        read_ark,
        read_arpa,
        KaldiReader,
        lambda path: list(read_lattices(path)),
    ],
)
def test_decompression_bombs_are_refused(read, bomb):
    with pytest.raises(
        UserError,
        match=f"{bomb}: [0-9]+ bytes that unpack to more than [0-9]+; if this is intended, unpack it first",
    ):
        read(bomb)


@pytest.mark.parametrize(
    "head",
    [
        b"\0BFM \x04" + struct.pack("<i", 1 << 20) + b"\x04" + struct.pack("<i", 1 << 20),
        b"\0BDM \x04" + struct.pack("<i", -1) + b"\x04" + struct.pack("<i", -1),
        b"\0BCM " + struct.pack("<ffii", 0, 1, 1 << 30, 1 << 30),
        b"\0BCM2 " + struct.pack("<ffii", 0, 1, 40000, 40000),
    ],
)
def test_matrices_with_implausible_sizes_are_refused(head, tmp_path):
    (tmp_path / "a.ark").write_bytes(b"utt " + head + bytes(1000))
    for read, place in ((load_matrix, f"{tmp_path}/a.ark:4"), (read_ark, tmp_path / "a.ark")):
        with pytest.raises(UserError, match="a.ark.*no complete matrix"):
            read(place)


def npy(shape: str, content: bytes) -> bytes:
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + content


@pytest.mark.parametrize(
    "content, compression",
    [
        (npy("(1000000000000,)", bytes(80)), zipfile.ZIP_STORED),
        (npy("(-4,)", bytes(80)), zipfile.ZIP_STORED),
        (npy("(10,)", bytes(80)), zipfile.ZIP_DEFLATED),
        (b"", zipfile.ZIP_STORED),
    ],
)
def test_arrays_with_implausible_sizes_are_refused(content, compression, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", compression) as archive:
        archive.writestr("a.npy", content)
    with pytest.raises(UserError, match="a.npz: not a file of arrays"):
        load_arrays(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", npy("(10,)", bytes(80)))
    np.testing.assert_array_equal(load_arrays(tmp_path / "a.npz")["a"], np.zeros(10))


class Malice:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch spoilt",)


def test_tensor_files_run_no_code_and_are_not_compressed(tmp_path, monkeypatch):
    import torch

    monkeypatch.chdir(tmp_path)
    torch.save({"format": Malice()}, "malice.nnet")
    buffer = io.BytesIO()
    torch.save({"format": torch.zeros(1000)}, buffer)
    with (
        zipfile.ZipFile(buffer) as stored,
        zipfile.ZipFile("packed.nnet", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in stored.namelist():
            packed.writestr(name, stored.read(name))
    for name in ("malice.nnet", "packed.nnet"):
        with pytest.raises(UserError, match=f"{name}: not a whole model file"):
            load_object(name, lambda content: content["format"], "model", "train", "steps/train_dnn.py")
    assert not (tmp_path / "spoilt").exists()
