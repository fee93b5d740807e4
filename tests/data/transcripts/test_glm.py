"""NIST's rule files: the result of rfilter1 for each form of rule, and malformed rules."""

from __future__ import annotations

import re

import pytest

from pyasr.base.errors import UserError
from pyasr.data.transcripts.glm import read_glm
from pyasr.score.hub5.csrfilt import filtered_text, filtered_word

HEAD = ";; rules\n* name \"some rules\"\n* format = 'NIST1'\n* copy_no_hit = 'T'\n* case_sensitive = 'F'\n\n"


def glm(tmp_path, rules: str, head: str = HEAD):
    (tmp_path / "glm").write_text(head + rules + "\n")
    return read_glm(tmp_path / "glm")


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        (
            "UH => %HESITATION / [ ] __ [ ]",
            "uh UH UHS (uh) {uh / A}",
            "%HESITATION %HESITATION UHS (%HESITATION) {UH / A}",
        ),
        ("'CAUSE => BECAUSE ;; anywhere", "'cause 'CAUSES", "BECAUSE BECAUSES"),
        ("ADVISER => ADVISOR / [ ] __ ;; before anything", "advisers MISADVISER", "ADVISORS MISADVISER"),
        (
            "BINYAMIN => BENJAMIN / __ [ NETANYAHU]",
            "BINYAMIN NETANYAHU BINYAMIN",
            "BENJAMIN NETANYAHU BINYAMIN",
        ),
        ("[CANNOT ] => [CAN NOT ]", "CANNOT BE CANNOT", "CAN NOT BE CAN NOT"),
        ("backyard => back yard / [ ] __ [ ]", "BACKYARD", "back yard"),
        ("GOODBY => GOOD BYE", "(GOODBY)", "(GOOD) (BYE)"),
        ("[IT'S] => [{IT IS / IT HAS}] / [ ] __ [ ]", "IT'S IT'S", "{IT IS / IT HAS} {IT IS / IT HAS}"),
        ("IT'S => {IT IS / IT HAS}", "IT'S", "{IT IS / IT HAS}"),
        (
            "[IT'S] => [{IT IS / IT HAS}] / [ ] __ [ ]",
            "(IT'S) (SO IT'S)",
            "{(IT) (IS) / (IT) (HAS)} (SO) {(IT) (IS) / (IT) (HAS)}",
        ),
        ("A => B\nB => C\nAB => X", "A B AB", "B C BC"),
        ("AB => X\nA => Y", "AB A AAB", "X Y YX"),
        (
            "UM-HUM => %BCACK / [ ] __ [ ]",
            "UM-HUM UH-HUH TH- -ING A--B (AB-)",
            "%BCACK UH HUH TH- -ING A -B (AB-)",
        ),
        ("GONE => [] / [ ] __ [ ]", "A GONE B", "A B"),
        ("A.B => X", "AxB A.B", "AXB X"),
    ],
)
def test_rules_are_applied(rule, text, expected, tmp_path):
    assert filtered_text(text, glm(tmp_path, rule).reference) == expected


def test_rules_apply_to_ctm_words(tmp_path):
    rules = glm(
        tmp_path,
        "IT'S => [{IT IS / @}] / [ ] __ [ ]\nOKAY => O. K. / [ ] __ [ ]\nGONE => [] / [ ] __ [ ]\nA B => C",
    ).hypothesis
    found = {word: filtered_word(word, rules) for word in ("it's", "okay", "gone", "um-hum", "th-", "(uh)")}
    assert found == {
        "it's": [["IT", "IS"], ["@"]],
        "okay": [["O.", "K."]],
        "gone": [],
        "um-hum": [["UM", "HUM"]],
        "th-": [["TH-"]],
        "(uh)": [["(UH)"]],
    }


def test_sections_apply_to_one_input(tmp_path):
    rules = glm(
        tmp_path,
        'A => 1\n;; INPUT_DEPENDENT_APPLICATION = "ctm"\nB => 2\n;; INPUT_DEPENDENT_APPLICATION = '
        '"ref|hyp"\nC => 3',
    )
    assert rules.reference.apply("A B C") == "1 B 3" and rules.hypothesis.apply("A B C") == "1 2 3"


def test_header_options_are_read(tmp_path):
    """Rules are case-sensitive by default, and are applied to texts in upper case."""
    assert filtered_text("a b", glm(tmp_path, "a => X\nB => Y", ";; rules\n").reference) == "A Y"
    assert glm(tmp_path, "A => X", HEAD.replace("'T'", "'F'")).reference.apply("BAB") == "X"
    assert re.fullmatch(r"some_rules@[0-9a-f]{8}", glm(tmp_path, "A => X").identity)
    assert glm(tmp_path, "A => X").identity != glm(tmp_path, "A => Y").identity


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            "UH %HESITATION / [ ] __ [ ]",
            "glm:7: 'UH %HESITATION / [ ] __ [ ]' has no '=>'; a rule is 'A => B / [ ] __ [ ]'",
        ),
        ("=> B", "glm:7: '=> B' has nothing before '=>'"),
        ("[] => B", "glm:7: '[] => B' has nothing before '=>'"),
        ("A => {B / C / [ ] __ [ ]", "glm:7: the braces of '{B / C' do not match; alternatives are {A / B}"),
        ("* desc no quotes", "glm:7: '* desc no quotes' has no value in quotes"),
        ("* format = 'NIST2'", "glm: format 'NIST2' is unknown"),
        (';; INPUT_DEPENDENT_APPLICATION = "(ctm"', "glm:7: '(ctm' is not a regular expression"),
        (";; A => B", "glm: no rules; a rule is 'A => B / [ ] __ [ ]'"),
    ],
)
def test_invalid_rules_are_refused(rule, message, tmp_path):
    with pytest.raises(UserError, match=re.escape(message)):
        glm(tmp_path, rule)


def test_latin_1_and_dos_lines(tmp_path, capsys):
    (tmp_path / "glm").write_bytes(";; é\r\n* name 'x'\r\nCAFÉ => COFFEE ;; é\r\n".encode("latin-1"))
    assert read_glm(tmp_path / "glm").reference.apply("CAFÉ") == "COFFEE"
