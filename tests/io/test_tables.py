"""Compact tables behave like dictionaries."""

import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyasr.base.errors import UserError
from pyasr.io import content, tables
from pyasr.io.lazy_tables import Joined, Lazy, Stored, at_hand, having, mapped
from pyasr.io.tables import Parsed, Table, TableBuilder, pairs_of_file, split_line
from pyasr.io.text_tables import invert, write_inverted, write_table

WORD = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Z")), min_size=1, max_size=4)
ITEMS = st.lists(st.tuples(WORD, st.lists(WORD, max_size=3).map(" ".join)), max_size=30)
BLANK = st.sampled_from([" ", "  ", "\t", "\r", "\x0b", "\x1c", "\x85", "\xa0", "\u2003", "\u3000"])
LINE = st.lists(st.one_of(WORD, BLANK, st.just("\u201c")), max_size=6).map("".join)
FAR_BYTES = 400  # the strings of a dictionary take more per line


@given(items=ITEMS, asked=st.lists(WORD, max_size=30))
def test_table_behaves_like_a_dictionary(items, asked):
    table, plain = Table.of(items), dict(items)
    assert (
        dict(table) == dict(table.items()) == plain
        and len(table) == len(plain)
        and list(table.values()) == [table[key] for key in table]
    )
    assert list(table.sorted_pairs()) == sorted(plain.items()) and b"".join(table.sorted_lines()) == written(
        plain
    )
    for key in [*asked, *plain, *sorted(plain), *sorted(asked)]:
        assert (key in table) == (key in plain) and table.get(key) == plain.get(key)


def written(table: dict[str, str]) -> bytes:
    return "".join(f"{key} {value}".rstrip() + "\n" for key, value in sorted(table.items())).encode()


@given(lines=st.lists(LINE, max_size=12), ends=st.booleans())
def test_lines_are_parsed_like_single_lines(lines, ends, tmp_path_factory):
    """With all kinds of blanks anywhere; an error if a key is empty or a duplicate."""
    path = tmp_path_factory.mktemp("tables") / "table"
    path.write_bytes("\n".join(lines).encode() + b"\n" * (ends and bool(lines)))
    expected, fault = {}, ""
    for number, line in enumerate(
        path.read_bytes().decode().removesuffix("\n").split("\n") if path.stat().st_size else [], 1
    ):
        key, value = split_line(line)
        if not fault and (not key or key in expected):
            fault = f"{path}:{number}: " + (
                f"duplicate key '{key}'; keep one of the two lines" if key else "empty line; remove it"
            )
        expected[key] = value
    if not fault:
        assert list(Table.read(path).items()) == list(pairs_of_file(path)) == list(expected.items())
        return
    with pytest.raises(UserError) as caught:
        Table.read(path)
    assert str(caught.value) == str(UserError(fault))


@given(items=ITEMS, kept=st.sets(WORD))
def test_computed_tables_are_evaluated_lazily(items, kept):
    plain = dict(items)
    longer = mapped(Table.of(items), lambda key: f"x{key}", len)
    assert dict(longer.items()) == {f"x{key}": len(value) for key, value in plain.items()} and bool(
        longer
    ) == bool(plain)
    assert dict(having(Table.of(items), kept).items()) == {
        key: value for key, value in plain.items() if key in kept
    }
    for found in (Table.of(items), Parsed(Table.of(items), str), having(Table.of(items), plain)):
        assert (
            found | {"x": "y"} == plain | {"x": "y"}
            and {"x": "y"} | found == {"x": "y"} | plain
            and list(found.items()) == list(plain.items())
        )
    made = Lazy(lambda: iter(plain.items()))
    assert (
        len(made) == len(plain)
        and all(made[key] == value and key in made for key, value in plain.items())
        and "no word" not in made
    )


