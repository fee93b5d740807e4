"""egs/swbd's preparation of Switchboard on small discs with the same structure: layouts, counts, texts, and
faults of real discs."""

import gzip
import re
import shutil
import tarfile

import numpy as np
import pytest
import swbd_discs
from steps_here import run_here
from synthetic_speech import RATE, write_sphere

from pyasr.base.errors import UserError
from pyasr.data.checks.validation import validate
from pyasr.data.tables.datadir import DataDir
from pyasr.io.text_tables import read_table

LOCAL = "egs/swbd/s5/local"


@pytest.fixture(scope="module")
def discs(tmp_path_factory):
    return swbd_discs.make_discs(tmp_path_factory.mktemp("discs"))


def prepare(data, **places) -> DataDir:
    """DATA/train of these locations, given as options of local/prepare_swbd.py."""
    run_here(
        "prepare_swbd.py",
        *(word for name, place in places.items() for word in (f"--{name}", place)),
        data,
        folder=LOCAL,
    )
    return DataDir(data / "train")


def test_texts_and_counts_equal_those_of_discs(discs, tmp_path, capsys):
    train = prepare(tmp_path, swbd=discs.root)
    assert train.text == discs.texts and len(set(train.utt2spk.values())) == 15
    assert len(train.wav_scp) == 15 and "sw02167-B" not in train.wav_scp
    assert train.table("reco2file_and_channel")["sw02001-B"] == "sw02001 B"
    assert not validate(tmp_path / "train", audio="read")
    output = capsys.readouterr().out
    assert f"{len(discs.unheard)} segments left out: no audio of their call: sw02289-" in output
    assert "1 segments left out: it begins after the end of its recording: sw03409-B" in output
    assert (
        "1 calls have a transcript, but no audio: sw02289" in output
        and "8 calls have audio, of 2,435 or 2,438" in output
    )
    assert re.search(rf"utterances +{len(train.utterances)} +264,000 +-", output)


def test_unchanged_corpus_is_up_to_date_and_changed_audio_is_not(discs, tmp_path, capsys):
    prepare(tmp_path / "data", swbd=discs.root)
    capsys.readouterr()
    prepare(tmp_path / "data", swbd=discs.root)
    assert "train is up to date" in capsys.readouterr().out
    copy = swbd_discs.lay_out(discs, "dvds", tmp_path / "copy")
    prepare(tmp_path / "more", swbd=copy, transcripts=discs.archive)
    (copy / "swb1_d1/data/sw02001.sph").unlink()
    assert "sw02001-A" not in prepare(tmp_path / "more", swbd=copy, transcripts=discs.archive).wav_scp


@pytest.mark.parametrize(
    "layout, source",
    [
        ("dvds", "transcripts"),
        ("cds", "archive"),
        ("together", "transcripts"),
        ("upper", "archive"),
        ("image", "archive"),
        ("short", "transcripts"),
        ("copies", "archive"),
        ("inside", None),
    ],
)
def test_layouts_give_equal_texts(discs, tmp_path, capsys, layout, source):
    places = {"swbd": swbd_discs.lay_out(discs, layout, tmp_path / layout)}
    if source:
        places["transcripts"] = getattr(discs, source)
    train = prepare(tmp_path / "data", **places)
    assert train.text == discs.texts and not validate(train.path)
    assert ("1 files exist in several copies" in capsys.readouterr().out) == (layout == "copies")


def test_individually_compressed_transcripts(discs, tmp_path):
    transcripts = shutil.copytree(discs.transcripts, tmp_path / "transcripts")
    for path in [*transcripts.rglob("*-trans.text"), transcripts / "sw-ms98-dict.text"]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert (
        prepare(tmp_path, swbd=discs.root / "swb1_d1", transcripts=transcripts).text.items()
        <= discs.texts.items()
    )
    with tarfile.open(tmp_path / "swb_ms98_transcriptions (1).tgz", "w:gz") as archive:
        archive.add(transcripts, "swb_ms98_transcriptions")
    shutil.rmtree(transcripts)
    # the second of two archives, which is not read
    (tmp_path / "switchboard_word_alignments.tar.gz").symlink_to(discs.archive)
    assert "moon" in " ".join(
        prepare(tmp_path / "data", swbd=discs.root / "swb1_d1", transcripts=tmp_path).text.values()
    )


def test_audio_without_one_channel_per_side_is_omitted(discs, tmp_path, capsys):
    """For example a mixture of both or one unknown side."""
    swbd = swbd_discs.lay_out(discs, "dvds", tmp_path / "swbd")
    mono = swbd / "swb1_d1/data/sw02001.sph"
    mono.unlink()
    write_sphere(mono, [np.zeros(RATE)])
    train = prepare(tmp_path, swbd=swbd, transcripts=discs.archive)
    assert train.text == {name: text for name, text in discs.texts.items() if name[:7] != "sw02001"}
    assert (
        f"sw02001 is left out: {mono}: 1 channel(s), but the sides of a call need 2; give the file as"
        in capsys.readouterr().out
    )


