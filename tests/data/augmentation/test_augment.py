"""Reverberant and noisy copies: valid, reproducible data directories, whose audio has the drawn rooms and
noises."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data_dirs import make_data_dir, write_tone

from pyasr.base.errors import UserError
from pyasr.base.files import pipes
from pyasr.data.audio.recordings import duration_s, read_recording
from pyasr.data.augmentation.augment import AugmentOptions, Babble, augmented
from pyasr.data.augmentation.perturb import Perturbation, perturbed
from pyasr.data.augmentation.sound_lists import SoundList
from pyasr.data.checks.repair import fix
from pyasr.data.checks.validation import validate
from pyasr.data.parts.subsets import Renaming, combine, copy, write_all, write_subset
from pyasr.data.tables.datadir import DataDir, write_data_dir
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.io.ark import ArkWriter
from pyasr.io.text_tables import read_table, write_table

UTILS = Path(__file__).parents[3] / "utils"


def reverberate(*arguments):
    return subprocess.run(
        [sys.executable, UTILS / "reverberate_data_dir.py", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


@pytest.fixture
def sounds(tmp_path):
    """Two noises and two impulse responses of a room, and their lists."""
    for name, seconds in (("hum", 0.5), ("knock", 0.03), ("rir-1", 0.01), ("rir-2", 0.02)):
        write_tone(tmp_path / f"{name}.wav", seconds)
    (tmp_path / "noise_list").write_text(
        f"--noise-id 1 --noise-type isotropic --bg-fg-type background {tmp_path}/hum.wav\n"
        f'--noise-id 2 --bg-fg-type=foreground "{tmp_path}/knock.wav"\n'
    )
    (tmp_path / "rir_list").write_text(
        "".join(f"--rir-id {i} --room-id r1 --rt-60 0.3 {tmp_path}/rir-{i}.wav\n" for i in (1, 2))
    )
    return tmp_path


def write(path, tables):
    path.mkdir()
    write_all(path, tables)
    return DataDir(path)


@pytest.mark.parametrize("with_segments", [False, True])
def test_copies_have_room_and_noises(sounds, with_segments):
    data = DataDir(make_data_dir(sounds / "data", with_segments))
    words = (
        "--num-replications",
        2,
        "--include-original-data",
        "--rir-list",
        sounds / "rir_list",
        "--fg-noise",
        sounds / "noise_list",
        "--fg-interval",
        0.02,
        "--bg-noise",
        sounds / "noise_list",
        "--num-babble",
        "1:2",
        data.path,
    )
    for out in ("out", "again"):
        done = reverberate(*words, sounds / out)
        assert done.returncode == 0, done.stderr
    out = DataDir(sounds / "out")
    assert validate(out.path) == [] and len(out.utterances) == 36
    assert set(out.spk2utt) == {
        prefix + speaker for prefix in ("", "rev1-", "rev2-") for speaker in ("ann", "bob", "cy")
    }
    assert (
        out.text["rev2-ann-001"] == data.text["ann-001"]
        and out.table("utt2uniq")["rev2-ann-001"] == "ann-001"
    )
    assert (out.path / "reco2distortion").read_text() == (sounds / "again/reco2distortion").read_text()
    assert {str(found) for name, found in out.reco2distortion.items() if not name.startswith("rev")} == {"{}"}
    for name in ("rev1-", "rev2-"):
        recording, original = out.recording(f"{name}bob-002"), data.recording("bob-002")
        check_drawn(out.reco2distortion[recording], sounds, data, original)
        changed, clean = read_recording(out, recording)[0], read_recording(data, original)[0]
        assert changed.shape == clean.shape and 0.3 < np.mean(changed**2) / np.mean(clean**2) <= 1.01
        assert not with_segments or out.segments[f"{name}bob-002"].begin_s == data.segments["bob-002"].begin_s


def check_drawn(distortion, sounds, data, recording):
    """Check a distortion: a response of the room, foreground noises in sequence with the other response,
    babble of other speakers."""
    assert distortion.rir in (f"{sounds}/rir-1.wav", f"{sounds}/rir-2.wav")
    knocks = [noise for noise in distortion.noises if noise.audio == f"{sounds}/knock.wav"]
    assert {knock.rir for knock in knocks} == {f"{sounds}/rir-{i}.wav" for i in (1, 2)} - {distortion.rir}
    np.testing.assert_allclose(np.diff([knock.at_s for knock in knocks]), 0.05, atol=2e-4)
    assert 0 <= knocks[0].at_s <= 0.02 and knocks[-1].at_s > duration_s(data, recording) - 0.05
    others = [noise for noise in distortion.noises if noise not in knocks]
    assert (
        others[0].audio == f"{sounds}/hum.wav"
        and others[0].snr_db in (20, 15, 10, 5, 0)
        and 0 <= others[0].start < 1
    )
    babble = [Path(noise.audio).name[:3] for noise in others[1:]]
    assert 1 <= len(babble) <= 2 and len(set(babble)) == len(babble) and recording[:3] not in babble
    assert {noise.snr_db for noise in others[1:]} <= {20, 17, 15, 13}
    assert all((noise.end_s is None) == (not data.segments) for noise in others[1:])


def test_suffix_keeps_speakers(sounds):
    data = DataDir(make_data_dir(sounds / "data", with_segments=True))
    out = write(
        sounds / "out", augmented(data, AugmentOptions(bg_noise=sounds / "noise_list", utt_suffix="noise"))
    )
    assert (
        validate(out.path) == []
        and out.utt2spk["ann-000-noise"] == "ann"
        and out.segments["ann-001-noise"].recording == "ann-noise"
    )


def test_other_seeds_and_fractions(sounds):
    data = DataDir(make_data_dir(sounds / "data"))
    drawn = [
        augmented(
            data, AugmentOptions(rir_list=sounds / "rir_list", speech_rvb_probability=0.5, augment_seed=seed)
        )["reco2distortion"]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2] and 0 < list(drawn[0].values()).count("{}") < 12
    (sounds / "part").mkdir()
    write_subset(data, sounds / "part", data.utterances[:3])
    part = augmented(
        DataDir(sounds / "part"),
        AugmentOptions(rir_list=sounds / "rir_list", speech_rvb_probability=0.5, augment_seed=1),
    )
    assert part["reco2distortion"].items() <= drawn[0].items()


def test_order_is_speed_noise_volume(sounds):
    """Babble has utterances at original speed of other speakers than those of the copied recording; speeds
    after noise are refused."""
    data = DataDir(make_data_dir(sounds / "data"))
    fast = write(sounds / "sp", perturbed(data, Perturbation("0.5")))
    noisy = write(sounds / "noisy", augmented(fast, AugmentOptions(num_babble="2")))
    for name, found in noisy.reco2distortion.items():
        speakers = {Path(noise.audio).name.split("-")[0] for noise in found.noises}
        assert len(speakers) == 2 and name.split("-")[-2] not in speakers
    assert (
        len(read_recording(noisy, "rev1-sp0.5-ann-000")[0]) == 3200
        and noisy.table("utt2uniq")["rev1-sp0.5-ann-000"] == "ann-000"
    )
    loud = write(sounds / "loud", perturbed(noisy, Perturbation("", True)))
    change = read_recording(loud, "rev1-ann-000")[0] / read_recording(noisy, "rev1-ann-000")[0]
    assert np.allclose(change, float(loud.reco2volume["rev1-ann-000"]), rtol=1e-3)
    with pytest.raises(UserError, match="perturb speeds before adding noise and rooms"):
        perturbed(noisy, Perturbation("0.9"))
    with pytest.raises(
        UserError, match="these utterances are already noisy or reverberant copies; give the original data"
    ):
        augmented(noisy, AugmentOptions(num_babble="2"))


def test_combined_and_fixed_data_keep_distortions(sounds):
    data = DataDir(make_data_dir(sounds / "data"))
    copies = write(sounds / "rvb", augmented(data, AugmentOptions(rir_list=sounds / "rir_list")))
    (sounds / "out").mkdir()
    combine([data, copies], sounds / "out")
    out = DataDir(sounds / "out")
    assert (
        validate(out.path) == []
        and out.table("reco2distortion")["ann-000"] == "{}"
        and out.table("utt2uniq")["ann-000"] == "ann-000"
    )
    write_table(out.path / "reco2distortion", {"ann-000": "{}", "bob-000": "no JSON"})
    assert any("not a distortion" in str(problem) for problem in validate(out.path))
    with pytest.raises(UserError, match="reco2distortion: 'bob-000 no JSON' is not a distortion"):
        read_recording(DataDir(out.path), "ann-000")
    fix(out.path)
    (problem,) = validate(out.path)
    assert (problem.text, problem.fix) == ("bob-000 no JSON", "correct the line")
    assert set(read_table(out.path / "reco2distortion").values()) == {"{}", "no JSON"}


def test_copies_are_held_out_together_without_original(sounds):
    data = DataDir(make_data_dir(sounds / "data"))
    out = write(
        sounds / "out", augmented(data, AugmentOptions(rir_list=sounds / "rir_list", num_replications=2))
    )
    with ArkWriter(sounds / "feats.ark", out.path / "feats.scp") as writer:
        for utt in out.utterances:
            writer.write(utt, np.zeros((2, 2), np.float32))
    reader = FeatureReader(out.path, InputOptions(cmvn="none"))
    assert {reader.original(f"rev{i}-ann-{j:03d}")[1] for i in (1, 2) for j in range(4)} == {"rev1-ann"}


def test_commands_in_lists_are_refused_before_any_work(sounds, monkeypatch):
    data = DataDir(make_data_dir(sounds / "data"))
    (sounds / "list").write_text(f"hum cat {sounds}/hum.wav |\n")
    out = write(sounds / "out", augmented(data, AugmentOptions(bg_noise=sounds / "list")))
    assert np.any(read_recording(out, "rev1-ann-000")[0])
    monkeypatch.setenv(pipes.NO_PIPES, "1")
    with pytest.raises(
        UserError, match="out/reco2distortion: 12 of 12 entries are commands, such as 'rev1-ann-000 cat"
    ):
        DataDir(out.path).check_commands()
    with pytest.raises(UserError, match="list: 1 of 1 entries are commands"):
        augmented(data, AugmentOptions(bg_noise=sounds / "list"))


def test_sound_list_lines(tmp_path):
    (tmp_path / "list").write_text(
        "a b.wav\nkey /x/a b.wav\n\n--room-id=3 --probability 0.5 c.wav\nsingle.wav\n"
        "key cat d.wav |\ncat cat d.wav |\n--room-id 4 cat d.wav |\nkey nosox d.wav - |\n"
    )
    assert [(sound.audio, sound.room, sound.weight) for sound in SoundList(tmp_path / "list").sounds] == [
        ("b.wav", "", 1),
        ("/x/a b.wav", "", 1),
        ("c.wav", "3", 0.5),
        ("single.wav", "", 1),
        ("cat d.wav |", "", 1),
        ("cat d.wav |", "", 1),
        ("cat d.wav |", "4", 1),
        ("nosox d.wav - |", "", 1),
    ]


WRONG = {
    (): "nothing to add: give --rir-list, --fg-noise, --bg-noise or --num-babble",
    ("--rir-list", "{}/nowhere"): "nowhere: no such file or directory",
    ("--rir-list", "{}/odd"): "odd:1: --room is not one of --rir-id",
    ("--rir-list", "{}/weight"): "weight:1: --probability -1 is not a positive number",
    ("--rir-list", "{}/pathless"): "pathless:1: no path; write",
    ("--fg-noise", "{}/background"): "background: no foreground noise in this list",
    ("--bg-noise", "{}/hum.lst", "--bg-snrs", "10:x"): "--bg-snrs '10:x': expected numbers from -100 to 100",
    (
        "--bg-noise",
        "{}/hum.lst",
        "--num-bg-noises",
        "",
    ): "--num-bg-noises '': expected whole numbers from 1 to 100",
    (
        "--bg-noise",
        "{}/hum.lst",
        "--num-bg-noises",
        "500",
    ): "--num-bg-noises '500': expected whole numbers from 1 to 100, separated by colons",
    (
        "--num-babble",
        "x",
    ): "--num-babble 'x': expected whole numbers from 1 to 100, separated by colons, such as 3:4:5",
    ("--num-babble", "0"): "--num-babble '0': expected whole numbers from 1",
    ("--num-babble", "1:1.5"): "--num-babble '1:1.5': expected whole numbers from 1",
    (
        "--fg-noise",
        "{}/bare",
    ): "bare:1: 'cat a.wav |' is a command without a key; write a key before it, 'KEY cat a.wav |'",
    ("--rir-list", "{}/option"): "option:1: 'nosox -t wav x.wav - |' is a command without a key",
    ("--fg-noise", "{}/gone"): "gone.wav: no such audio file; correct the list",
    ("--rir-list", "{}/gone"): "gone: gone.wav: no such audio file; correct the list",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_invalid_requests_are_refused(sounds, words):
    for name, line in {
        "bare": "cat a.wav |",
        "option": "nosox -t wav x.wav - |",
        "odd": "--room 3 a.wav",
        "weight": "--probability -1 a.wav",
        "pathless": "--room-id 3",
        "gone": "gone.wav",
        "background": "--bg-fg-type background a.wav",
        "hum.lst": f"{sounds}/hum.wav",
    }.items():
        (sounds / name).write_text(line + "\n")
    data = make_data_dir(sounds / "data")
    done = reverberate(*(word.format(sounds) for word in words), data, sounds / "out")
    assert (
        done.returncode == 1
        and done.stderr.count("\n") == 1
        and WRONG[words] in done.stderr
        and not (sounds / "out").exists()
    )


def test_recording_missing_in_wav_scp_is_reported(sounds):
    data = make_data_dir(sounds / "data", with_segments=True)
    (data / "wav.scp").write_text("".join((data / "wav.scp").read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(UserError, match=f"{data}/wav.scp: no line for cy; run utils/fix_data_dir.py {data}"):
        augmented(DataDir(data), AugmentOptions(rir_list=sounds / "rir_list"))


def test_changed_recording_of_same_name_gets_other_noises(sounds):
    data = make_data_dir(sounds / "data")
    words = ("--fg-noise", sounds / "noise_list", data, sounds / "out")
    assert reverberate(*words).returncode == 0 and "is up to date" in reverberate(*words).stdout
    (data / "utt2dur").unlink(missing_ok=True)
    assert reverberate(*words).returncode == 0
    few = len(DataDir(sounds / "out").reco2distortion["rev1-bob-000"].noises)
    write_tone(data / "audio/bob-000.wav", 1.0)
    assert "1 recordings have changed: bob-000" in reverberate(*words).stdout
    assert len(DataDir(sounds / "out").reco2distortion["rev1-bob-000"].noises) > 2 * few


def test_babble_of_more_speakers_than_available(sounds):
    data = make_data_dir(sounds / "data")
    done = reverberate("--num-babble", "2:50", data, sounds / "out")
    assert (
        f"--num-babble 2:50: {data} has 2 other speakers; if a larger number is drawn, all of them are "
        "mixed in"
    ) in done.stderr + done.stdout
    assert {len(found.noises) for found in DataDir(sounds / "out").reco2distortion.values()} == {2}
    assert (
        "talk" not in (done := reverberate("--num-babble", "1:2", data, sounds / "few")).stderr + done.stdout
    )


def test_babble_after_renaming_of_utterances(tmp_path):
    copy(DataDir(make_data_dir(tmp_path / "data")), tmp_path, Renaming(utt_prefix="x-", spk_prefix="x-"))
    drawn = Babble(DataDir(tmp_path)).draw("x-ann-000", 5, np.random.default_rng(0))
    assert sorted(Path(audio).name[:3] for audio, *_ in drawn) == ["bob", "cy-"]


def test_babble_of_one_speaker_is_refused(tmp_path):
    data = DataDir(make_data_dir(tmp_path / "data"))
    write_table(data.path / "utt2spk", dict.fromkeys(data.utterances, "ann"))
    with pytest.raises(UserError, match="babble requires two or more speakers"):
        augmented(DataDir(data.path), AugmentOptions(num_babble="2"))


def test_babble_equals_plain_definition(tmp_path):
    """The implementation does not list the other speakers for every recording."""
    rng = np.random.default_rng(0)
    speakers = {f"u{i:02d}": f"s{rng.integers(9)}" for i in range(60)}
    segments = {utt: f"r{rng.integers(20)} {i} {i + 1}" for i, utt in enumerate(speakers)}
    write_data_dir(
        tmp_path,
        {"utt2spk": speakers, "segments": segments, "wav.scp": {f"r{i}": f"/x/{i}.wav" for i in range(21)}},
    )
    babble = Babble(DataDir(tmp_path))
    for recording in (f"r{i}" for i in range(21)):
        own = {speakers[utt] for utt, segment in segments.items() if segment.split()[0] == recording}
        others = [speaker for speaker in dict.fromkeys(speakers.values()) if speaker not in own]
        rng, same = np.random.default_rng(3), np.random.default_rng(3)
        chosen = [others[i] for i in rng.choice(len(others), min(5, len(others)), replace=False)]
        utterances = [
            str(rng.choice([utt for utt in speakers if speakers[utt] == speaker])) for speaker in chosen
        ]
        expected = [float(segments[utt].split()[1]) for utt in utterances]
        assert [begin_s for _, begin_s, *_ in babble.draw(recording, 5, same)] == expected
