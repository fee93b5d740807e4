"""Manifests of lhotse, compared with its own export, and an error message for every mistake."""

import gzip
import json
import subprocess

import numpy as np
import pytest
import soundfile

from pyasr.base.errors import UserError
from pyasr.data.checks.validation import validate
from pyasr.intake.lhotse import read_manifests, save_data_dir

RECORDINGS = [
    {
        "id": "mono",
        "sources": [{"type": "file", "channels": [0], "source": "a b.wav"}],
        "duration": 10.0,
        "sampling_rate": 8000,
        "num_samples": 80000,
    },
    {
        "id": "call",
        "sources": [{"type": "file", "channels": [0, 1], "source": "call's.wav"}],
        "duration": 20.0,
    },
    {"id": "pipe", "sources": [{"type": "command", "channels": [0], "source": "cat c.wav"}], "duration": 5.0},
    {"id": "unused", "sources": [{"type": "file", "channels": [0], "source": "d.wav"}], "duration": 5.0},
]
SUPERVISIONS = [
    {"id": "u1", "recording_id": "mono", "start": 0.5, "duration": 2.25, "channel": 0,
     "text": " hello  there ", "speaker": "ann", "gender": "female"},
    {"id": "ann-u2", "recording_id": "mono", "start": 9.0, "duration": 1.02, "channel": 0, "text": "bye",
     "speaker": "ann", "gender": "f"},
    {"id": "u3", "recording_id": "call", "start": 1.0, "duration": 1.0, "channel": [1], "text": "yes",
     "speaker": "bob", "gender": "M"},
    {"id": "u4", "recording_id": "call", "start": 3.0, "duration": 1.0, "channel": [0, 1], "text": "both",
     "speaker": "crowd", "gender": "m"},
    {"id": "u5", "recording_id": "pipe", "start": 0, "duration": 5, "channel": 0, "text": "piped",
     "speaker": "bob", "gender": "m"},
    {"id": "u6", "recording_id": "pipe", "start": 1, "duration": 1, "channel": 0, "speaker": "bob"},
    {"id": "u7", "recording_id": "pipe", "start": 2, "duration": 1, "channel": 0, "text": "",
     "speaker": "bob", "gender": "m"},
]  # fmt: skip


def write_manifest(path, entries):
    text = "\n".join(map(json.dumps, entries)) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def manifests(tmp_path, recordings=RECORDINGS, supervisions=SUPERVISIONS):
    return write_manifest(tmp_path / "recordings.jsonl.gz", recordings), write_manifest(
        tmp_path / "supervisions.jsonl", supervisions
    )


def table(path):
    return path.read_text().splitlines()


def test_manifests_become_data_directory(tmp_path):
    out = tmp_path / "data"
    out.mkdir()
    found = read_manifests(*manifests(tmp_path))
    assert not found.problems
    save_data_dir(found, out)
    assert table(out / "wav.scp") == [
        "call_0 call's.wav",
        "call_1 call's.wav",
        "mono a b.wav",
        "pipe cat c.wav |",
    ]
    assert table(out / "reco2file_and_channel") == [
        "call_0 call 1",
        "call_1 call 2",
        "mono mono 1",
        "pipe pipe 1",
    ]
    assert table(out / "segments") == [
        "ann-u1 mono 0.5 2.75",
        "ann-u2 mono 9 10",
        "bob-u3 call_1 1 2",
        "bob-u5 pipe 0 5",
        "bob-u7 pipe 2 3",
        "crowd-u4-0 call_0 3 4",
        "crowd-u4-1 call_1 3 4",
    ]
    assert table(out / "text")[:2] == ["ann-u1 hello there", "ann-u2 bye"] and "bob-u7" in table(out / "text")
    assert table(out / "spk2gender") == ["ann f", "bob m", "crowd m"]
    assert table(out / "reco2dur") == ["call_0 20", "call_1 20", "mono 10", "pipe 5"]
    assert not validate(out, audio="no")