def test_corpus_without_usable_audio_is_refused(discs, tmp_path):
    swbd = swbd_discs.lay_out(discs, "dvds", tmp_path / "swbd")
    for path in swbd_discs.audio_files(swbd):
        path.unlink()
        path.touch()
    with pytest.raises(
        UserError, match="no call with a transcript has usable audio; check what was left out"
    ):
        prepare(tmp_path / "data", swbd=swbd, transcripts=discs.archive)
    assert not (tmp_path / "data/train").exists()


def test_callers_as_speakers(discs, tmp_path):
    train = prepare(tmp_path, swbd=discs.root, speakers="caller")
    assert len(set(train.utt2spk.values())) == 14 and train.utt2spk.keys() >= {
        "sw1001-02001-B" + name[9:] for name in discs.texts if name.startswith("sw02001-B")
    }
    assert {train.utt2spk[name] for name in train.utterances if "02001-A" in name or "02010-B" in name} == {
        "sw1000"
    }
    assert {train.utt2spk[name] for name in train.utterances if "04519" in name} == {"sw04519-A", "sw04519-B"}
    assert sorted(train.text.values()) == sorted(discs.texts.values()) and not validate(tmp_path / "train")
    assert not train.has("spk2gender")  # the callers of 4519 are unknown


def test_sexes_are_written_if_all_are_known(discs, tmp_path):
    swbd = swbd_discs.lay_out(discs, "dvds", tmp_path / "swbd")
    next(swbd.rglob("sw04519.sph")).unlink()
    train = prepare(tmp_path, swbd=swbd, transcripts=discs.transcripts, docs=discs.root / "docs")
    assert read_table(train.path / "spk2gender")["sw02001-A"] == "f" and not validate(train.path)


def test_malformed_lines_are_omitted_and_named(discs, tmp_path, capsys):
    transcripts = shutil.copytree(discs.transcripts, tmp_path / "transcripts")
    side = transcripts / "20/2001/sw2001A-ms98-a-trans.text"
    lines = side.read_text().splitlines()
    first = lines[0].split()
    lines += [
        "sw2001A-ms98-a-0090 12.0 11.0 moon",
        "sw2001A-ms98-a-0091 moon",
        "sw2001A-ms98-a-0092 1.5 1.501 moon",
        "",
        " ".join(["sw2001A-ms98-a-0093", *first[1:3], "moon"]),
    ]
    side.write_bytes("\r\n".join(lines).encode() + b"\r\nsw2001A-ms98-a-0094 3.0 3.5 caf\xe9\r\n")
    train = prepare(tmp_path, swbd=discs.root, transcripts=transcripts)
    assert train.text == {**discs.texts, "sw02001-A_000300-000350": "café"}
    output = capsys.readouterr().out
    for reason in ("its end is not after its beginning: ", "a line that is not 'SEGMENT BEGIN END WORDS': "):
        assert f"1 segments left out: {reason}{side}:" in output
    assert "1 segments left out: shorter than 10 ms: sw02001-A_000150-000150" in output
    assert (
        "1 segments left out: the same times as another: sw02001-A_" in output
        and f"{side}:{len(lines) + 1}: not UTF-8" in output
    )


def test_side_without_speech(discs, tmp_path, capsys):
    transcripts = shutil.copytree(discs.transcripts, tmp_path / "transcripts")
    (transcripts / "21/2167/sw2167B-ms98-a-trans.text").write_text("sw2167B-ms98-a-0001 0.5 1.5 [noise]\n")
    assert prepare(tmp_path, swbd=discs.root, transcripts=transcripts).text == discs.texts
    assert (
        "1 segments left out: a side on which nothing is said: sw02167-B_000050-000150"
        in capsys.readouterr().out
    )


def test_unusable_audio_is_omitted_and_named(discs, tmp_path, capsys):
    swbd = swbd_discs.lay_out(discs, "dvds", tmp_path / "swbd")
    cut, broken = swbd / "swb1_d1/data/sw02001.sph", swbd / "swb1_d3/data/sw04002.sph"
    contents = {path: path.read_bytes() for path in (cut, broken)}
    for path, content in ((cut, contents[cut][:-5000]), (broken, b"NIST_1A\n   1024\nsample_count")):
        path.unlink()
        path.write_bytes(content)
    train = prepare(tmp_path, swbd=swbd, transcripts=discs.archive)
    assert train.text == {
        name: text for name, text in discs.texts.items() if name[:7] not in ("sw02001", "sw04002")
    }
    output = capsys.readouterr().out
    assert "segments left out: their audio is not usable: sw02001-A_" in output
    assert f"sw02001 is left out: {cut}: cut short" in output and f"sw04002 is left out: {broken}: " in output


