"""Alignments of copies of utterances are those of the original utterances at the same speed."""

import numpy as np
import pytest
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import write_data_dir
from pyasr.hmm.align.copy_ali import names_of_original
from pyasr.io.int_vectors import read_int_vectors, read_job_archives, write_int_vectors

FRAMES = {"ann-0": 5, "ann-1": 7, "bob-0": 6, "sp0.9-ann-0": 6, "sp0.9-ann-1": 8, "sp0.9-bob-0": 7}


@pytest.fixture
def made(tmp_path):
    """A directory of copies, of which one has no original, and alignments of utterances at two speeds."""
    ali, data = tmp_path / "ali", tmp_path / "data"
    for path in (ali, data):
        path.mkdir()
    alignments = {
        utt: np.full(num, i + 1) for i, (utt, num) in enumerate(FRAMES.items()) if utt != "sp0.9-bob-0"
    }
    write_int_vectors(ali / "ali.1.gz", {utt: alignments[utt] for utt in ("ann-0", "ann-1", "bob-0")})
    write_int_vectors(ali / "ali.2.gz", {utt: alignments[utt] for utt in ("sp0.9-ann-0", "sp0.9-ann-1")})
    for name, text in {
        "num_jobs": "2",
        "final.mdl": "model",
        "tree": "tree",
        "trans.1": "transforms",
    }.items():
        (ali / name).write_text(text)
    write_tables(
        data,
        {
            prefix + utt: num
            for prefix in ("", "rev1-", "rev2-")
            for utt, num in FRAMES.items()
            if "bob" not in utt or not prefix
        },
    )
    return tmp_path, alignments


def write_tables(data, num_frames):
    uniq = {utt: utt[max(utt.find("ann"), utt.find("bob")) :][:5] for utt in num_frames}
    write_data_dir(
        data,
        {
            "utt2spk": {utt: utt.rpartition("-")[0] for utt in num_frames},
            "utt2uniq": uniq,
            "utt2num_frames": num_frames,
        },
    )


def test_copies_get_alignment_of_same_speed(made):
    path, alignments = made
    run_here("copy_ali_dir.py", "--max-missing", 0.1, path / "data", path / "ali", path / "out")
    copied = read_job_archives(path / "out")
    assert len(copied) == 13 and "sp0.9-bob-0" not in copied
    for utt, alignment in copied.items():
        assert np.array_equal(alignment, alignments[utt.removeprefix("rev1-").removeprefix("rev2-")])
    assert all(utt.find("sp0.9") >= 0 for utt in read_int_vectors(path / "out/ali.2.gz"))
    assert (
        (path / "out/final.mdl").read_text() == "model"
        and (path / "out/tree").exists()
        and not (path / "out/trans.1").exists()
    )


def test_names_with_suffix(made):
    path, alignments = made
    write_tables(
        path / "data",
        {"ann-0-noise": 5, "ann-1-noise": 7, "sp0.9-ann-0-noise": 6, "rev1-sp0.9-ann-1-noise": 8},
    )
    run_here("copy_ali_dir.py", path / "data", path / "ali", path / "out")
    copied = read_job_archives(path / "out")
    assert len(copied) == 4
    for utt, alignment in copied.items():
        assert np.array_equal(alignment, alignments[utt.removeprefix("rev1-").removesuffix("-noise")])


def test_candidate_names_of_original():
    assert list(names_of_original("rev1-sp0.9-u-1", "u-1")) == ["rev1-sp0.9-u-1", "sp0.9-u-1", "u-1"]
    assert [*names_of_original("rev1-sp0.9-u-1-0000150-0000300", "u-1")][:2] == [
        "rev1-sp0.9-u-1-0000150-0000300",
        "sp0.9-u-1-0000150-0000300",
    ]
    assert [*names_of_original("rev1-sp0.9-u-1-noise", "u-1")][-3:] == ["rev1-sp0.9-u-1", "sp0.9-u-1", "u-1"]
    assert list(names_of_original("another", "u-1")) == list(names_of_original("u-1", "u-1")) == ["u-1"]


def test_mismatched_inputs_are_refused(made):
    path, _ = made
    report = (
        r"ali: 1 of 14 utterances have .*its original has a different number of frames "
        r"\(.*sp0.9-bob-0\); align the originals of"
    )
    with pytest.raises(UserError, match=report):
        run_here("copy_ali_dir.py", "--max-missing", 0, path / "data", path / "ali", path / "out")
    write_int_vectors(path / "ali/ali.1.gz", {})
    with pytest.raises(UserError, match=r"8 of 14 .*: its original is not aligned \(ann-0 "):
        run_here("copy_ali_dir.py", path / "data", path / "ali", path / "out")
    (path / "data/utt2num_frames").unlink()
    with pytest.raises(UserError, match="utt2num_frames: no such file or directory"):
        run_here("copy_ali_dir.py", path / "data", path / "ali", path / "out")
    assert not (path / "out").exists()
