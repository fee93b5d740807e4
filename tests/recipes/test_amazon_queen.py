"""The corpus of egs/amazon_queen: its data file (a small one written by the test), Debian packages, and
transcripts."""

import io
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "egs/amazon_queen/s5/local"))

import debian_package  # noqa: E402
import get_corpus  # noqa: E402
import prepare_data  # noqa: E402
from normalise import cardinal, normalise  # noqa: E402
from queen import QueenFile, read_texts, segments  # noqa: E402
from queen_toys import write_queen  # noqa: E402

from pyasr.base import log  # noqa: E402
from pyasr.base.cli import options, step
from pyasr.base.errors import UserError  # noqa: E402


def test_texts_are_read_from_data_file(tmp_path):
    assert read_texts(QueenFile(write_queen(tmp_path / "queen.1c"))) == {
        "07SSSSJ1": "Hi!",
        "07000AJ1": "Who?",
        "07000AJ2": "And",
        "07000AJ3": "why?",
        "07012CP1": "Me.",
        "07XXXXP1": "You again?",
        "07XXXXJ1": "Me again.",
        "C10A_033": "There!",
        "JOE00021": "Second.",
        "JOE00421": "A wall.",
    }


def test_damaged_data_files_are_refused(tmp_path):
    path = write_queen(tmp_path / "queen.1c")
    content = path.read_bytes()
    for broken, message in (
        (b"RIFF" + content[4:], "not the data file"),
        (content[:-5], "truncated or damaged"),
        (content[:100], "not the data file"),
        (content[:12] + b"\2" + content[13:], "not MP3"),
    ):
        path.write_bytes(broken)
        with pytest.raises(UserError, match=message):
            QueenFile(path)
    with pytest.raises(UserError, match="expected 7671 and"):
        get_corpus.verify(write_queen(tmp_path / "other.1c"))


def test_segments_are_split_at_commands():
    assert segments("*FRWow!*15So*XY120,300,025big") == ["", "Wow!", "So", "big"]


def write_package(path: Path, compression: str = "xz") -> Path:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=f"w:{compression}") as archive:
        entry = tarfile.TarInfo("./usr/share/game/queen.1c")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"hello"))
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": b"odd",
        f"data.tar.{compression}": data.getvalue(),
    }
    content = b"!<arch>\n"
    for name, body in members.items():
        content += (
            f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode()
            + body
            + b"\n" * (len(body) % 2)
        )
    path.write_bytes(content)
    return path


