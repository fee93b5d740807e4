"""Channels of files as recordings: everything that reads audio of a data directory reads the channel named by
`reco2file_and_channel`."""

import gc
import weakref
from itertools import groupby

import numpy as np
import pytest
import soundfile
from conversations import CALLS, NUM_SAMPLES, RATE, make_calls, sides
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.data.audio import recordings
from pyasr.data.audio.audio_reading import read_channels
from pyasr.data.audio.mixing import source_samples
from pyasr.data.audio.recordings import change_speed, read_recording, read_recordings
from pyasr.data.augmentation.augment import AugmentOptions, Babble, augmented
from pyasr.data.augmentation.perturb import Perturbation, perturbed
from pyasr.data.checks.repair import fix
from pyasr.data.checks.validation import validate
from pyasr.data.parts.audio_shards import shards
from pyasr.data.parts.subsets import Renaming, copy, write_all
from pyasr.data.tables.datadir import DataDir, split, write_data_dir
from pyasr.intake.lhotse import read_manifests, save_data_dir
from pyasr.io.text_tables import read_table, write_table


@pytest.fixture
def calls(tmp_path):
    return make_calls(tmp_path / "calls")


def channel(place, call=CALLS[0]):
    return sides(call)[:, place].astype(np.float32)


@pytest.mark.parametrize("labels", ["AB", "12", "ab"])
def test_named_channel_is_read(labels, tmp_path):
    data = DataDir(make_calls(tmp_path / "calls", labels))
    for call in CALLS:
        for place, side in enumerate("AB"):
            samples, rate = read_recording(data, f"{call}-{side}")
            assert rate == RATE and np.array_equal(samples, channel(place, call))


def test_sides_may_be_mapped_in_reverse(tmp_path):
    data = DataDir(make_calls(tmp_path / "calls", "BA"))
    assert np.array_equal(read_recording(data, "sw02001-A")[0], channel(1))


def test_channel_option_overrides_table(calls):
    assert np.array_equal(read_recording(DataDir(calls), "sw02001-A", 1)[0], channel(1))


@pytest.mark.parametrize("label", ["A", "B", "2", "left"])
@pytest.mark.parametrize("entry", ["{}", "cat {} |"])
def test_single_channel_audio_is_read_unchanged(entry, label, tmp_path):
    """In Kaldi's directories, 'sph2pipe -c 2 FILE |' is channel B."""
    soundfile.write(tmp_path / "b.wav", sides(CALLS[0])[:, 1], RATE)
    write_data_dir(
        tmp_path,
        {
            "wav.scp": {"b": entry.format(tmp_path / "b.wav")},
            "reco2file_and_channel": {"b": f"call {label}"},
            "utt2spk": {"b": "b"},
        },
    )
    assert np.array_equal(read_recording(DataDir(tmp_path), "b")[0], channel(1)) and not validate(
        tmp_path, need_text=False, audio="read"
    )


def test_command_may_output_all_channels(calls):
    write_table(calls / "wav.scp", {f"sw02001-{side}": f"cat {calls}/sw02001.sph |" for side in "AB"})
    assert np.array_equal(read_recording(DataDir(calls), "sw02001-B")[0], channel(1))


@pytest.mark.parametrize(
    "line, expected_message",
    [
        (
            "sw02001 C",
            (
                "sw02001.sph: reco2file_and_channel names channel 'C', but the file has 2 channels; correct "
                "the line: channels are A, B, ... or 1, 2, ... in the order"
            ),
        ),
        ("sw02001 0", "names channel '0', but the file has 2 channels"),
        ("sw02001 3", "names channel '3'"),
        ("sw02001 left", "names channel 'left'"),
        (
            "sw02001",
            (
                "calls/reco2file_and_channel: 'sw02001-B sw02001' is not 'RECORDING FILE CHANNEL'; correct "
                "the line"
            ),
        ),
        (
            None,
            (
                "sw02001.sph: 2 channels, expected 1; choose one with --channel 0 or 1 of the feature "
                "extraction step, or name the channel of each recording in"
            ),
        ),
    ],
)
def test_invalid_channels_are_refused(line, expected_message, calls):
    table = read_table(calls / "reco2file_and_channel")
    del table["sw02001-B"]
    write_table(calls / "reco2file_and_channel", table | ({"sw02001-B": line} if line else {}))
    with pytest.raises(UserError, match=expected_message):
        read_recording(DataDir(calls), "sw02001-B")
    if line and line != "sw02001":
        (problem,) = validate(calls, audio="read")
        assert (
            problem.text.startswith("sw02001-B ")
            and problem.message in expected_message + str(problem)
            and problem.fix.startswith("correct the line: channels")
        )
        assert any(
            f"kept recording sw02001-B: {problem.message}" in said for said in fix(calls, audio="read")
        )


