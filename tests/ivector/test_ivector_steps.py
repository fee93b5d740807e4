"""The steps on synthetic speakers: i-vectors distinguish speakers for any number of jobs; short and missing
utterances; invalid input."""

import re
import shutil

import numpy as np
import pytest
from ivector_toys import DIM, write_speakers
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import write_data_dir
from pyasr.feats.inputs import InputOptions
from pyasr.feats.transforms import write_matrix
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.io.ark import ArkReader, ArkWriter, load_all, read_scp
from pyasr.ivector import train
from pyasr.ivector.ubm import UBM_FILE, write_ubm

SIZES = (
    "--num-gauss",
    4,
    "--ivector-dim",
    3,
    "--num-iters",
    6,
    "--ubm-iters",
    10,
    "--ubm-split-iters",
    5,
    "--cmvn",
    "none",
    "--ubm-subsample",
    2,
    "--gaussian-min-count",
    10,
)
PLAIN = ("--deltas", 0)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_speakers(tmp_path_factory.mktemp("speakers") / "data")


@pytest.fixture(scope="module")
def extractor(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("extractor") / "ivector"
    run_here("train_ivector_extractor.py", "--nj", 2, *SIZES, *PLAIN, data, out, threads=True)
    return out


def vectors_of(path) -> dict[str, np.ndarray]:
    return {key: ArkReader().load(rx, vectors=True) for key, rx in read_scp(path).items()}


def test_step_directories_are_complete(data, extractor, tmp_path):
    assert {"final.dubm", "final.ie", "input.json"} <= {path.name for path in extractor.iterdir()}
    run_here("extract_ivectors.py", "--nj", 3, data, extractor, tmp_path / "out")
    rows, frames = load_all(tmp_path / "out/ivector_online.scp"), load_all(data / "feats.scp")
    assert {utt: matrix.shape for utt, matrix in rows.items()} == {
        utt: (-(-len(x) // 10), 3) for utt, x in frames.items()
    }
    assert (tmp_path / "out/ivector_period").read_text() == "10\n"
    assert {key: vector.shape for key, vector in vectors_of(tmp_path / "out/ivector.scp").items()} == {
        f"s{s:02d}": (3,) for s in range(12)
    }


def test_changed_speaker_statistics_recompute_ivectors(data, extractor, tmp_path):
    """The extractor computes posteriors from features with speaker CMVN."""
    shutil.copytree(data, tmp_path / "data")
    shutil.copytree(extractor, tmp_path / "extractor")
    InputOptions(cmvn="speaker").save(tmp_path / "extractor")
    (tmp_path / "extractor" / ".done.json").unlink()
    found = []
    for mean in (0, 3):
        with ArkWriter(tmp_path / f"cmvn{mean}.ark", tmp_path / "data" / "cmvn.scp") as writer:
            for speaker in range(12):
                writer.write(
                    f"s{speaker:02d}",
                    np.array([[mean] * DIM + [1], [1 + mean * mean] * DIM + [0]], np.float64),
                )
        run_here(
            "extract_ivectors.py", "--nj", 1, tmp_path / "data", tmp_path / "extractor", tmp_path / "out"
        )
        found.append(vectors_of(tmp_path / "out/ivector.scp")["s00"])
    assert not np.allclose(*found)


def test_ivectors_distinguish_speakers(data, extractor, tmp_path):
    """For single utterances of 1.5 s, the nearest vector belongs to the same speaker; by chance, it would for
    6 %."""
    words = ("--utts-per-spk-max", 1, "--posterior-scale", 1, "--max-count", 0)
    run_here("extract_ivectors.py", "--nj", 2, *words, data, extractor, tmp_path / "out")
    last = {utt: matrix[-1] for utt, matrix in load_all(tmp_path / "out/ivector_online.scp").items()}
    keys, vectors = list(last), np.stack(list(last.values()))
    apart = np.linalg.norm(vectors[:, None] - vectors, axis=2) + 1e9 * np.eye(len(keys))
    right = [keys[i][:3] == keys[j][:3] for i, j in enumerate(apart.argmin(1))]
    assert np.mean(right) > 0.8, np.mean(right)
    means = np.stack(
        [
            vectors[[key[:3] == speaker for key in keys]].mean(0)
            for speaker in sorted({key[:3] for key in keys})
        ]
    )
    within = vectors - means[[int(key[1:3]) for key in keys]]
    assert np.square(within).mean() < 0.05 * np.square(means - means.mean(0)).mean()


def test_jobs_and_ranks_do_not_change_results(data, extractor, tmp_path):
    run_here("train_ivector_extractor.py", "--nj", 1, *SIZES, *PLAIN, data, tmp_path / "alone", threads=True)
    for nj, directory in ((1, tmp_path / "alone"), (5, extractor)):
        run_here("extract_ivectors.py", "--nj", nj, data, directory, tmp_path / f"out{nj}")
    one, five = (load_all(tmp_path / f"out{nj}/ivector_online.scp") for nj in (1, 5))
    for utt in one:
        np.testing.assert_allclose(one[utt], five[utt], atol=0.02)


def test_online_ivectors_continue_over_utterances_of_speaker(data, extractor, tmp_path):
    """The second utterance starts close to the end of the first. As a new speaker, it starts close to the
    prior."""
    first_rows = []
    for out, words in (("on", ()), ("again", ("--utts-per-spk-max", 1))):
        run_here("extract_ivectors.py", "--nj", 1, *words, data, extractor, tmp_path / out)
        rows = load_all(tmp_path / out / "ivector_online.scp")
        first_rows.append(rows["s00-1"][0])
        end = rows["s00-0"][-1]
    assert np.linalg.norm(first_rows[0] - end) < 0.5 * np.linalg.norm(first_rows[1] - end)


def test_matrix_of_model_directory_is_applied(data, tmp_path):
    """With --model-dir, features are spliced and multiplied by its final.mat, which the extractor's directory
    keeps."""
    model = tmp_path / "tri2"
    model.mkdir()
    InputOptions(splice_left=1, splice_right=1).save(model)
    write_matrix(model / "final.mat", np.random.default_rng(0).standard_normal((2, 3 * DIM)))
    run_here(
        "train_ivector_extractor.py",
        "--nj",
        1,
        *SIZES,
        "--model-dir",
        model,
        data,
        tmp_path / "ivector",
        threads=True,
    )
    run_here("extract_ivectors.py", "--nj", 1, data, tmp_path / "ivector", tmp_path / "out")
    assert (tmp_path / "ivector/final.mat").read_bytes() == (model / "final.mat").read_bytes()
    assert len(read_scp(tmp_path / "out/ivector.scp")) == 12


@pytest.fixture
def odd(tmp_path):
    """Utterances with one frame, without frames, with non-finite numbers, and without features. The last
    speaker has no others."""
    path = tmp_path / "odd"
    path.mkdir()
    rng = np.random.default_rng(0)
    feats = {
        "a-0": rng.standard_normal((1, DIM)),
        "a-1": np.zeros((0, DIM)),
        "a-2": rng.standard_normal((12, DIM)),
        "b-0": np.full((5, DIM), np.nan),
    }
    with ArkWriter(path / "feats.ark", path / "feats.scp") as writer:
        for utt, matrix in feats.items():
            writer.write(utt, matrix.astype(np.float32))
    write_data_dir(path, {"utt2spk": {utt: utt[0] for utt in (*feats, "b-1")}})
    return path


def test_short_and_unusable_utterances_are_named(odd, extractor, tmp_path, capsys):
    reasons = (
        "1: no frames (a-1), 1: its features are not finite (b-0), 1: no features in feats.scp (b-1); make"
    )
    with pytest.raises(UserError, match=re.escape(f"3 of 5 utterances have to be left out: {reasons}")):
        run_here("extract_ivectors.py", "--nj", 1, odd, extractor, tmp_path / "out")
    run_here("extract_ivectors.py", "--nj", 2, "--max-missing", 0.7, odd, extractor, tmp_path / "out")
    assert {utt: len(rows) for utt, rows in load_all(tmp_path / "out/ivector_online.scp").items()} == {
        "a-0": 1,
        "a-2": 2,
    }
    assert list(read_scp(tmp_path / "out/ivector.scp")) == ["a"]
    said = capsys.readouterr().out
    assert "its features are not finite: b-0" in said and "no features in feats.scp: b-1" in said


def test_invalid_input_is_refused(data, odd, extractor, tmp_path):
    def refused(sentence, step, *words):
        with pytest.raises(UserError, match=sentence):
            run_here(step, "--nj", 1, *words, threads=step.startswith("train"))

    train = ("train_ivector_extractor.py", *SIZES, *PLAIN)
    refused(
        "--ubm-iters 5 would end with 3 of --num-gauss 4 Gaussians",
        *train,
        "--ubm-iters",
        5,
        data,
        tmp_path / "out",
    )
    refused(
        "48 utterances are too few for i-vectors of dimension 60",
        *train,
        "--ivector-dim",
        60,
        data,
        tmp_path / "out",
    )
    refused("3 of 5 utterances have to be left out", *train, odd, tmp_path / "out")
    refused("7 frames are too few for a UBM", *train, "--max-missing", 0.9, odd, tmp_path / "out")
    refused(
        "tri9/input.json: no such file",
        "train_ivector_extractor.py",
        *SIZES,
        "--model-dir",
        tmp_path / "tri9",
        data,
        tmp_path / "out",
    )
    refused("input.json: no such file", "extract_ivectors.py", data, tmp_path, tmp_path / "out")
    wide = write_data(tmp_path / "wide", DIM + 1)
    refused(
        "wide: features of 4 columns, but .*ivector was trained on 3",
        "extract_ivectors.py",
        wide,
        extractor,
        tmp_path / "out",
    )
    shutil.copytree(extractor, tmp_path / "mixed")
    (tmp_path / "mixed" / ".done.json").unlink()
    write_ubm(
        tmp_path / "mixed" / UBM_FILE,
        AmDiagGmm.from_moments(np.array([0, 2]), np.full(2, 0.5), np.zeros((2, DIM)), np.ones((2, DIM))),
    )
    refused(
        "mixed: final.dubm has 2 Gaussians of 3 columns, final.ie 4 of 3; take both from the same directory",
        "extract_ivectors.py",
        data,
        tmp_path / "mixed",
        tmp_path / "out",
    )
    assert not (tmp_path / "out").exists()


def write_data(path, dim: int):
    path.mkdir()
    with ArkWriter(path / "feats.ark", path / "feats.scp") as writer:
        writer.write("a-0", np.ones((30, dim), np.float32))
    write_data_dir(path, {"utt2spk": {"a-0": "a"}})
    return path


def test_statistics_on_disk_give_same_extractor(data, extractor, tmp_path, monkeypatch):
    """Frames and statistics that do not fit into memory are in unnamed files."""
    made, real = [], train.zeros
    monkeypatch.setattr(train, "reserve", lambda *_, **__: 0)
    monkeypatch.setattr(train, "zeros", lambda *words: made.append(real(*words)) or made[-1])
    run_here("train_ivector_extractor.py", "--nj", 2, *SIZES, *PLAIN, data, tmp_path / "out", threads=True)
    assert len(made) == 4 and all(isinstance(array, np.memmap) for array in made)
    for name in ("final.dubm", "final.ie"):
        assert (tmp_path / "out" / name).read_bytes() == (extractor / name).read_bytes()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in extractor.iterdir()}
