"""Rules for words of Switchboard's transcripts and dictionary, each with its example from the corpus."""

from collections import Counter

import pytest

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.corpora.switchboard.acronyms import LETTER_NAMES, acronym_of, acronyms_in, with_acronyms
from pyasr.corpora.switchboard.swbd_dictionary import (
    add_missing,
    as_dict_dir,
    as_phones_of_switchboard,
    entries_in,
    lexicon_of,
)
from pyasr.corpora.switchboard.swbd_speakers import SpeakerTables, read_callers, read_sexes
from pyasr.corpora.switchboard.swbd_text import word_of, words_of
from pyasr.data.transcripts.spoken import letters_of
from pyasr.lang.lexicons.dict_dir import find_problems
from pyasr.lang.lexicons.lexicon import Lexicon


@pytest.mark.parametrize(
    "token, word",
    [
        ("[laughter-story]", "story"),
        ("[laughter-yeah]-", "yeah-"),
        ("[LAUGHTER-Yeah]", "Yeah"),
        ("[laughter-w[ith]-]", "w-"),
        ("[it'n/isn't]", "it'n"),
        ("[lem[guini]-/linguini]", "lem-"),
        ("[w[ent]-/would]-", "w-"),
        ("[it'n/isn't]-", "it'n-"),
        ("-[an]y", "-y"),
        ("-[40]1k", "-1k"),
        ("[an]y", "-y"),
        ("-[I]'m", "-'m"),
        ("do[n]'t", "do-'t"),
        ("-[do]n'[t]", "-n'-"),
        ("ab[solute]-", "ab-"),
        ("ab[solute]", "ab-"),
        ("-[a]b[out]-", "-b-"),
        ("ex[specially]-/especially]", "ex"),
        ("{yuppiedom}", "yuppiedom"),
        ("[laughter-{yuppiedom}]", "yuppiedom"),
        ("{wug}-", "wug-"),
        ("ammu[n]it-", "ammu-it-"),
        ("them_1", "them"),
        ("them_1's", "them's"),
        ("[uh_1/a]", "uh"),
        ("[silence]", ""),
        ("<b_aside>", ""),
        ("<E_ASIDE>", ""),
        ("[Silence]", ""),
        ("[noise]", "[noise]"),
        ("[laughter]", "[laughter]"),
        ("[Vocalized-Noise]", "[vocalized-noise]"),
        ("uh-huh", "uh-huh"),
        ("IBM", "IBM"),
        ("don't", "don't"),
        ("AT&amp;T", "AT&T"),
        ("AT&T", "AT&T"),
        ("w-", "w-"),
    ],
)
def test_transcript_tokens_become_words(token, word):
    assert word_of(token) == word


def test_segments_with_only_noise_keep_noise_words():
    assert words_of("  [silence]  <b_aside> ") == [] and words_of("[noise]") == ["[noise]"]
    assert words_of("[laughter] um [laughter-yeah] i wen[t]- {zwieback} to it") == [
        "[laughter]",
        "um",
        "yeah",
        "i",
        "wen-",
        "zwieback",
        "to",
        "it",
    ]


@pytest.mark.parametrize(
    "word, phones, acronym",
    [
        ("IBM", "ay b iy eh m", "i._b._m."),
        ("TVs", "t iy v iy z", "t._v.s"),
        ("BBC's", "b iy b iy s iy z", "b._b._c.'s"),
        ("CDs", "s iy d iy s", "c._d.s"),
        ("OK", "ow k ey", "o._k."),
        ("C", "s iy", "c."),
        ("W", "d ah b ax l y uw", "w."),
        ("US", "y uw eh s", "u._s."),
        ("US", "ah s", None),
        ("IBM", "ay b iy eh m z", None),
        ("NASA", "n ae s ax", None),
        ("em", "iy eh m", None),
        ("AT&T", "ey t iy ax n t iy", None),
        ("I'm", "ay m", None),
        ("s", "eh s", None),
    ],
)
def test_acronyms_are_recognised_by_letter_names(word, phones, acronym):
    assert acronym_of(word, [("x",), tuple(phones.split())]) == acronym


def test_acronyms_are_replaced_by_exact_case_and_restored():
    acronyms = {
        "IBM": "i._b._m.",
        "TVs": "t._v.s",
        **{letter: f"{letter.lower()}." for letter in LETTER_NAMES},
    }
    for text, expected in (
        ("I work at IBM ibm", "I work at i._b._m. ibm"),
        ("C I A", "c. i. a."),
        ("I I know", "I I know"),
        ("I", "I"),
        ("i C P A said", "i c. p. a. said"),
        ("yeah A I well I", "yeah a. i. well I"),
    ):
        assert " ".join(with_acronyms(text.split(), acronyms)) == expected
    scored = [
        letter
        for word in "i i._b._m. t._v.s b._b._c.'s c. yeah mr. a._".split()
        for letter in letters_of(word)
    ]
    assert " ".join(scored) == "i i b m t v's b b c's c yeah mr. a._"


def test_letters_without_acronym_are_unchanged():
    assert with_acronyms("C I A".split(), {"C": "c.", "A": "a."}) == ["c.", "I", "a."]


DICTIONARY = """ file: $SWB/data/dictionary/sw-ms98-dict.text
# comment

ab[solute]- ae b s
[laughter-yeah] y ae
yeah y ae
yeah Y EH
IBM ay b iy eh m
AT&amp;T ey t iy ax n t iy
I ay
us ah s
US y uw eh s
[silence] sil
[noise] sil
Bad s sil z
lonely
""".splitlines()


