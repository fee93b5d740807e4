"""File names that are difficult for shells and tables: names that Kaldi's tables allow work, others are
refused with one sentence."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data_dirs import make_data_dir, write_tone

from pyasr.base.errors import UserError
from pyasr.base.files.pipes import NO_PIPES
from pyasr.base.outputs.output import stage_output
from pyasr.data.audio.audio_reading import read_audio
from pyasr.data.checks.repair import fix
from pyasr.data.checks.validation import validate
from pyasr.data.tables.datadir import DataDir
from pyasr.io.ark import ArkWriter, load_all
from pyasr.io.text_tables import read_table, write_table

ROOT = Path(__file__).resolve().parents[3]
NAMES = ["with blank", "two  blanks", "it's", 'say "it"', "$(touch spoilt)", "`touch spoilt`",
         "a;touch spoilt", "a&b", "back\\slash", "-rf", "a:7", "tab\there", "[1:2]", "ümläut",
         "\u65e5\u672c", "a#b", "*", "~", "%s{}"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_allowed_in_tables_work(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / name
    place.mkdir()
    write_tone(place / f"{name}.wav")
    write_table(tmp_path / "wav.scp", {"rec": place / f"{name}.wav"})
    assert len(read_audio(DataDir(tmp_path).wav_scp["rec"], "rec")[0]) == 1600
    with ArkWriter(place / "feats.ark", tmp_path / "feats.scp") as writer:
        writer.write("utt", np.ones((2, 3), np.float32))
    assert load_all(tmp_path / "feats.scp")["utt"].shape == (2, 3)
    assert not (tmp_path / "spoilt").exists()


@pytest.mark.parametrize("name", ["[1:2]", "asr[v2]", "a:7"])
def test_archives_in_folders_named_like_ranges_are_found(name, tmp_path):
    data = make_data_dir(tmp_path / "data")
    (tmp_path / name).mkdir()
    with ArkWriter(tmp_path / name / "feats.ark", data / "feats.scp") as writer:
        for utt in DataDir(data).utterances:
            writer.write(utt, np.ones((2, 3), np.float32))
    write_table(
        data / "feats.scp", {utt: f"{rx}[0:1]" for utt, rx in DataDir(data).table("feats.scp").items()}
    )
    assert validate(data) == [] and fix(data) == []
    assert len(DataDir(data).table("feats.scp")) == 12
    with (data / "feats.scp").open("a") as f:
        f.write("zoe-001\n")
    assert any("feats.scp:13: 'zoe-001': one column" in str(problem) for problem in validate(data))


@pytest.mark.parametrize("table", [{"a\nb": "x"}, {"a b": "x"}, {"a": "x\ny z"}, {"": "x"}, {"a\tb": "x"}])
def test_names_not_allowed_in_tables_are_refused(table, tmp_path):
    with pytest.raises(
        UserError,
        match="table: .* cannot be a line of a table, which is one word and the rest of the line; rename it",
    ):
        write_table(tmp_path / "table", table)
    assert not list(tmp_path.iterdir())


def test_output_name_with_line_break_is_refused(tmp_path):
    with (
        pytest.raises(UserError, match="has a line break in its name"),
        stage_output(tmp_path / "a\nb", {}, []),
    ):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "entry, message",
    [
        ("/dev/zero", "/dev/zero: a device, not a file"),
        ("a\0b", "invalid file name, it contains a zero byte"),
        ("x" * 5000, "the name is too long"),
        ("/", "directory"),
        ("a\0b |", "the command contains a zero byte"),
        ("/nowhere/a.wav:7", "no such file"),
    ],
)
def test_entries_that_are_not_files_are_refused(entry, message):
    with pytest.raises(UserError, match=message) as error:
        read_audio(entry, "rec")
    assert str(error.value).startswith("rec: ") and str(error.value).isprintable()


def make_mfcc(data: Path, *words: str, **variables: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, **variables}
    command = [
        sys.executable,
        ROOT / "steps/make_mfcc.py",
        "--nj",
        "1",
        "--sample-frequency",
        "8000",
        *words,
        "--",
        data,
    ]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=data.parent)


def test_commands_are_shown_or_refused_for_any_name(tmp_path):
    data = make_data_dir(tmp_path / "it's $(touch spoilt) &a;b")
    quoted = {name: path.replace("$", "\\$") for name, path in read_table(data / "wav.scp").items()}
    write_table(data / "wav.scp", {name: f'cat "{path}" |' for name, path in quoted.items()})
    before = sorted(path.name for path in data.iterdir())
    for refused in (make_mfcc(data, "--no-pipes"), make_mfcc(data, **{NO_PIPES: "1"})):
        assert (
            refused.returncode == 1
            and refused.stderr.count("\n") == 1
            and "12 of 12 entries are commands" in refused.stderr
        )
    assert sorted(path.name for path in data.iterdir()) == before
    allowed = make_mfcc(data)
    assert allowed.returncode == 0, allowed.stderr + allowed.stdout
    assert allowed.stdout.count("runs cat") == 1 and len(load_all(data / "feats.scp")) == 12
    assert not (tmp_path / "spoilt").exists() and not Path("spoilt").exists()