def test_packages_are_unpacked_without_dpkg(tmp_path):
    for compression in ("xz", "gz"):
        debian_package.extract(write_package(tmp_path / "a.deb", compression), "queen.1c", tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == b"hello"
    with pytest.raises(UserError, match="does not contain other.1c"):
        debian_package.extract(tmp_path / "a.deb", "other.1c", tmp_path / "out")
    (tmp_path / "a.deb").write_bytes((tmp_path / "a.deb").read_bytes()[:-20])
    with pytest.raises(UserError, match="truncated; download it again"):
        debian_package.extract(tmp_path / "a.deb", "queen.1c", tmp_path / "out")


def test_missing_apt_gives_advice(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no apt-get on this machine.*packages.debian.org.*--corpus FILE"):
        debian_package.download("flight-of-the-amazon-queen", tmp_path)


def test_given_copy_is_found(tmp_path):
    (tmp_path / "usr/games").mkdir(parents=True)
    with pytest.raises(UserError, match="contains neither"):
        get_corpus.find_copy(tmp_path)
    (tmp_path / "usr/games/queen.1c").touch()
    assert get_corpus.find_copy(tmp_path) == tmp_path / "usr/games/queen.1c"
    with pytest.raises(UserError, match="no such file"):
        get_corpus.find_copy(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("He discovered the island in 1844.", "he discovered the island in eighteen forty four"),
        ("Born 13th July, 1922, huh?", "born thirteenth july nineteen twenty two huh"),
        ("This is the 1940's.", "this is the nineteen forties"),
        ('"Friday\'s film at 19:00 Hours"', "friday's film at nineteen hundred hours"),
        ("2B or not 2B", "two b or not two b"),
        ("human D.N.A. vs. THE MOB^_", "human d n a versus the mob"),
        ("You crash 'em at the Amazons' Drum-A-Thon...", "you crash 'em at the amazons' drum a thon"),
        ("&#($!!, he got ' away!", "he got away"),
    ],
)
def test_transcripts_are_normalised(text, words):
    assert normalise(text) == words


def test_numbers_are_spelled_out():
    assert cardinal(304_217) == "three hundred four thousand two hundred seventeen"
    assert normalise("13th July, 1922", numbers="drop") == "th july"


def test_speakers_are_roles_and_sort_before_their_utterances():
    assert prepare_data.speaker("hill?", "JIM") == prepare_data.speaker("hill", "Jimmy") == "hill_jimmy"
    assert prepare_data.speaker("reitel-or-hurley", "Klunk") == "reitel_or_hurley_klunk"


def test_quick_sample_has_all_speakers_in_proportion():
    utterances = [
        prepare_data.Utterance(f"{s}{i}", s, s, 1.0, "train", "")
        for s, num in (("a", 80), ("b", 20))
        for i in range(num)
    ]
    chosen = prepare_data.quick_sample(utterances, 20)
    assert chosen == prepare_data.quick_sample(utterances[::-1], 20)
    assert [sum(u.speaker == s for u in chosen) for s in "ab"] == [16, 4]


@pytest.fixture
def prepare(tmp_path, monkeypatch, capsys):
    """Function of flags that returns the output of local/prepare_data.py for two utterances with synthetic
    audio."""
    (tmp_path / "corpus").mkdir()
    write_queen(tmp_path / "corpus/queen.1c")
    split = tmp_path / "split.tsv"
    split.write_text(
        "name\tcharacter\tactor\tseconds\tpart\n07SSSSJ1\tjoe\tann\t1.5\ttrain\n"
        "JOE00021\tjoe\tbob\t0.5\ttest\n"
    )
    monkeypatch.setattr(prepare_data, "SPLIT", split)
    monkeypatch.setattr(prepare_data, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(
        prepare_data,
        "decode_shard",
        lambda path, utterances, out, audio_format: [
            (out / f"{utterance.name}.{audio_format}").touch() for utterance in utterances
        ],
    )

    def run(*flags):
        log.setup("prepare_data.py")
        words = [*flags, "--dev-actor", "none", tmp_path / "corpus", tmp_path / "data"]
        prepare_data.main(
            options.parse(prepare_data.PrepareData, list(map(str, words)), prepare_data.__doc__, {})[0]
        )
        return capsys.readouterr().out

    return run


def test_number_of_processes_does_not_change_output(prepare, tmp_path):
    assert "up to date" not in prepare("--nj", 2)
    assert prepare("--nj", 4).count("is up to date") == 3  # audio, train, test
    with pytest.raises(
        UserError,
        match="train exists with other options .numbers: spell -> drop.; give --force to replace it",
    ):
        prepare("--numbers", "drop")


def test_force_recomputes_with_other_format(prepare, tmp_path, monkeypatch):
    prepare()
    with pytest.raises(
        UserError,
        match="audio exists with other options .audio_format: wav -> flac.; give --force to replace it",
    ):
        prepare("--audio-format", "flac")
    monkeypatch.setitem(step._state, "force", True)
    prepare("--audio-format", "flac")
    made = sorted((tmp_path / "data/local/audio").glob("*.*"))
    assert [path.name for path in made if path.suffix != ".json"] == ["07SSSSJ1.flac", "JOE00021.flac"]
    assert (tmp_path / "data/train/wav.scp").read_text().endswith("07SSSSJ1.flac\n")
