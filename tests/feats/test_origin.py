"""Recorded options of features, from the archives to the trained model; which differences are refused and
which are accepted."""

import shutil
from dataclasses import replace

import pytest
from gmm_corpus import write_corpus
from steps_here import run_here

from pyasr.base.cli.options import save
from pyasr.base.errors import UserError
from pyasr.feats.options import (
    OPTIONS_FILE,
    FbankOptions,
    FrameOptions,
    MelOptions,
    MfccOptions,
    PitchOptions,
    ProcessPitchOptions,
)
from pyasr.feats.origin import ORIGIN_FILE, check_origin, difference, keep_origin, origins_of, same_features
from pyasr.io.ark import load_all, read_scp
from pyasr.io.text_tables import write_table

TRAINED = MfccOptions(frame=FrameOptions(sample_frequency=8000.0), num_ceps=4)
OTHERS = replace(TRAINED, use_energy=False, mel=MelOptions(low_freq=300.0))
MONO = ("--num-iters", 2, "--num-gauss", 20)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A monophone system, trained on features with a recorded options.json."""
    path = tmp_path_factory.mktemp("trained")
    write_corpus(path)
    save(path / "data" / OPTIONS_FILE, TRAINED)
    run_here("train_mono.py", "--nj", 1, *MONO, path / "data", path / "lang", path / "mono", threads=True)
    return path


def made_with(trained, data, options):
    """The features of `trained` in another directory, with records of other options or of another toolkit."""
    shutil.copytree(trained / "data", data)
    (data / OPTIONS_FILE).unlink()
    write_table(
        data / "feats.scp",
        {
            utt: rx.replace(str(trained / "data"), str(data))
            for utt, rx in read_scp(data / "feats.scp").items()
        },
    )
    if options:
        save(data / OPTIONS_FILE, options)
    return data


def align(trained, data, out, model="mono", step="align_si.py"):
    run_here(step, "--nj", 1, data, trained / "lang", trained / model, out)


def test_alignment_refuses_features_with_other_options(trained, tmp_path):
    data = made_with(trained, tmp_path / "dev", OTHERS)
    with pytest.raises(
        UserError,
        match=f"^{data}: its features differ from those on which {trained}/mono was trained "
        r"\(--low-freq 300, not 20; --use-energy false, not true\); compute them by the same steps with",
    ):
        align(trained, data, tmp_path / "ali")
    with pytest.raises(UserError, match="its features differ from those"):
        align(trained, data, tmp_path / "ali", step="align_fmllr.py")
    assert not (tmp_path / "ali").exists()


@pytest.mark.parametrize(
    "options", [TRAINED, replace(TRAINED, frame=replace(TRAINED.frame, dither=1.0)), None]
)
def test_alignment_accepts_same_and_unknown_features(trained, tmp_path, options):
    data = made_with(trained, tmp_path / "dev", options)
    align(trained, data, tmp_path / "ali")
    assert (tmp_path / "ali" / ORIGIN_FILE).exists() == (options is not None)


def test_model_without_recorded_features_accepts_all(trained, tmp_path):
    shutil.copytree(trained / "mono", tmp_path / "mono")
    (tmp_path / "mono" / ORIGIN_FILE).unlink()
    shutil.copytree(trained / "lang", tmp_path / "lang")
    align(tmp_path, made_with(trained, tmp_path / "dev", OTHERS), tmp_path / "ali")


def test_part_of_data_keeps_origin(trained, tmp_path):
    run_here("subset_data_dir.py", "--last", 8, trained / "data", tmp_path / "part", folder="utils")
    assert origins_of(tmp_path / "part") == origins_of(trained / "data") != []


def test_combined_data_has_all_origins(trained, tmp_path):
    other = made_with(trained, tmp_path / "other", OTHERS)
    table = read_scp(trained / "data/feats.scp")
    union = tmp_path / "union"
    union.mkdir()
    write_table(
        union / "feats.scp", table | {f"x-{utt}": rx for utt, rx in read_scp(other / "feats.scp").items()}
    )
    assert len(origins_of(union)) == 2
    with pytest.raises(UserError, match="its features differ from those"):
        check_origin(union, trained / "mono")
    keep_origin(tmp_path, union)  # of a model that was trained on both
    check_origin(other, tmp_path)
    (other / OPTIONS_FILE).unlink()
    assert origins_of(union) == []  # the origin of one part is unknown


def test_derived_features_keep_origin(trained, tmp_path):
    other = made_with(trained, tmp_path / "other", OTHERS)
    for name, data in {"ours": trained / "data", "theirs": other}.items():
        run_here("paste_feats.py", "--nj", 1, tmp_path / name, data, data)
    assert origins_of(tmp_path / "ours")[0]["streams"] == 2 * origins_of(trained / "data")
    keep_origin(tmp_path, tmp_path / "ours")
    check_origin(tmp_path / "ours", tmp_path)
    with pytest.raises(UserError, match="MFCC pasted to MFCC with other options"):
        check_origin(tmp_path / "theirs", tmp_path)
    with pytest.raises(UserError, match="MFCC, not MFCC pasted to MFCC"):
        check_origin(trained / "data", tmp_path)
    assert load_all(tmp_path / "ours/feats.scp").keys() == load_all(other / "feats.scp").keys()


def test_fmllr_features_have_origin_and_reject_other_input(trained, tmp_path):
    run_here(
        "align_fmllr.py",
        "--nj",
        1,
        trained / "data",
        trained / "lang",
        trained / "mono",
        tmp_path / "ali",
        threads=True,
    )
    run_here("make_fmllr_feats.py", trained / "data", tmp_path / "ali", tmp_path / "adapted")
    assert origins_of(tmp_path / "adapted") == [{"fmllr_of": origins_of(trained / "data")[0]}]
    keep_origin(tmp_path, tmp_path / "adapted")
    check_origin(tmp_path / "adapted", tmp_path)
    with pytest.raises(UserError, match="MFCC, not fMLLR features of MFCC"):
        check_origin(trained / "data", tmp_path)
    with pytest.raises(UserError, match="its features differ from those"):
        run_here(
            "make_fmllr_feats.py",
            made_with(trained, tmp_path / "other", OTHERS),
            trained / "mono",
            tmp_path / "fmllr",
        )


@pytest.mark.parametrize(
    "other, same",
    [
        (replace(TRAINED, frame=replace(TRAINED.frame, dither=1.0, blackman_coeff=0.4)), True),
        (replace(TRAINED, mel=MelOptions(high_freq=4000.0, vtln_low=60.0)), True),
        (replace(TRAINED, pitch=PitchOptions(process=ProcessPitchOptions(pitch_scale=1.0))), True),
        (replace(TRAINED, mel=MelOptions(high_freq=3800.0)), False),
        (replace(TRAINED, frame=replace(TRAINED.frame, sample_frequency=16000.0)), False),
        (replace(TRAINED, pitch=PitchOptions(add_pitch=True)), False),
        (FbankOptions(frame=TRAINED.frame), False),
    ],
)
def test_relevant_option_differences(other, same):
    assert same_features(TRAINED, other) is same


def test_feature_kinds_are_distinguished(tmp_path):
    origins = []
    for options in (TRAINED, FbankOptions()):
        folder = tmp_path / type(options).__name__
        folder.mkdir()
        save(folder / OPTIONS_FILE, options)
        write_table(folder / "feats.scp", {"u": f"{folder}/raw.ark:2"})
        origins += origins_of(folder)
    assert difference(*origins) == "MFCC, not log mel energies"


def test_command_in_table_has_no_origin(tmp_path):
    write_table(tmp_path / "feats.scp", {"u": "copy-feats scp:x ark:- |"})
    assert origins_of(tmp_path) == [] == origins_of(tmp_path / "nowhere")


def test_damaged_origin_file_is_named(tmp_path):
    (tmp_path / ORIGIN_FILE).write_text('{"origins": [{"type": "other:Options"}]}')
    with pytest.raises(UserError, match=f"^{tmp_path}/{ORIGIN_FILE}: not in the format of pyasr's steps"):
        check_origin(tmp_path, tmp_path)