@given(parts=st.lists(ITEMS, max_size=4), prefixes=st.booleans())
def test_joined_tables_are_written_as_union(parts, prefixes, tmp_path_factory):
    """For interleaved, separate or equal keys; of several lines with the same key the last one is valid."""
    parts = [
        [(f"{9 - number}{key}" if prefixes else key, value) for key, value in items]
        for number, items in enumerate(parts)
    ]
    path = tmp_path_factory.mktemp("joined") / "table"
    joined = Joined([Lazy(dict(items).items) for items in parts])
    expected = dict(item for items in parts for item in items)
    write_table(path, joined)
    assert path.read_bytes() == written(expected) and dict(at_hand(joined)) == expected
    builder = TableBuilder()
    for key, value in joined.items():
        builder.add(key, value)
    assert (
        dict(builder.table()) == expected
        and dict(Stored(builder.table)) == dict(at_hand(Stored(builder.table))) == expected
    )


def test_sorted_lines_are_written_in_batches(tmp_path):
    """Lines of computed and joined tables are in memory only while they are written."""
    path, num, peaks = tmp_path / "table", 100_000, []
    parts = [
        Lazy(lambda first=first: ((f"{first}-{i:06d}", "some words that were said") for i in range(num // 2)))
        for first in "ab"
    ]
    for table in (
        Lazy(lambda: ((f"{i:06d}", "some words that were said") for i in range(num))),
        Joined(parts[::-1]),
    ):
        tracemalloc.start()
        write_table(path, table)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 0.8 * path.stat().st_size


def test_lines_of_file_are_read_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(content, "_CHUNK_BYTES", 1 << 13)
    monkeypatch.setattr(tables, "_BLOCK_LINES", 64)
    path = tmp_path / "table"
    path.write_text("".join(f"{i:06d} some words that were said\n" for i in range(50_000)))
    tracemalloc.start()
    assert sum(1 for _ in pairs_of_file(path)) == 50_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.2 * path.stat().st_size


@given(items=ITEMS, data=st.data())
def test_selected_lines_of_a_table(items, data):
    table = Table.of(items)
    chosen = sorted(data.draw(st.sets(st.sampled_from(range(len(table)))))) if len(table) else []
    lines = table.content.splitlines(keepends=True)
    assert table.taken(np.array(chosen, np.int64)) == b"".join(lines[number] for number in chosen)
    assert table.where(number in chosen for number in range(len(table))).content == b"".join(
        lines[number] for number in chosen
    )


@given(speakers=st.dictionaries(WORD, WORD, min_size=1, max_size=30), ordered=st.booleans())
def test_speaker_table_is_written_as_inverse(speakers, ordered, tmp_path_factory):
    """Whether they come in the order of the utterances, one after the other, or not."""
    path = tmp_path_factory.mktemp("inverse")
    utt2spk = {f"{speaker}-{utt}" if ordered else utt: speaker for utt, speaker in speakers.items()}
    write_table(path / "utt2spk", utt2spk)
    write_inverted(path / "spk2utt", path / "utt2spk")
    write_table(path / "expected", invert(utt2spk))
    assert (path / "spk2utt").read_bytes() == (path / "expected").read_bytes()


def test_memory_is_proportional_to_file(tmp_path):
    """A table is read, searched, filtered and written; a line of a dictionary takes at least 400 bytes."""
    lines = [f"speaker{i // 100:05d}-utterance{i:07d} some words that were said {i}" for i in range(50_000)]
    path = tmp_path / "text"
    random.Random(0).shuffle(lines)
    path.write_text("\n".join(lines) + "\n")
    keys = [line.split()[0] for line in lines]
    del lines
    tracemalloc.start()
    table = Table.read(path)
    held, _ = tracemalloc.get_traced_memory()
    assert all(key in table for key in keys)
    write_table(tmp_path / "out", having(table, table))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1.2 * path.stat().st_size and peak / len(keys) < FAR_BYTES
    assert sorted(path.read_bytes().split(b"\n")[:-1]) == (tmp_path / "out").read_bytes().split(b"\n")[:-1]
