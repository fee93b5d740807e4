"""Compact keys behave like lists and dictionaries of strings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyasr.io import keys as keys_module
from pyasr.io.keys import Groups, Keys, KnownNames, Numbers, distinct, first_keys, ranks
from pyasr.io.tables import Parsed, Table

WORD = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Z")), min_size=1, max_size=3)
ITEMS = st.dictionaries(WORD, WORD, max_size=20)


@given(items=ITEMS, places=st.lists(st.integers(0, 19)), span=st.slices(20))
def test_keys_behave_like_a_list(items, places, span):
    table = Table.of(items.items())
    for found, expected in ((Keys(table), sorted(items)), (Keys.by_line(Parsed(table, len)), list(items))):
        assert (
            found == expected
            and list(found) == expected
            and len(found) == len(expected)
            and repr(found) == repr(expected)
        )
        assert (
            found[span] == expected[span]
            and found[span][::-1] == expected[span][::-1]
            and found != [*expected, "more"]
        )
        taken = [place for place in places if place < len(expected)]
        assert found.take(np.array(taken, np.int64)) == [expected[place] for place in taken]
        assert found[span].take(np.arange(len(expected[span]))[::-1]) == expected[span][::-1]
    assert [Keys(table).place(key) for key in sorted(items)] == list(range(len(items))) and Keys(table).place(
        "no word"
    ) is None


@given(items=ITEMS, data=st.data())
def test_keys_are_split_into_lists(items, data):
    keys = sorted(items)
    lists = data.draw(st.lists(st.integers(0, 3), min_size=len(items), max_size=len(items)))
    found = Keys.of(keys).shared_out(np.array(lists, np.int64), 4)
    assert found == [[key for key, number in zip(keys, lists) if number == one] for one in range(4)]


@given(items=st.dictionaries(WORD, st.sampled_from(["a", "b", "ab", "\u00e4"]), max_size=20))
def test_first_keys_with_each_value(items):
    """The key of a value is the first one that begins with the value, or else the first one."""
    expected = {}
    for key in sorted(items, key=lambda key: (not key.startswith(items[key]), key)):
        expected.setdefault(items[key], key)
    assert list(first_keys(Table.of(items.items()), str.startswith).items()) == sorted(expected.items())


@given(items=ITEMS)
def test_groups_behave_like_a_dictionary_of_lists(items):
    expected: dict[str, list[str]] = {}
    for key in sorted(items):
        expected.setdefault(items[key], []).append(key)
    found = Groups(Keys(Table.of(items.items())), (items[key] for key in sorted(items)))
    assert list(found) == list(expected) and len(found) == len(expected) and dict(found) == expected
    assert all(name in found for name in expected) and found.get("no word") is None
    with pytest.raises(KeyError):
        found["no word"]


@given(items=st.dictionaries(WORD, st.floats(0, 10)))
def test_numbers_behave_like_a_dictionary(items):
    expected = {key: items[key] for key in sorted(items)}
    found = Numbers(Keys(Table.of((key, "") for key in items)), np.array(list(expected.values()), np.float64))
    assert (
        dict(found) == dict(found.items()) == expected
        and list(found.values()) == list(expected.values())
        and len(found) == len(items)
    )
    assert (
        all(found[key] == number and key in found for key, number in items.items())
        and found.get("no word") is None
    )


@given(values=st.lists(WORD))
def test_distinct_values_and_ranks_equal_plain_python(values):
    names, lines = distinct(values)
    assert list(names) == list(dict.fromkeys(values)) and [list(names)[line] for line in lines] == values
    in_order = sorted(set(values))
    assert ranks(values).tolist() == [in_order.index(value) for value in values]


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_known_names_are_numbered_once(most, monkeypatch):
    monkeypatch.setattr(keys_module, "_MAX_NEW", most)
    known, names = KnownNames(), [f"name{number}" for number in range(200)]
    assert all(known.add(name) for name in names) and not any(known.add(name) for name in names)
    assert all(name in known for name in names) and "other" not in known
    assert (
        [known.number(name) for name in names] == list(range(200))
        and known.number("other") is None
        and len(known) == 200
    )
