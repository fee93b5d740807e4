"""Utterances without frames, stored as the 0 x 0 matrices that Kaldi writes: statistics, derived features and
trainings skip them."""

import shutil

import numpy as np
import pytest
from gmm_corpus import write_corpus
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.io.ark import ArkReader, ArkWriter, load_all, read_scp
from pyasr.io.text_tables import read_numbers, read_table, write_table

LONELY = "x-000"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A corpus of valid utterances, and a system trained on it."""
    path = tmp_path_factory.mktemp("whole")
    write_corpus(path)
    train(path / "data", path / "lang", path / "mono")
    return path


def train(data, lang, out):
    run_here("train_mono.py", "--nj", 1, "--num-iters", 2, "--num-gauss", 20, data, lang, out, threads=True)


def utterances(data):
    return sorted(read_table(data / "utt2spk"))


def with_frameless(whole, data, frameless):
    """The corpus with these utterances emptied. An utterance that the corpus does not have is the only one of
    speaker x."""
    shutil.copytree(whole / "data", data)
    table, reader = read_scp(whole / "data/feats.scp"), ArkReader()
    for name, value in {"text": "w1", "utt2spk": "x"}.items():
        write_table(data / name, dict.fromkeys(frameless, value) | read_table(data / name))
    with ArkWriter(data / "feats.ark", data / "feats.scp") as writer:
        for utt in utterances(data):
            writer.write(utt, np.zeros((0, 0), np.float32) if utt in frameless else reader.load(table[utt]))
    for name in ("cmvn.scp", "spk2utt"):
        (data / name).unlink(missing_ok=True)
    return data


@pytest.mark.parametrize("place", ["first", "middle", "only one of a speaker"])
def test_every_step_skips_utterances_without_frames(whole, tmp_path, place, capfd):
    keys = utterances(whole / "data")
    utt = {"first": keys[0], "middle": keys[len(keys) // 2]}.get(place, LONELY)
    data = with_frameless(whole, tmp_path / "data", [utt])
    rest = [key for key in utterances(data) if key != utt]
    run_here("compute_cmvn.py", data)
    assert "1 utterances are not counted: no frames: " + utt in capfd.readouterr().out
    assert set(read_table(data / "cmvn.scp")) == {key.split("-")[0] for key in rest}
    run_here(
        "paste_feats.py",
        "--nj",
        2,
        "--max-missing",
        0.1,
        "--cmvn",
        "speaker",
        tmp_path / "pasted",
        data,
        data,
    )
    run_here(
        "align_fmllr.py",
        "--nj",
        1,
        whole / "data",
        whole / "lang",
        whole / "mono",
        tmp_path / "ali",
        threads=True,
    )
    run_here(
        "make_fmllr_feats.py", "--nj", 2, "--max-missing", 0.1, data, tmp_path / "ali", tmp_path / "adapted"
    )
    assert capfd.readouterr().out.count(f"1 utterances left out: its features have no frames: {utt}") == 2
    for made in ("pasted", "adapted"):
        assert sorted(load_all(tmp_path / made / "feats.scp")) == rest
        assert sorted(read_numbers(tmp_path / made / "utt2num_frames", int)) == rest
    run_here("compute_cmvn.py", tmp_path / "adapted")
    train(data, whole / "lang", tmp_path / "mono")
    train(tmp_path / "adapted", whole / "lang", tmp_path / "mono_adapted")
    assert (tmp_path / "mono/final.mdl").exists() and (tmp_path / "mono_adapted/final.mdl").exists()


def test_many_utterances_without_frames_end_feature_steps(whole, tmp_path):
    keys = utterances(whole / "data")
    data = with_frameless(whole, tmp_path / "data", keys[:6])
    run_here("compute_cmvn.py", data)
    reasons = rf"6: its features have no frames \({' '.join(keys[:3])} ...\)"
    expected = rf"^{data}: 6 of 30 utterances have to be left out: {reasons}; compute features"
    with pytest.raises(UserError, match=expected):
        run_here("paste_feats.py", tmp_path / "pasted", data, data)
    with pytest.raises(UserError, match=expected):
        run_here(
            "make_fmllr_feats.py",
            "--transform-dir",
            transforms(whole, tmp_path),
            data,
            whole / "mono",
            tmp_path / "adapted",
        )


def transforms(whole, path):
    run_here(
        "align_fmllr.py",
        "--nj",
        1,
        whole / "data",
        whole / "lang",
        whole / "mono",
        path / "ali",
        threads=True,
    )
    return path / "ali"


def test_data_with_only_empty_utterances_has_no_statistics(whole, tmp_path):
    data = with_frameless(whole, tmp_path / "data", utterances(whole / "data"))
    with pytest.raises(UserError, match="no features; run steps/make_mfcc.py"):
        run_here("compute_cmvn.py", data)


def test_fmllr_features_name_utterances_without_features(whole, tmp_path, capfd):
    data = shutil.copytree(whole / "data", tmp_path / "data")
    table = read_table(data / "feats.scp")
    lost = sorted(table)[3]
    write_table(data / "feats.scp", {utt: rx for utt, rx in table.items() if utt != lost})
    step = (
        "make_fmllr_feats.py",
        "--nj",
        1,
        "--transform-dir",
        transforms(whole, tmp_path),
        data,
        whole / "mono",
    )
    with pytest.raises(
        UserError,
        match=f"1 of 30 utterances have to be left out: 1: no features in {data}/feats.scp .{lost}.;",
    ):
        run_here(*step, tmp_path / "adapted")
    run_here(*step[:1], "--max-missing", 0.1, *step[1:], tmp_path / "adapted")
    assert f"1 utterances left out: no features in {data}/feats.scp: {lost}" in capfd.readouterr().out
