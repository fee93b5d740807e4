"""local/prepare_librispeech.py and local/get_lms.py on trees in the unpacked layout of LibriSpeech's
archives."""

import gzip
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from librispeech_tree import LEXICON, READERS, noise, write_models, write_tree
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.corpora.librispeech.parts import PUBLISHED, TRAINING, part_folders, parts_of
from pyasr.corpora.librispeech.speech import inspect_flac, read_sexes
from pyasr.data.checks.validation import validate
from pyasr.data.tables.datadir import DataDir
from pyasr.lang.ngrams.arpa import read_arpa

LOCAL = "egs/librispeech/s5/local"
MINI = {"train-clean-5": 16, "dev-clean-2": 8}
FULL = dict.fromkeys((*TRAINING["960"], "dev-clean", "dev-other", "test-clean", "test-other"), 6)
FIRST = "LibriSpeech/train-clean-5/1088/134315/1088-134315-0000.flac"


@pytest.fixture
def mini(tmp_path):
    """(directory that contains mini_librispeech, {part: {utterance: words}})"""
    return tmp_path, write_tree(tmp_path, MINI, noise)


@pytest.fixture
def prepare(tmp_path, caplog):
    """Function of the corpus's locations and flags that returns the log. Raises the errors of the program."""

    def run(corpus, *flags):
        caplog.clear()
        caplog.set_level("INFO", "pyasr")
        run_here("prepare_librispeech.py", *flags, corpus, tmp_path / "data", folder=LOCAL)
        return caplog.text

    return run


def test_data_directories_equal_generated_tree(mini, prepare):
    place, texts = mini
    prepare(place)
    for part, expected in texts.items():
        data = DataDir(place / "data" / part.replace("-", "_"))
        assert data.text == expected and data.utterances == sorted(expected)
        assert data.utt2spk == {name: name[:-5] for name in expected}
        assert data.utt2dur == {
            name: pytest.approx(len(words.split()) / 10) for name, words in expected.items()
        }
        assert {name: Path(path).stem for name, path in data.wav_scp.items()} == {
            name: name for name in expected
        }
        assert data.table("spk2gender") == {
            speaker: READERS[part][int(speaker.partition("-")[0])][0].lower() for speaker in data.spk2utt
        }
        assert validate(data.path) == []


def test_reader_names_may_contain_bars(mini):
    assert read_sexes([mini[0] / "LibriSpeech/train-clean-5"]) == {
        str(reader): sex.lower() for readers in READERS.values() for reader, (sex, _) in readers.items()
    }


@pytest.mark.parametrize("subset", ["100", "460", "960"])
def test_parts_of_the_whole_corpus(subset, tmp_path, prepare):
    write_tree(tmp_path, FULL, noise)
    prepare(tmp_path / "LibriSpeech", "--subset", subset)
    tests = {"dev_clean", "dev_other", "test_clean", "test_other", "local"}
    assert {path.name for path in (tmp_path / "data").iterdir()} == tests | {
        part.replace("-", "_") for part in TRAINING[subset]
    }


def test_selected_kind_of_test_sets(tmp_path, prepare):
    write_tree(tmp_path, FULL, noise)
    shutil.rmtree(tmp_path / "LibriSpeech/dev-other")
    prepare(tmp_path, "--subset", "100", "--test-kinds", "clean")
    assert {path.name for path in (tmp_path / "data").iterdir()} == {
        "train_clean_100",
        "dev_clean",
        "test_clean",
        "local",
    }
    with pytest.raises(UserError, match="--test-kinds: 'noisy' is none of clean other"):
        prepare(tmp_path, "--subset", "100", "--test-kinds", "clean noisy")


def compressed(place: Path) -> str:
    """Individually compressed transcripts, and system files next to the audio."""
    for path in list(place.rglob("*.trans.txt")):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    (place / FIRST).with_name("._1088-134315.trans.txt").write_bytes(b"\0\5\x16\7")
    (place / "LibriSpeech/.Trash/train-clean-5").mkdir(parents=True)
    return str(place)


def move_apart(place: Path) -> str:
    """Parts at two locations, one of them only its own folder, as `A:B`."""
    (place / "disk").mkdir()
    (place / "LibriSpeech/dev-clean-2").rename(place / "disk/dev-clean-2")
    return f"{place}/LibriSpeech:{place}/disk/dev-clean-2"


