"""Archives of integer vectors against kaldi-native-io, and damaged files."""

import gzip

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.io.ark import read_ark
from pyasr.io.int_vectors import job_archive_files, read_int_vectors, read_job_archives, write_int_vectors

VECTORS = {
    "utt-1": np.array([1, 2, 2, 70000], np.int32),
    "utt-2": np.array([], np.int32),
    "ütt-3": np.array([-5], np.int32),
}


def assert_equal(found):
    assert list(found) == list(VECTORS)
    for key, vector in VECTORS.items():
        assert found[key].dtype == np.int32 and found[key].tolist() == vector.tolist()


@pytest.mark.parametrize("name", ["ali.ark", "ali.1.gz"])
@pytest.mark.parametrize("binary", [True, False])
def test_archives_survive_round_trip(tmp_path, name, binary):
    write_int_vectors(tmp_path / name, VECTORS, binary)
    assert_equal(read_int_vectors(tmp_path / name))


def test_keys_with_joiners_and_soft_hyphens(tmp_path):
    """Common in Persian words; characters that no word contains are refused in keys."""
    keys = ["\u0645\u06cc\u200c\u0634\u0648\u062f-1", "soft\u00adhyphen", "\ue000private"]
    write_int_vectors(tmp_path / "ali.ark", {key: [1, 2] for key in keys})
    assert list(read_int_vectors(tmp_path / "ali.ark")) == keys
    for key in ("no\u00a0break", "bell\a"):
        (tmp_path / "ali.ark").write_bytes(f"{key} 1 2\n".encode())
        with pytest.raises(UserError, match="expected a key followed by a space"):
            read_int_vectors(tmp_path / "ali.ark")


def test_tab_after_key_is_accepted_like_kaldi(tmp_path):
    kaldi = pytest.importorskip("kaldi_native_io")
    (tmp_path / "ali.ark").write_bytes(b"utt1\t1 2 3\nutt2 4\n")
    with kaldi.SequentialInt32VectorReader(f"ark:{tmp_path}/ali.ark") as reader:
        assert {key: list(value) for key, value in reader} == {
            key: value.tolist() for key, value in read_int_vectors(tmp_path / "ali.ark").items()
        }
    (tmp_path / "feats.ark").write_bytes(b"utt1\t [\n 1 2\n 3 4 ]\n")
    assert read_ark(tmp_path / "feats.ark")["utt1"].tolist() == [[1, 2], [3, 4]]


def test_kaldi_reads_our_archives(tmp_path):
    kaldi = pytest.importorskip("kaldi_native_io")
    for binary in True, False:
        write_int_vectors(tmp_path / "ali.ark", VECTORS, binary)
        with kaldi.SequentialInt32VectorReader(f"ark:{tmp_path}/ali.ark") as reader:
            assert {key: list(value) for key, value in reader} == {
                key: value.tolist() for key, value in VECTORS.items()
            }


def test_kaldi_archives_are_read(tmp_path):
    kaldi = pytest.importorskip("kaldi_native_io")
    for options in "ark", "ark,t":
        with kaldi.Int32VectorWriter(f"{options}:{tmp_path}/ali.ark") as writer:
            for key, vector in VECTORS.items():
                writer.write(key, vector.tolist())
        assert_equal(read_int_vectors(tmp_path / "ali.ark"))


def test_archives_of_jobs_are_merged(tmp_path):
    write_int_vectors(tmp_path / "ali.1.gz", {"a": [1]})
    write_int_vectors(tmp_path / "ali.2.gz", {"b": [2]})
    (tmp_path / "num_jobs").write_text("2\n")
    assert sorted(read_job_archives(tmp_path)) == ["a", "b"]
    assert {key: vector.tolist() for key, vector in read_job_archives(tmp_path, keys={"b", "c"}).items()} == {
        "b": [2]
    }
    write_int_vectors(tmp_path / "ali.2.gz", {"a": [2]})
    with pytest.raises(UserError, match="ali.2.gz: a is also"):
        read_job_archives(tmp_path)
    (tmp_path / "num_jobs").unlink()
    with pytest.raises(UserError, match="num_jobs"):
        read_job_archives(tmp_path)


@pytest.mark.parametrize("content", ["0", "-3", "100001"])
def test_number_of_jobs_is_limited(tmp_path, content):
    """A damaged number would lead to an endless list or an empty one."""
    (tmp_path / "num_jobs").write_text(content)
    with pytest.raises(
        UserError,
        match=f"^{tmp_path}/num_jobs: not a number from 1 to 100000; is this an alignment directory",
    ):
        job_archive_files(tmp_path)


def test_every_truncation_error_names_the_file(tmp_path):
    write_int_vectors(tmp_path / "whole", {"utt-1": [1, 2, 3]})
    whole = (tmp_path / "whole").read_bytes()
    for size in range(1, len(whole)):
        (tmp_path / "cut").write_bytes(whole[:size])
        with pytest.raises(UserError, match="cut: "):
            read_int_vectors(tmp_path / "cut")


@pytest.mark.parametrize(
    "content",
    [
        b"\x1f\x8bnonsense",
        gzip.compress(b"a 1 2\n", mtime=0)[:-9],
        b"a 1 x\n",
        b"\0\1\2 \3",
        b"a 1\na 2\n",
        b"alone\n",
    ],
)
def test_invalid_files_are_refused(tmp_path, content):
    (tmp_path / "ali.1.gz").write_bytes(content)
    with pytest.raises(UserError, match="ali.1.gz: "):
        read_int_vectors(tmp_path / "ali.1.gz")


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="ali.1.gz: no such file"):
        read_int_vectors(tmp_path / "ali.1.gz")
