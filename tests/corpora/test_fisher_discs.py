"""Fisher English from discs to data directories: all common layouts, and the known faults of the corpus."""

import gzip
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from fisher_discs import WITHOUT_AUDIO, WITHOUT_TEXT, Discs, audio_name, make_discs, text_name, write_file
from shorten_encoder import plain_sphere, shortened_sphere
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.corpora.fisher.fisher_speakers import Caller
from pyasr.corpora.fisher.fisher_transcripts import TranscriptLine
from pyasr.corpora.fisher.utterances import utterance_of
from pyasr.data.checks.validation import validate
from pyasr.data.tables.datadir import DataDir
from pyasr.io.text_tables import read_table

LOCAL = "egs/fisher_english/s5/local"


def run(program: str, *words) -> None:
    """Run a program of the recipe in this process."""
    run_here(f"{program}.py", *words, folder=LOCAL)


def prepare(out: Path, places: list, *words) -> DataDir:
    """Data directory of all utterances of these locations."""
    run("prepare_fisher", "--fisher", ":".join(map(str, places)), *words, out)
    return DataDir(out)


@pytest.fixture(scope="module")
def discs(tmp_path_factory) -> Discs:
    return make_discs(tmp_path_factory.mktemp("fisher"))


@pytest.fixture
def copied(discs, tmp_path) -> Discs:
    """A copy of the tree that a test may change."""
    shutil.copytree(discs.root, tmp_path / "discs")
    return Discs(tmp_path / "discs", discs.texts, discs.speakers, discs.skipped)


def without_speaker(utterance: str) -> str:
    return utterance[utterance.index("fe_03_") :]


def check(found: DataDir, discs: Discs, calls=lambda call: True) -> DataDir:
    """Utterances, words, speakers and recordings of a directory equal those of the tree, for the calls in
    use."""
    expected = {name: words for name, words in discs.texts.items() if calls(name[:11])}
    assert {without_speaker(name): words for name, words in found.text.items()} == expected
    assert dict(found.utt2spk.items()) == {
        name: discs.speakers[without_speaker(name)[:13]] for name in found.text
    }
    for name, segment in found.segments.items():
        side, begin, end = re.fullmatch(r"(?:.*-)?(fe_03_\d{5}-[AB])-(\d{6})-(\d{6})", name).groups()
        assert (segment.recording, f"{segment.begin_s:.2f} {segment.end_s:.2f}") == (
            side,
            f"{int(begin) / 100:.2f} {int(end) / 100:.2f}",
        )
        call, channel = side.split("-")
        assert found.table("reco2file_and_channel")[side] == f"{call} {channel}"
    return found


def test_texts_speakers_and_counts_equal_those_of_discs(discs, tmp_path, capsys):
    data = check(prepare(tmp_path / "data" / "all", discs.places), discs)
    output = capsys.readouterr().out
    assert {data.wav_scp[f"fe_03_00001-{side}"] for side in "AB"} == {str(discs.root / audio_name(1))}
    sexes = data.table("spk2gender")
    assert sexes.keys() == data.spk2utt.keys() and all(
        sexes[speaker] == speaker[-1] for speaker in sexes if not speaker.startswith("fe_03")
    )
    assert {"2637m", "2637f", "fe_03_05853-A"} <= data.spk2utt.keys() and sexes["fe_03_05853-A"] == "f"
    assert f"1 calls left out: no transcript: fe_03_{WITHOUT_TEXT:05d}" in output
    assert f"1 calls left out: no speech: fe_03_{WITHOUT_AUDIO:05d}" in output
    for fault, number in discs.skipped.items():
        counted = [
            int(count)
            for count, reason in re.findall(r": (\d+) utterances left out: ([^:]*)", output)
            if fault in reason
        ]
        assert counted == [number], (fault, output)
    assert not validate(data.path, audio="read")
    assert "fe_03_11487-A-023109-" in " ".join(data.text)
    prepare(tmp_path / "data" / "all", discs.places)
    assert "all is up to date" in capsys.readouterr().out


def test_sides_as_speakers(discs, tmp_path):
    data = prepare(tmp_path / "all", discs.places, "--speakers", "side")
    assert data.text == discs.texts and all(
        name.startswith(f"{speaker}-") for name, speaker in data.utt2spk.items()
    )
    assert data.table("spk2gender")["fe_03_00001-A"] == "m" and not validate(data.path)


@pytest.mark.parametrize("version", ["", ";1"])
def test_upper_case_directory_and_renamed_audio(copied, tmp_path, capsys, version):
    """Audio named .wav, and another file of that name; names with version suffixes, as in disc images."""
    for path in sorted(copied.root.rglob("*"), key=lambda path: -len(path.parts)):
        path.rename(path.with_name(path.name.upper().replace(".SPH", ".WAV") + version * path.is_file()))
    write_file(copied.root / "OTHERS" / "fe_03_00001.wav", b"RIFF1234WAVEfmt ")
    check(prepare(tmp_path / "all", [copied.root]), copied)
    assert "copies" not in capsys.readouterr().out


