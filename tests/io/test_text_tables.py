"""Text tables behave like dictionaries, and messages about invalid tables."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyasr.base.errors import UserError
from pyasr.io.text_tables import invert, read_numbers, read_table, utt2spk_table, write_table

WORD = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Z")), min_size=1, max_size=6)


@given(table=st.dictionaries(WORD, st.lists(WORD, max_size=4).map(" ".join), max_size=10))
def test_round_trip_sorts_by_bytes(tmp_path_factory, table):
    path = tmp_path_factory.mktemp("text") / "table"
    write_table(path, table)
    assert read_table(path) == table
    keys = [line.split(b" ")[0] for line in path.read_bytes().split(b"\n")[:-1]]
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 1\nb 2\na 3\n", "table:3: duplicate key 'a'"),
        (b"a 1\n\nb 2\n", "table:2: empty line"),
        (b"a 1\nb \xff\n", "table:2: not UTF-8"),
    ],
)
def test_invalid_tables_are_refused(content, message, tmp_path):
    (tmp_path / "table").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_table(tmp_path / "table")


def test_missing_table_is_refused(tmp_path):
    with pytest.raises(UserError, match="text: no such file"):
        read_table(tmp_path / "text")


def test_tabs_and_blanks(tmp_path):
    (tmp_path / "t").write_text("a\tx y \nb  z\r\nc\n")
    assert read_table(tmp_path / "t") == {"a": "x y", "b": "z", "c": ""}


def test_gzipped_table(tmp_path):
    (tmp_path / "text").write_bytes(gzip.compress("a größe\n".encode()))
    assert read_table(tmp_path / "text") == {"a": "größe"}


def test_table_is_inverted():
    assert invert({"b-2": "b", "a-1": "a", "b-1": "b"}) == {"a": "a-1", "b": "b-1 b-2"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "a-1 a\na-2 a female\n",
            "utt2spk:2: 'a-2 a female': 3 column.s., expected 'UTTERANCE SPEAKER'; run utils/fix_data_dir.py",
        ),
        ("a-1\n", "utt2spk:1: 'a-1 ': 1 column"),
        ("a-1 a\na-1 b\n", "utt2spk:2: duplicate key 'a-1'"),
    ],
)
def test_invalid_utt2spk_is_refused(content, message, tmp_path):
    (tmp_path / "utt2spk").write_text(content)
    with pytest.raises(UserError, match=message):
        utt2spk_table(tmp_path / "utt2spk")


@pytest.mark.parametrize("value", ["long", "", "-1", "0", "nan", "inf", "1 2"])
def test_numeric_tables_are_read(value, tmp_path):
    (tmp_path / "utt2dur").write_text("a 1.5\nb 2\n")
    assert read_numbers(tmp_path / "utt2dur") == {"a": 1.5, "b": 2.0}
    (tmp_path / "utt2dur").write_text(f"a 1.5\nb {value}\n")
    with pytest.raises(
        UserError,
        match=f"utt2dur:2: 'b {value}' does not end in a positive number; run utils/fix_data_dir.py",
    ):
        read_numbers(tmp_path / "utt2dur")
    with pytest.raises(UserError, match=":1: .*a positive whole number"):
        read_numbers(tmp_path / "utt2dur", int)
