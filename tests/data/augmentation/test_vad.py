"""Speech detection by energy: decisions against Kaldi's rule applied frame by frame, segments against bursts
in noise."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pyasr.data.audio.audio_reading import write_audio
from pyasr.data.augmentation.vad import VadOptions, find_speech, log_energies, speech_frames, speech_runs
from pyasr.data.checks.validation import validate
from pyasr.data.tables.datadir import DataDir, write_data_dir
from pyasr.io.text_tables import read_table

UTILS = Path(__file__).parents[3] / "utils"
RATE = 8000
BURSTS = [(1.0, 2.0), (2.3, 3.0), (5.0, 5.1), (7.0, 11.0), (13.0, 14.5)]


def make_recording(bursts=BURSTS, seconds=16.0, noise=3.0, seed=0, rate=RATE):
    """Bursts of loud noise in quiet noise."""
    rng = np.random.default_rng(seed)
    samples = noise * rng.standard_normal(round(seconds * rate))
    for begin, end in bursts:
        part = slice(round(begin * rate), round(end * rate))
        samples[part] += 2000 * rng.standard_normal(part.stop - part.start)
    return samples.astype(np.float32)


def test_log_energies_equal_explicit_sums():
    samples = make_recording([(0.1, 0.2)], 0.4) + 500
    frames = [samples[begin : begin + 200].astype(float) for begin in range(0, len(samples) - 199, 80)]
    np.testing.assert_allclose(
        log_energies(samples, RATE), [np.log(np.sum((x - x.mean()) ** 2)) for x in frames], rtol=1e-9
    )
    assert (
        len(log_energies(samples[:199], RATE)) == 0
        and len(log_energies(np.zeros(200, np.float32), RATE)) == 1
    )


@pytest.mark.parametrize("context, proportion", [(0, 0.6), (2, 0.12), (5, 0.6), (50, 0.3)])
def test_decisions_equal_kaldi_rule(context, proportion):
    """compute-vad: a minimum fraction of the existing frames from t - context to t + context must be above
    the threshold."""
    energy = np.random.default_rng(context).uniform(5, 20, 60)
    threshold, expected = 5 + 0.5 * energy.mean(), []
    for t in range(60):
        around = [energy[i] for i in range(t - context, t + context + 1) if 0 <= i < 60]
        expected.append(sum(value > threshold for value in around) >= proportion * len(around))
    options = VadOptions(5.0, 0.5, vad_frames_context=context, vad_proportion_threshold=proportion)
    assert speech_frames(energy, options).tolist() == expected and sum(expected) > 0


def test_bursts_are_detected():
    """The pause of 0.3 s is closed, the click of 0.1 s is removed, and 0.2 s of padding are kept."""
    found = [(part.begin_s, part.end_s) for part in find_speech(make_recording(), RATE, VadOptions())]
    np.testing.assert_allclose(found, [(0.8, 3.2), (6.8, 11.2), (12.8, 14.7)], atol=0.05)


def test_times_at_rate_with_fractional_frame_shift():
    (part,) = find_speech(make_recording([(95.0, 96.0)], 100.0, rate=11025), 11025, VadOptions())
    assert (part.begin_s, part.end_s) == pytest.approx((94.8, 96.2), abs=0.05)


def test_long_speech_is_split_at_quietest_frame():
    bursts = [(1.0, 4.0), (4.3, 9.0), (9.35, 12.0)]
    found = [
        (part.begin_s, part.end_s)
        for part in find_speech(make_recording(bursts), RATE, VadOptions(max_segment_s=6.0))
    ]
    assert len(found) == 3 and all(end - begin <= 6.45 for begin, end in found)
    assert 4.0 <= found[0][1] <= found[1][0] <= 4.3 and 9.0 <= found[1][1] <= found[2][0] <= 9.35


def test_constant_long_speech_is_split_too():
    """An hour of constant level, such as a steady tone, is cut every second."""
    options = VadOptions()
    pieces = speech_runs(np.ones(360000, bool), np.full(360000, 20.0), options)
    assert (
        pieces[0][0] == 0
        and pieces[-1][1] == 360000
        and [end for _, end in pieces[:-1]] == [begin for begin, _ in pieces[1:]]
    )
    assert (
        max(end - begin for begin, end in pieces) <= 100 * options.max_segment_s
        and len(pieces) > sys.getrecursionlimit()
    )


def test_speech_at_both_ends_and_no_speech():
    (part,) = find_speech(make_recording([(0.0, 2.0)], 2.0), RATE, VadOptions(vad_energy_mean_scale=0.3))
    assert part.begin_s == 0 and part.end_s == 2.0
    assert (
        find_speech(np.zeros(8000, np.float32), RATE, VadOptions())
        == []
        == find_speech(np.zeros(10, np.float32), RATE, VadOptions())
    )


def segment(*arguments):
    return subprocess.run(
        [sys.executable, UTILS / "segment_data_dir.py", *map(str, arguments)], capture_output=True, text=True
    )


@pytest.fixture
def talks(tmp_path):
    """A recording with bursts and a silent one, with transcripts, which segmentation does not keep."""
    path = tmp_path / "data"
    path.mkdir()
    write_audio(path / "a.wav", make_recording(), RATE)
    write_audio(path / "b.wav", np.zeros(RATE, np.float32), RATE)
    write_data_dir(
        path,
        {
            "wav.scp": {"ann-a": path / "a.wav", "bob-b": path / "b.wav"},
            "utt2spk": {"ann-a": "ann", "bob-b": "bob"},
            "text": {"ann-a": "hello", "bob-b": "x"},
            "spk2gender": {"ann": "f", "bob": "m"},
        },
    )
    return path


def test_recordings_become_segments(talks, tmp_path):
    done = segment(talks, tmp_path / "out")
    assert (
        done.returncode == 0 and "no speech found in 1 of 2 utterances: bob-b" in done.stdout + done.stderr
    ), done.stderr
    out = DataDir(tmp_path / "out")
    assert validate(out.path, need_text=False) == [] and not out.has("text") and len(out.utterances) == 3
    assert set(out.utt2spk.values()) == {"ann"} == set(read_table(out.path / "spk2gender"))
    name = out.utterances[0]
    begin, end = (int(word) / 100 for word in name.split("-")[2:])
    assert (out.segments[name].begin_s, out.segments[name].end_s) == pytest.approx((begin, end), abs=0.006)


def test_changed_recording_of_same_name_is_segmented_again(talks, tmp_path):
    for _ in range(2):
        done = segment(talks, tmp_path / "out")
    assert "out is up to date" in done.stdout
    write_audio(talks / "b.wav", make_recording(), RATE)
    done = segment(talks, tmp_path / "out")
    assert "1 recordings have changed: bob-b" in done.stdout and "is out of date" in done.stdout, (
        done.stdout + done.stderr
    )
    assert (
        len(DataDir(tmp_path / "out").utterances) == 6
        and "out is up to date" in segment(talks, tmp_path / "out").stdout
    )


@pytest.mark.parametrize("channel, num", [([], 3), (["--channel", 0], 3), (["--channel", 1], 0)])
def test_segmentation_of_one_channel(talks, tmp_path, channel, num):
    both = np.stack([make_recording(), np.zeros(len(make_recording()))], 1)
    for name in "ab":
        soundfile.write(talks / f"{name}.wav", both / 32768, RATE)
    done = segment(*channel, talks, tmp_path / "out")
    assert (
        (done.returncode == 0 and len(DataDir(tmp_path / "out").utterances) == 2 * num)
        if num
        else "no segment found" in done.stderr
    )


def test_segments_are_split_into_segments(talks, tmp_path):
    write_data_dir(talks, {"segments": {"ann-a": "ann-a 6 16", "bob-b": "bob-b 0 -1"}})
    assert segment(talks, tmp_path / "out").returncode == 0
    found = DataDir(tmp_path / "out").segments.values()
    np.testing.assert_allclose(
        [(part.begin_s, part.end_s) for part in found], [(6.8, 11.2), (12.8, 14.7)], atol=0.05
    )


def test_invalid_requests_are_refused(talks, tmp_path):
    write_data_dir(talks, {"segments": {"ann-a": "ann-a 6 16"}})
    done = segment(talks, tmp_path / "out")
    assert done.returncode == 1 and "segments: no line for bob-b; run utils/fix_data_dir.py" in done.stderr
    write_data_dir(talks, {"segments": {"ann-a": "ann-a 3.5 4.5", "bob-b": "bob-b 0 1"}})
    done = segment("--vad-energy-threshold", 20, talks, tmp_path / "out")
    assert (
        done.returncode == 1
        and "no segment found in any of its 2 utterances" in done.stderr
        and done.stderr.count("\n") == 1
    )
    (talks / "a.wav").unlink()
    done = segment(talks, tmp_path / "out")
    assert (
        done.returncode == 1
        and "a.wav: no such file or directory" in done.stderr
        and not (tmp_path / "out").exists()
    )
