"""Files of named arrays: written arrays are read back, also by concurrent threads; other files are
refused."""

import ast
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.io.mapped_files.arrays import load_arrays, save_arrays

ARRAYS = {"keys": np.array(["a", "ü"]), "counts": np.arange(6).reshape(2, 3), "one": np.array(2.5)}


def test_arrays_survive_round_trip(tmp_path):
    save_arrays(tmp_path / "x.npz", **ARRAYS)
    read = load_arrays(tmp_path / "x.npz", ("keys", "one"))
    assert list(read) == list(ARRAYS)
    assert all(
        np.array_equal(read[name], array) and read[name].dtype == array.dtype
        for name, array in ARRAYS.items()
    )


def test_literals_are_evaluated_by_one_thread_at_a_time(tmp_path, monkeypatch):
    """Concurrent evaluation is not reliable in Python 3.11."""
    inside, most, evaluate = [], [], ast.literal_eval

    def observed(text):
        inside.append(text)
        most.append(len(inside))
        time.sleep(0.001)
        inside.pop()
        return evaluate(text)

    monkeypatch.setattr(ast, "literal_eval", observed)
    save_arrays(tmp_path / "x.npz", **ARRAYS)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: load_arrays(tmp_path / "x.npz"), range(40)))
    assert len(most) >= 40 and max(most) == 1


@pytest.mark.parametrize("content", [b"", b"PK damaged", b"PK\3\4 damaged", b"text\n", b"\x93NUMPY", None])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "x.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match="x.npz: not a file of arrays .*; begin again"):
        load_arrays(path, remedy="begin again")


def test_truncated_file_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    save_arrays(path, **ARRAYS)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match="not a file of arrays"):
        load_arrays(path)


def test_missing_array_is_named(tmp_path):
    save_arrays(tmp_path / "x.npz", **ARRAYS)
    with pytest.raises(UserError, match="x.npz: missing arrays sums; create it again"):
        load_arrays(tmp_path / "x.npz", ("keys", "sums"))


def test_single_npy_array_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", ARRAYS["counts"])
    with pytest.raises(UserError, match="not a file of arrays"):
        load_arrays(tmp_path / "x.npy")