def test_compressed_transcripts_in_other_folders(copied, tmp_path):
    """BBN's originals have the same names, but are not used."""
    for path in copied.root.rglob("trans/*/*.txt"):
        write_file(
            copied.root / "text" / path.parent.name / f"{path.name}.gz", gzip.compress(path.read_bytes())
        )
    for path in list(copied.root.rglob("trans")):
        shutil.rmtree(path)
    check(prepare(tmp_path / "all", [copied.root]), copied)
    shutil.rmtree(copied.root / "text")
    with pytest.raises(UserError, match=re.escape(TEXT)):
        prepare(tmp_path / "others", [copied.root])


def test_single_channel_audio_is_omitted(copied, tmp_path, capsys):
    write_file(copied.root / audio_name(3), plain_sphere(np.zeros((8000, 1), np.int16), channels=1))
    check(prepare(tmp_path / "all", copied.places), copied, lambda call: call != "fe_03_00003")
    assert f"fe_03_00003 is left out: {copied.root}/{audio_name(3)}: 1 channel(s)" in capsys.readouterr().out


def test_duplicate_transcripts_and_calls_are_used_once(copied, tmp_path, capsys):
    """If an archive was unpacked twice, with and without its outer folder, the first file in sorted order is
    used."""
    shutil.copytree(
        copied.root / "LDC2004T19" / "fe_03_p1_tran" / "data", copied.root / "LDC2004T19" / "data"
    )
    write_file(
        copied.root / "LDC2005S13" / "more" / "FE_03_05851.SPH", (copied.root / audio_name(5851)).read_bytes()
    )
    data = check(prepare(tmp_path / "all", copied.places), copied)
    output = capsys.readouterr().out
    assert "4 files exist in several copies" in output and "1 files exist in several copies" in output
    assert data.wav_scp["fe_03_05851-A"].endswith("p2_sph1/audio/058/fe_03_05851.sph")


def test_part_1_without_part_2(discs, tmp_path, capsys):
    check(prepare(tmp_path / "all", discs.places[2:]), discs, lambda call: call >= "fe_03_05851")
    output = capsys.readouterr().out
    assert (
        "Fisher part 1: 0 calls with speech (LDC2004S13), 0 with transcripts (LDC2004T19), published 5850 "
        "of each"
    ) in output


def test_added_audio_recomputes_data_directory(copied, tmp_path, capsys):
    """The transcripts do not change."""
    audio = copied.root / audio_name(3)
    audio.rename(tmp_path / "elsewhere.sph")
    check(prepare(tmp_path / "all", copied.places), copied, lambda call: call != "fe_03_00003")
    assert "2 calls left out: no speech: fe_03_00003 fe_03_00099" in capsys.readouterr().out
    (tmp_path / "elsewhere.sph").rename(audio)
    check(prepare(tmp_path / "all", copied.places), copied)


