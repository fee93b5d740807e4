"""Kaldi object files: round trips, compatibility with kaldi-native-io, damaged files."""

import re
import struct

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.io.kaldi_objects import KaldiReader, KaldiWriter

MATRIX = np.array([[0.1, -2.5e-8], [3.4e38, 7.0], [np.float32(np.pi), 0.0]], np.float32)


def write_all(path, binary):
    with KaldiWriter(path, binary) as f:
        f.token("<Object>")
        f.int32(-7)
        f.uint32(9)
        f.float32(0.1)
        f.float64(1e-300)
        f.bool(True)
        f.bool(False)
        f.int_vector([3, -1, 70000])
        f.int_vector([])
        f.vector(MATRIX[:, 0])
        f.vector(np.array([1e-300, 0.1]))
        f.matrix(MATRIX)
        f.matrix(np.zeros((0, 0), np.float32))
        f.token("</Object>")


def read_all(reader):
    reader.expect("<Object>")
    return [
        reader.int32(),
        reader.uint32(),
        reader.float32(),
        reader.float64(),
        reader.bool(),
        reader.bool(),
        reader.int_vector(),
        reader.int_vector(),
        reader.vector(),
        reader.vector(),
        reader.matrix(),
        reader.matrix(),
        reader.expect("</Object>"),
    ]


@pytest.mark.parametrize("name", ["object", "object.gz"])
@pytest.mark.parametrize("binary", [True, False])
def test_objects_survive_round_trip(tmp_path, name, binary):
    write_all(tmp_path / name, binary)
    reader = KaldiReader(tmp_path / name)
    assert reader.binary == binary
    found = read_all(reader)
    reader.expect_end()
    assert (
        found[:2] == [-7, 9]
        and np.float32(found[2]) == np.float32(0.1)
        and found[3] == 1e-300
        and found[4:6] == [True, False]
    )
    assert found[6].tolist() == [3, -1, 70000] and found[7].tolist() == []
    assert found[8].dtype == np.float32 and (found[8] == MATRIX[:, 0]).all()
    assert np.allclose(found[9], [1e-300, 0.1], rtol=1e-7, atol=0 if binary else 1e-45)
    assert (found[10] == MATRIX).all() and found[11].size == 0


@pytest.mark.parametrize("binary", [True, False])
def test_matrices_are_exchanged_with_kaldi(tmp_path, binary):
    kaldi = pytest.importorskip("kaldi_native_io")
    with KaldiWriter(tmp_path / "ours", binary) as f:
        f.matrix(MATRIX)
    assert np.allclose(kaldi.FloatMatrix.read(str(tmp_path / "ours")).numpy(), MATRIX, rtol=1e-6)
    with KaldiWriter(tmp_path / "ours", binary) as f:
        f.vector(MATRIX[:, 1].astype(np.float64))
    assert np.allclose(kaldi.DoubleVector.read(str(tmp_path / "ours")).numpy(), MATRIX[:, 1], rtol=1e-6)
    kaldi.FloatMatrix(MATRIX).write(str(tmp_path / "theirs"), binary)
    assert np.allclose(KaldiReader(tmp_path / "theirs").matrix(), MATRIX, rtol=1e-5)
    kaldi.FloatVector(MATRIX[:, 0]).write(str(tmp_path / "theirs"), binary)
    assert np.allclose(KaldiReader(tmp_path / "theirs").vector(), MATRIX[:, 0], rtol=1e-5)


@pytest.mark.parametrize("binary", [True, False])
def test_truncation_at_every_byte_is_refused(tmp_path, binary):
    """Always a UserError with the name of the file and an offset within it."""
    write_all(tmp_path / "whole", binary)
    content = (tmp_path / "whole").read_bytes().rstrip()
    for size in range(len(content) - 1):
        with pytest.raises(UserError, match=r"^cut: at byte \d+: "):
            read_all(KaldiReader("cut", content[:size]))


def test_damaged_bytes_give_error_or_other_value(tmp_path):
    write_all(tmp_path / "whole", True)
    content = bytearray((tmp_path / "whole").read_bytes())
    for place in range(2, len(content)):
        damaged = content.copy()
        damaged[place] ^= 0xFF
        try:
            read_all(KaldiReader("damaged", bytes(damaged)))
        except UserError as error:
            assert "damaged: at byte" in str(error)


@pytest.mark.parametrize(
    "method, content",
    [
        ("int_vector", b"\x04\xff\xff\xff\x7f"),
        ("vector", b"FV \x04\xff\xff\xff\x7f"),
        ("vector", b"FV \x04\xff\xff\xff\xff"),
        ("matrix", b"FM \x04\xff\xff\xff\x7f\x04\xff\xff\xff\x7f"),
    ],
)
def test_announced_sizes_are_checked(method, content):
    with pytest.raises(UserError, match="huge: at byte 2: .*(were expected|invalid size)"):
        getattr(KaldiReader("huge", b"\0B" + content), method)()


def test_messages_name_file_offset_and_content(tmp_path):
    path = tmp_path / "final.mdl"
    path.write_bytes(b"\0B<Topology> \x04")
    with pytest.raises(
        UserError, match=r"final.mdl: at byte 2: <TransitionModel> was expected, found '<Topology>'"
    ):
        KaldiReader(path).expect("<TransitionModel>")
    path.write_text("<Object> seven")
    reader = KaldiReader(path)
    reader.token()
    with pytest.raises(UserError, match="final.mdl: at byte 8: an integer was expected, found 'seven'"):
        reader.int32()
    with pytest.raises(UserError, match="missing: no such file"):
        KaldiReader(tmp_path / "missing")
    (tmp_path / "x.gz").write_bytes(b"\x1f\x8b\x08\x00abc")
    with pytest.raises(UserError, match="x.gz: damaged or truncated gzip"):
        KaldiReader(tmp_path / "x.gz")


def test_rows_of_unequal_length_are_refused():
    with pytest.raises(UserError, match="different lengths"):
        KaldiReader("m", b" [\n  1 2\n  3 ]\n").matrix()


def test_failed_writing_leaves_no_file(tmp_path):
    with pytest.raises(ZeroDivisionError), KaldiWriter(tmp_path / "x") as f:
        f.int32(1 // 0)
    assert list(tmp_path.iterdir()) == []


def test_binary_numbers_equal_kaldi():
    writer = KaldiWriter("x")
    writer.int32(5)
    writer.uint32(6)
    writer.float32(1.5)
    writer.bool(True)
    assert (
        writer.getvalue()
        == b"\0B\x04"
        + struct.pack("<i", 5)
        + b"\xfc"
        + struct.pack("<I", 6)
        + b"\x04"
        + struct.pack("<f", 1.5)
        + b"T"
    )


def test_batch_of_integers_equals_single_reads(tmp_path):
    """For all size bytes in a binary file; errors have the same position."""
    path = tmp_path / "integers"
    plain = b"".join(struct.pack("<bi", 4, value) for value in (5, -7, 2**31 - 1))
    for content in (
        b"\0B" + plain,
        b"\0B" + plain + struct.pack("<bI", -4, 2**32 - 1) + struct.pack("<bh", 2, -3),
        b"5 -7 9",
    ):
        path.write_bytes(content)
        one, many, count = KaldiReader(path), KaldiReader(path), 3 if len(content) < 20 else 5
        assert (
            many.int32s(count).tolist() == [one.int32() for _ in range(count)]
            and many.offset == one.offset
            and many.int32s(0).tolist() == []
        )
        with pytest.raises(UserError) as error:
            one.int32()
        with pytest.raises(UserError, match=re.escape(str(error.value))):
            many.int32s(2)