@pytest.mark.parametrize("change, message", [
    (lambda r, s: s[0].update(recording_id="nowhere"), "supervision u1: there is no recording nowhere"),
    (lambda r, s: s[0].pop("start"), "supervision u1: its start is None"),
    (lambda r, s: s[0].update(start="0.5"), "supervision u1: its start is 0.5"),
    (lambda r, s: s[0].update(start=9.0),
     "supervision u1: it lasts from 9 to 11.25 s in a recording of 10 s"),
    (lambda r, s: s[0].update(channel=1), "recording mono: it has no channel 1"),
    (lambda r, s: s[0].update(speaker=" "), "supervision u1: its speaker is ' '; fix: give it a name"),
    (lambda r, s: (s[0].update(speaker="a b"), s[1].update(speaker="a_b")),
     "supervisions.jsonl: speaker 'a_b' would become a_b, like 'a b'; fix: rename one of them"),
    (lambda r, s: s[0].update(start=7.95),
     "it lasts from 7.95 to 10.2 s in a recording of 10 s; fix: clip it with 'lhotse fix "),
    (lambda r, s: s[0].update(start=-0.5),
     "it lasts from -0.5 to 1.75 s in a recording of 10 s; fix: correct its start and duration"),
    (lambda r, s: s[1].update(id="u1"), "there are two utterances ann-u1"),
    (lambda r, s: r[0]["sources"][0].update(type="url"), "its audio is of the type url"),
    (lambda r, s: r[0].update(transforms=[{"name": "Speed", "kwargs": {"factor": 0.9}}]),
     "utils/perturb_data_dir.py"),
    (lambda r, s: r[0].update(sources=[7]), "recording mono: its channels is None"),
    (lambda r, s: r[0]["sources"][0].update(source="touch x |"), "would be read as a command"),
    (lambda r, s: s[0].update(text=["a"]), "supervision u1: its text is ['a']"),
    (lambda r, s: s[0].update(duration=float("nan")), "supervision u1: it lasts from 0.5 to nan"),
    (lambda r, s: r[0].update(sources=7), "recording mono: its sources is 7"),
    (lambda r, s: s[0].update(start=10**400), "supervision u1: its start is 1000"),
    (lambda r, s: (r[0].update(id="call_0"), s[0].update(recording_id="call"),
                   s[1].update(recording_id="call_0")),
     "recording call_0: its audio would be named call_0, like that of recording call"),
    (lambda r, s: r[3].update(id="mono"),
     "recordings.jsonl.gz: there are two recordings mono; fix: give each recording a unique id"),
    (lambda r, s: r[0].update(duration=float("inf")), "recording mono: its duration is inf"),
    (lambda r, s: r[0]["sources"][0].update(channels=[0, "a"]),
     "recording mono: it has a channel a, not a number"),
    (lambda r, s: s[0].update(start=10.01, duration=0.02),
     "supervision u1: it lasts from 10.01 to 10.03 s in a recording of 10 s"),
    (lambda r, s: s[0].update(channel=[]), "supervision u1: it has no channel"),
])  # fmt: skip
def test_every_problem_is_reported(tmp_path, change, message):
    """Also a recording that occurs twice, in one pass."""
    recordings, supervisions = json.loads(json.dumps([RECORDINGS, SUPERVISIONS]))
    change(recordings, supervisions)
    supervisions[2]["duration"] = -1
    problems = read_manifests(*manifests(tmp_path, recordings, supervisions)).problems
    assert any(message in problem for problem in problems) and "u3" in problems[-1]
    assert all("; fix: " in problem and "\n" not in problem for problem in problems)


def test_blanks_in_names_become_underscores(tmp_path):
    """Unless another name has the underscores."""
    recordings = [RECORDINGS[0] | {"id": "the talk"}]
    supervisions = [
        SUPERVISIONS[0] | {"speaker": "Ann  B. Lee", "recording_id": "the talk", "id": "u\u30001"},
        SUPERVISIONS[1] | {"speaker": "Ann  B. Lee", "recording_id": "the talk"},
    ]
    found = read_manifests(*manifests(tmp_path, recordings, supervisions))
    assert not found.problems and found.notes == [
        "blanks of 3 name(s), such as 'Ann  B. Lee', were replaced by _"
    ]
    assert [said.name for said in found.utterances] == ["Ann_B._Lee-u_1", "Ann_B._Lee-ann-u2"]
    assert {said.speaker for said in found.utterances} == {"Ann_B._Lee"}
    assert list(found.audio) == ["the_talk"]


def test_printed_commands_fix_times_and_recordings(tmp_path):
    pytest.importorskip("lhotse")
    supervisions = [
        SUPERVISIONS[0] | {"start": 7.95},
        SUPERVISIONS[1] | {"recording_id": "nowhere"},
        SUPERVISIONS[4] | {"start": 6.0},
        SUPERVISIONS[3],
    ]
    recordings = [
        recording | {"sampling_rate": 8000, "num_samples": round(8000 * recording["duration"])}
        for recording in RECORDINGS
    ]
    problems = read_manifests(*manifests(tmp_path, recordings, supervisions)).problems
    commands = {
        problem.rpartition("with '")[2].partition("', and give the manifests in FIXED")[0]
        for problem in problems
    }
    assert len(problems) == 3 and len(commands) == 1
    subprocess.run(commands.pop(), shell=True, check=True, capture_output=True, cwd=tmp_path)
    found = read_manifests(
        *(tmp_path / "FIXED" / name for name in ("recordings.jsonl.gz", "supervisions.jsonl"))
    )
    assert not found.problems and [(said.begin, said.end) for said in found.utterances] == [
        (7.95, 10),
        (3, 4),
        (3, 4),
    ]


def test_json_arrays_are_read(tmp_path):
    """As lhotse writes .json."""
    paths = [tmp_path / "recordings.json", tmp_path / "supervisions.json"]
    for path, entries in zip(paths, (RECORDINGS, SUPERVISIONS)):
        path.write_text(json.dumps(entries, indent=2))
    assert read_manifests(*paths) == read_manifests(*manifests(tmp_path))