def test_wrong_and_missing_discs_are_reported(discs, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for places, message in (
        (
            {},
            r"Switchboard-1 Release 2 \(LDC97S62\): no sw0NNNN.sph .*, because no directory was given; give "
            r"its directory with "
            "--swbd",
        ),
        ({"swbd": tmp_path / "nowhere"}, "nowhere: no such directory; correct the path, or mount the disc"),
        (
            {"swbd": tmp_path / "empty"},
            rf"Release 2 \(LDC97S62\): no sw0NNNN.sph .* below {tmp_path}/empty; give its directory "
            "with --swbd",
        ),
        (
            {"swbd": discs.root, "transcripts": tmp_path / "empty"},
            r"transcripts of Switchboard \(OpenSLR 5\): no swNNNNA.* with --transcripts",
        ),
        (
            {"swbd": discs.root, "speakers": "caller", "docs": tmp_path / "empty"},
            "no conv_tab.csv or conv.tab .* with --docs",
        ),
    ):
        with pytest.raises(UserError, match=message):
            prepare(tmp_path / "data", **places)
    part = swbd_discs.lay_out(discs, "dvds", tmp_path / "part")
    shutil.rmtree(part / "swb1_d3")
    train = prepare(tmp_path / "data", swbd=part, transcripts=discs.archive)
    assert {name[:7] for name in train.utterances} == {
        f"sw0{call}" for call, disc in swbd_discs.CALLS.items() if disc != 3
    }
    assert "no calls in swb1_d3, but in 3 other discs" in capsys.readouterr().out


def test_transcripts_of_other_calls_are_refused(discs, tmp_path):
    transcripts = shutil.copytree(discs.transcripts, tmp_path / "transcripts")
    for folder in (path for path in transcripts.glob("*/*") if path.name != "2289"):
        shutil.rmtree(folder)
    with pytest.raises(
        UserError,
        match=r"of 8 calls with audio \(sw02001 ...\) and 1 with transcripts \(sw02289 ...\) none has both",
    ):
        prepare(tmp_path, swbd=discs.root, transcripts=transcripts)
    (transcripts / "sw-ms98-dict.text").unlink()
    report = (
        "the dictionary of the transcripts: no sw-ms98-dict.text below .*transcripts; give its directory with"
    )
    with pytest.raises(UserError, match=report):
        prepare(tmp_path, swbd=discs.root, transcripts=transcripts)


def test_invalid_archives_are_refused(discs, tmp_path):
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(discs.archive.read_bytes()[:-3000])
    (tmp_path / "text.tar.gz").write_text("no archive")
    with tarfile.open(tmp_path / "other.tar.gz", "w:gz") as archive:
        archive.add(discs.root / "docs", "docs")
    for name, message in (
        ("cut", "cut.tar.gz: .*; download switchboard_word_alignments.tar.gz again"),
        ("text", r"text.tar.gz: not a complete tar archive \([^\n]*\); download [^\n]* again$"),
        ("other", "other.tar.gz: it contains no swNNNNA-ms98-a-trans.text;"),
    ):
        with pytest.raises(UserError, match=message):
            prepare(tmp_path, swbd=discs.root, transcripts=tmp_path / f"{name}.tar.gz")


def test_dictionary_directory(discs, tmp_path):
    prepare(tmp_path, swbd=discs.root)
    run_here(
        "prepare_dict.py",
        "--transcripts",
        discs.archive,
        tmp_path / "train/text",
        tmp_path / "dict",
        folder=LOCAL,
    )
    lexicon = [line.split(None, 1) for line in (tmp_path / "dict/lexicon.txt").read_text().splitlines()]
    words = {word for text in discs.texts.values() for word in text.split()}
    assert words <= {word for word, _ in lexicon}
    of_tree = {word: phones for word, phones in swbd_discs.TOKENS.values() if word and word != "wolf"}
    assert {
        word: phones
        for word, phones in lexicon
        if word in of_tree and (word, phones.strip()) != ("yeah", "y eh")
    } == of_tree
    assert (tmp_path / "dict/missing_words.txt").read_text().split()[1:] == "wolf cmudict w uh l f".split()
    assert read_table(tmp_path / "dict/acronyms.txt")["BBC's"] == "b._b._c.'s"
    assert read_table(tmp_path / "dict/acronyms_spelled.txt")["b._b._c.'s"] == "b b c's"
    assert (tmp_path / "dict/silence_phones.txt").read_text().split() == ["sil", "spn", "nsn", "lau"]
    assert (tmp_path / "dict/optional_silence.txt").read_text() == "sil\n" and (
        tmp_path / "dict/extra_questions.txt"
    ).read_text() == ""
