"""Copies at other speeds and volumes: valid data directories with the same audio as by sox."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data_dirs import make_data_dir
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.data.audio.audio_reading import write_audio
from pyasr.data.audio.recordings import change_speed, read_recording
from pyasr.data.augmentation.perturb import Perturbation, perturbed
from pyasr.data.checks.repair import fix
from pyasr.data.checks.validation import validate
from pyasr.data.parts.subsets import combine, write_all
from pyasr.data.tables.datadir import DataDir, write_data_dir
from pyasr.io.text_tables import write_table

UTILS = Path(__file__).parents[3] / "utils"
RATE = 8000


def perturb(*arguments, ok=True):
    run = subprocess.run(
        [sys.executable, UTILS / "perturb_data_dir.py", *map(str, arguments)], capture_output=True, text=True
    )
    assert (run.returncode == 0) == ok, run.stderr
    return run.stderr


@pytest.mark.parametrize("with_segments", [False, True])
def test_copies_at_other_speeds(tmp_path, with_segments):
    data = DataDir(make_data_dir(tmp_path / "data", with_segments))
    perturb("--speeds", "0.8 1.25", "--perturb-volume", "true", data.path, tmp_path / "out")
    out = DataDir(tmp_path / "out")
    assert validate(out.path) == []
    assert len(out.utterances) == 36 and set(out.spk2utt) == {
        p + s for p in ("", "sp0.8-", "sp1.25-") for s in ("ann", "bob", "cy")
    }
    assert (
        out.text["sp0.8-ann-001"] == data.text["ann-001"]
        and out.table("utt2uniq")["sp0.8-ann-001"] == "ann-001"
    )
    assert out.utt2dur["sp0.8-ann-001"] == 0.25 and out.utt2dur["ann-001"] == 0.2
    for prefix, speed in {"": 1.0, "sp0.8-": 0.8, "sp1.25-": 1.25}.items():
        samples, rate = read_recording(out, out.recording(f"{prefix}bob-002"))
        assert rate == RATE and abs(len(samples) - (RATE if with_segments else RATE / 5) / speed) <= 1
        if with_segments:
            part = out.segments[f"{prefix}bob-002"]
            assert (part.begin_s, part.end_s) == pytest.approx((0.4 / speed, 0.6 / speed), abs=1e-4)
    volumes = {float(value) for value in out.table("reco2volume").values()}
    assert len(volumes) == len(out.wav_scp) and min(volumes) >= 0.125 and max(volumes) <= 2


def test_end_of_recording_remains_minus_one(tmp_path):
    data = make_data_dir(tmp_path / "data", with_segments=True)
    write_table(data / "segments", {utt: f"{utt.split('-')[0]} 0.1 -1" for utt in DataDir(data).utterances})
    assert perturbed(DataDir(data), Perturbation("2"))["segments"]["sp2-cy-000"] == "sp2-cy 0.0500 -1"


@pytest.mark.parametrize("factor", [0.9, 1.1, 0.95])
def test_tone_changes_frequency_with_speed(factor):
    time = np.arange(4000) / RATE
    changed = change_speed((1000 * np.sin(2 * np.pi * 500 * time)).astype(np.float32), RATE, factor)
    expected = 1000 * np.sin(2 * np.pi * 500 * factor * np.arange(len(changed)) / RATE)
    assert abs(len(changed) - 4000 / factor) <= 1
    assert np.abs(changed - expected)[200:-200].max() < 3


def test_speeds_multiply_if_perturbed_twice(tmp_path):
    data = make_data_dir(tmp_path / "data")
    (tmp_path / "once").mkdir()
    write_all(tmp_path / "once", perturbed(DataDir(data), Perturbation("0.9")))
    twice = perturbed(DataDir(tmp_path / "once"), Perturbation("2"))
    assert (
        twice["reco2speed"]["sp2-sp0.9-bob-000"] == "1.8"
        and twice["utt2uniq"]["sp2-sp0.9-bob-000"] == "bob-000"
    )


@pytest.mark.parametrize("speeds", ["", "0.9"])
def test_volumes_multiply_if_perturbed_twice(tmp_path, speeds):
    data = DataDir(make_data_dir(tmp_path / "data"))
    drawn = [perturbed(data, Perturbation(speeds, True, seed=seed))["reco2volume"] for seed in (1, 2)]
    write_table(
        data.path / "reco2volume",
        {**perturbed(data, Perturbation("", True, seed=1))["reco2volume"], "bob-000": "1e-5"},
    )
    twice = perturbed(DataDir(data.path), Perturbation(speeds, True, seed=2))["reco2volume"]
    assert twice.keys() == drawn[1].keys() and float(twice["bob-000"]) == pytest.approx(
        1e-5 * float(drawn[1]["bob-000"]), rel=1e-5
    )
    for name in drawn[1].keys() - {"bob-000", "sp0.9-bob-000"}:
        before = drawn[0][name.removeprefix("sp0.9-")]
        assert float(twice[name]) == pytest.approx(float(before) * float(drawn[1][name]), rel=1e-5)


def test_volume_scales_samples(tmp_path):
    write_audio(tmp_path / "a.wav", np.full(100, 1000, np.float32), RATE)
    tables = {"utt2spk": {"a": "s"}, "wav.scp": {"a": tmp_path / "a.wav"}, "reco2volume": {"a": "0.25"}}
    write_data_dir(tmp_path, tables)
    assert np.all(read_recording(DataDir(tmp_path), "a")[0] == 250)
    for wrong in ("x", "0", "-1", "nan", "inf"):
        write_table(tmp_path / "reco2volume", {"a": wrong})
        with pytest.raises(UserError, match=f"reco2volume: 'a {wrong}' is not a positive number"):
            read_recording(DataDir(tmp_path), "a")


@pytest.mark.parametrize("wrong", ["1e9", "1e-6", "0.2", "4.1", "-1", "nan", "fast"])
def test_speed_range_is_limited(wrong, tmp_path):
    """Other values could require any amount of memory."""
    data = make_data_dir(tmp_path / "data")
    (data / "reco2speed").write_text(
        "".join(f"{name} {wrong if name == 'bob-001' else 4}\n" for name in DataDir(data).wav_scp)
    )
    assert len(read_recording(DataDir(data), "bob-000")[0]) == 400
    with pytest.raises(
        UserError, match=f"reco2speed: 'bob-001 {wrong}' is not a speed from 0.25 to 4; correct the line"
    ):
        read_recording(DataDir(data), "bob-001")
    (problem,) = validate(data)
    assert (problem.line, problem.message) == (6, "not a speed from 0.25 to 4")


def test_combined_with_unperturbed_data(tmp_path):
    """The recordings of the original data have the speed 1 then, and its utterances are their own
    originals."""
    sources = [make_data_dir(tmp_path / "data"), tmp_path / "fast"]
    sources[1].mkdir()
    fast = perturbed(DataDir(sources[0]), Perturbation("1.1"))
    write_all(
        sources[1],
        {
            name: {key: table[key] for key in table if key.startswith("sp1.1-")}
            for name, table in fast.items()
        },
    )
    (tmp_path / "out").mkdir()
    combine([DataDir(path) for path in sources], tmp_path / "out")
    out = DataDir(tmp_path / "out")
    assert validate(out.path) == []
    assert (out.reco2speed["ann-000"], out.reco2speed["sp1.1-ann-000"]) == ("1", "1.1")
    assert out.table("utt2uniq")["ann-000"] == out.table("utt2uniq")["sp1.1-ann-000"] == "ann-000"


@pytest.mark.parametrize("with_segments", [False, True])
def test_volumes_combined_with_unperturbed_data(tmp_path, with_segments):
    data = make_data_dir(tmp_path / "data", with_segments)
    run_here(
        "perturb_data_dir.py",
        "--speeds",
        "",
        "--perturb-volume",
        "true",
        data,
        tmp_path / "loud",
        folder="utils",
    )
    flags, more = ["--utt-prefix", "v-", "--spk-prefix", "v-"], ["--reco-prefix", "v-"]
    if with_segments:
        run_here("copy_data_dir.py", *flags, tmp_path / "loud", tmp_path / "some", folder="utils")
        report = (
            "some/reco2volume: 'ann' is also in another of the directories; rename it with "
            "utils/copy_data_dir.py --reco-prefix"
        )
        with pytest.raises(UserError, match=report):
            run_here("combine_data.py", tmp_path / "out", data, tmp_path / "some", folder="utils")
    run_here("copy_data_dir.py", *flags, *more, tmp_path / "loud", tmp_path / "renamed", folder="utils")
    run_here("combine_data.py", tmp_path / "out", data, tmp_path / "renamed", folder="utils")
    out, loud = DataDir(tmp_path / "out"), DataDir(tmp_path / "loud")
    assert validate(out.path) == [] and len(out.utterances) == 24
    for utt in ("ann-000", "cy-003"):
        assert out.reco2volume[out.recording(utt)] == "1"
        assert out.reco2volume[out.recording(f"v-{utt}")] == loud.reco2volume[loud.recording(utt)] != "1"
        assert out.wav_scp[out.recording(f"v-{utt}")] == loud.wav_scp[loud.recording(utt)]


def test_fix_completes_speeds(tmp_path):
    data = make_data_dir(tmp_path / "data")
    write_table(data / "reco2speed", {"ann-000": "1.1"})
    assert any("is not in reco2speed" in str(problem) for problem in validate(data))
    fix(data)
    assert (
        validate(data) == []
        and DataDir(data).reco2speed["ann-000"] == "1.1"
        and DataDir(data).reco2speed["bob-000"] == "1"
    )


@pytest.mark.parametrize("table", ["reco2speed", "reco2volume"])
def test_fix_does_not_guess_values(tmp_path, table):
    """Neither the speed from the name of a copy, nor the length of its recording, which would remove
    segments."""
    data = make_data_dir(tmp_path / "data", with_segments=True)
    write_all(data, perturbed(DataDir(data), Perturbation("0.5")))
    lines = (
        (data / table).read_text()
        if table == "reco2speed"
        else "".join(f"{name} 1\n" for name in DataDir(data).wav_scp)
    )
    (data / table).write_text(
        lines.replace("sp0.5-bob 0.5\n", "sp0.5-bob 0,5\n").replace("sp0.5-bob 1\n", "sp0.5-bob 0,5\n")
    )
    report = fix(data, audio="read")
    assert any("kept the invalid line 'sp0.5-bob 0,5'; correct the line" in sentence for sentence in report)
    assert DataDir(data).table(table)["sp0.5-bob"] == "0,5" and len(DataDir(data).utterances) == 24
    assert [(problem.text, problem.fix) for problem in validate(data, audio="read")] == [
        ("sp0.5-bob 0,5", "correct the line")
    ]


@pytest.mark.parametrize(
    "table, line, sentence",
    [
        ("segments", "ann-000 ann x 0.2", "'ann-000 ann x 0.2' is not 'UTTERANCE RECORDING BEGIN END'"),
        ("utt2dur", "ann-000 abc", "'ann-000 abc' does not end in a positive number"),
        ("reco2dur", "ann 0", "'ann 0' does not end in a positive number"),
        ("reco2speed", "ann x", "'ann x' is not a speed from 0.25 to 4; correct the line"),
        ("reco2volume", "ann -1", "'ann -1' is not a positive number; correct the line"),
    ],
)
def test_damaged_numbers_are_refused(tmp_path, table, line, sentence):
    data = make_data_dir(tmp_path / "data", with_segments=True)
    (data / table).write_text(f"{line}\n")
    with pytest.raises(UserError, match=f"{data}/{table}:.*{sentence}"):
        perturbed(DataDir(data), Perturbation())


@pytest.mark.parametrize("speeds", ["0.9 x", "1", "0.9 0.9", "0", "nan", "100"])
def test_invalid_speeds_are_refused(tmp_path, speeds):
    data = make_data_dir(tmp_path / "data")
    report = perturb("--speeds", speeds, data, tmp_path / "out", ok=False)
    assert (
        "must be a number from 0.25 to 4 other than 1, given once" in report
        and not (tmp_path / "out").exists()
    )


def test_min_volume_above_max_volume_is_refused(tmp_path):
    with pytest.raises(UserError, match="--min-volume 3 is above --max-volume 2"):
        perturbed(
            DataDir(make_data_dir(tmp_path / "data")), Perturbation(perturb_volume=True, min_volume=3.0)
        )


def test_volumes_are_equal_for_same_seed(tmp_path):
    data = DataDir(make_data_dir(tmp_path / "data"))
    volumes = [perturbed(data, Perturbation("", True, seed=seed))["reco2volume"] for seed in (1, 1, 2)]
    assert volumes[0] == volumes[1] != volumes[2]
