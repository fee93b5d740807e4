"""The feature steps on a small data directory: what they write, and what they say of bad audio."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pyasr.base.errors import UpToDate, UserError
from pyasr.base.options import save
from pyasr.base.output import stage_output
from pyasr.data.datadir import DataDir
from pyasr.data.vad import VadOptions, segments_of
from pyasr.feats.extract import ArchiveOptions, ExtractSpec, extract_shard, merge_shards, read_waveforms
from pyasr.feats.extractor import Extractor
from pyasr.feats.options import OPTIONS_FILE, FrameOptions, MfccOptions
from pyasr.io.ark import load_all
from pyasr.io.text import read_table, write_table

ROOT = Path(__file__).resolve().parents[2]
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
    return subprocess.run([sys.executable, ROOT / "steps" / name, *map(str, arguments)], env=environment, capture_output=True, text=True)


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
    """As those of a data directory that Kaldi has made; its statistics are no longer used, and the next new features replace ours alone."""
    own = {"feats.scp": {utt: f"/k/raw.ark:{5 + i}" for i, utt in enumerate(LENGTHS)}, "cmvn.scp": {"a": "/k/cmvn.ark:2", "b": "/k/cmvn.ark:99"},
           "utt2num_frames": dict.fromkeys(LENGTHS, "9")}  # fmt: skip
    for name, table in own.items():
        write_table(data / name, table)
    made = step("make_mfcc.py", "--nj", 1, *FLAGS, data)
    for name, output in (("feats.scp", "feats"), ("utt2num_frames", "feats"), ("cmvn.scp", "cmvn")):
        assert f"{data}/{name} is not that of {data}/{output}: moved to {data}/.backup/{name}" in made.stdout
    assert not (data / "cmvn.scp").exists() and load_all(data / "feats.scp").keys() == LENGTHS.keys()
    write_table(data / "cmvn.scp", {"a": "/k/cmvn.ark:7"})
    assert "moved to" in step("compute_cmvn.py", data).stdout
    cmvn = read_table(data / "cmvn.scp")
    anew = step("make_mfcc.py", "--nj", 1, "--use-energy", "true", "--force", *FLAGS[:2], data)
    assert anew.returncode == 0 and "moved to" not in anew.stdout
    assert not (data / "cmvn.scp").exists()  # nobody must take statistics of other features
    assert step("compute_cmvn.py", data).returncode == 0 and read_table(data / "cmvn.scp").keys() == cmvn.keys()
    kept = {path.name: read_table(path) for path in (data / ".backup").iterdir()}
    assert kept == {**own, "cmvn.scp.2": {"a": "/k/cmvn.ark:7"}}


def test_a_copy_whose_tables_were_set_aside_stays_up_to_date(data, tmp_path):
    """The statistics that a data directory was copied with are no longer among the files that its making has to answer for."""
    write_table(data / "cmvn.scp", {"a": "/k/cmvn.ark:2", "b": "/k/cmvn.ark:99"})
    with stage_output(tmp_path / "copy", {}, []) as out:
        for path in data.iterdir():
            shutil.copy(path, out)
    assert step("make_mfcc.py", "--nj", 1, *FLAGS, tmp_path / "copy").returncode == 0
    assert not (tmp_path / "copy/cmvn.scp").exists()
    with pytest.raises(UpToDate), stage_output(tmp_path / "copy", {}, []):
        pass


def test_number_of_jobs_changes_nothing(data, tmp_path):
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
        np.testing.assert_allclose(load_all(tmp_path / "out" / "feats.scp")[utt], Extractor(OPTIONS)([part])[0], atol=1e-3)


@pytest.mark.parametrize("times, told", [("0.4 2.1", "ends 0.60 s after the end of the recording, which has 1.5 s"),
                                         ("1.5 1.7", "begins after the end of the recording, which has 1.5 s")])
def test_segments_end_with_their_recordings(times, told, data):
    """But for half a second, as in Kaldi's extract-segments."""
    write_table(data / "utt2spk", {"b-1-x": "b"})
    write_table(data / "segments", {"b-1-x": "b-1 0.5 1.9"})
    (_, samples), = read_waveforms(DataDir(data), ["b-1-x"], 8000)
    assert np.array_equal(samples, wave("b-1", 12000)[4000:])
    write_table(data / "segments", {"b-1-x": f"b-1 {times}"})
    for read in (lambda: list(read_waveforms(DataDir(data), ["b-1-x"], 8000)), lambda: segments_of(DataDir(data), VadOptions())):
        with pytest.raises(UserError) as error:
            read()
        assert str(error.value) == f"{data}/segments: b-1-x {told}; correct it, or run utils/fix_data_dir.py --audio read {data}"


def test_utterances_too_short_for_a_frame(data, tmp_path):
    soundfile.write(tmp_path / "b-3.wav", wave("b-3", 150), 8000, subtype="PCM_16")
    with pytest.raises(UserError, match="1 of 5 utterances are too short for one frame: b-3"):
        shards(data, tmp_path / "strict")
    shards(data, tmp_path / "lenient", max_short=0.5)
    assert "b-3" not in read_table(tmp_path / "lenient" / "feats.scp")


def test_truncated_audio_stops_the_step_and_leaves_nothing(data, tmp_path):
    content = (tmp_path / "b-1.wav").read_bytes()
    (tmp_path / "b-1.wav").write_bytes(content[: len(content) // 2])
    run = step("make_mfcc.py", "--nj", 2, *FLAGS, data)
    assert run.returncode == 1
    assert "b-1.wav" in run.stderr and "Traceback" not in run.stderr
    assert not (data / "feats").exists() and not (data / "feats.scp").exists()


def test_options_that_no_filters_can_have_stop_the_step_before_its_jobs(data):
    run = step("make_mfcc.py", "--nj", 2, *FLAGS, "--num-ceps", 100, data)
    assert run.returncode == 1 and "make_mfcc.py: error: --num-ceps 100 is more than --num-mel-bins" in run.stderr
    assert run.stderr.count("\n") == 1 and not (data / "feats.tmp").exists()


def test_sampling_rate_of_the_configuration(data, tmp_path):
    save(tmp_path / OPTIONS_FILE, MfccOptions())
    spec = ExtractSpec(data, tmp_path, tmp_path, 1, ArchiveOptions())
    with pytest.raises(UserError, match="audio of 8000 Hz, but --sample-frequency is 16000"):
        extract_shard(spec, 1)


def test_fbank_step(data):
    made = step("make_fbank.py", "--nj", 1, "--compress", "true", "--sample-frequency", 8000, "--num-mel-bins", 40, data)
    assert made.returncode == 0, made.stdout + made.stderr
    assert {x.shape[1] for x in load_all(data / "feats.scp").values()} == {40}


def test_jobs_do_not_wait_for_torch():
    """Importing it takes longer than the features of an hour of speech."""
    code = "import sys, pyasr.feats.extract; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