def test_conversations_are_valid_data(calls):
    """Also if all audio is read, and segments are compared with its length."""
    assert validate(calls, audio="read") == [] == validate(calls) and fix(calls, audio="read") == []
    write_table(
        calls / "segments", read_table(calls / "segments") | {"sw02010-B_000050": "sw02010-B 0.5 1.6"}
    )
    (problem,) = validate(calls, audio="read")
    assert "ends 0.60 s after the end of the recording" in problem.message


@pytest.fixture
def reads(monkeypatch):
    """The decoded entries, and weak references to their audio."""
    found = []

    def read(rx, name=""):
        audio, rate = read_channels(rx, name)
        found.append((rx, weakref.ref(audio)))
        return audio, rate

    monkeypatch.setattr(recordings, "read_channels", read)
    return found


def test_file_is_decoded_once_and_not_kept(calls, reads):
    """The memory of both channels is free while the last one is in use."""
    data, kept = DataDir(calls), []
    for _samples, _ in read_recordings(data, sorted(data.wav_scp)):
        gc.collect()
        kept.append(reads[-1][1]() is not None)
    assert [rx for rx, _ in reads] == [f"{calls}/{call}.sph" for call in CALLS] and kept == [True, False] * 3


@pytest.mark.parametrize("speakers", [False, True])
@pytest.mark.parametrize("num", [1, 2, 3, 5, 12])
def test_sides_of_a_call_are_adjacent_in_splits(num, speakers, tmp_path):
    """The number of calls that are divided between two jobs is minimal."""
    data = DataDir(make_calls(tmp_path / "calls", speakers=speakers))
    lists = shards(data, num)
    assert sorted(utt for one in lists for utt in one) == data.utterances
    assert {len(one) for one in lists} <= {12 // num, -(-12 // num)}
    found = []
    for one in lists:
        names = [name for name, _ in groupby(map(data.recording, one))]
        files = [file for file, _ in groupby(names, key=data.wav_scp.get)]
        assert len(set(names)) == len(names) and len(set(files)) == len(files)
        found += files
    assert len(found) <= 3 + num - 1 and (num != 3 or len(found) == 3)


def test_splits_end_at_file_boundaries_if_balanced(tmp_path):
    """Twenty calls of different lengths in four jobs."""
    seconds = {f"c{i:02d}": 60 + 7 * (i % 3) for i in range(20)}
    sides = [f"{call}-{side}" for call in seconds for side in "AB"]
    write_data_dir(
        tmp_path,
        {
            "wav.scp": {side: f"{side[:3]}.sph" for side in sides},
            "reco2file_and_channel": {side: f"{side[:3]} {side[-1]}" for side in sides},
            "segments": {
                f"{side}-{i:03d}": f"{side} {i} {i + 1}" for side in sides for i in range(seconds[side[:3]])
            },
            "utt2spk": {f"{side}-{i:03d}": side for side in sides for i in range(seconds[side[:3]])},
        },
    )
    lists = shards(DataDir(tmp_path), 4)
    files = [{utt[:3] for utt in one} for one in lists]
    assert sum(map(len, files)) == 20 and max(map(len, lists)) <= 1.05 * min(map(len, lists))


def test_splits_of_single_channel_data_are_unchanged(calls, tmp_path):
    """Copies of a call at other speeds are separate calls."""
    mono = tmp_path / "mono"
    mono.mkdir()
    write_data_dir(
        mono,
        {name: read_table(calls / name) for name in ("segments", "utt2spk", "text", "reco2file_and_channel")},
    )
    write_data_dir(mono, {"wav.scp": {name: f"{name}.wav" for name in read_table(calls / "wav.scp")}})
    for num in (1, 2, 4):
        assert shards(DataDir(mono), num) == split(mono, num, by_features=False)
    write_all(tmp_path / "mono", perturbed(DataDir(mono), Perturbation("0.9")))
    assert shards(DataDir(mono), 3) == split(mono, 3, by_features=False)
    (tmp_path / "fast").mkdir()
    write_all(tmp_path / "fast", perturbed(DataDir(calls), Perturbation("1.1")))
    assert shards(DataDir(tmp_path / "fast"), 1) == [DataDir(tmp_path / "fast").utterances]


def test_copies_keep_their_channels(calls, tmp_path):
    (tmp_path / "fast").mkdir(), (tmp_path / "copy").mkdir()
    write_all(tmp_path / "fast", perturbed(DataDir(calls), Perturbation("1.25")))
    fast = DataDir(tmp_path / "fast")
    assert np.array_equal(read_recording(fast, "sp1.25-sw02001-B")[0], change_speed(channel(1), RATE, 1.25))
    copy(DataDir(calls), tmp_path / "copy", Renaming(utt_prefix="x-", spk_prefix="x-", reco_prefix="x-"))
    assert np.array_equal(read_recording(DataDir(tmp_path / "copy"), "x-sw02005-B")[0], channel(1, CALLS[1]))
    assert not validate(fast.path, audio="read") and not validate(tmp_path / "copy", audio="read")


def test_babble_and_noises_come_from_their_channels(calls, tmp_path):
    data = DataDir(calls)
    drawn = {
        audio
        for seed in range(20)
        for audio in Babble(data).draw("sw02001-A", 5, np.random.default_rng(seed))
    }
    assert {(audio, label) for audio, _, _, label in drawn} == {
        (f"{calls}/{call}.sph", side) for call in CALLS for side in "AB"
    } - {(f"{calls}/sw02001.sph", "A")}
    assert np.array_equal(source_samples(f"{calls}/sw02001.sph", RATE, "B"), channel(1))
    for options in (
        AugmentOptions(bg_noise=calls),
        AugmentOptions(fg_noise=calls),
        AugmentOptions(num_babble="3"),
    ):
        tables = augmented(data, options)
        (out := tmp_path / f"{options.num_babble}{bool(options.bg_noise)}").mkdir()
        write_all(out, tables)
        labels = {noise.channel for found in DataDir(out).reco2distortion.values() for noise in found.noises}
        assert labels == {"A", "B"} and not validate(out)
        assert len(read_recording(DataDir(out), "rev1-sw02001-B")[0]) == NUM_SAMPLES


@pytest.mark.parametrize("flags, num", [([], 1), (["--channel", 0], 0), (["--channel", 1], 2)])
def test_speech_is_detected_in_named_channel(flags, num, tmp_path):
    """A call of two recordings with speech only in the right channel; then without the table, with speech
    only in the left channel."""
    loud = 3000 * np.random.default_rng(0).standard_normal(3 * RATE)
    soundfile.write(tmp_path / "call.wav", np.stack([np.zeros(len(loud)), loud], 1).astype(np.int16), RATE)
    names = {f"call-{side}": f"call-{side}" for side in "AB"}
    data = tmp_path / "data"
    data.mkdir()
    write_data_dir(
        data,
        {
            "wav.scp": dict.fromkeys(names, tmp_path / "call.wav"),
            "utt2spk": names,
            "reco2file_and_channel": {"call-A": "call A", "call-B": "call B"},
        },
    )

    def segment(out, *words):
        run_here("segment_data_dir.py", *words, data, tmp_path / out, folder="utils")
        return len(DataDir(tmp_path / out).utterances)

    if num:
        assert segment("out", *flags) == num
    else:
        with pytest.raises(UserError, match="no segment found"):
            segment("out", *flags)
    (data / "reco2file_and_channel").unlink()
    soundfile.write(tmp_path / "call.wav", np.stack([loud, np.zeros(len(loud))], 1).astype(np.int16), RATE)
    assert segment("other") == 2


def test_lhotse_recordings_with_several_channels(tmp_path):
    soundfile.write(tmp_path / "call.wav", sides(CALLS[0]), RATE)
    recording = (
        '{"id": "call", "sources": [{"type": "%s", "channels": [0, 1], "source": "%s"}], "duration": 1.0}\n'
    )
    (tmp_path / "supervisions.jsonl").write_text(
        "".join(
            f'{{"id": "u{i}", "recording_id": "call", "start": 0, "duration": 1, "channel": {i}, "text": '
            f'"a", "speaker": "s"}}\n'
            for i in (0, 1)
        )
    )
    for kind, source in (("file", tmp_path / "call.wav"), ("command", f"cat {tmp_path}/call.wav")):
        (tmp_path / "recordings.jsonl").write_text(recording % (kind, source))
        (out := tmp_path / kind).mkdir()
        save_data_dir(read_manifests(tmp_path / "recordings.jsonl", tmp_path / "supervisions.jsonl"), out)
        assert not validate(out, audio="read")
        for place in (0, 1):
            assert np.array_equal(read_recording(DataDir(out), f"call_{place}")[0], channel(place))


def test_lhotse_recordings_with_several_files(tmp_path):
    """Channels are counted within their file."""
    sources = ", ".join(
        f'{{"type": "file", "channels": {channels}, "source": "{tmp_path}/{name}.wav"}}'
        for name, channels in (("a", [0, 1]), ("b", [2, 3]), ("c", [4]))
    )
    (tmp_path / "recordings.jsonl").write_text(f'{{"id": "call", "sources": [{sources}], "duration": 1.0}}\n')
    (tmp_path / "supervisions.jsonl").write_text(
        "".join(
            f'{{"id": "u{i}", "recording_id": "call", "start": 0, "duration": 1, "channel": {i}, "text": '
            f'"a", "speaker": "s"}}\n'
            for i in (0, 2, 3, 4)
        )
    )
    for name, call in zip("abc", CALLS):
        soundfile.write(tmp_path / f"{name}.wav", sides(call)[:, : 1 if name == "c" else 2], RATE)
    save_data_dir(read_manifests(tmp_path / "recordings.jsonl", tmp_path / "supervisions.jsonl"), tmp_path)
    for name, call, place in (("call_0", 0, 0), ("call_2", 1, 0), ("call_3", 1, 1), ("call_4", 2, 0)):
        assert np.array_equal(read_recording(DataDir(tmp_path), name)[0], channel(place, CALLS[call]))
