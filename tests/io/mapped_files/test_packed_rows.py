"""Reading some of many short texts in a file."""

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.io.mapped_files import packed_rows
from pyasr.io.mapped_files.packed_rows import StoredRows, read_numbers, read_rows, save_numbers, save_rows

ROWS = ["a-01", "", "ä ü", "b-0002", "x", "", "y" * 300, "z"]


@pytest.mark.parametrize("block", [1, 3, 4, 8, 100])
def test_selected_rows_of_file(block, tmp_path, monkeypatch):
    monkeypatch.setattr(packed_rows, "_BLOCK", block)
    save_rows(tmp_path / "rows", iter(ROWS))
    stored = StoredRows(tmp_path / "rows")
    assert stored == ROWS and stored == ROWS and stored != ROWS[:-1] and stored != ROWS[:-1] + ["Z"]
    assert [stored[number] for number in (0, 2, 6, -1)] == [ROWS[number] for number in (0, 2, 6, -1)]
    for numbers in ([], [0], [1, 2, 6], [7], list(range(8))):
        assert stored.take(np.array(numbers, np.int64)) == [ROWS[number] for number in numbers]


@pytest.mark.parametrize("block", [1, 3, 100])
def test_selected_rows_of_numbers(block, tmp_path, monkeypatch):
    monkeypatch.setattr(packed_rows, "_BLOCK", block)
    numbers = np.random.default_rng(1).integers(-9, 9, (7, 3))
    save_numbers(tmp_path / "numbers", numbers, 3)
    for chosen in ([], [0, 6], [2, 3, 4]):
        assert np.array_equal(
            read_numbers(tmp_path / "numbers", np.array(chosen, np.int64), 3), numbers[chosen]
        )


def test_empty_file_has_no_rows(tmp_path):
    save_rows(tmp_path / "rows", [])
    assert len(StoredRows(tmp_path / "rows")) == 0 and list(StoredRows(tmp_path / "rows")) == []


def test_missing_rows_are_reported(tmp_path):
    save_rows(tmp_path / "rows", ROWS)
    with pytest.raises(UserError, match="rows: row 8 is missing; run the same command again"):
        read_rows(tmp_path / "rows", np.array([7, 8]))
    with pytest.raises(IndexError):
        StoredRows(tmp_path / "rows")[8]
    with pytest.raises(UserError, match="nothing.ends"):
        StoredRows(tmp_path / "nothing")
