"""A recipe directory that is moved, copied, or used from another directory: it reads its own archives, and
nothing is computed again."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from data_dirs import make_data_dir
from steps_here import run_here

from pyasr.base.outputs.fingerprint import fingerprint
from pyasr.data.audio.audio_reading import read_audio
from pyasr.data.augmentation.sound_lists import SoundList
from pyasr.data.checks import repair, validation
from pyasr.data.tables.datadir import DataDir
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.io.ark import load_all

UTTERANCES = 12


def recipe():
    """Steps of a run.sh, called from its directory."""
    run_here("make_mfcc.py", "--sample-frequency", 8000, "data/train")
    run_here("compute_cmvn.py", "data/train")
    run_here("subset_data_dir.py", "--last", 8, "data/train", "data/some", folder="utils")
    run_here("paste_feats.py", "--cmvn", "none speaker", "data/pasted", "data/train", "data/train")
    rooms = ("--rooms", "small", "--num-rooms", 1, "--rirs-per-room", 2)
    run_here("simulate_rirs.py", *rooms, "--sample-frequency", 8000, "rirs", folder="utils")


def everything():
    """Content of all files that tables refer to, and fingerprints of the tables, by paths relative to the
    recipe directory."""
    units = {"train": "speaker", "some": "speaker", "pasted": "none"}
    readers = {name: FeatureReader(f"data/{name}", InputOptions(cmvn=unit)) for name, unit in units.items()}
    return {(name, utt): reader[utt].tobytes() for name, reader in readers.items() for utt in reader.keys}, {
        name: fingerprint(f"data/{name}/feats.scp") for name in readers
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A recipe directory with all outputs."""
    s5 = tmp_path_factory.mktemp("corpus") / "s5"
    s5.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(s5)
        make_data_dir(Path("data/train"))
        recipe()
    return s5


@pytest.fixture
def s5(made, tmp_path):
    """A copy of it that a test may change."""
    return shutil.copytree(made, tmp_path / "s5")


def change_archive(s5):
    """Change the last number of each matrix."""
    for path in s5.glob("data/train/feats/raw.*.ark"):
        path.write_bytes(path.read_bytes()[:-4] + np.float32(7).tobytes())


def test_moved_recipe_is_up_to_date(made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(made)
    before = everything()
    moved = made.rename(tmp_path / "moved")
    try:
        monkeypatch.chdir(moved)
        capsys.readouterr()
        recipe()
        output = capsys.readouterr().out
        assert output.count("is up to date") == 5 and "out of date" not in output
        assert everything() == before and len(before[0]) == UTTERANCES * 2 + 8
        assert not validation.validate(Path("data/train"), need_feats=True)
    finally:
        moved.rename(made)


def test_copy_reads_its_own_archives(made, s5, monkeypatch):
    change_archive(s5)
    found = {}
    for directory in (made, s5):
        monkeypatch.chdir(directory)
        found[directory] = load_all("data/train/feats.scp")
    last = list(found[s5])[-1]
    assert found[s5][last][-1, -1] == 7 != found[made][last][-1, -1]


def test_recipe_is_readable_from_other_directories(made, s5, monkeypatch):
    """From another recipe directory with archives of the same names, and from a directory without
    archives."""
    change_archive(s5)
    monkeypatch.chdir(made)
    expected, prints = everything()
    for elsewhere, path in ((s5, made), (s5.parent, os.path.relpath(made, s5.parent))):
        monkeypatch.chdir(elsewhere)
        reader = FeatureReader(f"{path}/data/train", InputOptions(cmvn="speaker"))
        assert {("train", utt): reader[utt].tobytes() for utt in reader.keys}.items() <= expected.items()
        assert fingerprint(f"{path}/data/train/feats.scp") == prints["train"]
        data = DataDir(f"{path}/data/train")
        assert len(read_audio(next(iter(data.wav_scp.values())))[0]) == 1600
        assert not validation.validate(data.path, need_feats=True)
        rirs = [Path(sound.audio) for sound in SoundList(f"{path}/rirs/rir_list").sounds]
        assert len(rirs) == 2 and all(rir.exists() and rir.parent.samefile(made / "rirs") for rir in rirs)


def test_tables_created_from_other_directory(made, s5, monkeypatch):
    change_archive(s5)
    (s5 / "data/linked").symlink_to(made / "data/train")
    for source in (made / "data/train", "data/linked"):
        monkeypatch.chdir(s5)
        shutil.rmtree("data/half", ignore_errors=True)
        run_here("subset_data_dir.py", "--last", 8, source, "data/half", folder="utils")
        found = load_all("data/half/feats.scp")
        monkeypatch.chdir(made)
        expected = load_all("data/train/feats.scp")
        assert len(found) == 8 and all(np.array_equal(found[utt], expected[utt]) for utt in found)


def test_repair_from_other_directory_removes_nothing(s5, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = (s5 / "data/train/feats.scp").read_text()
    assert repair.fix(s5 / "data/train") == [] and (s5 / "data/train/feats.scp").read_text() == before


def test_data_directory_behind_symbolic_link(made, tmp_path, monkeypatch):
    """Tables refer to archives through the link data/."""
    disk, s6 = tmp_path / "disk", tmp_path / "s6"
    disk.mkdir()
    s6.mkdir()
    (s6 / "data").symlink_to(disk)
    monkeypatch.chdir(s6)
    make_data_dir(Path("data/train"))
    for flags in ([], ["--compress", "false"]):
        run_here("make_mfcc.py", "--sample-frequency", 8000, *flags, "data/train")
        assert all(
            place.startswith("data/train/feats/raw.")
            for place in DataDir("data/train").table("feats.scp").values()
        )
    s6.rename(tmp_path / "s7")
    monkeypatch.chdir(tmp_path / "s7")
    assert len(load_all("data/train/feats.scp")) == UTTERANCES
