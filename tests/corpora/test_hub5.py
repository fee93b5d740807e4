"""egs/swbd's preparation of eval2000 and RT-03 on small discs with the same structure."""

import re
import shutil

import hub5_discs
import pytest
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.corpora.hub5.hub5_sets import stretched
from pyasr.corpora.hub5.references import plain_words, read_pem, read_references
from pyasr.data.checks.validation import validate
from pyasr.data.tables.datadir import DataDir
from pyasr.io.text_tables import read_table

LOCAL = "egs/swbd/s5/local"


@pytest.fixture(scope="module")
def eval2000(tmp_path_factory):
    return hub5_discs.make_eval2000(tmp_path_factory.mktemp("eval2000"))


@pytest.fixture(scope="module")
def rt03(tmp_path_factory):
    return hub5_discs.make_rt03(tmp_path_factory.mktemp("rt03"))


def prepare(name: str, data, **places) -> DataDir:
    words = [word for flag, place in places.items() for word in (f"--{flag}", place)]
    run_here(f"prepare_{name}.py", *words, data, folder=LOCAL)
    return DataDir(data / name)


def fields(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def test_eval2000(eval2000, tmp_path, capsys):
    data = prepare("eval2000", tmp_path, audio=eval2000.audio, text=eval2000.text)
    assert data.text == eval2000.texts and len(data.text) == 28 and len(data.wav_scp) == 8
    assert not validate(data.path, audio="read")
    assert (
        data.table("reco2file_and_channel")["sw_4390-B"] == "sw_4390 B"
        and data.utt2spk[data.utterances[0]] == "en_4156-A"
    )
    expected = [re.sub("<[BE]_ASIDE> ?", "", line).replace("((", "(") for line in eval2000.stm]
    assert fields((data.path / "stm").read_text().splitlines()) == fields(expected)
    assert (data.path / "glm").read_text() == hub5_discs.GLM
    assert read_table(data.path / "stm_subsets") == {"swbd": "^sw_", "callhm": "^en_"}
    output = capsys.readouterr().out
    assert (
        "4 segments left out: ignored in scoring: " in output and "utterances" in output and "4,459" in output
    )
    assert re.search(r"hub5e00.english.000405.stm: '\(\(' read as '\(' \(\d+ times\)", output)


def test_segments_are_extended_but_do_not_overlap(eval2000, tmp_path):
    data = prepare("eval2000", tmp_path, audio=eval2000.audio, text=eval2000.text)
    for name, segment in data.segments.items():
        begin, end = eval2000.spans[name]
        assert begin - 0.1001 <= segment.begin_s <= begin and end <= segment.end_s <= end + 0.1001
    spans = stretched(
        [
            ("a", 1.0, 2.0),
            ("a", 2.1, 3.0),
            ("a", 2.9, 3.5),
            ("a", 5.0, 6.0),
            ("b", 0.05, 1.0),
            ("a", 6.0, 7.0),
        ]
    )
    assert {key: tuple(round(time, 3) for time in times) for key, times in spans.items()} == {
        ("a", 100, 200): (0.9, 2.05),
        ("a", 210, 300): (2.05, 3.0),
        ("a", 290, 350): (2.9, 3.6),
        ("a", 500, 600): (4.9, 6.0),
        ("a", 600, 700): (6.0, 7.1),
        ("b", 5, 100): (0.0, 1.1),
    }


def test_rt03(rt03, tmp_path, capsys):
    data = prepare("rt03", tmp_path, rt03=rt03.audio)
    assert (
        data.text == rt03.texts
        and len(data.text) == 16
        and list(data.text.values()).count("") == 2
        and len(data.wav_scp) == 4
    )
    assert not validate(data.path, audio="read") and read_table(data.path / "stm_subsets") == {
        "swbd": "^sw_",
        "fsh": "^fsh_",
    }
    lines = (data.path / "stm").read_text().splitlines()
    segments = [line for line in lines if not line.startswith(";;")]
    assert (
        len(segments) == 18
        and {line.split()[1] for line in segments} == {"A", "B"}
        and not re.search("gap|ASIDE", "".join(lines))
    )
    assert lines.count(hub5_discs.LABELS[0]) == 1 and {
        segment.begin_s for segment in data.segments.values()
    } == {begin for name, (begin, _) in rt03.spans.items() if name in rt03.texts}
    output = capsys.readouterr().out
    assert "8,420" in output and "but no reference" not in output  # speech of other languages is ignored


@pytest.mark.parametrize("folder", ["", "hub5e_00"])
def test_older_layouts(eval2000, tmp_path, folder):
    shutil.copytree(eval2000.audio / "hub5e_00/english", tmp_path / "audio" / folder / "english")
    shutil.copytree(eval2000.text / "2000_hub5_eng_eval_tr/reference", tmp_path / "text/reference")
    assert (
        prepare("eval2000", tmp_path, audio=tmp_path / "audio", text=tmp_path / "text").text == eval2000.texts
    )
    assert prepare("eval2000", tmp_path / "both", audio=tmp_path).text == eval2000.texts


@pytest.mark.parametrize("version", ["", ";1"])
def test_upper_case_file_names(eval2000, rt03, tmp_path, version):
    upper = [
        hub5_discs.in_capitals(tree, tmp_path / "upper" / str(i), version)
        for i, tree in enumerate((eval2000.audio, eval2000.text, rt03.audio))
    ]
    assert (
        prepare("eval2000", tmp_path, audio=upper[0], text=upper[1]).segments
        == prepare("eval2000", tmp_path / "lower", audio=eval2000.audio, text=eval2000.text).segments
    )
    assert prepare("rt03", tmp_path, rt03=upper[2]).text == rt03.texts


def test_calls_without_audio_or_reference(eval2000, tmp_path, capsys):
    audio = shutil.copytree(eval2000.audio, tmp_path / "audio")
    (audio / "hub5e_00/english/en_4183.sph").rename(audio / "hub5e_00/english/en_9999.sph")
    data = prepare("eval2000", tmp_path, audio=audio, text=eval2000.text)
    assert data.text == {name: text for name, text in eval2000.texts.items() if "en_4183" not in name}
    output = capsys.readouterr().out
    assert (
        "1 calls have a reference, but no audio: en_4183" in output
        and "1 calls have audio, but no reference: en_9999" in output
    )


def test_segments_of_pem_and_stm_are_compared(eval2000, tmp_path, capsys):
    audio = shutil.copytree(eval2000.audio, tmp_path / "audio")
    pem = audio / "hub5e_00/english/hub5e_00.pem"
    lines = pem.read_text().splitlines()
    begin = min(begin for name, (begin, _) in eval2000.spans.items() if name.startswith("sw_4390-A"))
    kept = [line for line in lines if not line.startswith(f"sw_4390 A unknown_speaker {begin:.2f}")]
    pem.write_text("\n".join([*kept, "sw_4390 A: unknown_speaker 30.00 31.00"]) + "\n")
    assert len(kept) == len(lines) - 1
    assert prepare("eval2000", tmp_path, audio=audio, text=eval2000.text).text == eval2000.texts
    output = capsys.readouterr().out
    assert f"1 segments of the reference are not in the pem; the first is sw_4390-A {begin:.2f} " in output
    assert "1 segments of the pem are not in the reference; the first is sw_4390-A 30.00 31.00" in output
    pem.unlink()
    assert prepare("eval2000", tmp_path, audio=audio, text=eval2000.text).text == eval2000.texts
    assert "it contains no list of segments (.pem)" in capsys.readouterr().out


def test_glm_from_another_location(rt03, tmp_path):
    shutil.copytree(rt03.audio, tmp_path / "rt03")
    (tmp_path / "rt03/data/trans_rules/en20030506.glm").rename(tmp_path / "my.glm")
    report = (
        r"word mappings of RT-03 .*SCTK\): no data/trans_rules/en20030506.glm below .*rt03; give .* with "
        r"--rt03-glm"
    )
    with pytest.raises(UserError, match=report):
        prepare("rt03", tmp_path, rt03=tmp_path / "rt03")
    assert (
        prepare("rt03", tmp_path / "data", rt03=tmp_path / "rt03", glm=tmp_path / "my.glm").path / "glm"
    ).read_text() == hub5_discs.GLM


def test_invalid_glm_is_refused_before_any_output(rt03, tmp_path):
    (tmp_path / "my.glm").write_text(hub5_discs.GLM + "UH = %HESITATION\n")
    with pytest.raises(UserError, match=f"{tmp_path}/my.glm:14: "):
        prepare("rt03", tmp_path / "data", rt03=rt03.audio, glm=tmp_path / "my.glm")
    assert not (tmp_path / "data/rt03").exists()


def test_segments_with_same_side_and_times(eval2000, tmp_path, capsys):
    """For example segments of a second person: both are scored, one is decoded."""
    text = shutil.copytree(eval2000.text, tmp_path / "text")
    line = next(line for line in eval2000.stm if line.startswith("en_4183 A") and "IGNORE" not in line)
    with next(text.rglob("*.stm")).open("a") as stm:
        stm.write(line.replace("en_4183_A", "en_4183_A2") + " AGAIN\n")
    data = prepare("eval2000", tmp_path, audio=eval2000.audio, text=text)
    assert data.text == eval2000.texts and " AGAIN" in (data.path / "stm").read_text()
    assert "1 segments left out: the same side and times as another: en_4183-A_" in capsys.readouterr().out


def test_packed_references_are_refused(eval2000, tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text/2000_hub5_eng_eval_tr.LDC2002T43.tgz").touch()
    for place in (tmp_path / "text", next((tmp_path / "text").iterdir())):
        with pytest.raises(
            UserError,
            match=(
                rf"\(LDC2002T43\): no reference/hub5e00.* below {place}; give its .*LDC2002T43.tgz is an "
                r"archive"
            ),
        ):
            prepare("eval2000", tmp_path, audio=eval2000.audio, text=place)


def test_wrong_discs_are_refused(eval2000, rt03, tmp_path):
    for name, places, message in (
        (
            "eval2000",
            {"audio": rt03.audio},
            (
                r"audio of Hub5'00 \(LDC2002S09\): no english/sw_4390.sph .* below .*; give .* with "
                r"--eval2000-audio"
            ),
        ),
        (
            "eval2000",
            {"audio": eval2000.audio},
            r"references of Hub5'00 \(LDC2002T43\): no reference/hub5e00.* with --eval2000-text",
        ),
        (
            "rt03",
            {"rt03": eval2000.audio},
            r"RT-03 \(LDC2007S10\): no data/audio.*; give its directory with --rt03",
        ),
        ("rt03", {}, r"RT-03 \(LDC2007S10\): no .*, because no directory was given"),
    ):
        with pytest.raises(UserError, match=message):
            prepare(name, tmp_path, **places)


@pytest.mark.parametrize(
    "line, complaint",
    [
        (
            "sw_4390 A sw_4390_A 2.83 1.10 <O,sw,M,sw-M>  HE",
            "the segment ends at 1.10 s, before it begins at 2.83 s; correct its times",
        ),
        (
            "sw_4390 C sw_4390_A 1.10 2.83 <O,sw,M,sw-M>  HE",
            "channel 'C' is not A, B, 1 or 2; correct the line",
        ),
        ("sw_4390 A sw_4390_A one 2.83 HE", "'one' and '2.83' are not times in seconds"),
        ("sw_4390 A", "'sw_4390 A' is not 'FILE CHANNEL SPEAKER BEGIN END"),
        ("sw_4390 A sw_4390_A 1 inf HE", "'1' and 'inf' are not times in seconds"),
        ("sw_4390 A sw_4390_A 1 2 <O,sw,M,sw-M>  (HE", "the parentheses of '(HE' do not match"),
    ],
)
def test_invalid_references_are_named(tmp_path, line, complaint):
    (tmp_path / "x.stm").write_text(f";; comment\n\n{line}\n")
    with pytest.raises(UserError, match=re.escape(f"{tmp_path}/x.stm:3: {complaint}")):
        read_references([tmp_path / "x.stm"])


def test_empty_segments_remain_only_in_reference(rt03, tmp_path, capsys):
    discs = shutil.copytree(rt03.audio, tmp_path / "discs")
    with (discs / "data/references/eval03/english/cts/sw_45097.stm").open("a") as stm:
        stm.write(
            "sw_45097 1 inter_segment_gap 9 8 <O,SW,M,STANDARD>\nsw_45097 1 sw_45097_A 3.00 3.00 "
            "<O,SW,M,STANDARD>\n"
        )
    data = prepare("rt03", tmp_path, rt03=discs)
    assert (
        data.text == rt03.texts
        and "sw_45097 A sw_45097_A 3.00 3.00 <O,SW,M,STANDARD>\n" in (data.path / "stm").read_text()
    )
    assert (
        "1 segments left out: its end is not after its begin: sw_45097-A_000300-000300"
        in capsys.readouterr().out
    )


def test_references_and_pem_files_without_segments_are_refused(tmp_path):
    (tmp_path / "x.stm").write_text(";; comment\n")
    with pytest.raises(UserError, match="x.stm: no segments; a line is 'FILE CHANNEL"):
        read_references([tmp_path / "x.stm"])
    (tmp_path / "x.pem").write_text(
        ";; comment\nSW_4390 B: unknown_speaker 1.10 2.83\nsw_4390 2 unknown_speaker 3 4.5\n"
    )
    assert read_pem(tmp_path / "x.pem") == [("sw_4390-B", 1.1, 2.83), ("sw_4390-B", 3.0, 4.5)]
    (tmp_path / "x.pem").write_text("sw_4390 B unknown_speaker 1.10\n")
    with pytest.raises(UserError, match="x.pem:1: .* is not 'FILE CHANNEL SPEAKER BEGIN END'"):
        read_pem(tmp_path / "x.pem")
    (tmp_path / "x.pem").write_text("sw_4390 B: unknown_speaker 2.83 1.10\n")
    with pytest.raises(UserError, match="x.pem:1: the segment ends at 1.10 s, before it begins at 2.83 s"):
        read_pem(tmp_path / "x.pem")


def test_references_are_repaired(tmp_path):
    lines = [
        ';; LABEL "O" "" ""',
        "SW_1 1 sw_1_A 1.5 2.50 <O>  <b_aside> A ((B) <E_ASIDE>",
        "sw_1 2 inter_segment_gap 9 8 <O>",
    ]
    (tmp_path / "x.stm").write_text("\n".join(lines) + "\n")
    assert read_references([tmp_path / "x.stm"]).lines == [lines[0], "sw_1 A sw_1_A 1.5 2.50 <O>  A (B)"]


@pytest.mark.parametrize(
    "text, plain",
    [
        ("WELL (%HESITATION) I { DON'T / DO NOT } (TH-) THINK", "well %hesitation i don't th- think"),
        ("{ @ / UH } NO", "no"),
        ("(A- B)", "a- b"),
        ("", ""),
        ("{UM/UH/@}", "um"),
    ],
)
def test_plain_words_of_references(text, plain):
    assert plain_words(text) == plain
