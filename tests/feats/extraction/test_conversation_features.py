"""Features of conversations with two recordings per file equal those of one file per side, and each file is
decoded once."""

import numpy as np
import pytest
import soundfile
from conversations import CALLS, RATE, make_calls, sides
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.data.audio import recordings
from pyasr.data.audio.audio_reading import read_channels
from pyasr.data.augmentation.perturb import Perturbation, perturbed
from pyasr.data.parts.subsets import write_all
from pyasr.data.tables.datadir import DataDir
from pyasr.feats.extraction.extract_dir import read_waveforms
from pyasr.io.ark import load_all
from pyasr.io.text_tables import read_table, write_table

FLAGS = ["--sample-frequency", RATE, "--nj", 2]
STEPS = ["make_mfcc.py", "make_fbank.py", "make_plp.py", "make_spectrogram.py"]


@pytest.fixture
def reads(monkeypatch):
    """Entries of wav.scp in the order in which they are decoded."""
    found = []
    monkeypatch.setattr(
        recordings, "read_channels", lambda rx, name="": (found.append(rx), read_channels(rx, name))[1]
    )
    return found


def one_file_a_side(calls):
    """The same conversations with one file per side; the table of channels exists, too."""
    path = calls.with_name("mono")
    path.mkdir()
    for name in ("segments", "utt2spk", "text", "reco2file_and_channel"):
        write_table(path / name, read_table(calls / name))
    for call in CALLS:
        for place, side in enumerate("AB"):
            soundfile.write(path / f"{call}-{side}.wav", sides(call)[:, place], RATE)
    write_table(path / "wav.scp", {name: f"{path}/{name}.wav" for name in read_table(calls / "wav.scp")})
    return path


def made(data, *flags, step="make_mfcc.py"):
    run_here(step, *FLAGS, *flags, data)
    return load_all(data / "feats.scp")


@pytest.mark.parametrize("step, speakers", [(step, False) for step in STEPS] + [(STEPS[0], True)])
def test_features_equal_those_of_single_channels(step, speakers, tmp_path, reads):
    calls = make_calls(tmp_path / "calls", speakers=speakers)
    ours, theirs = made(calls, step=step), made(one_file_a_side(calls), step=step)
    assert list(ours) == list(theirs) == DataDir(calls).utterances
    for utt, features in ours.items():
        np.testing.assert_array_equal(features, theirs[utt])
    num_reads = len([rx for rx in reads if rx.startswith(f"{calls}/")])
    assert num_reads <= len(CALLS) + 1  # one call is divided between the two jobs to balance them


def test_each_file_is_decoded_once(tmp_path, reads):
    calls = make_calls(tmp_path / "calls", speakers=True, calls=CALLS[:2])
    made(calls)
    assert sorted(reads) == [f"{calls}/{call}.sph" for call in CALLS[:2]]


def test_copies_at_other_speeds_are_read_once(tmp_path, reads):
    """A copy of a call is read like a call."""
    (out := tmp_path / "fast").mkdir()
    write_all(out, perturbed(DataDir(make_calls(tmp_path / "calls")), Perturbation("0.8 1.25")))
    features = made(out, "--nj", 1)
    assert len(features) == 36 and len(reads) == 9
    assert not np.array_equal(features["sp0.8-sw02001-A_000050"], features["sp0.8-sw02001-B_000050"])


def test_channel_option_overrides_table(tmp_path):
    calls = make_calls(tmp_path / "calls")
    right = made(calls, "--channel", 1)
    assert np.array_equal(right["sw02001-A_000050"], right["sw02001-B_000050"])


def printed(capsys):
    return capsys.readouterr().out


def test_changed_channel_recomputes_features(tmp_path, capsys):
    """The channel of one of several recordings counts. The channel name of a single recording has no
    effect."""
    calls = make_calls(tmp_path / "calls")
    before = made(calls)
    assert "is up to date" in (made(calls), printed(capsys))[1]
    table = read_table(calls / "reco2file_and_channel")
    write_table(
        calls / "reco2file_and_channel",
        table | {name: value[:-1] + "12"["AB".index(value[-1])] for name, value in table.items()},
    )
    assert "is up to date" in (made(calls), printed(capsys))[1]
    write_table(calls / "reco2file_and_channel", table | {"sw02005-A": "sw02005 B", "sw02005-B": "sw02005 A"})
    after = made(calls)
    assert "2 recordings have changed: sw02005-A, sw02005-B" in printed(capsys)
    assert np.array_equal(before["sw02005-A_000050"], after["sw02005-B_000050"])
    mono = one_file_a_side(calls)
    made(mono), printed(capsys)
    (mono / "reco2file_and_channel").unlink()
    assert "is up to date" in (made(mono), printed(capsys))[1]
    assert (
        ":" not in (mono / ".recordings").read_text() and (calls / ".recordings").read_text().count(":") == 6
    )


def test_features_of_channel_option_stay_up_to_date(tmp_path, capsys):
    """Also with a table that was added later."""
    calls = make_calls(tmp_path / "calls")
    table = (calls / "reco2file_and_channel").read_text()
    (calls / "reco2file_and_channel").unlink()
    made(calls, "--channel", 0), printed(capsys)
    (calls / "reco2file_and_channel").write_text(table)
    assert "is up to date" in (made(calls, "--channel", 0), printed(capsys))[1]


@pytest.mark.parametrize(
    "label, sentence",
    [
        (
            "C",
            (
                r"^sw02001-B: .*sw02001.sph: reco2file_and_channel names channel 'C', but the file has 2 "
                r"channels; correct the line: channels are A, B, ... or 1, 2, ... in"
            ),
        ),
        (
            None,
            "sw02001.sph: 2 channels, expected 1; choose one with --channel 0 or 1 of the feature extraction "
            "step, or name the channel of each recording in reco2file_and_channel$",
        ),
    ],
)
def test_missing_channel_is_reported_before_any_work(label, sentence, tmp_path):
    calls = make_calls(tmp_path / "calls")
    table = read_table(calls / "reco2file_and_channel")
    del table["sw02001-B"]
    write_table(calls / "reco2file_and_channel", table | ({"sw02001-B": f"sw02001 {label}"} if label else {}))
    with pytest.raises(UserError, match=sentence):
        made(calls)
    assert not (calls / "feats").exists() and not (calls / "feats.tmp").exists()


def test_interleaved_recordings_are_decoded_once(tmp_path, reads):
    data = DataDir(make_calls(tmp_path / "calls"))
    turns = ["sw02001-A_000010", "sw02001-B_000010", "sw02001-A_000050", "sw02001-B_000050"]
    found = dict(read_waveforms(data, turns, RATE))
    assert len(reads) == 1 and all(
        np.array_equal(
            found[utt], sides("sw02001")[round(RATE * float(utt[-6:]) / 100) :][:3200, "AB".index(utt[8])]
        )
        for utt in turns
    )