def test_unusable_audio_is_omitted(copied, tmp_path, capsys):
    """Calls whose audio is known to be bad, invalid headers, truncated files."""
    for number in (446, 1243, 6716):
        write_file(copied.root / audio_name(number), (copied.root / audio_name(1)).read_bytes())
        text = (copied.root / text_name(1)).read_text().replace("fe_03_00001", f"fe_03_{number:05d}")
        write_file(copied.root / text_name(number), text.encode())
    write_file(copied.root / audio_name(2), b"NIST_1A\n   1024\nnothing")
    content = (copied.root / audio_name(5851)).read_bytes()
    write_file(copied.root / audio_name(5851), content[: len(content) // 2])
    shortened = shortened_sphere(
        np.random.default_rng(0).integers(-3000, 3000, (8000, 2), np.int16), channels=2
    )
    write_file(copied.root / audio_name(5852), shortened[: len(shortened) // 8192 * 4096])
    check(
        prepare(tmp_path / "all", copied.places),
        copied,
        lambda call: call not in ("fe_03_00002", "fe_03_05851", "fe_03_05852"),
    )
    output = capsys.readouterr().out
    assert "3 calls left out: bad audio: fe_03_00446 fe_03_01243 fe_03_06716" in output
    assert re.search(rf"fe_03_00002 is left out: {copied.root}/{audio_name(2)}: \S", output)
    assert re.search(rf"fe_03_05851 is left out: {copied.root}/{audio_name(5851)}: cut short", output)
    assert re.search(
        rf"fe_03_05852 is left out: {copied.root}/{audio_name(5852)}: cut short, \d+ of 8000 samples found",
        output,
    )


def test_names_of_utterances_have_rounded_times():
    """2.53 s are 253 units of 10 ms, although 100 x 2.53 is slightly less."""
    line = TranscriptLine("fe_03_00001", "A", 2.53, 4.808, "hi")
    callers = {"fe_03_00001-A": Caller("2637", "m")}
    found = [
        (one.name, one.speaker, one.begin_s, one.end_s)
        for one in (utterance_of(line, {}), utterance_of(line, callers))
    ]
    assert found == [
        ("fe_03_00001-A-000253-000481", "fe_03_00001-A", 2.53, 4.81),
        ("2637m-fe_03_00001-A-000253-000481", "2637m", 2.53, 4.81),
    ]


SPEECH = "Fisher English speech (LDC2004S13, LDC2005S13): no audio/NNN/fe_03_NNNNN.sph"
TEXT = "Fisher English transcripts (LDC2004T19, LDC2005T19): no data/trans/NNN/fe_03_NNNNN.txt"


@pytest.mark.parametrize(
    "given, sentence",
    [
        ("", f"{SPEECH}, because no directory was given; give its directory with --fisher"),
        (
            "LDC2004T19 LDC2005T19",
            f"{SPEECH} below DISCS/LDC2004T19, DISCS/LDC2005T19; give its directory with --fisher",
        ),
        ("LDC2004S13", f"{TEXT} below DISCS/LDC2004S13; give its directory with --fisher"),
        (
            "LDC2005S13 LDC2004T19",
            "no call has both speech and a transcript: 4 calls of LDC2005S13 and 4 transcripts of LDC2004T19 "
            "were found; give the transcripts of the same part",
        ),
        ("LDC2004S13 nowhere", "DISCS/nowhere: no such directory; correct the path, or mount the disc"),
    ],
)
def test_missing_and_wrong_discs_give_one_sentence(given, sentence, discs, tmp_path):
    with pytest.raises(UserError) as caught:
        prepare(tmp_path / "all", [discs.root / name for name in given.split()])
    assert str(caught.value) == sentence.replace("DISCS", str(discs.root)) and not (tmp_path / "all").exists()


@pytest.mark.parametrize(
    "name, hint",
    [
        ("fisher_eng_tr_sp_LDC2004S13.zip.001", "is an archive: unpack it first"),
        ("fe_03_00001.wav", "is not a SPHERE file"),
        ("fe_03_p1_sph1.iso", "is a disc image: mount or unpack it first"),
    ],
)
def test_other_file_in_place_of_audio_is_named(name, hint, discs, tmp_path):
    write_file(tmp_path / "speech" / name, b"RIFF")
    with pytest.raises(UserError, match=f"{tmp_path}/speech/{name} {hint}"):
        prepare(tmp_path / "all", [tmp_path / "speech", discs.places[1]])


def test_tables_without_valid_lines_are_named(copied, tmp_path, capsys):
    for path in (*copied.root.rglob("*.tbl"), *copied.root.rglob("filetable*.txt")):
        path.write_text("nothing\n")
    data = prepare(tmp_path / "all", copied.places)
    assert data.text == copied.texts and set(data.utt2spk.values()) == {name[:13] for name in data.text}
    output = capsys.readouterr().out
    assert (
        output.count("no line contains a call and its callers") == 6
        and "no spk2gender: " in output
        and not data.has("spk2gender")
    )


def test_sets_are_split_in_order_of_calls(discs, tmp_path):
    data = prepare(tmp_path / "all", discs.places)
    run("split_fisher", "--num-dev", 5, "--num-test", 7, data.path, tmp_path)
    sets = [sorted(map(without_speaker, DataDir(tmp_path / name).text)) for name in ("dev", "test", "train")]
    ordered = sorted(discs.texts)
    assert sets == [ordered[:5], ordered[5:12], ordered[12:]]
    with pytest.raises(UserError, match="lower --num-dev and --num-test"):
        run("split_fisher", data.path, tmp_path / "more")


def test_text_for_language_models(discs, tmp_path):
    """No audio is needed, and one part is enough. Uncertain words are included, and noises are written as in
    Switchboard."""
    run("prepare_lm_text", "--fisher", ":".join(discs.places[1::2]), tmp_path / "lm")
    text = read_table(tmp_path / "lm" / "text")
    assert text["fe_03_00001-B-000400-000450"] == "you know" and f"fe_03_{WITHOUT_AUDIO:05d}" in {
        name[:11] for name in text
    }
    assert "[vocalized-noise]" in " ".join(text.values()) and "[mn]" not in " ".join(text.values())
    run("prepare_lm_text", "--fisher", discs.places[3], tmp_path / "lm2")
    assert {name[:11] for name in read_table(tmp_path / "lm2" / "text")} == {
        "fe_03_05851",
        "fe_03_05852",
        "fe_03_05853",
        "fe_03_11487",
    }
    with pytest.raises(UserError, match=re.escape(TEXT)):
        run("prepare_lm_text", "--fisher", discs.places[0], tmp_path / "lm3")


def test_dictionary(discs, tmp_path):
    data = prepare(tmp_path / "all", discs.places)
    run("prepare_fisher_dict", data.path / "text", tmp_path / "dict")
    words = {line.split()[0] for line in (tmp_path / "dict" / "lexicon.txt").read_text().splitlines()}
    seen = {word for text in discs.texts.values() for word in text.split()}
    assert words == {word for word in seen if word not in ("café", "f-", "zoo:", "[[skip]]")} | {
        "[laughter]",
        "[noise]",
        "[oov]",
        "<unk>",
        "mm",
    }