def test_numeric_speaker_becomes_text(tmp_path):
    found = read_manifests(
        *manifests(
            tmp_path, supervisions=[{**SUPERVISIONS[0], "speaker": 0}, {**SUPERVISIONS[1], "speaker": ""}]
        )
    )
    assert [(said.name, said.speaker) for said in found.utterances] == [
        ("0-u1", "0"),
        ("mono-ann-u2", "mono"),
    ]


def test_unpaired_surrogate_is_reported(tmp_path):
    paths = manifests(
        tmp_path,
        supervisions=[
            SUPERVISIONS[0] | {"text": "whole \U0001f600"},
            SUPERVISIONS[1] | {"text": "cut \ud83d"},
        ],
    )
    with pytest.raises(UserError, match=r"supervisions.jsonl:2: it contains half a character"):
        read_manifests(*paths)


def test_times_are_written_without_exponent(tmp_path):
    out = tmp_path / "data"
    out.mkdir()
    found = read_manifests(
        *manifests(
            tmp_path,
            [{**RECORDINGS[0], "duration": 12345.6789}, RECORDINGS[0] | {"id": "twice"}] * 2,
            SUPERVISIONS[:1],
        )
    )
    assert not found.problems
    save_data_dir(found, out)
    assert table(out / "reco2dur") == ["mono 12345.6789"]


def test_speaker_prefix_must_end_at_a_separator(tmp_path):
    """Otherwise s10-x of s1 would come after s10-a of s10."""
    said = {"recording_id": "mono", "start": 0, "duration": 1, "text": "yes"}
    names = [("s10-x", "s1"), ("s10-a", "s10"), ("s1", "s1")]
    out = tmp_path / "data"
    out.mkdir()
    supervisions = [{"id": name, "speaker": speaker, **said} for name, speaker in names]
    save_data_dir(read_manifests(*manifests(tmp_path, supervisions=supervisions)), out)
    assert table(out / "utt2spk") == ["s1 s1", "s1-s10-x s1", "s10-a s10"] and not validate(out, audio="no")


def test_step_writes_data_directory(tmp_path, root):
    def run(*words):
        return subprocess.run(["utils/import_lhotse.py", *words], cwd=root, capture_output=True, text=True)

    done = run(*manifests(tmp_path), tmp_path / "data")
    assert done.returncode == 0 and "7 utterances, 1 without a text" in done.stdout + done.stderr, done.stderr
    done = run(*manifests(tmp_path, supervisions=[{"id": "u1"}]), tmp_path / "other")
    assert done.returncode == 1 and "its recording_id is None" in done.stdout and done.stderr.count("\n") == 1
    (tmp_path / "supervisions.jsonl").write_text("{}\nnot json\n")
    done = run(tmp_path / "recordings.jsonl.gz", tmp_path / "supervisions.jsonl", tmp_path / "other")
    assert done.returncode == 1 and "supervisions.jsonl:2: 'not json' is not a JSON object" in done.stderr
    assert not (tmp_path / "other").exists()


def test_manifests_by_lhotse_give_its_own_export(tmp_path):
    """Its own recordings with audio, a supervision each, and the samples of a segment."""
    lhotse = pytest.importorskip("lhotse")
    kaldi = pytest.importorskip("lhotse.kaldi")
    recordings, supervisions = [], []
    for number in range(3):
        path = tmp_path / f"r{number}.wav"
        samples = (1000 * np.random.default_rng(number).standard_normal(8000)).astype(np.int16)
        soundfile.write(path, samples, 8000)
        recordings.append(lhotse.Recording.from_file(path))
        supervisions += [
            lhotse.SupervisionSegment(
                f"s{number}-{part}",
                f"r{number}",
                start,
                0.3,
                text=f"word {part}",
                speaker=f"s{number}",
                gender="f",
                language="en",
            )
            for part, start in enumerate((0.1, 0.6))
        ]
    sets = lhotse.RecordingSet.from_recordings(recordings), lhotse.SupervisionSet.from_segments(supervisions)
    paths = tmp_path / "recordings.jsonl.gz", tmp_path / "supervisions.jsonl.gz"
    for manifest, path in zip(sets, paths):
        manifest.to_file(path)
    kaldi.export_to_kaldi(*sets, tmp_path / "theirs")
    (tmp_path / "ours").mkdir()
    save_data_dir(read_manifests(*paths), tmp_path / "ours")
    for name in ("text", "utt2spk", "wav.scp"):
        assert sorted(table(tmp_path / "ours" / name)) == sorted(table(tmp_path / "theirs" / name)), name
    ours, theirs = (
        {line.split()[0]: line.split()[1:] for line in table(tmp_path / who / "segments")}
        for who in ("ours", "theirs")
    )
    assert ours.keys() == theirs.keys()
    for utt, (recording, begin, end) in theirs.items():
        assert ours[utt][0] == recording and np.allclose(
            [float(t) for t in ours[utt][1:]], [float(begin), float(end)]
        )
