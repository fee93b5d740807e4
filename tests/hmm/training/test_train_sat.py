"""LDA+MLLT and speaker adaptive training on toy data with affine speaker distortions: recovered, equal on all
ranks, resumable."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from gmm_corpus import DIM, distortion, write_corpus

from pyasr.base.errors import UserError
from pyasr.feats.extraction.transformed import TransformSpec, transform_shard, write_tables
from pyasr.feats.inputs import FeatureReader, InputOptions, open_features
from pyasr.feats.transforms import read_matrix, read_transforms
from pyasr.hmm.align.viterbi import AlignOptions
from pyasr.hmm.model.gmm_dir import copy_model
from pyasr.hmm.model.gmm_update import GmmUpdateOptions
from pyasr.hmm.model.model_file import first_pass_model, read_model
from pyasr.hmm.shards.gmm_shard import GmmShard
from pyasr.hmm.training import train_gmm
from pyasr.hmm.training.align_fmllr import AlignFmllrSpec, align_rank
from pyasr.hmm.training.train_gmm import GmmScheduleOptions, TrainOptions
from pyasr.hmm.training.train_lda_mllt import LdaMlltOptions, LdaMlltSpec
from pyasr.hmm.training.train_lda_mllt import train_rank as train_lda_mllt_rank
from pyasr.hmm.training.train_mono import MonoSpec
from pyasr.hmm.training.train_mono import train_rank as train_mono_rank
from pyasr.hmm.training.train_sat import SatOptions, SatSpec
from pyasr.hmm.training.train_sat import train_rank as train_sat_rank
from pyasr.hmm.training.train_triphones import TreeOptions, TriphoneSpec
from pyasr.hmm.transforms.fmllr import FmllrOptions
from pyasr.io.int_vectors import read_job_archives
from pyasr.io.text_tables import read_table, write_table
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads

ALIGN, UPDATE = AlignOptions(beam=30.0, retry_beam=100.0), GmmUpdateOptions(min_count=5.0)
MONO = TrainOptions(
    GmmScheduleOptions(num_iters=6, max_iter_inc=3, num_gauss=60, realign_iters="1 2 4"), ALIGN, UPDATE
)
SECOND = TrainOptions(
    GmmScheduleOptions(num_iters=6, max_iter_inc=3, num_gauss=80, realign_iters="3"), ALIGN, UPDATE
)
SPLICED, TREE = InputOptions(splice_left=1, splice_right=1), TreeOptions(num_leaves=40, cluster_thresh=0.0)
LDA_DIM = 6
SPEAKERS = ["s0", "s1", "s2", "s3"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_utterances=160, seed=5, strength=0.25)


@pytest.fixture(scope="module")
def mono(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("mono")
    train_mono_rank(MonoSpec(*corpus, out, MONO, InputOptions()), SoloComm())
    return out


def train_lda(corpus, ali_dir: Path, out: Path, num_ranks: int = 1, **options) -> Path:
    out.mkdir(exist_ok=True)
    spec = LdaMlltSpec(
        TriphoneSpec(*corpus, ali_dir, out, TREE, SECOND, SPLICED),
        LdaMlltOptions(dim=LDA_DIM, mllt_iters="2 4", **options),
    )
    run_threads(num_ranks, lambda comm: train_lda_mllt_rank(spec, comm))
    return out


def train_sat(corpus, ali_dir: Path, out: Path, num_ranks: int = 1) -> Path:
    out.mkdir(exist_ok=True)
    spec = SatSpec(
        TriphoneSpec(*corpus, ali_dir, out, TREE, SECOND, InputOptions.load(ali_dir)),
        SatOptions(fmllr_iters="2 4"),
        FmllrOptions(fmllr_min_count=100.0),
    )
    run_threads(num_ranks, lambda comm: train_sat_rank(spec, comm))
    return out


def align(corpus, model_dir: Path, out: Path, num_ranks: int = 1) -> Path:
    out.mkdir(exist_ok=True)
    spec = AlignFmllrSpec(*corpus, model_dir, out, ALIGN, 1.25, FmllrOptions(fmllr_min_count=100.0))
    run_threads(num_ranks, lambda comm: align_rank(spec, comm))
    for name in ("input.json", "phones.txt"):
        shutil.copy(model_dir / name, out)
    copy_model(model_dir, out)
    (out / "num_jobs").write_text(f"{num_ranks}\n")
    return out


@pytest.fixture(scope="module")
def lda(corpus, mono, tmp_path_factory):
    return train_lda(corpus, mono, tmp_path_factory.mktemp("lda"))


@pytest.fixture(scope="module")
def sat(corpus, mono, tmp_path_factory):
    """Trained on the plain features, so that the transforms can be compared with the distortions."""
    return train_sat(corpus, mono, tmp_path_factory.mktemp("sat"))


@pytest.fixture(scope="module")
def lda_sat(corpus, lda, tmp_path_factory):
    return train_sat(corpus, lda, tmp_path_factory.mktemp("lda_sat"))


def log_like(corpus, model: Path, ali_dir: Path, transform_dir: Path | None = None) -> float:
    """Log-likelihood per frame of the alignments in `ali_dir`, without the log-determinants of the
    transforms."""
    trans, gmm = read_model(model)
    shard = GmmShard.load(open_features(corpus[0], model.parent, transform_dir), LangDir(corpus[1]), 1, 1)
    shard.set_alignments(read_job_archives(ali_dir), trans.num_tids, ali_dir)
    stats, _ = shard.accumulate(trans, gmm)
    return stats.log_like / stats.num_frames


def test_lda_directory_transforms_features(corpus, lda, mono):
    assert sorted({path.name for path in lda.iterdir()} - {path.name for path in mono.iterdir()}) == [
        "final.mat"
    ]
    matrix = read_matrix(lda / "final.mat")
    assert matrix.shape == (LDA_DIM, 3 * DIM) and read_model(lda / "final.mdl")[1].dim == LDA_DIM
    reader = open_features(corpus[0], lda)
    spliced = FeatureReader(corpus[0], SPLICED)
    utt = reader.keys[3]
    np.testing.assert_allclose(reader[utt], spliced[utt] @ matrix.T, atol=1e-4)


def test_mllt_increases_likelihood(corpus, mono, lda, tmp_path):
    """Likelihoods of the spliced frames are comparable after adding log |det| of the rows that both matrices
    span."""
    without = tmp_path / "without"
    without.mkdir()
    spec = LdaMlltSpec(
        TriphoneSpec(*corpus, mono, without, TREE, SECOND, SPLICED),
        LdaMlltOptions(dim=LDA_DIM, mllt_iters="99"),
    )
    train_lda_mllt_rank(spec, SoloComm())
    old = read_matrix(without / "final.mat").astype(np.float64)
    new = read_matrix(lda / "final.mat").astype(np.float64)
    step = new @ np.linalg.pinv(old)
    np.testing.assert_allclose(step @ old, new, atol=1e-4)  # MLLT stays in the space selected by LDA
    assert (
        log_like(corpus, lda / "final.mdl", lda) + np.linalg.slogdet(step)[1]
        > log_like(corpus, without / "final.mdl", without) + 0.01
    )


def test_affine_lda_system(corpus, mono, tmp_path):
    out = train_lda(corpus, mono, tmp_path / "out", remove_offset=True)
    assert read_matrix(out / "final.mat").shape == (LDA_DIM, 3 * DIM + 1)
    assert log_like(corpus, out / "final.mdl", out) > -100


def test_sat_removes_speaker_distortions(corpus, sat):
    """After its transform, every speaker has the same map from undistorted frames: T_s A_s = C for all s,
    although the A_s differ."""
    transforms = read_transforms(sat)
    before = np.stack([distortion(speaker, 0.25)[0] for speaker in SPEAKERS])
    after = np.stack([transforms[speaker][:, :DIM] @ matrix for speaker, matrix in zip(SPEAKERS, before)])
    apart = [np.linalg.norm(maps - maps.mean(0)) / np.linalg.norm(maps) for maps in (before, after)]
    assert apart[1] < 0.25 * apart[0], apart


def test_sat_directory_is_complete(corpus, lda, lda_sat):
    added = {path.name for path in lda_sat.iterdir()} - {path.name for path in lda.iterdir()}
    assert added == {"final.alimdl", "trans.1"}
    assert (lda_sat / "final.mat").read_bytes() == (lda / "final.mat").read_bytes()
    assert {matrix.shape for matrix in read_transforms(lda_sat).values()} == {(LDA_DIM, LDA_DIM + 1)}
    final, aligner = read_model(lda_sat / "final.mdl")[1], read_model(first_pass_model(lda_sat))[1]
    np.testing.assert_array_equal(final.offsets, aligner.offsets)


def test_each_model_matches_its_features(corpus, lda_sat):
    """final.mdl matches features with fMLLR, final.alimdl features without."""
    final, aligner = lda_sat / "final.mdl", lda_sat / "final.alimdl"
    assert log_like(corpus, final, lda_sat, lda_sat) > log_like(corpus, aligner, lda_sat, lda_sat)
    assert log_like(corpus, aligner, lda_sat) > log_like(corpus, final, lda_sat)


def test_alignment_with_fmllr_recovers_transforms(corpus, lda_sat, tmp_path):
    """The new transforms are close to those of the training, and equal with two ranks that share speakers."""
    one, two = align(corpus, lda_sat, tmp_path / "one"), align(corpus, lda_sat, tmp_path / "two", 2)
    trained, alone, shared = read_transforms(lda_sat), read_transforms(one), read_transforms(two)
    assert alone.keys() == set(SPEAKERS) and (one / "failed_utterances").read_text() == ""
    for speaker in SPEAKERS:
        np.testing.assert_allclose(alone[speaker], shared[speaker], atol=1e-4)
        assert np.linalg.norm(alone[speaker] - trained[speaker]) < 0.5 * np.linalg.norm(trained[speaker])
    ours, theirs = read_job_archives(one), read_job_archives(lda_sat)
    equal = np.mean(np.concatenate([ours[utt] == theirs[utt] for utt in theirs]))
    assert ours.keys() == set(read_table(corpus[0] / "text")) and equal > 0.95


def test_speakers_without_transcript_get_identity(corpus, mono, tmp_path):
    """Then features of the whole data directory can be computed."""
    data = Path(shutil.copytree(corpus[0], tmp_path / "data"))
    kept = {utt: words for utt, words in read_table(data / "text").items() if not utt.startswith("s3")}
    write_table(data / "text", kept)
    ali = align((data, corpus[1]), mono, tmp_path / "ali", 2)
    transforms = read_transforms(ali)
    assert transforms.keys() == set(SPEAKERS)
    np.testing.assert_array_equal(transforms["s3"], np.eye(DIM, DIM + 1))
    assert not any(
        np.allclose(transforms[speaker], np.eye(DIM, DIM + 1), atol=0.01) for speaker in SPEAKERS[:3]
    )
    adapted, plain = open_features(data, ali, ali), open_features(data, ali)
    np.testing.assert_allclose(adapted["s3-003"], plain["s3-003"], atol=1e-5)


def test_sat_starts_from_transforms_of_alignment(corpus, lda_sat, tmp_path, monkeypatch):
    ali = align(corpus, lda_sat, tmp_path / "ali")
    again = train_sat(corpus, ali, tmp_path / "again")
    assert (
        log_like(corpus, again / "final.mdl", again, again)
        > log_like(corpus, lda_sat / "final.mdl", lda_sat, lda_sat) - 0.2
    )
    (ali / "trans.1").unlink()
    with pytest.raises(UserError, match="has an alignment model but no transforms"):
        train_sat(corpus, ali, tmp_path / "none")


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_result_does_not_depend_on_number_of_ranks(corpus, mono, lda, lda_sat, tmp_path, num_ranks):
    out = train_lda(corpus, mono, tmp_path / "lda", num_ranks)
    np.testing.assert_allclose(read_matrix(out / "final.mat"), read_matrix(lda / "final.mat"), atol=1e-3)
    assert (out / "tree").read_bytes() == (lda / "tree").read_bytes()
    out = train_sat(corpus, lda, tmp_path / "sat", num_ranks)
    ours, one = read_transforms(out), read_transforms(lda_sat)
    for speaker in SPEAKERS:
        np.testing.assert_allclose(ours[speaker], one[speaker], atol=2e-2)


@pytest.mark.parametrize("killed_in, num_ranks", [(1, 1), (3, 1), (4, 1), (4, 2)])
def test_killed_training_resumes_to_same_result(
    corpus, mono, lda, lda_sat, tmp_path, monkeypatch, killed_in, num_ranks
):
    """Also with another number of ranks; then the results agree up to rounding."""
    real = train_gmm.write_model

    def write_or_die(path, *model):
        if path.name == f"{killed_in + 1}.mdl":
            raise KeyboardInterrupt
        real(path, *model)

    for train, source, whole in ((train_lda, mono, lda), (train_sat, lda, lda_sat)):
        out = tmp_path / train.__name__
        monkeypatch.setattr(train_gmm, "write_model", write_or_die)
        with pytest.raises(KeyboardInterrupt):
            train(corpus, source, out)
        monkeypatch.setattr(train_gmm, "write_model", real)
        train(corpus, source, out, num_ranks)
        if num_ranks == 1:
            assert {path.name: path.read_bytes() for path in out.iterdir()} == {
                path.name: path.read_bytes() for path in whole.iterdir()
            }
        else:
            np.testing.assert_allclose(
                read_matrix(out / "final.mat"), read_matrix(whole / "final.mat"), atol=1e-3
            )


def test_fmllr_features_are_written_as_data_directory(corpus, lda_sat, tmp_path):
    spec = TransformSpec(corpus[0], lda_sat, lda_sat, tmp_path / "new.tmp", tmp_path / "new", 2, False)
    (spec.out / "feats").mkdir(parents=True)
    for job in (1, 2):
        transform_shard(spec, job)
    write_tables(spec)
    spec.out.rename(spec.named)
    adapted = open_features(corpus[0], lda_sat, lda_sat)
    stored = FeatureReader(spec.named, InputOptions(cmvn="none"))
    assert sorted(stored.keys) == sorted(adapted.keys) and stored.dim == LDA_DIM
    for utt in stored.keys[:20]:
        np.testing.assert_array_equal(stored[utt], adapted[utt])
        assert stored.num_frames(utt) == len(adapted[utt])
    assert (spec.named / "text").read_text() == (corpus[0] / "text").read_text()


@pytest.mark.parametrize(
    "options, message",
    [
        (LdaMlltOptions(dim=13), "LDA cannot map features with 12 columns to 13 dimensions"),
        (LdaMlltOptions(dim=4, mllt_iters="two"), "--mllt-iters: 'two' is not a list of iterations"),
    ],
)
def test_impossible_options_are_refused(corpus, mono, tmp_path, options, message):
    spec = LdaMlltSpec(TriphoneSpec(*corpus, mono, tmp_path, TREE, SECOND, SPLICED), options)
    with pytest.raises(UserError, match=message):
        train_lda_mllt_rank(spec, SoloComm())


def test_speaker_without_transform_is_refused(corpus, lda_sat, tmp_path):
    """The alignments have the same utterances with other speakers."""
    data = Path(shutil.copytree(corpus[0], tmp_path / "data"))
    (data / "utt2spk").write_text((data / "utt2spk").read_text().replace(" s0", " new"))
    spec = SatSpec(
        TriphoneSpec(
            data, corpus[1], lda_sat, tmp_path, TREE, SECOND, dataclasses.replace(SPLICED, cmvn="none")
        ),
        SatOptions(),
        FmllrOptions(),
    )
    with pytest.raises(UserError, match="1 speakers have no transform .the first is new."):
        train_sat_rank(spec, SoloComm())
