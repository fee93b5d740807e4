"""utils/score_stm.py: the numbers of NIST's hubscr.pl on small references, and messages about invalid
input."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.data.transcripts.ctm import CtmLine
from pyasr.data.transcripts.glm import read_glm
from pyasr.data.transcripts.stm import read_stm
from pyasr.score.hub5.ctm_elements import read_entries
from pyasr.score.hub5.scored_words import scored_lines
from pyasr.score.hub5.scorer import StmScorer

HUB5 = Path(__file__).parents[2] / "fixtures/hub5"
GLM = HUB5 / "rules.glm"


def lines_of(name: str) -> list[str]:
    return (HUB5 / name).read_text().splitlines()


def without(pattern: str) -> list[str]:
    return [line for line in lines_of("hub5_right.ctm") if not re.search(pattern, line)]


def with_word(old: str, new: str) -> list[str]:
    return [re.sub(rf" {old}$", f" {new}", line) for line in lines_of("hub5_right.ctm")]


def counts(tmp_path: Path, stm: list[str], ctm: list[str]) -> tuple[int, ...]:
    """(segments, words, correct, sub, del, ins)"""
    for name, lines in (("stm", stm), ("ctm", ctm)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    score = StmScorer(read_stm(tmp_path / "stm"), read_glm(GLM)).score(read_entries(tmp_path / "ctm"))
    total = score.total
    return len(score.utterances), total.num_words, total.correct, total.sub, total.dele, total.ins


STM = lines_of("hub5e00.english.000405.stm")
KNOWN = {  # of hubscr.pl -l english -h hub5 (Debian's sctk 2.4.10)
    "right": (STM, lines_of("hub5_right.ctm"), (28, 116, 112, 0, 4, 0)),
    "without hesitations": (STM, without(" u[hm]$"), (28, 116, 112, 0, 4, 0)),
    "substitutions": (STM, with_word("seven", "eleven"), (28, 116, 108, 4, 4, 0)),
    "between segments": (
        STM,
        [*lines_of("hub5_right.ctm"), *(f"sw_4390 {side} 8.50 0.20 so" for side in "AB")],
        (28, 116, 112, 0, 4, 1),
    ),
    "Switchboard alone": (
        [line for line in STM if not line.startswith("en_")],
        without("^en_"),
        (14, 58, 56, 0, 2, 0),
    ),
    "split at hyphens": (STM, with_word("uh-huh", "um-hum"), (28, 116, 108, 4, 4, 4)),
    "a word that is two": (STM, without(" okay$"), (28, 116, 104, 0, 12, 0)),
    "RT-03, channels 1 and 2": (
        lines_of("fsh_60262.stm") + lines_of("sw_45097.stm"),
        lines_of("rt03_right.ctm"),
        (16, 58, 56, 0, 2, 0),
    ),
}


@pytest.mark.parametrize("case", KNOWN)
def test_counts_equal_known_answers(case, tmp_path):
    stm, ctm, expected = KNOWN[case]
    assert counts(tmp_path, stm, ctm) == expected


def test_program_prints_speakers_subsets_and_labels(tmp_path, capsys):
    (tmp_path / "subsets").write_text("swbd ^sw_\ncallhm ^en_\nalice \\bsw_4390_A\\b\nmen ,M,\nnone ^xx_\n")
    run_here(
        "score_stm.py",
        "--glm",
        GLM,
        "--subsets",
        tmp_path / "subsets",
        "--per-utt",
        tmp_path / "per_utt",
        HUB5 / "hub5e00.english.000405.stm",
        HUB5 / "hub5_right.ctm",
        folder="utils",
    )
    output = capsys.readouterr().out
    rows = {cells[0]: cells[1:] for line in output.splitlines() if len(cells := line.split()) == 9}
    assert (
        rows["SUM"] == ["28", "116", "112", "0", "0", "4", "4", "4"]
        and rows["swbd"] == rows["men"] == rows["<sw-M>"]
    )
    assert (
        rows["swbd"][:3] == ["14", "58", "56"]
        and rows["callhm"][1] == "58"
        and rows["alice"] == rows["sw_4390_A"]
    )
    assert "%WER 3.45 [ 4 / 116, 0 ins, 4 del, 0 sub ] wer|stm:hub5e00.english.000405.stm@" in output
    assert (
        "|glm:en20000405_hub5.glm@" in output
        and "'((' read as '(' (4 times)" in output
        and "subset 'none' is skipped" in output
    )
    per_utt = (tmp_path / "per_utt").read_text()
    assert (
        len(per_utt.splitlines()) == 4 * 28
        and sum(int(line.split()[2]) for line in per_utt.splitlines() if " #csid " in line) == 112
    )
    assert re.search(
        r"(?m)^sw_4390_a-001 ref +call me +\(th-\) think\n.*\nsw_4390_a-001 op +C +C +C +C$", per_utt
    )


def test_recogniser_words_are_normalised(tmp_path):
    """Words that Kaldi's recipes remove, in upper and lower case, and acronyms as letters."""
    words = (
        "[noise] [LAUGHTER] [vocalized-noise] <UNK> th- UH um eh mm hm ah huh ha er oof hee ach eee ew "
        "uhm i._b._m. t._v.'s b._b._c.s a. mr. o"
    )
    lines = [CtmLine("f", "A", float(i), 0.9, word, 0.5) for i, word in enumerate(words.split())]
    found = scored_lines(lines)
    assert [line.word for line in found] == [
        "uhm",
        "i",
        "b",
        "m",
        "t",
        "v's",
        "b",
        "b",
        "c's",
        "a",
        "mr.",
        "o",
    ]
    assert [(line.begin_s, line.duration_s) for line in found[1:4]] == [(20.0, 0.3), (20.3, 0.3), (20.6, 0.3)]
    assert {line.confidence for line in found} == {0.5}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("f A s 1.0", "stm:2: 'f A s 1.0' is not 'FILE CHANNEL SPEAKER BEGIN END <LABELS> TEXT'; correct it"),
        (
            "f A s 2.0 1.5 <O> YES",
            "stm:2: the segment ends at 1.5 s, before it begins at 2.0 s; correct its times",
        ),
        ("f A s one 1.5 <O> YES", "stm:2: 'one' and '1.5' are not times in seconds; correct them"),
        ("f A s 1 nan <O> YES", "stm:2: '1' and 'nan' are not times in seconds"),
        ("f A s 1 2 <O> (YES", "stm:2: the parentheses of '(YES' do not match"),
        ("f A s 1 2 <O> { YES / NO", "stm:2: the braces of '{ YES / NO' do not match"),
        ("f A s 1 2 <O> NO { / } YES", "stm:2: the braces of 'NO { / } YES' do not match or are empty"),
        ("f A s 1 2 <O YES", "stm:2: '<O' is not '<LABEL,LABEL,...>'"),
    ],
)
def test_invalid_stm_is_refused(line, message, tmp_path):
    (tmp_path / "stm").write_text(f"f A s 0 1 <O> YES\n{line}\n")
    with pytest.raises(UserError, match=re.escape(message)):
        read_stm(tmp_path / "stm")