def unpack_each_apart(place: Path) -> str:
    """Each archive in its own folder."""
    for part in MINI:
        (place / "all" / part / "LibriSpeech").mkdir(parents=True)
        (place / "LibriSpeech" / part).rename(place / "all" / part / "LibriSpeech" / part)
        shutil.copy(place / "LibriSpeech/SPEAKERS.TXT", place / "all" / part / "LibriSpeech")
    shutil.rmtree(place / "LibriSpeech")
    return str(place / "all")


def in_capitals(place: Path) -> str:
    for path in sorted((place / "LibriSpeech").rglob("*"), key=lambda path: -len(path.parts)):
        path.rename(path.with_name(path.name.upper()))
    return str(place)


@pytest.mark.parametrize(
    "layout",
    [compressed, move_apart, unpack_each_apart, in_capitals, lambda place: place, lambda place: f"{place}:"],
)
def test_layouts_give_equal_texts(layout, mini, prepare):
    place, texts = mini
    prepare(layout(place))
    assert {part: DataDir(place / "data" / part.replace("-", "_")).text for part in texts} == texts


def test_second_copy_is_reported_and_not_read(mini, prepare):
    """A link is not a second copy."""
    place, texts = mini
    (place / "link").symlink_to(place / "LibriSpeech")
    assert "several copies" not in prepare(place)
    shutil.copytree(place / "LibriSpeech/train-clean-5", place / "copy/train-clean-5")
    assert "16 files exist in several copies, the first of each is used:" in prepare(place)
    assert DataDir(place / "data/train_clean_5").text == texts["train-clean-5"]


def test_missing_parts_are_named(mini, prepare):
    place, _ = mini
    shutil.rmtree(place / "LibriSpeech/dev-clean-2")
    with pytest.raises(
        UserError,
        match=f"^LibriSpeech: no folder dev-clean-2 below {place}: download from www.openslr.org/31 and",
    ):
        prepare(place)
    with pytest.raises(
        UserError,
        match=(
            "no folder train-clean-100, train-clean-360, dev-clean, dev-other, test-clean, test-other below "
            ".*www.openslr.org/12 .*--corpus, separated by ':'"
        ),
    ):
        prepare(place, "--subset", "460")
    assert not (place / "data").exists()


def test_packed_archives_are_named(mini, prepare):
    place, _ = mini
    shutil.rmtree(place / "LibriSpeech/dev-clean-2")
    (place / "dev-clean-2.tar.gz").write_bytes(gzip.compress(b"not looked at"))
    with pytest.raises(UserError) as error:
        prepare(place)
    archive = place / "dev-clean-2.tar.gz"
    assert (
        str(error.value)
        == f"LibriSpeech: dev-clean-2.tar.gz is not unpacked: run 'tar -xzf {archive} -C {place}'"
    )


@pytest.mark.parametrize(
    "corpus, message",
    [
        ("", "LibriSpeech: no directory was given; give it with --corpus, several separated by ':'"),
        ("nowhere", "nowhere: no such directory; correct the path"),
        (__file__, f"{__file__}: a file, not a directory; give the directory that contains it"),
    ],
)
def test_missing_locations_are_reported(corpus, message, prepare):
    with pytest.raises(UserError, match=re.escape(message)):
        prepare(corpus)


def lose_audio(place: Path) -> None:
    (place / FIRST).unlink()


def lose_transcripts(place: Path) -> None:
    (place / "LibriSpeech/train-clean-5/60/134318/60-134318.trans.txt").unlink()


def cut(place: Path) -> None:
    """Truncate a file within its last frame, as an interrupted unpacking does."""
    content = (place / FIRST).read_bytes()
    (place / FIRST).write_bytes(content[:-100])


def lose_target(place: Path) -> None:
    """Break a link, as if another disk were not mounted."""
    (place / FIRST).unlink()
    (place / FIRST).symlink_to(place / "unmounted.flac")


def empty(place: Path) -> None:
    (place / FIRST).write_bytes(b"")


def of_another_form(place: Path) -> None:
    (place / FIRST).write_bytes(b"RIFF" + bytes(1000))


def at_another_rate(place: Path) -> None:
    soundfile.write(place / FIRST, np.zeros(800), 8000, format="FLAC")


def without_words(place: Path) -> None:
    path = place / "LibriSpeech/train-clean-5/1088/134315/1088-134315.trans.txt"
    path.write_text(re.sub("(0000).*", r"\1", path.read_text()))


