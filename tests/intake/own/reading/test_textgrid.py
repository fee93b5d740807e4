"""Praat's TextGrid files: both text formats, encodings, tiers, and files that are not TextGrids."""

import pytest
from own_corpora import textgrid, write

from pyasr.base.errors import UserError
from pyasr.intake.own.reading.textgrid import Interval, read_textgrid
from pyasr.intake.own.reading.tiers import spoken

TIERS = {
    "words": [(0, 0.5, ""), (0.5, 1.25, 'say "hi" [1] 2'), (1.25, 3.0, "héllo = 5 ! no comment")],
    "phones": [(0, 3.0, "a")],
}


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_both_formats_in_all_encodings(short, encoding, line_end, tmp_path):
    text = textgrid(TIERS, 3.0, short).replace("\n", line_end)
    path = write(tmp_path / "a.TextGrid", ("\ufeff" if encoding == "utf-16-be" else "") + text, encoding)
    words, phones = read_textgrid(path)
    assert words.name == "words" and phones.intervals == (Interval(0, 3, "a"),)
    assert [tuple(vars(one).values()) for one in words.intervals] == TIERS["words"]


def test_point_tiers_are_skipped(tmp_path):
    text = textgrid({"words": [(0, 1, "yes")]}, 1.0, short=True).replace(
        "<exists>\n1\n", '<exists>\n2\n"TextTier"\n"points"\n0\n1\n2\n0.2\n"H*"\n0.4\n"L*"\n'
    )
    assert [tier.name for tier in read_textgrid(write(tmp_path / "a.TextGrid", text))] == ["words"]


def test_file_without_tiers_is_read(tmp_path):
    text = 'File type = "ooTextFile"\nObject class = "TextGrid"\n\nxmin = 0\nxmax = 1\ntiers? <absent>\n'
    assert read_textgrid(write(tmp_path / "a.TextGrid", text)) == []


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda text: text[: len(text) // 2], "cut short"),
        (lambda text: text.replace("TextGrid", "Pitch"), "not in Praat's long or short text form"),
        (lambda text: text.replace("0.5", '"half"', 1), "'half' instead of a number"),
        (lambda text: "hello there", "cut short"),
        (lambda text: "ooBinaryFile\x08TextGrid", "binary form"),
        (lambda text: text.replace("IntervalTier", "OddTier", 1), "a tier of the class 'OddTier'"),
    ],
)
def test_other_files_are_refused(change, sentence, tmp_path):
    path = write(tmp_path / "a.TextGrid", change(textgrid(TIERS, 3.0)))
    with pytest.raises(UserError, match=sentence):
        read_textgrid(path)


def said(tiers: dict, wanted=None):
    """[(speaker, text)] of the chosen tiers."""
    from pyasr.intake.own.reading.textgrid import Tier

    found = [
        Tier(name, tuple(Interval(*interval) for interval in intervals)) for name, intervals in tiers.items()
    ]
    return [(speaker, one.text) for speaker, one in spoken(found, wanted, "a.TextGrid")]


ONE = [(0.0, 1.0, "hello there"), (1.0, 2.0, " "), (2.0, 3.0, "good bye")]
WORDS = [(0.0, 0.4, "hello"), (0.4, 0.9, "there"), (0.9, 2.0, "sil"), (2.0, 2.5, "good"), (2.5, 3.0, "bye")]
TEXTS = ["hello there", "good bye"]
CHOICES = {
    "one tier of any name": ({"Mary": ONE}, None, [None, None]),
    "sentences in addition to words and phones": (
        {"phones": WORDS, "words": WORDS, "utterances": ONE},
        None,
        [None, None],
    ),
    "words are joined": ({"phones": [(0.0, 1.0, "h")], "words": WORDS}, None, [None, None]),
    "tiers of speakers": (
        {"Anna": ONE[:1], "Ben": ONE[1:], "notes": [(0.0, 3.0, "loud")]},
        None,
        ["Anna", "Ben"],
    ),
    "as the aligner of Montreal names them": (
        {"Anna - words": WORDS[:2], "Anna - phones": WORDS, "Ben - words": WORDS[3:]},
        None,
        ["Anna", "Ben"],
    ),
    "an empty tier of sentences": ({"sentence": [(0.0, 3.0, "")], "Anna": ONE}, None, [None, None]),
    "given by name": ({"phones": WORDS, "odd": ONE, "words": WORDS}, "odd", [None, None]),
}


@pytest.mark.parametrize("name", CHOICES)
def test_transcript_tier_is_selected(name):
    tiers, wanted, speakers = CHOICES[name]
    assert said(tiers, wanted) == list(zip(speakers, TEXTS))


def test_ambiguous_tiers_are_refused():
    with pytest.raises(
        UserError, match=r"the names of the tiers \(phones, tones\) do not show which one contains the words"
    ):
        said({"phones": WORDS, "tones": WORDS})
    with pytest.raises(UserError, match="no interval tier named Ann; its tiers are: Anna"):
        said({"Anna": ONE}, "Ann")
