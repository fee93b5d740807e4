"""The feature steps on a small data directory: output, and error messages for bad audio."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from steps_here import run_here

from pyasr.base.cli.options import save
from pyasr.base.errors import UpToDate, UserError
from pyasr.base.outputs.output import stage_output
from pyasr.data.augmentation.vad import VadOptions, segments_of
from pyasr.data.checks.recording_prints import prints, recording_prints
from pyasr.data.tables.datadir import DataDir
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.extraction.extract_dir import (
    ArchiveOptions,
    AudioOptions,
    ExtractSpec,
    audio_options,
    extract_shard,
    merge_shards,
    read_waveforms,
)
from pyasr.feats.options import OPTIONS_FILE, FrameOptions, MfccOptions
from pyasr.io.ark import load_all
from pyasr.io.text_tables import read_table, write_table

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = MfccOptions(frame=FrameOptions(sample_frequency=8000.0), use_energy=False)
FLAGS = ["--sample-frequency", "8000", "--use-energy", "false"]


def wave(utt, num):
    return np.round(1000 * np.random.default_rng(num).standard_normal(num)).astype(np.int16)


LENGTHS = {"a-1": 8000, "a-2": 3000, "b-1": 12000, "b-2": 2000, "b-3": 700}


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    for utt, num in LENGTHS.items():
        soundfile.write(tmp_path / f"{utt}.wav", wave(utt, num), 8000, subtype="PCM_16")
    write_table(path / "wav.scp", {utt: f"{tmp_path}/{utt}.wav" for utt in LENGTHS})
    write_table(path / "utt2spk", {utt: utt[0] for utt in LENGTHS})
    return path


def step(name, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, ROOT / "steps" / name, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
    )


def expected():
    waves = [wave(utt, num).astype(np.float32) for utt, num in LENGTHS.items()]
    return dict(zip(LENGTHS, Extractor(OPTIONS)(waves)))


def shards(data, out, num_jobs=2, **archive):
    (out / "log").mkdir(parents=True)
    save(out / OPTIONS_FILE, OPTIONS)
    spec = ExtractSpec(data, out, out, num_jobs, ArchiveOptions(**archive))
    for job in range(1, num_jobs + 1):
        extract_shard(spec, job)
    merge_shards(spec)


def test_steps_from_audio_to_cmvn(data):
    made = step("make_mfcc.py", "--nj", 2, *FLAGS, data)
    assert made.returncode == 0, made.stdout + made.stderr
    features = load_all(data / "feats.scp")
    assert list(features) == list(LENGTHS)
    for utt, x in expected().items():
        np.testing.assert_allclose(features[utt], x, atol=1e-3)
    assert read_table(data / "utt2num_frames") == {utt: str(len(x)) for utt, x in features.items()}
    assert step("compute_cmvn.py", data).returncode == 0
    assert list(read_table(data / "cmvn.scp")) == ["a", "b"]
    for again in (step("make_mfcc.py", "--nj", 1, *FLAGS, data), step("compute_cmvn.py", data)):
        assert again.returncode == 0 and "up to date" in again.stdout, again.stdout + again.stderr


def test_tables_of_other_features_are_kept(data):
    """For example tables of a data directory by Kaldi. Its statistics are no longer used, and only pyasr's
    own features are replaced next time."""
    own = {
        "feats.scp": {utt: f"/k/raw.ark:{5 + i}" for i, utt in enumerate(LENGTHS)},
        "cmvn.scp": {"a": "/k/cmvn.ark:2", "b": "/k/cmvn.ark:99"},
        "utt2num_frames": dict.fromkeys(LENGTHS, "9"),
    }
    for name, table in own.items():
        write_table(data / name, table)
    made = step("make_mfcc.py", "--nj", 1, *FLAGS, data)
    for name, output in (("feats.scp", "feats"), ("utt2num_frames", "feats"), ("cmvn.scp", "cmvn")):
        assert (
            f"{data}/{name} differs from the table in {data}/{output}: moved to {data}/.backup/{name}"
            in made.stdout
        )
    assert not (data / "cmvn.scp").exists() and load_all(data / "feats.scp").keys() == LENGTHS.keys()
    write_table(data / "cmvn.scp", {"a": "/k/cmvn.ark:7"})
    assert "moved to" in step("compute_cmvn.py", data).stdout
    cmvn = read_table(data / "cmvn.scp")
    again = step("make_mfcc.py", "--nj", 1, "--use-energy", "true", "--force", *FLAGS[:2], data)
    assert again.returncode == 0 and "moved to" not in again.stdout
    assert not (data / "cmvn.scp").exists()  # statistics of other features must not be used
    assert (
        step("compute_cmvn.py", data).returncode == 0 and read_table(data / "cmvn.scp").keys() == cmvn.keys()
    )
    kept = {path.name: read_table(path) for path in (data / ".backup").iterdir()}
    assert kept == {**own, "cmvn.scp.2": {"a": "/k/cmvn.ark:7"}}


def test_copy_with_replaced_tables_stays_up_to_date(data, tmp_path):
    """The copied statistics are no longer checked as outputs of the step that copied the data directory."""
    write_table(data / "cmvn.scp", {"a": "/k/cmvn.ark:2", "b": "/k/cmvn.ark:99"})
    with stage_output(tmp_path / "copy", {}, []) as out:
        for path in data.iterdir():
            shutil.copy(path, out)
    assert step("make_mfcc.py", "--nj", 1, *FLAGS, tmp_path / "copy").returncode == 0
    assert not (tmp_path / "copy/cmvn.scp").exists()
    with pytest.raises(UpToDate), stage_output(tmp_path / "copy", {}, []):
        pass


def make_again(data):
    """Messages of the step."""
    run = step("make_mfcc.py", "--nj", 1, *FLAGS, data)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_replaced_recording_recomputes_features(data, tmp_path):
    """Even if length and modification time are equal and only the middle differs. A new modification time or
    a renamed copy is no change."""
    make_again(data)
    before, path = load_all(data / "feats.scp"), tmp_path / "b-1.wav"
    os.utime(path, (1, 1))
    assert "is up to date" in make_again(data)
    samples = wave("b-1", 12000)
    samples[4100:6100] = 0
    soundfile.write(path, samples, 8000, subtype="PCM_16")
    os.utime(path, (1, 1))
    report = make_again(data)
    assert f"{data}: 1 recordings have changed: b-1" in report and "is out of date" in report
    after = load_all(data / "feats.scp")
    assert [utt for utt in LENGTHS if not np.array_equal(before[utt], after[utt])] == ["b-1"]
    assert "is up to date" in make_again(data)


@pytest.mark.parametrize("source", ["a room.wav", "fan.wav"])
def test_replaced_noise_recomputes_features(source, data, tmp_path):
    for name in ("a room.wav", "fan.wav"):
        soundfile.write(tmp_path / name, wave(name, 100), 8000, subtype="PCM_16")
    mixed = {
        "rir": str(tmp_path / "a room.wav"),
        "noises": [{"audio": str(tmp_path / "fan.wav"), "snr_db": 10}],
    }
    write_table(
        data / "reco2distortion", {utt: json.dumps(mixed) if utt == "b-1" else "{}" for utt in LENGTHS}
    )
    make_again(data)
    before = load_all(data / "feats.scp")
    assert "is up to date" in make_again(data)
    soundfile.write(tmp_path / source, wave(source, 200)[100:], 8000, subtype="PCM_16")
    report = make_again(data)
    assert (
        f"1 recordings have changed: reco2distortion:{tmp_path}/{source.replace(' ', '%20')}" in report
        and "out of date" in report
    )
    after = load_all(data / "feats.scp")
    assert [utt for utt in LENGTHS if not np.array_equal(before[utt], after[utt])] == ["b-1"]


def test_recordings_of_other_user_have_no_digests(data, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with recording_prints(data) as inputs:
        assert inputs == [] and not (data / ".recordings").exists()


def test_recordings_are_compared_by_blocks(tmp_path):
    """Digests of some blocks are compared. Commands have no digest; a missing file has a digest that no file
    has."""
    (tmp_path / "a.wav").write_bytes(bytes(10**6))
    (tmp_path / "b.wav").write_bytes(bytes(10**6 - 1))
    shutil.copy(tmp_path / "a.wav", tmp_path / "c.wav")
    os.mkfifo(tmp_path / "pipe")
    places = {name: str(tmp_path / f"{name}.wav") for name in "abc"}
    audio = places | {
        "ark": f"{tmp_path}/a.wav:77",
        "gone": str(tmp_path / "gone.wav"),
        "command": "sph2pipe x |",
        "pipe": str(tmp_path / "pipe"),
    }
    found = dict(prints(audio.items()))
    assert found["a"] == found["c"] and len(set(found.values())) == 4
    assert found["gone"] == found["pipe"] == "missing" and "command" not in found


def test_number_of_jobs_does_not_change_features(data, tmp_path):
    shards(data, tmp_path / "one", 1)
    shards(data, tmp_path / "three", 3)
    one, three = load_all(tmp_path / "one" / "feats.scp"), load_all(tmp_path / "three" / "feats.scp")
    assert one.keys() == three.keys()
    for utt in one:
        np.testing.assert_allclose(one[utt], three[utt], atol=1e-3)


def test_segments(data, tmp_path):
    write_table(data / "segments", {"b-1-x": "b-1 0.25 0.75", "b-1-y": "b-1 1.0 -1"})
    write_table(data / "utt2spk", {"b-1-x": "b", "b-1-y": "b"})
    shards(data, tmp_path / "out", 1)
    whole = wave("b-1", 12000).astype(np.float32)
    for utt, part in (("b-1-x", whole[2000:6000]), ("b-1-y", whole[8000:])):
        np.testing.assert_allclose(
            load_all(tmp_path / "out" / "feats.scp")[utt], Extractor(OPTIONS)([part])[0], atol=1e-3
        )


@pytest.mark.parametrize(
    "times, message",
    [
        ("0.4 2.1", "ends 0.60 s after the end of the recording, which has 1.5 s"),
        ("1.5 1.7", "begins after the end of the recording, which has 1.5 s"),
    ],
)
def test_segments_end_with_their_recordings(times, message, data):
    """Kaldi's extract-segments tolerates an excess of half a second."""
    write_table(data / "utt2spk", {"b-1-x": "b"})
    write_table(data / "segments", {"b-1-x": "b-1 0.5 1.9"})
    ((_, samples),) = read_waveforms(DataDir(data), ["b-1-x"], 8000)
    assert np.array_equal(samples, wave("b-1", 12000)[4000:])
    write_table(data / "segments", {"b-1-x": f"b-1 {times}"})
    for read in (
        lambda: list(read_waveforms(DataDir(data), ["b-1-x"], 8000)),
        lambda: segments_of(DataDir(data), VadOptions()),
    ):
        with pytest.raises(UserError) as error:
            read()
        advice = f"correct it, or run utils/fix_data_dir.py --audio read {data}"
        assert str(error.value) == f"{data}/segments: b-1-x {message}; {advice}"