@pytest.mark.parametrize(
    "damage, count, reason",
    [
        (lose_audio, 1, "a transcript without audio: 1088-134315-0000"),
        (lose_target, 1, "a transcript without audio: 1088-134315-0000"),
        (lose_transcripts, 2, "audio without a transcript: 60-134318-0000 60-134318-0001"),
        (cut, 1, "audio that is truncated: 1088-134315-0000"),
        (empty, 1, "audio that is not a FLAC file: 1088-134315-0000"),
        (of_another_form, 1, "audio that is not a FLAC file: 1088-134315-0000"),
        (at_another_rate, 1, "audio that is not of one channel at 16000 Hz: 1088-134315-0000"),
        (without_words, 1, "a transcript without words: 1088-134315-0000"),
    ],
)
def test_unusable_utterances_are_named_and_omitted(damage, count, reason, mini, prepare):
    place, texts = mini
    damage(place)
    said = prepare(place)
    assert f"{count} utterances of train-clean-5 left out: {reason}" in said
    left = set(texts["train-clean-5"]) - set(DataDir(place / "data/train_clean_5").utterances)
    assert left == set(reason.partition(": ")[2].split())


def test_changed_part_is_read_again(mini, prepare):
    """Other parts are not prepared again."""
    place, texts = mini
    content = (place / FIRST).read_bytes()
    cut(place)
    prepare(place)
    (place / FIRST).write_bytes(content)
    said = prepare(place)
    assert "train_clean_5 is up to date" not in said and "dev_clean_2 is up to date" in said
    assert DataDir(place / "data/train_clean_5").text == texts["train-clean-5"]
    assert prepare(place, "--nj", 3).count("is up to date") == 2


@pytest.mark.parametrize(
    "content, message",
    [
        (b"1088-134315-0000 CAF\xc9\n", "not UTF-8"),
        (
            b"1088-134315-0000 MA\n<html>\n",
            ":2: '<html>' is not READER-CHAPTER-NUMBER; unpack the archive of this part again",
        ),
    ],
)
def test_invalid_transcripts_are_refused(content, message, mini, prepare):
    path = mini[0] / "LibriSpeech/train-clean-5/1088/134315/1088-134315.trans.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        prepare(mini[0])
    assert str(path) in str(error.value) and not (mini[0] / "data/train_clean_5").exists()


def test_folder_without_audio_is_refused(mini, prepare):
    for path in (mini[0] / "LibriSpeech/dev-clean-2").rglob("*.flac"):
        path.unlink()
    with pytest.raises(
        UserError, match="dev-clean-2: no file READER-CHAPTER-NUMBER.flac below; unpack its archive again"
    ):
        prepare(mini[0])


@pytest.mark.parametrize(
    "table, unknown",
    [
        ("\ufeff32 | F | x | 1 | N | more\r\n60 | m | x | 1 | N\r\n118 | M | x | 1 | N\r\n", "1088"),
        (None, "32 60 118 1088"),
        ("1088 | F | train-clean-5 | 25.0 | \xc9\n60 M\n", "32 60 118"),
        ("32 | x | y | z | N\n", "32 60 118 1088"),
    ],
)
def test_unknown_sexes_are_reported(table, unknown, mini, prepare):
    path = mini[0] / "LibriSpeech/SPEAKERS.TXT"
    path.unlink()
    if table:
        path.write_bytes(table.encode("utf-8" if table.startswith("\ufeff") else "latin-1"))
    report = f"no spk2gender is written: SPEAKERS.TXT is missing, or lacks the sex of the readers {unknown}\n"
    assert report in prepare(mini[0])
    assert not (mini[0] / "data/train_clean_5/spk2gender").exists()
    assert validate(mini[0] / "data/train_clean_5") == []


def test_counts_are_shown_with_published_ones(mini, prepare):
    said = prepare(mini[0])
    (row,) = re.findall(r"dev_clean_2 .*\n.*\n.*( utterances .*)", said)
    assert row.split() == ["utterances", "8", "1,089", "-99.3", "%"]
    assert "dev_clean_2: utterances, words: not as published" in said
    assert re.search(r" readers +4\n", said)


def test_published_counts_cover_all_training_parts():
    assert {part for subset in TRAINING for part in parts_of(subset)} == PUBLISHED.keys()


def test_folders_of_parts_are_not_searched(tmp_path, monkeypatch):
    """Parts have thousands of folders."""
    write_tree(tmp_path, MINI, noise)
    (tmp_path / "LibriSpeech/train-clean-5/dev-clean-2").mkdir()
    found = part_folders([tmp_path], "mini", parts_of("mini"))
    assert found == {part: [tmp_path / "LibriSpeech" / part] for part in MINI}


