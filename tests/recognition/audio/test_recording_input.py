"""`pyasr.recognition.audio.recording_input`: audio files of a directory, pipes, and messages about unreadable
files."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
from shorten_encoder import shortened_sphere
from tone_toys import RATE

from pyasr.base.errors import UserError
from pyasr.data.audio import audio_sizes
from pyasr.recognition.audio.recording_input import find_audio, of_bytes, read_recordings


def test_links_to_folders_are_followed_once(tmp_path):
    for name in ("here/a/x.wav", "here/b/y.wav", "there/deep/z.wav"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    for link, target in (
        ("here/0", "here/b"),
        ("here/b/loop", "here"),
        ("here/c", "there"),
        ("here/d", "there/deep"),
        ("there/back", "there"),
    ):
        (tmp_path / link).symlink_to(tmp_path / target)
    here = tmp_path / "here"
    expected = [
        (here / folder / name, Path(folder))
        for folder, name in (("a", "x.wav"), ("b", "y.wav"), ("c/deep", "z.wav"))
    ]
    assert find_audio((here,)) == expected
    (tmp_path / "top").symlink_to(here)
    assert [folder for _, folder in find_audio((tmp_path / "top",))] == [folder for _, folder in expected]


def test_directory_gives_audio_files_of_all_formats(tmp_path):
    forms = {
        "WAV": ".wav",
        "RF64": ".rf64",
        "W64": ".w64",
        "AIFF": ".aiff",
        "AU": ".au",
        "NIST": ".sph",
        "OGG": ".ogg",
        "FLAC": ".flac",
        "MP3": ".mp3",
        "CAF": ".CAF",
    }
    assert forms.keys() == audio_sizes.FORMS - {"WAVEX"}  # which has the suffix of WAV
    for form, suffix in forms.items():
        soundfile.write(tmp_path / f"{form}{suffix}", np.full(500, 0.25), RATE, format=form)
    assert {path.name: read_recordings(path)[0].rate for path, _ in find_audio((tmp_path,))} == {
        form + forms[form]: RATE for form in forms
    }


def test_other_audio_formats_in_directory_are_reported(tmp_path, caplog):
    for name in ("a.wav", "notes.txt", "calls/b.M4A", "calls/c.webm"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_audio((tmp_path,)) == [(tmp_path / "a.wav", Path())]
    report = (
        f"{tmp_path}: skipped 2 files in unsupported formats (the first is {tmp_path}/calls/b.M4A); "
        "convert them"
    )
    assert [record.getMessage().startswith(report) for record in caplog.records] == [True]
    with pytest.raises(UserError, match="calls: no audio in this directory"):
        find_audio((tmp_path / "calls",))


def test_unreadable_folders_are_reported(tmp_path, monkeypatch):
    (tmp_path / "locked").mkdir()
    (tmp_path / "a.wav").touch()
    scandir = os.scandir

    def refusing(path):
        if Path(path).name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(
        UserError,
        match=f"^{tmp_path}/locked: Permission denied; make the folder readable, or give the files$",
    ):
        find_audio((tmp_path,))


def test_pipes_are_read_and_devices_refused(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.full(500, 0.25), RATE)
    os.mkfifo(tmp_path / "pipe")
    ((path, _),) = find_audio((tmp_path / "pipe",))
    with subprocess.Popen(["cp", tmp_path / "a.wav", tmp_path / "pipe"]):
        (recording,) = read_recordings(path)
    assert np.all(recording.samples == 8192) and len(recording.samples) == 500
    with pytest.raises(UserError, match="/dev/null: a device; give a file, or - for standard input"):
        find_audio((Path("/dev/null"),))
    # /dev/zero is endless
    with pytest.raises(UserError, match="/dev/null: a device, not a file; give a file"):
        read_recordings(Path("/dev/null"))


@pytest.mark.parametrize(
    "content, advice",
    [
        (
            b"\0\0\0\x20ftypM4A \0\0\2\0",
            "convert it, for example with 'ffmpeg -i FILE -f wav - | utils/transcribe.py MODEL -'",
        ),
        (
            b"\x1a\x45\xdf\xa3webm",
            "convert it, for example with 'ffmpeg -i FILE -f wav - | utils/transcribe.py MODEL -'",
        ),
        (shortened_sphere(np.arange(999, dtype=np.int16))[:-50], "; replace the file"),
        (
            b"RIFF\xe8\3\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\xc4\3\0\0"
            + bytes(100),
            "; replace the file",
        ),
    ],
    ids=["m4a", "webm", "shorten", "cut short"],
)
def test_unreadable_files_give_advice(content, advice, tmp_path):
    """The advice must not mention data directories, because there is none."""
    (tmp_path / "a").write_bytes(content)
    for read in (lambda: read_recordings(tmp_path / "a"), lambda: of_bytes(content, "stdin")):
        with pytest.raises(UserError) as caught:
            read()
        assert str(caught.value).endswith(advice), caught.value