def test_stm_without_segments_or_words_is_refused(tmp_path):
    (tmp_path / "stm").write_text(";; a comment\n\nf A inter_segment_gap 0 1 <O> YES\n")
    with pytest.raises(UserError, match="stm: no segments"):
        read_stm(tmp_path / "stm")
    (tmp_path / "stm").write_text("f A s 0 1 <O> IGNORE_TIME_SEGMENT_IN_SCORING\nf A s 1 2 <O>\n")
    with pytest.raises(UserError, match="stm: no segment has words"):
        StmScorer(read_stm(tmp_path / "stm"))


def test_latin_1_file_is_named(tmp_path):
    for name, read, line in (
        ("stm", read_stm, "f A s 0 1 <O> CAFÉ\n"),
        ("ctm", read_entries, "f A 0 1 café\n"),
    ):
        (tmp_path / name).write_bytes(line.encode("latin-1"))
        with pytest.raises(UserError, match=f"{name}:1: not UTF-8 text"):
            read(tmp_path / name)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["f A 0.1 0.2"],
            "ctm:1: 'f A 0.1 0.2' is not 'FILE CHANNEL BEGIN DURATION WORD [CONFIDENCE]'; correct it",
        ),
        (["f A 0.1 0.2 (yes"], "ctm:1: the parentheses of '(yes' do not match"),
        (["f A * * <ALT_BEGIN>", "f A 0 1 yes"], "ctm:1: the alternatives that begin here have no end"),
    ],
)
def test_invalid_ctm_is_refused(lines, message, tmp_path):
    (tmp_path / "ctm").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=re.escape(message)):
        read_entries(tmp_path / "ctm")


def test_words_of_file_missing_in_stm_are_refused(tmp_path):
    message = (
        re.escape("2 word(s) are in file 'g', channel 'a', without a segment in ") + ".*stm .1 such channels"
    )
    with pytest.raises(UserError, match=message):
        counts(tmp_path, ["f A s 0 1 <O> YES"], ["f A 0 1 yes", "g A 0 1 yes", "g A 1 1 no"])


def test_channels_without_words_count_as_deletions(tmp_path, capsys):
    (tmp_path / "stm").write_text("f A s 0 1 <O> YES NO\nf B t 0 1 <O> YES (NO)\nf B t 1 2 <O> YES\n")
    (tmp_path / "ctm").write_text("f A 0 1 yes\n")
    run_here("score_stm.py", tmp_path / "stm", tmp_path / "ctm", folder="utils")
    output = capsys.readouterr().out
    assert "%WER 60.00 [ 3 / 5, 0 ins, 3 del, 0 sub ]" in output
    assert "2 segment(s) are in channels without a word in" in output


def test_alternatives_in_ctm(tmp_path):
    """NIST's notation of alternatives in a ctm; each group belongs to one segment."""
    stm = ["f A s 0 1 <O> IT IS", "f A s 1 2 <O> YES"]
    ctm = [
        "f A * * <ALT_BEGIN>",
        "f A 0.5 0.4 it's",
        "f A * * <ALT>",
        "f A 0.5 0.2 it",
        "f A 0.7 0.2 is",
        "f A * * <ALT_END>",
        "f A 1.2 0.4 yes",
    ]
    assert counts(tmp_path, stm, ctm) == (2, 3, 3, 0, 0, 0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("swbd", "subsets:1: 'swbd' is not 'NAME PATTERN', for example 'swbd ^sw_'"),
        ("swbd (sw", "subsets:1: '(sw' is not a regular expression"),
        ("a/b ^sw_", "subsets:1: 'a/b ^sw_' is not 'NAME PATTERN'"),
    ],
)
def test_invalid_subsets_are_refused(line, message, tmp_path):
    (tmp_path / "subsets").write_text(f"{line}\n")
    with pytest.raises(UserError, match=re.escape(message)):
        run_here(
            "score_stm.py",
            "--subsets",
            tmp_path / "subsets",
            HUB5 / "hub5e00.english.000405.stm",
            HUB5 / "hub5_right.ctm",
            folder="utils",
        )