@pytest.mark.parametrize("seconds", [0.05, 1.0, 12.3])
def test_lengths_come_from_headers_and_truncation_is_detected(seconds, tmp_path):
    """Also in other folders."""
    path = tmp_path / "a.flac"
    soundfile.write(path, 0.3 * np.random.default_rng(0).standard_normal(int(16_000 * seconds)), 16_000)
    content = path.read_bytes()
    padding = b"\x01" + (200_000).to_bytes(3, "big") + bytes(200_000)  # a block of metadata after the first
    for whole in (content[:42] + padding + content[42:], content):
        path.write_bytes(whole)
        assert inspect_flac(path) == (pytest.approx(seconds, abs=1e-4), "")
    for end in np.linspace(60, len(content) - 1, 12).astype(int):
        path.write_bytes(content[:end])
        assert inspect_flac(path) == (0.0, "audio that is truncated")


@pytest.fixture
def get_lms(tmp_path, caplog):
    def run(places, *flags):
        caplog.clear()
        caplog.set_level("INFO", "pyasr")
        run_here("get_lms.py", *flags, places, tmp_path / "lm", folder=LOCAL)
        return caplog.text

    return run


def test_lexicon_and_language_models(tmp_path, get_lms):
    write_models(tmp_path / "models/11")
    said = get_lms(tmp_path / "models")
    lines = (tmp_path / "lm/lexicon/lexicon.txt").read_text().splitlines()
    assert lines == [f"{word} {phones}" for word, phones in sorted(LEXICON.items())]
    found = {
        name: (tmp_path / "lm" / name / "lm.arpa.gz").resolve().name
        for name in ("tgsmall", "tgmed", "tglarge", "fglarge")
    }
    assert found == {
        "tgsmall": "3-gram.pruned.3e-7.arpa.gz",
        "tgmed": "3-gram.pruned.1e-7.arpa.gz",
        "tglarge": "3-gram.arpa.gz",
        "fglarge": "4-gram.arpa.gz",
    }
    assert re.search(
        r"3-gram.pruned.3e-7.arpa.gz: [\d,]+ bytes, published 13,654,242: truncated, or another file", said
    )
    assert get_lms(tmp_path / "models", "--rescoring", "tgmed").count("is up to date") == 3


def test_unpacked_models_with_names_of_kaldi_recipe(tmp_path, get_lms):
    write_models(tmp_path / "models")
    packed = tmp_path / "models/3-gram.pruned.1e-7.arpa.gz"
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    (tmp_path / "models/3-gram.pruned.3e-7.arpa.gz").rename(tmp_path / "models/lm_tgsmall.arpa.gz")
    said = get_lms(tmp_path / "models", "--rescoring", "tgmed")
    found = {name: (tmp_path / "lm" / name / "lm.arpa.gz").resolve() for name in ("tgsmall", "tgmed")}
    assert {path.name for path in found.values()} == {
        "lm_tgsmall.arpa.gz",
        "3-gram.pruned.1e-7.arpa",
    } and "3-gram" not in said
    assert read_arpa(tmp_path / "lm/tgmed/lm.arpa.gz").order == 3


def test_missing_models_are_named(tmp_path, get_lms):
    write_models(tmp_path / "models")
    (tmp_path / "models/4-gram.arpa.gz").unlink()
    with pytest.raises(
        UserError,
        match=r"models: no 4-gram.arpa.gz \(fglarge\) below .*models; download from www.openslr.org/11, and "
        r"give "
        "their directory with --lm-dir, or remove these models from --rescoring$",
    ):
        get_lms(tmp_path / "models")
    (tmp_path / "models/librispeech-lexicon.txt").unlink()
    with pytest.raises(
        UserError,
        match=r"no librispeech-lexicon.txt \(lexicon\), 4-gram.arpa.gz \(fglarge\) below .*--lm-dir$",
    ):
        get_lms(tmp_path / "models")
    assert not (tmp_path / "lm").exists()


def test_lexicon_entry_without_phones_is_refused(tmp_path, get_lms):
    write_models(tmp_path / "models")
    with (tmp_path / "models/librispeech-lexicon.txt").open("a") as f:
        f.write("ZOO\n")
    with pytest.raises(
        UserError,
        match="librispeech-lexicon.txt:27: the pronunciation of 'ZOO' is empty; download the file again",
    ):
        get_lms(tmp_path / "models")
    (tmp_path / "models/librispeech-lexicon.txt").write_text("\n")
    with pytest.raises(UserError, match="librispeech-lexicon.txt: no words in it; download the file again"):
        get_lms(tmp_path / "models")
