"""Rules for words, lines and tables of Fisher English, with the examples of the reference."""

import pytest

from pyasr.corpora.conversations import SkippedItems
from pyasr.corpora.fisher.fisher_speakers import Caller, read_calldata, read_callers, read_sexes
from pyasr.corpora.fisher.fisher_text import acoustic_words, is_unsure, lm_words
from pyasr.corpora.fisher.fisher_transcripts import (
    NO_UTF8,
    OTHER_CALL,
    OTHER_FORM,
    UNREADABLE,
    read_transcript,
)


@pytest.mark.parametrize(
    "written, words",
    [
        ("[laugh]", "[laughter]"),
        ("[sigh] [cough] [mn] [breath] [lipsmack]", "[noise] [noise] [noise] [noise] [noise]"),
        ("[sneeze]", "[noise]"),
        ("[[skip]] well", "well"),
        ("well [pause] yes", "well yes"),
        ("[noise] [laughter]", "[noise] [laughter]"),
        ("[laugh]- [noise]-", "[laughter] [noise]"),
        ("th-[laugh]", "th- [laughter]"),
        ("yes[laugh]yes", "yes [laughter] yes"),
        ("c._n._n. th- uh-huh", "c._n._n. th- uh-huh"),
        ("[static] café", "[static] café"),
        ("[[skip]] [pause]", ""),
        ("", ""),
    ],
)
def test_words_for_acoustic_training(written, words):
    assert acoustic_words(written) == words


@pytest.mark.parametrize(
    "written, unsure", [("(( ))", True), ("well (( you know ))", True), ("((", True), ("you know", False)]
)
def test_uncertain_words_are_recognised(written, unsure):
    assert is_unsure(written) == unsure


WHOLE_WORDS = (
    "acceptable arthritis ball cause comes course eight eighty field giving habitating heard hood how king "
    "ninety okay paper press scripts store till vascular wood what york"
).split()


@pytest.mark.parametrize("written, words", [
    ("I'm", "i'm"), ("*mandatory", "mandatory"), ("(( the words )) inside", "the words inside"),
    ("<german (( ja wohl ))> yes", "yes"), ("one,two, three", "one two three"),
    *((f"'{word}", word) for word in "blade cause course frisco okay plain specially".split()),
    ("tell 'em", "tell -em"), ("'kay", "-kay"), ("'kay'", "kay"),
    ("he said 'yes sir' to me", "he said yes sir to me"),
    ("'yes' 'no'", "yes no"), ("don't the dogs' house", "don't the dogs' house"), ('"quoted"', "quoted"),
    ("well - ? yes", "well yes"), ("really?", "really"), ("non-stop", "non stop"),
    *((f"-{word}", word) for word in WHOLE_WORDS), *((f"{word}-", word) for word in WHOLE_WORDS),
    ("-acc acc-", "-acc acc-"), ("[[skip]] [pause] yes", "yes"),
    ("[breath] [cough] [lipsmack] [sigh] [sneeze]", "[noise] [noise] [noise] [noise] [noise]"),
    ("[mn]", "[vocalized-noise]"), ("[laugh]", "[laughter]"), ("c._n._n. uh-huh", "c._n._n. uh-huh"),
    ("(( ))", ""),
])  # fmt: skip
def test_words_for_language_models(written, words):
    assert lm_words(written) == words


def transcript(path, *lines: str, call: str = "fe_03_00001"):
    """(lines, omitted lines) of a transcript."""
    path.write_bytes(
        "\n".join([f"# {call}.sph", "# Transcribed by BBN/WordWave", "", *lines]).encode(
            "utf-8", "surrogateescape"
        )
    )
    skipped = SkippedItems()
    return read_transcript("fe_03_00001", path, skipped), skipped.counts


def test_lines_of_a_transcript(tmp_path):
    lines, skipped = transcript(
        tmp_path / "a.txt",
        "7.92 9.52 B: hi my name is somebody ",
        "",
        "12.39 14.07 A: um",
        "15 16.5 A: a",
        "# one",
        "17.00\t18.00  B:hi",
        "19.00 20.00 A: A: well: B: x ",
        "21.00 22.00 A: ",
        " 23.00 24.00 A: next\r",
    )
    assert [(line.channel, line.begin_s, line.end_s, line.text) for line in lines] == [
        ("B", 7.92, 9.52, "hi my name is somebody"),
        ("A", 12.39, 14.07, "um"),
        ("A", 15, 16.5, "a"),
        ("B", 17, 18, "hi"),
        ("A", 19, 20, "A: well: B: x"),
        ("A", 21, 22, ""),
        ("A", 23, 24, "next"),
    ]
    assert not skipped


