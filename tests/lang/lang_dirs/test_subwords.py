"""Subword units of a toy text: ids, spellings, and refusal of a text that is too small."""

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from steps_here import run_here

from pyasr.base.errors import UserError, printable
from pyasr.io.text_tables import write_table
from pyasr.lang.lang_dirs.subwords import (
    BLANK,
    BOUNDARY,
    MODEL,
    UNITS,
    UNKNOWN,
    UNKNOWN_ID,
    WORDS,
    SubwordOptions,
    Subwords,
    train_subwords,
)
from pyasr.lang.symbols import SymbolTable

TEXT = ["the cat sat on the mat", "a bat and  the rat", "it's a cat", ""] * 3
SIZES = {"unigram": 20, "bpe": 30}


@pytest.fixture(scope="module", params=sorted(SIZES))
def subwords(request):
    return train_subwords(TEXT, SubwordOptions(SIZES[request.param], request.param), "text")


def test_units_have_ids_in_order(subwords):
    kind = "bpe" if not subwords.has_several else "unigram"
    assert len(subwords) == len(set(subwords.units)) == SIZES[kind]
    assert subwords.units[:2] == [BLANK, UNKNOWN] and subwords.units.index(UNKNOWN) == UNKNOWN_ID
    assert [unit for unit, begins in zip(subwords.units, subwords.begins_word) if begins] == [
        u for u in subwords.units if u[0] == "\u2581"
    ]


def test_encoded_text_is_decoded_exactly(subwords):
    for sentence in [*TEXT, "rats tithe", "o  o'o"]:
        units = subwords.encode(sentence)
        assert units.dtype == np.int64 and (units > UNKNOWN_ID).all()
        assert subwords.words(units) == sentence.split()
    assert UNKNOWN_ID in subwords.encode("zebra") and subwords.spellings("zebra", 3) == []


def test_letters_without_unit_become_unknown(subwords):
    """<unk> also stands for unintelligible speech, and has no letters."""
    assert (
        subwords.strange_letters("the zebra QZ <unk>") == {"z", "Q", "Z"}
        and subwords.strange_letters("a bat <unk>") == set()
    )
    assert subwords.words(subwords.encode("QZab zebra")) == ["ab", "ebra"]
    assert subwords.words(subwords.encode("the <unk> <unk> cat QZ")) == [
        "the",
        "<unk>",
        "<unk>",
        "cat",
        "<unk>",
    ]
    assert subwords.encode("a <unk>").tolist() == [
        *subwords.encode("a"),
        subwords.units.index(BOUNDARY),
        UNKNOWN_ID,
    ]


@pytest.mark.parametrize("kind", sorted(SIZES))
def test_letters_of_unknown_word_are_not_learned(kind):
    units = train_subwords([f"{sentence} <unk>" for sentence in TEXT], SubwordOptions(17, kind), "text").units
    assert not {"<", "u", "k", ">"} & set("".join(units[2:]))


def test_spellings_are_segmentations_of_word(subwords):
    for word in ("cat", "mat", "bathe"):
        spellings = subwords.spellings(word, 4)
        assert spellings[0] == tuple(subwords.encode(word)) and len(set(spellings)) == len(spellings) <= 4
        assert (len(spellings) > 1) == subwords.has_several
        assert all(
            subwords.words(units) == [word] and subwords.begins_word[list(units)].sum() == 1
            for units in spellings
        )
        assert subwords.spellings(word) == spellings[:1]


LETTERS = st.characters(blacklist_categories=("Cs",), blacklist_characters="\u2581\u2585\0")
ANY_WORDS = st.lists(
    st.text(LETTERS, min_size=1, max_size=8).filter(
        lambda word: word.split() == [word] and "<unk>" not in word
    ),
    min_size=1,
    max_size=6,
)


def with_fewest_units(words, kind) -> Subwords:
    """The smallest number of units that spells the text."""
    for num in range(3, 200):
        try:
            return train_subwords(words, SubwordOptions(num, kind), "text")
        except UserError as error:
            if fewest := re.search("--num-units ([0-9]+) or more", str(error)):
                return train_subwords(words, SubwordOptions(int(fewest[1]), kind), "text")