@pytest.fixture
def dictionary(capsys):
    log.setup("test")
    return entries_in(DICTIONARY, "dict")


def test_dictionary_entries_are_read(dictionary, capsys):
    assert dictionary.entries.keys() == {"ab-", "yeah", "IBM", "AT&T", "I", "us", "US"}
    assert dictionary.pronunciations("yeah") == [("y", "ae"), ("y", "eh")]
    output = capsys.readouterr().out
    assert (
        "dict: 2 lines without a pronunciation of speech are left out: 15 ('Bad s sil z'), 16 ('lonely')"
        in output
    )


def test_lexicon_has_noises_letters_and_words(dictionary):
    lexicon, acronyms = lexicon_of(dictionary)
    assert acronyms == {
        "IBM": "i._b._m.",
        "US": "u._s.",
        **{letter: f"{letter.lower()}." for letter in LETTER_NAMES},
    }
    noises = {
        "!sil": "sil",
        "[vocalized-noise]": "spn",
        "[noise]": "nsn",
        "[laughter]": "lau",
        "<unk>": "spn",
    }
    assert {word: lexicon.pronunciations(word) for word in noises} == {
        word: [(phone,)] for word, phone in noises.items()
    }
    expected = {
        "i": "ay",
        "i.": "ay",
        "w.": "d ah b ax l y uw",
        "us": "ah s",
        "u._s.": "y uw eh s",
        "at&t": "ey t iy ax n t iy",
        "ab-": "ae b s",
    }
    assert {word: " ".join(lexicon.pronunciations(word)[0]) for word in expected} == expected
    assert not {"ibm", "w", "ab[solute]-", "at&amp;t"} & lexicon.entries.keys()
    assert len(lexicon) == len(noises) + 26 + len({"ab-", "yeah", "i._b._m.", "at&t", "i", "us", "u._s."})


def test_dictionary_directory(dictionary, tmp_path):
    content = as_dict_dir(lexicon_of(dictionary)[0])
    assert (
        content.silence == [("sil",), ("spn",), ("nsn",), ("lau",)]
        and content.optional_silence == "sil"
        and not content.extra_questions
    )
    assert ("ae",) in content.nonsilence and ("sil",) not in content.nonsilence and not find_problems(content)


def test_words_missing_in_dictionary_are_added(dictionary):
    lexicon, _ = lexicon_of(dictionary)
    rows = add_missing(lexicon, Counter({"yeah": 9, "about": 3, "wugly": 2, "[laughter]": 1}))
    assert (
        rows[0] == "3 about cmudict ax b aw t"
        and rows[1].startswith("2 wugly model w ah g")
        and len(rows) == 2
    )
    assert lexicon.pronunciations("about") == [("ax", "b", "aw", "t")] and lexicon.pronunciations("yeah") == [
        ("y", "ae"),
        ("y", "eh"),
    ]
    assert as_phones_of_switchboard(("AH0", "AH1", "ER0", "NG")) == ("ax", "ah", "er", "ng")
    assert add_missing(lexicon, Counter({"yeah": 1})) == []


def test_callers_and_their_sexes(tmp_path):
    (tmp_path / "conv_tab.csv").write_text(
        "2001,Y,1020,1044,303,0,910304,1218,1222, ,\n\n2005, N ,1002,1000,306,0\n"
    )
    (tmp_path / "caller_tab.csv").write_text(
        '1020, 2, 2, "FEMALE", 1971, "MIDLAND"\n1044, 2, 2, "MALE", 1971\n1002, 2, 2, "UNKNOWN", 1971\n'
    )
    tables = SpeakerTables(tmp_path / "conv_tab.csv", tmp_path / "caller_tab.csv")
    assert tables.callers() == {
        "sw02001-A": "sw1020",
        "sw02001-B": "sw1044",
        "sw02005-A": "sw1002",
        "sw02005-B": "sw1000",
    }
    assert tables.sexes_of({"sw1020": "sw02001-A"}) == {"sw1020": "f"}
    assert tables.sexes_of({"sw02001-B": "sw02001-B"}) == {"sw02001-B": "m"}
    assert tables.sexes_of({"sw02001-B": "sw02001-B", "sw02005-A": "sw02005-A"}) == {}
    assert SpeakerTables(None, None).sexes_of({"a": "a"}) == {} == SpeakerTables(None, None).callers()


@pytest.mark.parametrize(
    "read, line",
    [
        (read_callers, "2001,Y,1020"),
        (read_callers, "2001,Y, ,1020,c"),
        (read_sexes, "1020, 2"),
        (read_sexes, '"FEMALE", 1, 2, 3'),
        (read_callers, f'"{"x" * 140_000}'),
    ],
)
def test_malformed_table_lines_are_named(tmp_path, capsys, read, line):
    log.setup("test")
    (tmp_path / "table").write_text(f"\n{line}\n")
    with pytest.raises(UserError, match="table: no line 'CALL.*; give the table as the LDC has published it"):
        read(tmp_path / "table")
    (tmp_path / "table").write_text(f"\n{line}\n1000, 1, 1001, 1002\n")
    read(tmp_path / "table")
    assert (
        f"{tmp_path}/table:2: '" in (report := capsys.readouterr().out)
        and "(1 such lines); skipped" in report
    )


def test_capital_letters_are_acronyms_for_any_dictionary():
    assert acronyms_in(Lexicon())["W"] == "w." and len(acronyms_in(Lexicon())) == 26