def test_unreadable_lines_are_omitted(tmp_path):
    lines, skipped = transcript(
        tmp_path / "a.txt",
        "1.00 2.00 A: caf\udce9",
        "3.00 4.00 A: caf\udcc3",
        "5.00 6.00 A: café",
        "7.0.0 8.00 A: x",
        "9.00 A: x",
        "9.00 10.00 C: x",
        "words",
    )
    assert [line.text for line in lines] == ["café"] and skipped == {NO_UTF8: 2, OTHER_FORM: 4}


def test_unreadable_transcripts_are_omitted(tmp_path):
    assert transcript(tmp_path / "a.txt", "1.00 2.00 A: x", call="fe_03_00002") == ([], {OTHER_CALL: 1})
    (tmp_path / "a.txt").write_bytes("1.00 2.00 A: x\n".encode("utf-16"))
    skipped = SkippedItems()
    assert read_transcript("fe_03_00001", tmp_path / "a.txt", skipped) == [] and skipped.counts == {
        UNREADABLE: 1
    }


def test_wrong_time_of_call_11487_is_corrected(tmp_path):
    (tmp_path / "a.txt").write_text("31.09 234.06 A: well\n31.09 32.00 B: yes\n")
    times = {
        call: [line.begin_s for line in read_transcript(call, tmp_path / "a.txt", SkippedItems())]
        for call in ("fe_03_11487", "fe_03_11488")
    }
    assert times == {"fe_03_11487": [231.09, 31.09], "fe_03_11488": [31.09, 31.09]}


HEADER = (
    "CALL_ID,DATE_TIME,TOPICID,SIG_GRADE,CNV_GRADE,APIN,ASX.DL,APHNUM,APHSET,APHTYP,"
    "BPIN,BSX.DL,BPHNUM,BPHSET,BPHTYP"
)


def test_caller_tables_are_read(tmp_path):
    (tmp_path / "a.tbl").write_text(
        f"{HEADER}\n00001,x,ENG01,2,3,2637,m.a,1,2,3,1001,f.o,1,2,3\n2,x,y,2,3, ,u.a,1,2,3,77,F.a,1,2,3\n\n"
        "# x\n"
    )
    expected = {
        "fe_03_00001-A": Caller("2637", "m"),
        "fe_03_00001-B": Caller("1001", "f"),
        "fe_03_00002-A": Caller(),
        "fe_03_00002-B": Caller("77", "f"),
    }
    assert read_calldata(tmp_path / "a.tbl") == expected
    (tmp_path / "b.tbl").write_text((tmp_path / "a.tbl").read_text().removeprefix(HEADER + "\n"))
    assert read_calldata(tmp_path / "b.tbl") == expected
    (tmp_path / "c.tbl").write_text("APIN,CALL_ID,ASX.DL,BPIN,BSX.DL\n2637,00001,m.a,1001,f.o\n")
    assert read_calldata(tmp_path / "c.tbl") == {
        side: expected[side] for side in ("fe_03_00001-A", "fe_03_00001-B")
    }


@pytest.mark.parametrize(
    "line",
    [
        "fe_03_p1_sph1\t00001\tmf\tLDC",
        "00001\tfe_03_p1_sph1\tmf\tBBN",
        "fe_03_p1_sph1 fe_03_00001.sph mf",
        "filetable2fe_03_p2_sph1 fe_03_00001.sph mf",
        "FE_03_P1_SPH1 FE_03_00001.SPH MF",
    ],
)
def test_sexes_are_read(line, tmp_path):
    (tmp_path / "a.tbl").write_text(f"VOL CALL SEXES\n00002 fe_03_p1_sph1 LDC\n{line}\n")
    assert read_sexes(tmp_path / "a.tbl") == {"fe_03_00001-A": "m", "fe_03_00001-B": "f"}


def test_sex_comes_from_the_table_that_has_it(tmp_path):
    (tmp_path / "calldata.tbl").write_text("00001,x,y,2,3,2637,m.a,1,2,3,1001,,1,2,3\n")
    (tmp_path / "filelist.tbl").write_text("00001 fe_03_p1_sph1 fm LDC\n00002 fe_03_p1_sph1 mm LDC\n")
    callers = read_callers({kind: [tmp_path / f"{kind}.tbl"] for kind in ("filelist", "calldata")})
    assert {side: caller.name for side, caller in callers.items()} == {
        "fe_03_00001-A": "2637m",
        "fe_03_00001-B": "1001m",
        "fe_03_00002-A": "",
        "fe_03_00002-B": "",
    }
    assert callers["fe_03_00002-A"].sex == "m"
