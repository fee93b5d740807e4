"""Matrix archives against kaldi_native_io, and messages about damaged ones."""

import struct

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.io.ark import ArkWriter, iterate, load_all, load_matrix, read_ark, read_scp


@pytest.fixture
def matrices():
    rng = np.random.default_rng(0)
    return {f"utt{i}": rng.standard_normal((i + 1, 13)).astype(np.float32) for i in range(12)}


def write(directory, matrices, **keywords):
    with ArkWriter(directory / "a.ark", directory / "a.scp", **keywords) as writer:
        for key, matrix in matrices.items():
            writer.write(key, matrix)
    return directory / "a.scp"


@pytest.mark.parametrize("compress", [False, True])
def test_kaldi_reads_our_archives(tmp_path, matrices, compress):
    native = pytest.importorskip("kaldi_native_io")
    scp = write(tmp_path, matrices, compress=compress)
    ours = load_all(scp)
    with native.SequentialFloatMatrixReader(f"scp:{scp}") as reader:
        theirs = {key: np.array(matrix) for key, matrix in reader}
    assert theirs.keys() == ours.keys() == matrices.keys()
    for key, matrix in matrices.items():
        np.testing.assert_allclose(ours[key], theirs[key], atol=1e-6)
        np.testing.assert_allclose(ours[key], matrix, atol=0.05 if compress else 0)


@pytest.mark.parametrize("specifier", ["ark,scp", "ark,t,scp", "compressed"])
def test_kaldi_archives_are_read(tmp_path, matrices, specifier):
    native = pytest.importorskip("kaldi_native_io")
    target = f"{tmp_path}/k.ark,{tmp_path}/k.scp"
    if specifier == "compressed":
        with native.CompressedMatrixWriter(f"ark,scp:{target}") as writer:
            for key, matrix in matrices.items():
                writer.write(key, matrix, native.CompressionMethod.kSpeechFeature)
    else:
        with native.FloatMatrixWriter(f"{specifier}:{target}") as writer:
            for key, matrix in matrices.items():
                writer.write(key, matrix)
    for key, matrix in iterate(tmp_path / "k.scp"):
        np.testing.assert_allclose(matrix, matrices[key], atol=0.05 if specifier == "compressed" else 1e-5)


def test_double_matrices_keep_their_precision(tmp_path):
    value = np.array([[1 / 3, 2e10]])
    scp = write(tmp_path, {"spk": value})
    np.testing.assert_array_equal(load_matrix(read_scp(scp)["spk"], np.float64), value)


def test_text_matrix_with_integer_in_first_place(tmp_path):
    (tmp_path / "m.txt").write_text(" [\n  1 2.5\n  3e-1 4 ]\n")
    np.testing.assert_allclose(load_matrix(f"{tmp_path}/m.txt"), [[1, 2.5], [0.3, 4]])


def test_ranges_are_inclusive(tmp_path, matrices):
    rx = read_scp(write(tmp_path, matrices))["utt9"]
    np.testing.assert_array_equal(load_matrix(rx + "[2:4]"), matrices["utt9"][2:5])
    np.testing.assert_array_equal(load_matrix(rx + "[2:4,0:2]"), matrices["utt9"][2:5, :3])
    for span in ("[5:13]", "[10:11]", "[5:9,0:13]"):
        with pytest.raises(UserError, match=r"the range \[.*\] is outside of the size 10 x 13"):
            load_matrix(rx + span)
    for last in (9, 10, 12):  # times of segments, rounded, may go a little beyond the last frame
        np.testing.assert_array_equal(load_matrix(f"{rx}[5:{last}]"), matrices["utt9"][5:])
    for span in ("[1:2,0:1,0:1]", "[1:2:3]", "[:5,1 2]"):
        with pytest.raises(UserError, match="the range .* is not"):
            load_matrix(rx + span)


def test_text_ending_at_read_block_boundary(tmp_path):
    """The line break after the bracket is the first byte of the next block."""
    numbers = "1 " * ((1 << 15) - 3)
    entry = f"a  [ {numbers}]\n"
    (tmp_path / "a.ark").write_text(
        entry[:2] + " " * (65536 + 2 - len(entry) + 1) + entry[2:] + "b  [ 1 2 ]\n"
    )
    assert (tmp_path / "a.ark").read_bytes()[2 + 65536 - 1 :][:2] == b"]\n"
    found = read_ark(tmp_path / "a.ark")
    assert list(found) == ["a", "b"] and found["a"].shape == ((1 << 15) - 3,)


def test_table_names_final_place_of_archive(tmp_path, matrices):
    write(tmp_path, matrices, named=tmp_path / "final" / "a.ark")
    (tmp_path / "final").mkdir()
    (tmp_path / "a.ark").rename(tmp_path / "final" / "a.ark")
    assert load_all(tmp_path / "a.scp").keys() == matrices.keys()


def test_each_archive_is_opened_once(tmp_path, matrices, monkeypatch):
    scp = write(tmp_path, matrices)
    opened = []
    monkeypatch.setattr("builtins.open", lambda *args, real=open: opened.append(args[0]) or real(*args))
    load_all(scp)
    assert [str(path) for path in opened].count(str(tmp_path / "a.ark")) == 1


@pytest.mark.parametrize("cut", [5, 120])
@pytest.mark.parametrize("compress", [False, True])
def test_truncated_archive_is_refused(tmp_path, matrices, cut, compress):
    scp = write(tmp_path, matrices, compress=compress)
    data = (tmp_path / "a.ark").read_bytes()
    (tmp_path / "a.ark").write_bytes(data[:-cut])
    with pytest.raises(UserError, match="truncated or damaged") as error:
        load_all(scp)
    assert f"{tmp_path}/a.ark:" in str(error.value)


def test_truncated_header_is_refused(tmp_path, matrices):
    scp = write(tmp_path, matrices)
    offset = int(read_scp(scp)["utt11"].rpartition(":")[2])
    for kept in (offset, offset + 3, offset + 9):
        (tmp_path / "a.ark").write_bytes((tmp_path / "a.ark").read_bytes()[:kept])
        with pytest.raises(UserError, match="truncated or damaged"):
            load_matrix(f"{tmp_path}/a.ark:{offset}")


@pytest.mark.parametrize("kind", ["FM", "DM", "CM", "CM2", "CM3"])
def test_matrix_with_rows_but_no_columns_is_refused(tmp_path, kind):
    """About twenty bytes whose header gives two thousand million frames without columns; splicing them would
    take gigabytes."""
    most = 2**31 - 1
    sizes = (
        struct.pack("<ffii", 0, 1, most, 0) if kind.startswith("C") else struct.pack("<bibi", 4, most, 4, 0)
    )
    (tmp_path / "a.ark").write_bytes(b"\0B" + kind.encode() + b" " + sizes)
    with pytest.raises(UserError, match="truncated or damaged"):
        load_matrix(f"{tmp_path}/a.ark")


def test_missing_archive_is_refused(tmp_path, matrices):
    scp = write(tmp_path, matrices)
    (tmp_path / "a.ark").unlink()
    with pytest.raises(UserError, match="a.ark: no such file"):
        load_all(scp)


def test_failed_writing_leaves_no_table(tmp_path, matrices):
    with pytest.raises(RuntimeError), ArkWriter(tmp_path / "a.ark", tmp_path / "a.scp") as writer:
        writer.write("utt", matrices["utt3"])
        raise RuntimeError
    assert not (tmp_path / "a.scp").exists()