def test_too_short_utterances_are_reported(data, tmp_path):
    soundfile.write(tmp_path / "b-3.wav", wave("b-3", 150), 8000, subtype="PCM_16")
    with pytest.raises(UserError, match="1 of 5 utterances are too short for one frame: b-3"):
        shards(data, tmp_path / "strict")
    shards(data, tmp_path / "lenient", max_short=0.5)
    assert "b-3" not in read_table(tmp_path / "lenient" / "feats.scp")


def test_truncated_audio_ends_step_without_output(data, tmp_path):
    content = (tmp_path / "b-1.wav").read_bytes()
    (tmp_path / "b-1.wav").write_bytes(content[: len(content) // 2])
    run = step("make_mfcc.py", "--nj", 2, *FLAGS, data)
    assert run.returncode == 1
    assert "b-1.wav" in run.stderr and "Traceback" not in run.stderr
    assert not (data / "feats").exists() and not (data / "feats.scp").exists()


def test_impossible_filter_options_end_step_before_jobs(data):
    run = step("make_mfcc.py", "--nj", 2, *FLAGS, "--num-ceps", 100, data)
    assert (
        run.returncode == 1
        and "make_mfcc.py: error: --num-ceps 100 is more than --num-mel-bins" in run.stderr
    )
    assert run.stderr.count("\n") == 1 and not (data / "feats.tmp").exists()


def test_sampling_rate_must_match_configuration(data, tmp_path):
    save(tmp_path / OPTIONS_FILE, MfccOptions())
    spec = ExtractSpec(data, tmp_path, tmp_path, 1, ArchiveOptions())
    with pytest.raises(UserError, match="audio of 8000 Hz, but --sample-frequency is 16000"):
        extract_shard(spec, 1)


@pytest.mark.parametrize(
    "flags, expected_text",
    [
        (
            ["--sample-frequency", 16000],
            "a-1.wav: audio of 8000 Hz, but --sample-frequency is 16000; give --allow-upsample true",
        ),
        (
            [*FLAGS, "--channel", 1],
            "a-1.wav: no channel 1, the file has 1, counted from 0; give another --channel",
        ),
    ],
)
def test_error_in_first_recording_is_reported_before_jobs(data, tmp_path, flags, expected_text):
    """For a file and for an offset in an archive. No job starts, and no output remains."""
    archived = {}
    with open(tmp_path / "all.ark", "wb") as archive:
        for utt, path in read_table(data / "wav.scp").items():
            archive.write(f"{utt} ".encode())
            archived[utt] = f"{tmp_path}/all.ark:{archive.tell()}"
            archive.write(Path(path).read_bytes())
    for table, where in ((None, expected_text), (archived, expected_text.replace("a-1.wav", "all.ark:4"))):
        if table:
            write_table(data / "wav.scp", table)
        run = step("make_mfcc.py", "--nj", 2, *flags, data)
        assert run.returncode == 1 and where in run.stderr and run.stderr.count("\n") == 1
        assert not (data / "feats.tmp").exists()


def sound(rate, seconds=1.0):
    """Three hundred tones up to 3.7 kHz, limited to those below the Nyquist frequency, int16."""
    rng, time_s = np.random.default_rng(0), np.arange(int(seconds * rate)) / rate
    tones = zip(rng.uniform(50, 3700, 300), rng.uniform(0, 2 * np.pi, 300))
    return np.round(
        sum(300 * np.sin(2 * np.pi * hz * time_s + phase) for hz, phase in tones if hz < 0.47 * rate)
    ).astype(np.int16)


@pytest.fixture
def mixed(data, tmp_path):
    """Recordings of one sound at three sampling rates, one of them in the right channel of two."""
    for utt, rate in {"a-1": 8000, "a-2": 8000, "b-1": 16000, "b-2": 4000}.items():
        soundfile.write(tmp_path / f"{utt}.wav", sound(rate), rate, subtype="PCM_16")
    soundfile.write(
        tmp_path / "b-3.wav", np.stack([np.zeros(48000, np.int16), sound(48000)], 1), 48000, subtype="PCM_16"
    )
    return data


RESAMPLED = ["--allow-downsample", "true", "--allow-upsample", "true"]


@pytest.mark.parametrize(
    "utt, flags, message",
    [
        (
            "b-3",
            [],
            (
                "b-3.wav: 2 channels, expected 1; choose one with --channel 0 or 1 of the feature extraction "
                "step"
            ),
        ),
        (
            "b-1",
            ["--channel", 1],
            "b-1.wav: no channel 1, the file has 1, counted from 0; give another --channel",
        ),
        (
            "b-1",
            [],
            (
                "b-1.wav: audio of 16000 Hz, but --sample-frequency is 8000; give --allow-downsample true to "
                "resample it, or correct"
            ),
        ),
        (
            "b-2",
            RESAMPLED[:2],
            (
                "b-2.wav: audio of 4000 Hz, but --sample-frequency is 8000; give --allow-upsample true to "
                "resample it"
            ),
        ),
    ],
)
def test_other_channels_and_rates_are_refused_with_advice(mixed, utt, flags, message):
    write_table(mixed / "utt2spk", {utt: "b"})
    with pytest.raises(UserError, match=message):
        run_here("make_mfcc.py", "--nj", 1, *FLAGS, *flags, mixed)


def test_sampling_rates_are_converted_without_sox(mixed, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    write_table(mixed / "utt2spk", {utt: utt[0] for utt in LENGTHS if utt != "b-3"})
    run_here("make_mfcc.py", "--nj", 2, *FLAGS, *RESAMPLED, "--channel", 0, mixed)
    found = load_all(mixed / "feats.scp")
    assert np.abs(found["b-1"] - found["a-1"]).mean() < 0.5 and {len(x) for x in found.values()} == {98}


def test_channel_with_other_rate_is_converted(mixed):
    write_table(mixed / "utt2spk", {"b-3": "b"})
    run_here("make_mfcc.py", "--nj", 1, *FLAGS, "--channel", 1, "--allow-downsample", "true", mixed)
    assert audio_options(mixed) == AudioOptions(1, True, False)
    (expected,) = Extractor(OPTIONS)([sound(8000).astype(np.float32)])
    assert np.abs(load_all(mixed / "feats.scp")["b-3"] - expected).mean() < 0.5


def test_fbank_step(data):
    made = step(
        "make_fbank.py",
        "--nj",
        1,
        "--compress",
        "true",
        "--sample-frequency",
        8000,
        "--num-mel-bins",
        40,
        data,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert {x.shape[1] for x in load_all(data / "feats.scp").values()} == {40}


def test_feature_jobs_do_not_import_torch():
    """The import takes longer than the features of an hour of speech."""
    code = "import sys, pyasr.feats.extraction.extract_dir; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
