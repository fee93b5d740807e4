"""utils/pack_model.py and utils/transcribe.py, against the spoken words and against steps/decode.py on the
same audio."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import shutil
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile
from steps_here import run_here
from tone_toys import RATE, WORD_S, WORDS, begin_s, decode_and_score, speech, write_data, write_system

import pyasr
from pyasr.base.cli import step
from pyasr.base.errors import UserError
from pyasr.feats.inputs import InputOptions
from pyasr.feats.transforms import write_matrix
from pyasr.io.text_tables import read_table
from pyasr.recognition import recognizer as recognizer_module
from pyasr.recognition import system
from pyasr.recognition.acoustics import Gaussians
from pyasr.recognition.audio import recording_input
from pyasr.recognition.audio.pauses import CutOptions, cut_at_pauses
from pyasr.recognition.audio.recording_input import Recording, find_audio, read_recordings
from pyasr.recognition.packed import PackedFile

SAID = {f"u{i}": [str(word) for word in np.random.default_rng(i).choice(WORDS, 4 + i)] for i in range(4)}


@pytest.fixture(scope="module")
def exp(tmp_path_factory) -> Path:
    """A folder with model/ (decoded, scored), data/, the audio, and packed/."""
    folder = tmp_path_factory.mktemp("exp")
    decode = decode_and_score(write_system(folder), write_data(folder, SAID))
    run_here("pack_model.py", decode, folder / "packed", folder="utils")
    return folder


@pytest.fixture(scope="module")
def recognizer(exp):
    return pyasr.Recognizer(exp / "packed")


def test_words_equal_those_of_recipe(exp, recognizer):
    point = json.loads((exp / "model/decode/scoring/summary.json").read_text())["chosen"]["point"]
    expected = read_table(exp / f"model/decode/scoring/hyp/{point[0]}_{point[1]}.txt")
    assert (recognizer.system.info.lmwt, recognizer.system.info.word_ins_penalty) == tuple(point)
    assert (
        {utt: recognizer.transcribe(exp / f"{utt}.wav").text for utt in SAID}
        == expected
        == {utt: " ".join(SAID[utt]) for utt in SAID}
    )


def test_times_and_confidences_are_reported(exp, recognizer):
    words = recognizer.transcribe(exp / "u3.wav").words
    assert [word.word for word in words] == SAID["u3"]
    for number, word in enumerate(words):
        assert (word.begin_s, word.end_s) == pytest.approx(
            (begin_s(number), begin_s(number) + WORD_S), abs=0.031
        )
        assert word.confidence > 0.99


def test_any_sampling_rate_and_number_of_channels(exp, recognizer, tmp_path):
    fast = speech(SAID["u0"], rate=22050)
    other = speech(SAID["u1"], rate=22050)[: len(fast)]
    soundfile.write(
        tmp_path / "two.flac", np.stack([fast, other], 1).astype(np.int16), 22050, subtype="PCM_16"
    )
    left, right = (
        recognizer.transcribe_recording(one) for one in read_recordings(tmp_path / "two.flac", "each")
    )
    assert (left.channel, right.channel, left.text) == ("1", "2", " ".join(SAID["u0"]))
    assert right.text == " ".join(SAID["u1"][:4])
    same = recognizer.transcribe(fast.astype(np.int16), 22050), recognizer.transcribe(fast / 32768, 22050.0)
    assert same[0] == same[1] and same[0].words == left.words


def test_long_recordings_are_split_at_pauses_without_losing_words(exp):
    said = [str(word) for word in np.random.default_rng(7).choice(WORDS, 30)]
    pauses = [0.15, 0.15, 0.6] * 10
    wave = np.concatenate(
        [speech([word], seed, pause_s=pause) for seed, (word, pause) in enumerate(zip(said, pauses))]
    )
    recognizer = pyasr.Recognizer(
        exp / "packed", num_threads=2, cut=CutOptions(max_segment_s=4.0, min_segment_s=1.0)
    )
    found = recognizer.transcribe(wave.astype(np.int16))
    assert found.text.split() == said and len(found.segments) > 5
    edges = [(segment.begin_s, segment.end_s) for segment in found.segments]
    assert [end for _, end in edges[:-1]] == [begin for begin, _ in edges[1:]] and edges[-1][
        1
    ] == pytest.approx(len(wave) / RATE)
    at = np.cumsum([0] + [2 * pause + WORD_S for pause in pauses])[:-1] + pauses
    assert [word.begin_s for word in found.words] == pytest.approx(at, abs=0.031)


def test_unalignable_lattice_is_narrowed(exp, recognizer, monkeypatch):
    sizes, align, num_refused = [], system.align_words, 2

    def refuse(lattice, *arguments):
        sizes.append(lattice.num_arcs)
        if len(sizes) <= num_refused:
            raise UserError("too far from their phones")
        return align(lattice, *arguments)

    monkeypatch.setattr(system, "align_words", refuse)
    assert recognizer.transcribe(exp / "u0.wav").text.split() == SAID["u0"] and sizes == sorted(
        sizes, reverse=True
    )
    num_refused = 99
    with pytest.raises(UserError, match="too far from their phones"):
        recognizer.transcribe(exp / "u0.wav")


def test_segment_too_long_for_memory_is_named(exp, recognizer, monkeypatch):
    monkeypatch.setattr(recognizer.system.acoustics, "scores", lambda features: np.empty(10**15))
    report = (
        r"^u1.wav from 0.00 to 2.15 s: memory is not enough for its 2\d\d frames: .*; cut it into "
        r"shorter segments \(--max-segment-s\)$"
    )
    with pytest.raises(UserError, match=report):
        recognizer.transcribe(exp / "u1.wav")


def test_segment_input_is_computed_when_it_is_decoded(exp, monkeypatch):
    recognizer = pyasr.Recognizer(exp / "packed", cut=CutOptions(max_segment_s=1.0, min_segment_s=0.5))
    order = []
    extend, scores = InputOptions.extend, recognizer.system.acoustics.scores
    monkeypatch.setattr(
        InputOptions, "extend", lambda inputs, features: order.append("extended") or extend(inputs, features)
    )
    monkeypatch.setattr(
        recognizer.system.acoustics, "scores", lambda features: order.append("scored") or scores(features)
    )
    num_segments = len(recognizer.transcribe(exp / "u3.wav").segments)
    assert num_segments > 2 and order == ["extended", "scored"] * num_segments


def test_recordings_without_frames_or_words(recognizer):
    assert (
        recognizer.transcribe(np.zeros(0, np.int16)).text
        == recognizer.transcribe(np.zeros(10, np.int16)).text
        == ""
    )
    assert recognizer.transcribe(30 * np.random.default_rng(0).standard_normal(RATE) / 32768).text == ""


def test_program_transcribes_recordings(exp, tmp_path, capsys):
    shutil.copytree(
        exp,
        tmp_path / "talks",
        ignore=lambda folder, names: [name for name in names if not name.endswith(".wav")],
    )
    capsys.readouterr()
    run_here("transcribe.py", exp / "packed", tmp_path / "talks", folder="utils")
    assert capsys.readouterr().out == "".join(f"{utt} {' '.join(words)}\n" for utt, words in SAID.items())
    run_here(
        "transcribe.py",
        "--format",
        "json",
        "--out-dir",
        tmp_path / "out",
        exp / "packed",
        tmp_path / "talks",
        folder="utils",
    )
    whole = json.loads((tmp_path / "out/u2.json").read_text())
    assert whole["text"].split() == SAID["u2"] and sorted(
        path.name for path in (tmp_path / "out").iterdir()
    ) == [".transcripts", *(f"{u}.json" for u in SAID)]
    assert whole["duration"] == pytest.approx(begin_s(len(SAID["u2"])), abs=1e-3)


def test_standard_output_distinguishes_recordings(exp, tmp_path, capsys):
    """Lines of different channels can be distinguished; recordings for which that is impossible are
    refused."""
    first, second = speech(SAID["u0"]), speech(SAID["u1"])[: len(speech(SAID["u0"]))]
    soundfile.write(
        tmp_path / "two.wav", np.stack([first, second], 1).astype(np.int16), RATE, subtype="PCM_16"
    )
    capsys.readouterr()
    run_here("transcribe.py", "--channels", "each", exp / "packed", tmp_path / "two.wav", folder="utils")
    assert capsys.readouterr().out.splitlines() == [
        f"two-1 {' '.join(SAID['u0'])}",
        f"two-2 {' '.join(SAID['u1'][:4])}",
    ]
    (tmp_path / "a").mkdir()
    shutil.copy(exp / "u0.wav", tmp_path / "a/two.wav")
    for flags in (
        ("--format", "srt", exp / "packed", tmp_path),
        ("--format", "srt", "--channels", "each", exp / "packed", tmp_path / "two.wav"),
    ):
        with pytest.raises(UserError, match="several recordings need several subtitle files; give --out-dir"):
            run_here("transcribe.py", *flags, folder="utils")
    with pytest.raises(
        UserError, match="two recordings are named two, which standard output cannot distinguish"
    ):
        run_here("transcribe.py", exp / "packed", tmp_path, folder="utils")


@pytest.mark.parametrize("flags", [(), ("--one-speaker", "true"), ("--stream", "true")])
def test_damaged_recording_does_not_stop_others(flags, exp, tmp_path, capsys):
    for name in ("a.wav", "b/c.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"no audio")
    shutil.copy(exp / "u0.wav", tmp_path / "b/b.wav")
    shutil.copy(exp / "u1.wav", tmp_path / "d.wav")
    capsys.readouterr()
    with pytest.raises(
        UserError, match="^2 of 4 recordings could not be transcribed; see the reasons above$"
    ):
        run_here("transcribe.py", *flags, exp / "packed", tmp_path, folder="utils")
    output = capsys.readouterr()
    assert output.out.split() == ["b", *SAID["u0"], "d", *SAID["u1"]]
    first, second = output.err.splitlines()
    assert first.startswith(f"{tmp_path}/a.wav: not readable as audio") and second.startswith(
        f"{tmp_path}/b/c.wav: not readable as audio"
    )
    with pytest.raises(UserError, match="a.wav: not readable as audio"):
        run_here("transcribe.py", *flags, exp / "packed", tmp_path / "a.wav", folder="utils")


@pytest.mark.parametrize("flags", [(), ("--one-speaker", "true")])
def test_recording_with_unsupported_rate_does_not_stop_others(flags, exp, tmp_path, capsys):
    """Audio that can be read, but not converted."""
    for utt in ("u0", "u1"):
        shutil.copy(exp / f"{utt}.wav", tmp_path)
    soundfile.write(tmp_path / "odd.wav", np.zeros(9000, np.int16), 900_000, subtype="PCM_16")
    capsys.readouterr()
    with pytest.raises(
        UserError, match="^1 of 3 recordings could not be transcribed; see the reasons above$"
    ):
        run_here("transcribe.py", *flags, exp / "packed", tmp_path, folder="utils")
    output = capsys.readouterr()
    assert output.out.split() == ["u0", *SAID["u0"], "u1", *SAID["u1"]]
    assert re.fullmatch(rf"{tmp_path}/odd.wav: .*audio of 900000 Hz; give audio of .*\n", output.err)


@pytest.mark.parametrize("one_speaker", ["false", "true"])
@pytest.mark.parametrize(
    "module, name, num_bytes",
    [
        (recording_input, "decode_audio", lambda content: content.getbuffer().nbytes),
        (recognizer_module, "cut_at_pauses", lambda wave: 2 * len(wave)),
    ],
)
def test_recording_too_long_for_memory_does_not_stop_others(
    module, name, num_bytes, one_speaker, exp, tmp_path, capsys, monkeypatch
):
    for copy, utt in (("a", "u0"), ("long", "u3"), ("z", "u1")):
        shutil.copy(exp / f"{utt}.wav", tmp_path / f"{copy}.wav")
    most, function = (tmp_path / "z.wav").stat().st_size, getattr(module, name)
    monkeypatch.setattr(
        module,
        name,
        lambda one, *others: np.empty(10**15) if num_bytes(one) > most else function(one, *others),
    )
    capsys.readouterr()
    with pytest.raises(
        UserError, match="^1 of 3 recordings could not be transcribed; see the reasons above$"
    ):
        run_here("transcribe.py", "--one-speaker", one_speaker, exp / "packed", tmp_path, folder="utils")
    output = capsys.readouterr()
    assert output.out.split() == ["a", *SAID["u0"], "z", *SAID["u1"]]
    assert re.fullmatch(
        rf"{tmp_path}/long.wav: (long.wav: )?memory is not enough for the whole recording: .*; cut it into "
        r".*\n",
        output.err,
    )


def test_memory_of_long_recording_is_bounded(tmp_path):
    """Twice the file, with 2 bytes per sample, plus 4 bytes per sample of the parts read and of the whole.
    Pause detection takes less than these."""
    num = 1_000_000
    soundfile.write(
        tmp_path / "long.wav", np.tile(speech(SAID["u0"]), 200)[:num].astype(np.int16), RATE, subtype="PCM_16"
    )
    tracemalloc.start()
    try:
        (recording,) = read_recordings(tmp_path / "long.wav")
        assert tracemalloc.get_traced_memory()[1] < 1.05 * (2 + 2 + 4 + 4) * num
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        assert cut_at_pauses(recording.samples, RATE)
        assert tracemalloc.get_traced_memory()[1] - before < 2 * num
    finally:
        tracemalloc.stop()


def test_segment_too_long_for_memory_does_not_stop_others_of_speaker(exp, tmp_path, capsys, monkeypatch):
    for utt in ("u0", "u1"):
        (tmp_path / utt).mkdir()
        shutil.copy(exp / f"{utt}.wav", tmp_path / utt / "t.wav")
    scores, most = Gaussians.scores, 200

    def scores_of_few(self, matrix):
        if len(matrix) > most:
            raise MemoryError
        return scores(self, matrix)

    monkeypatch.setattr(Gaussians, "scores", scores_of_few)
    command = (
        "transcribe.py",
        "--one-speaker",
        "true",
        "--out-dir",
        tmp_path / "out",
        exp / "packed",
        tmp_path,
    )
    with pytest.raises(UserError, match="^1 of 2 recordings could not be transcribed"):
        run_here(*command, folder="utils")
    assert (tmp_path / "out/u0/t.txt").read_text().split() == SAID["u0"] and not (
        tmp_path / "out/u1"
    ).exists()
    assert f"{tmp_path}/u1/t.wav: t.wav from 0.00 to 2.15 s: memory is not enough" in capsys.readouterr().err
    most = 0
    with pytest.raises(UserError, match="^2 of 2 recordings"):
        run_here(*command, folder="utils")


@pytest.mark.parametrize("one_speaker", ["false", "true"])
def test_unwritable_output_does_not_stop_others(one_speaker, exp, tmp_path, capsys, monkeypatch):
    talks, out, long = tmp_path / "talks", tmp_path / "out", 251 * "n"
    for name in ("a.wav", f"b/{long}.wav", "c/c.wav", "d.wav"):
        (talks / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(exp / "u0.wav", talks / name)
    (out / "a.json").mkdir(parents=True)
    (out / "c").write_text("a file")
    command = (
        "transcribe.py",
        "--format",
        "json",
        "--one-speaker",
        one_speaker,
        "--out-dir",
        out,
        exp / "packed",
        talks,
    )
    capsys.readouterr()
    with pytest.raises(
        UserError, match="^3 of 4 recordings could not be transcribed; see the reasons above$"
    ):
        run_here(*command, folder="utils")
    assert json.loads((out / "d.json").read_text())["text"].split() == SAID["u0"]
    assert capsys.readouterr().err.splitlines() == [
        f"{talks}/a.wav: {out}/a.json: Is a directory; check the path",
        (
            f"{talks}/b/{long}.wav: {out}/b/{long}.json: the name is too long for the filesystem; give a "
            "shorter one"
        ),
        (
            f"{talks}/c/c.wav: {out}/c: a file in the place of a directory; check the path, or move the file "
            "elsewhere"
        ),
    ]

    def full(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="a.json: the disk is full"):
        run_here(*command, folder="utils")


@pytest.mark.parametrize("format", ["text", "ctm", "json"])
def test_recording_name_that_is_not_utf8_is_escaped(format, exp, tmp_path, capfd):
    for name in (b"a/gr\xfc\xdfe.wav", b"b\xff.wav"):
        path = tmp_path / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        shutil.copy(exp / "u0.wav", path)
    run_here(
        "transcribe.py",
        "--format",
        format,
        "--out-dir",
        tmp_path / "out",
        exp / "packed",
        tmp_path,
        folder="utils",
    )
    written = [path for path in (tmp_path / "out").rglob("[!.]*") if path.is_file()]
    assert sorted(path.stem for path in written) == [r"b\xff", r"gr\xfc\xdfe"] and all(
        SAID["u0"][0] in path.read_text() for path in written
    )
    capfd.readouterr()
    run_here(
        "transcribe.py",
        "--format",
        format,
        exp / "packed",
        tmp_path / "a",
        tmp_path / os.fsdecode(b"b\xff.wav"),
        folder="utils",
    )
    output = capfd.readouterr().out.replace("\\\\", "\\")  # which JSON doubles
    assert r"gr\xfc\xdfe" in output and r"b\xff" in output


@pytest.mark.parametrize("one_speaker", ["false", "true"])
def test_recordings_of_same_name_in_several_folders(one_speaker, exp, tmp_path):
    """Subfolders are created below --out-dir. Two recordings of one name in one folder are refused."""
    for folder, utt in (("", "u0"), ("a", "u1"), ("a/b", "u2")):
        (tmp_path / "talks" / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(exp / f"{utt}.wav", tmp_path / "talks" / folder / "t.wav")
    command = (
        "transcribe.py",
        "--one-speaker",
        one_speaker,
        "--out-dir",
        tmp_path / "out",
        exp / "packed",
        tmp_path / "talks",
    )
    run_here(*command, folder="utils")
    texts = {
        str(path.relative_to(tmp_path / "out")): path.read_text().split()
        for path in (tmp_path / "out").rglob("*.txt")
    }
    assert texts == {"t.txt": SAID["u0"], "a/t.txt": SAID["u1"], "a/b/t.txt": SAID["u2"]}
    with pytest.raises(UserError, match="two recordings are named t, "):
        run_here(*command, tmp_path / "talks/a/t.wav", folder="utils")
    shutil.copy(exp / "u0.wav", tmp_path / "talks/a/two words.wav")
    shutil.copy(exp / "u0.wav", tmp_path / "talks/a/two_words.wav")
    with pytest.raises(UserError, match="two recordings are named a/two_words, "):
        run_here(*command, folder="utils")


@pytest.mark.parametrize("channels, name", [("mix", "t"), ("each", "t-1")])
def test_only_own_transcripts_are_replaced(channels, name, exp, tmp_path, monkeypatch):
    """Only unchanged transcripts of the same recording are replaced; anything else is refused before
    decoding."""
    talks, out = tmp_path / "talks", tmp_path / "out"
    for path, utt in (("a/s.wav", "u0"), ("a/t.wav", "u1"), ("b/t.flac", "u2")):
        (talks / path).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(talks / path, *soundfile.read(exp / f"{utt}.wav"))

    def transcribe(*audio):
        run_here(
            "transcribe.py", "--channels", channels, "--out-dir", out, exp / "packed", *audio, folder="utils"
        )

    def refused(place, *audio):
        monkeypatch.setattr(
            "pyasr.recognition.recognizer.Recognizer.__init__", lambda *_, **__: pytest.fail("too late")
        )
        sentence = (
            f"^{place} exists, and is not an unchanged transcript of {audio[-1]} by this program; "
            "give another"
        )
        with pytest.raises(UserError, match=sentence):
            transcribe(*audio)
        monkeypatch.undo()

    transcribe(talks / "a/s.wav", talks / "a/t.wav")
    monkeypatch.chdir(talks)
    transcribe(Path("a/t.wav"))
    monkeypatch.chdir(tmp_path)
    text = (out / f"{name}.txt").read_text()
    assert text.split() == SAID["u1"]
    refused(out / f"{name}.txt", talks / "b/t.flac")
    (out / f"{name}.txt").write_text("by hand\n")
    refused(out / f"{name}.txt", talks / "a/s.wav", talks / "a/t.wav")
    monkeypatch.setitem(step._state, "force", True)
    transcribe(talks / "a/t.wav")
    monkeypatch.setitem(step._state, "force", False)
    assert (out / f"{name}.txt").read_text() == text
    record = out / ".transcripts"
    record.write_text(record.read_text()[:-20])  # by a killed run
    transcribe(talks / "a/s.wav")
    (out / "stdin.txt").write_text("said before\n")
    (out / "stdin-2.txt").write_text("said before\n")
    refused(out / ("stdin.txt" if channels == "mix" else "stdin-2.txt"), "-")


def test_transcript_folder_is_listed_once(exp, tmp_path, monkeypatch):
    """For any number of recordings. Names that end in numbers are distinguished."""
    (tmp_path / "talks/b").mkdir(parents=True)
    for name in ("a.wav", "a-1.wav", "b.wav", "b/a.wav"):
        shutil.copy(exp / "u0.wav", tmp_path / "talks" / name)
    out, glob, listed = tmp_path / "out", Path.glob, Counter()
    monkeypatch.setattr(Path, "glob", lambda path, *words: listed.update([path]) or glob(path, *words))
    command = ("transcribe.py", "--channels", "each", "--out-dir", out, exp / "packed", tmp_path / "talks")
    for _ in range(2):
        listed.clear()
        run_here(*command, folder="utils")
        assert {folder: listed[folder] for folder in (out, out / "b")} == {out: 1, out / "b": 1}
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.txt")) == [
        "a-1-1.txt",
        "a-1.txt",
        "b-1.txt",
        "b/a-1.txt",
    ]
    (out / "a-1-1.txt").write_text("by hand\n")
    with pytest.raises(
        UserError,
        match=f"^{out}/a-1-1.txt exists, and is not an unchanged transcript of {tmp_path}/talks/a-1.wav by",
    ):
        run_here(*command, folder="utils")


def test_user_transcript_next_to_recording_is_kept(exp, tmp_path):
    shutil.copy(exp / "u0.wav", tmp_path)
    (tmp_path / "u0.txt").write_text("what was really said\n")
    with pytest.raises(
        UserError,
        match=f"^{tmp_path}/u0.txt exists, and is not an unchanged transcript of {tmp_path}/u0.wav by",
    ):
        run_here("transcribe.py", "--out-dir", tmp_path, exp / "packed", tmp_path, folder="utils")
    assert (tmp_path / "u0.txt").read_text() == "what was really said\n" and len(
        list(tmp_path.iterdir())
    ) == 2
    run_here(
        "transcribe.py", "--format", "srt", "--out-dir", tmp_path, exp / "packed", tmp_path, folder="utils"
    )


def test_one_speaker_in_several_recordings(exp, recognizer):
    recordings = [read_recordings(exp / f"{utt}.wav")[0] for utt in SAID]
    assert [found.text.split() for found in recognizer.transcribe_speaker(recordings)] == list(SAID.values())


def test_incomplete_model_is_refused(exp, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(exp / "packed", copy)
    words = copy / "graph/words.txt"
    words.write_text(words.read_text().replace("do", "ti"))
    with pytest.raises(UserError, match="words.txt: not the packed file"):
        pyasr.Recognizer(copy)
    words.unlink()
    with pytest.raises(UserError, match="words.txt: no such file, but model.json names it"):
        pyasr.Recognizer(copy)
    with pytest.raises(UserError, match="give a directory written by utils/pack_model.py"):
        pyasr.Recognizer(exp / "model")
    info = json.loads((copy / "model.json").read_text())
    info["files"][0]["name"] = "../../etc/passwd"
    (copy / "model.json").write_text(json.dumps(info))
    with pytest.raises(UserError, match="is outside the directory"):
        pyasr.Recognizer(copy)


@pytest.mark.parametrize("name", ["final.mat", "global_cmvn", "first/final.alimdl", "graph/lexiconp.txt"])
def test_file_not_in_pack_is_refused(name, exp, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(exp / "packed", copy)
    for other in ("README.md", "LICENSE", ".git/config", "graph/.DS_Store", "log/pack.log"):
        (copy / other).parent.mkdir(exist_ok=True)
        (copy / other).write_text("of its user\n")
    assert pyasr.Recognizer(copy).transcribe(exp / "u0.wav").text.split() == SAID["u0"]
    (copy / name).parent.mkdir(exist_ok=True)
    write_matrix(copy / name, np.eye(12, dtype=np.float32))
    with pytest.raises(UserError, match=f"{name}: not one of the packed files"):
        pyasr.Recognizer(copy)


@pytest.mark.parametrize(
    "group, name, value, message",
    [
        ("mel", "num_mel_bins", -5, "-5 is below the minimum 3"),
        ("mel", "num_mel_bins", "abc", "'abc' is not a value of type int"),
        ("mel", "num_mel_bins", 400_000_000, "some filters cover no line"),
        ("frame", "frame_length", -25.0, "-25.0 is below the minimum"),
        ("frame", "frame_shift", 0.0, "0.0 is below the minimum"),
        ("frame", "sample_frequency", 1e12, "is above"),
        ("frame", "window_type", "round", "'round' is not one of povey"),
    ],
)
def test_feature_options_are_limited_like_on_command_line(group, name, value, message, exp, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(exp / "packed", copy)
    features, info = (json.loads((copy / file).read_text()) for file in ("features.json", "model.json"))
    features[group][name] = value
    (copy / "features.json").write_text(json.dumps(features))
    files = [one for one in info["files"] if one["name"] != "features.json"]
    (copy / "model.json").write_text(
        json.dumps(info | {"files": [*files, dataclasses.asdict(PackedFile.of(copy, "features.json"))]})
    )
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')}.*{message}"):
        pyasr.Recognizer(copy)


def test_models_of_earlier_and_later_formats(exp, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(exp / "packed", copy)
    info = json.loads((copy / "model.json").read_text())
    earlier = {name: value for name, value in info.items() if name != "pasting"} | {"format": 1}
    (copy / "model.json").write_text(json.dumps(earlier))
    assert pyasr.Recognizer(copy).transcribe(exp / "u0.wav").text.split() == SAID["u0"]
    (copy / "model.json").write_text(json.dumps(info | {"format": 3}))
    with pytest.raises(UserError, match="a model of format 3, but this pyasr reads formats up to 2"):
        pyasr.Recognizer(copy)


def test_mismatched_parts_are_not_packed(exp, tmp_path):
    copy = tmp_path / "exp"
    shutil.copytree(exp, copy)
    done = copy / "model/decode/.done.json"
    done.write_text(done.read_text().replace(str(exp), str(copy)))
    for path, content, sentence in (
        ("model/graph/words.txt", "x 0\n", "words.txt: has changed since"),
        ("data/spk2warp", "u0 1.1\n", "are warped"),
        ("data/feats.scp", "u0 other.ark:3\n", "feats.scp: has changed since"),
        ("model/final.mdl", None, "final.mdl: no such file"),
    ):
        shutil.rmtree(copy / "packed", ignore_errors=True)
        before = (copy / path).read_bytes() if (copy / path).exists() else None
        (copy / path).unlink(missing_ok=True) if content is None else (copy / path).write_text(content)
        with pytest.raises(UserError, match=sentence):
            run_here("pack_model.py", copy / "model/decode", copy / "packed", folder="utils")
        assert not (copy / "packed").exists()
        (copy / path).unlink(missing_ok=True) if before is None else (copy / path).write_bytes(before)
    with pytest.raises(UserError, match="does not name what was decoded"):
        run_here("pack_model.py", copy / "data", copy / "packed", folder="utils")


def test_unusable_audio_is_refused(recognizer, tmp_path):
    (tmp_path / "bad.wav").write_bytes(b"no audio")
    with pytest.raises(UserError, match="bad.wav: not readable as audio"):
        recognizer.transcribe(tmp_path / "bad.wav")
    with pytest.raises(UserError, match="no such file"):
        recognizer.transcribe("none.wav")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no audio in this directory"):
        find_audio((tmp_path / "empty",))
    with pytest.raises(UserError, match="shape"):
        recognizer.transcribe(np.zeros((2, 3)))
    for loud in (speech(["do"]), np.array([0.0, -1e300])):
        with pytest.raises(
            UserError, match="samples of up to .*; give floats between -1 and 1, or whole numbers as int16"
        ):
            recognizer.transcribe(loud)
    for rate in (0, -8000, 44100.5, float("nan")):
        for use in (lambda: recognizer.transcribe(np.zeros(10), rate), lambda: recognizer.stream(rate)):
            with pytest.raises(UserError, match=f"audio of {rate} Hz; give audio of a whole number of Hz"):
                use()
    with pytest.raises(UserError, match="huge: audio of 10000000 Hz"):
        recognizer.transcribe_recording(Recording("huge", "1", np.zeros(10, np.float32), 10_000_000))


def test_package_exports_only_public_names():
    with pytest.raises(AttributeError, match="no attribute 'Transcriber'"):
        pyasr.Transcriber


@pytest.mark.parametrize("num_quiet, message", [(1, False), (3, True)])
def test_recordings_mostly_without_words_give_warning(num_quiet, message, exp, tmp_path, capfd):
    """Three such recordings and two with words; transcripts are written as usual."""
    for number in range(num_quiet):
        noise = 30 * np.random.default_rng(number).standard_normal(RATE)
        soundfile.write(tmp_path / f"q{number}.wav", noise.astype(np.int16), RATE, subtype="PCM_16")
    for utt in ("u0", "u1"):
        shutil.copy(exp / f"{utt}.wav", tmp_path)
    capfd.readouterr()
    run_here("transcribe.py", exp / "packed", tmp_path, folder="utils")
    out, err = capfd.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["u0", "u1"]
    names = " ".join(f"{tmp_path}/q{number}.wav" for number in range(num_quiet))
    assert (
        f"no word was recognised in {num_quiet} of {num_quiet + 2} recordings ({names}); usual causes: "
        in err
    ) == message
    assert message or not err
