"""The dictionary of Fisher English, and its training and test sets."""

from collections import Counter
from pathlib import Path

import pytest

from pyasr.base.errors import UserError
from pyasr.corpora.fisher.fisher_dictionary import in_lower_case, write_dict
from pyasr.corpora.fisher.fisher_sets import split
from pyasr.lang.lexicons.dict_dir import read_dict_dir
from pyasr.lang.lexicons.lexicon import read_cmudict

SILENCE = ("sil", "laughter", "noise", "oov")


@pytest.fixture(scope="module")
def cmudict():
    return in_lower_case(read_cmudict())


def test_words_acronyms_and_noises(cmudict, tmp_path):
    counts = Counter(
        {"hello": 3, "c._n._n.": 2, "c._zzx": 1, "zzxq": 5, "[laughter]": 9, "[static]": 1, "th-": 7}
    )
    write_dict(counts, cmudict, tmp_path)
    found = read_dict_dir(tmp_path)
    assert found.lexicon.entries.keys() == {
        "hello",
        "c._n._n.",
        "mm",
        "<unk>",
        "[laughter]",
        "[noise]",
        "[oov]",
    }
    assert found.lexicon.pronunciations("c._n._n.") == [("s", "iy", "eh", "n", "eh", "n")]
    assert set(found.lexicon.pronunciations("hello")) == {("hh", "ah", "l", "ow"), ("hh", "eh", "l", "ow")}
    noises = {"[laughter]": "laughter", "[noise]": "noise", "[oov]": "oov", "<unk>": "oov"}
    assert {word: found.lexicon.pronunciations(word) for word in noises} == {
        word: [(phone,)] for word, phone in noises.items()
    }
    assert ("m",) in found.lexicon.pronunciations("mm")
    assert [phone for group in found.silence for phone in group] == list(
        SILENCE
    ) and found.optional_silence == "sil"
    assert found.extra_questions == [SILENCE]
    assert (tmp_path / "missing_words.txt").read_text() == "7 th-\n5 zzxq\n1 [static]\n1 c._zzx\n"


def test_dictionary_has_39_phones_and_noises(cmudict, tmp_path):
    write_dict(Counter(cmudict.entries.keys()), cmudict, tmp_path)
    assert len((tmp_path / "nonsilence_phones.txt").read_text().split()) == 39


def test_text_without_dictionary_words_is_refused(cmudict, tmp_path):
    with pytest.raises(UserError, match="no word of the transcripts is in the dictionary"):
        write_dict(Counter({"zzxq": 5, "[noise]": 1}), cmudict, tmp_path)


def test_sets_follow_order_of_calls_not_speakers():
    """The order is that of names without speakers: call, side, time."""
    names = [
        f"fe_03_{call:05d}-{side}-{begin:06d}-{begin + 50:06d}"
        for call in (1, 2, 3)
        for side in "AB"
        for begin in (10, 900)
    ]
    speakers = ["9f", "1m", "5f", "3m", "2f", "4m"]
    renamed = [f"{speakers[i // 2]}-{name}" for i, name in enumerate(names)]
    sets = split(sorted(renamed), 3, 4, Path("data/all"))
    assert sets == {"dev": renamed[:3], "test": renamed[3:7], "train": renamed[7:]}
    with pytest.raises(UserError, match=r"data/all: 12 utterances, .* lower --num-dev and --num-test"):
        split(names, 6, 6, Path("data/all"))
    with pytest.raises(UserError, match="'sw02001-A' is not an utterance of Fisher"):
        split(["sw02001-A"], 1, 1, Path("data/all"))