@settings(max_examples=60, deadline=None)
@given(ANY_WORDS, st.sampled_from(sorted(SIZES)))
@example(
    [
        "\ufb01",
        "e\u0301",
        "\u00e9",
        "\u2126",
        "a\u200bb",
        "\U0001f468\u200d\U0001f469",
        "\ufeffa",
        "<s>",
        "</s>",
        "<blk>",
        "@@",
    ],
    "bpe",
)
@example(
    ["\u1100\u1161", "\uac00", "\u212b", "\u00adb", "\ufffd", "\x07", "\x7f", "<pad>", "<0x41>"], "unigram"
)
def test_words_with_any_characters_are_decoded_exactly(words, kind):
    subwords = with_fewest_units(words, kind)
    assert subwords.words(subwords.encode(" ".join(words))) == words
    assert all(
        subwords.words(units) == [word]
        for word in words
        for units in (subwords.encode(word), *subwords.spellings(word, 3))
    )


@pytest.mark.parametrize(
    "word, name",
    [
        ("b\u2581at", "U+2581, which marks the beginning of a word in units"),
        ("\u2581bat", "U+2581"),
        ("bat\u2585", "U+2585, which sentencepiece reserves"),
        ("b\0at", "U+0000"),
        ("bat<unk>", "<unk>, which stands for a whole word"),
        ("<unk>bat", "<unk>"),
        ("<unk><unk>", "<unk>"),
    ],
)
def test_words_that_cannot_be_decoded_are_refused(word, name, subwords):
    with pytest.raises(
        UserError, match=re.escape(f"text: the word '{printable(word)}' contains {name}") + ".*; remove it"
    ):
        train_subwords([*TEXT, f"a {word} rat"], SubwordOptions(20), "text")
    if "<unk>" not in word:
        units = subwords.encode(f"a {word} rat")
        assert UNKNOWN_ID in units and len(subwords.words(units)) == 3 and subwords.spellings(word, 3) == []
        assert subwords.strange_letters(f"a {word} rat") == set(word) - set("bat")


@pytest.mark.parametrize("kind", sorted(SIZES))
def test_same_text_gives_same_bytes(kind):
    one, other = (train_subwords(TEXT, SubwordOptions(SIZES[kind], kind), "text").model for _ in range(2))
    assert one == other


def test_long_lines_are_used():
    assert "z" in "".join(train_subwords([*TEXT, "z " * 5000], SubwordOptions(22), "text").units)


@pytest.mark.parametrize(
    "kind, num, message",
    [
        (
            "unigram",
            500,
            "data/text: the text is too small for 500 unigram units; give --num-units 20 or fewer",
        ),
        ("bpe", 500, "data/text: the text is too small for 500 bpe units; give --num-units 54 or fewer"),
        (
            "bpe",
            4,
            "data/text: the text has more letters than 4 units can spell; give --num-units 17 or more",
        ),
    ],
)
def test_text_too_small_for_number_of_units_is_refused(kind, num, message):
    with pytest.raises(UserError) as error:
        train_subwords(TEXT, SubwordOptions(num, kind), "data/text")
    assert str(error.value) == message
    best = int(message.split("--num-units ")[1].split()[0])
    assert len(train_subwords(TEXT, SubwordOptions(best, kind), "data/text")) == best


def test_text_without_words_is_refused():
    with pytest.raises(UserError, match="data/text: no words to train units on"):
        train_subwords(["", " "], SubwordOptions(10), "data/text")


def test_program_writes_readable_directory(tmp_path):
    (tmp_path / "data").mkdir()
    write_table(tmp_path / "data/text", {f"utt{n:02}": sentence for n, sentence in enumerate(TEXT)})
    run_here("train_subwords.py", "--num-units", 20, tmp_path / "data", tmp_path / "units", folder="utils")
    subwords = Subwords.read(tmp_path / "units")
    assert SymbolTable.read(tmp_path / "units" / UNITS).symbols == subwords.units
    assert (tmp_path / "units" / WORDS).read_text().split() == sorted(
        {word for sentence in TEXT for word in sentence.split()}
    )
    with pytest.raises(UserError, match="too small for 300 unigram units"):
        run_here(
            "train_subwords.py", "--num-units", 300, tmp_path / "data", tmp_path / "others", folder="utils"
        )
    assert not (tmp_path / "others").exists()


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="units.model: no such file; create it with utils/train_subwords.py"):
        Subwords.read(tmp_path)
    (tmp_path / MODEL).write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match="units.model: not a sentencepiece model"):
        Subwords.read(tmp_path)
