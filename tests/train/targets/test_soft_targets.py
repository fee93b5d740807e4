"""Training of a small network on the posteriors of a large one: the kept posteriors, the loss, and a student
that its teacher improves."""

import dataclasses
import shutil

import numpy as np
import pytest
import torch
from steps_here import run_here
from toy_jobs import NUM_PDFS, with_options
from training_corpora import DIM, make_alignments, make_data

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.hmm.model.tree import monophone_tree
from pyasr.io.ark import ArkWriter
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.nn.networks.acoustic import MODEL_FILE, load_model
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.objectives.dnn_training import TrainSpec
from pyasr.train.objectives.rank_training import train_rank
from pyasr.train.steps.dnn_step import check_teachers_tree, check_training
from pyasr.train.targets import soft_targets
from pyasr.train.targets.pdf_targets import TARGETS_FILE
from pyasr.train.targets.soft_targets import SoftTable, SoftTargets, Teacher, TeacherOptions, keep_mass


def posteriors(num=50, num_pdfs=7):
    return torch.log_softmax(3 * torch.randn(num, num_pdfs, generator=torch.Generator().manual_seed(1)), 1)


def table_of(log_p, mass) -> SoftTable:
    return SoftTable.of(*keep_mass(log_p, mass), log_p.shape[1])


@pytest.mark.parametrize("mass", [0.01, 0.6, 0.98, 0.999])
def test_fewest_pdfs_with_given_mass_are_kept(mass):
    log_p = posteriors()
    found = table_of(log_p, mass)[torch.arange(50)]
    for t, p in enumerate(log_p.exp().numpy()):
        order = np.argsort(-p)
        num = next(k for k in range(1, 8) if p[order[:k]].sum() >= mass - 1e-6)
        here = found.frame == t
        assert found.pdf[here].tolist() == order[:num].tolist() and found.best[t] == order[0]
        np.testing.assert_allclose(
            found.weight[here], p[order[:num]] / p[order[:num]].sum(), atol=1.1 / 65535
        )


@pytest.mark.parametrize("block", [1, 7 * 16, 7 * 50])
def test_block_size_does_not_change_result(block, monkeypatch):
    log_p = posteriors()
    whole = keep_mass(log_p, 0.9)
    monkeypatch.setattr(soft_targets, "_BLOCK", block)
    assert all(torch.equal(one, other) for one, other in zip(keep_mass(log_p, 0.9), whole))
    assert [len(part) for part in keep_mass(log_p[:0], 0.9)] == [0, 0, 0]


def test_loss_is_cross_entropy_of_kept_distribution():
    log_p, index = posteriors(), torch.tensor([7, 3, 3, 40])
    targets, logits = table_of(log_p, 0.9)[index], torch.randn(4, 7, dtype=torch.float64, requires_grad=True)
    q = torch.zeros(4, 7, dtype=torch.float64)
    q[targets.frame, targets.pdf] = targets.weight.double()
    expected = torch.nn.functional.cross_entropy(logits, q, reduction="sum")
    torch.testing.assert_close(targets.loss(logits), expected, check_dtype=False)
    assert torch.autograd.gradcheck(
        lambda z: dataclasses.replace(targets, weight=targets.weight.double()).loss(z), (logits,)
    )
    halves = targets.chunk(2)
    torch.testing.assert_close(
        sum(half.loss(part) for half, part in zip(halves, logits.chunk(2))), targets.loss(logits)
    )
    assert [half.numel() for half in halves] == [2, 2]


@pytest.mark.parametrize(
    "num_pdfs, type", [(2000, torch.int16), (1 << 16, torch.int16), ((1 << 16) + 1, torch.int32)]
)
def test_quantised_weights_sum_to_one(num_pdfs, type):
    """k of the module docstring, with pdfs and weights that need all bits of their type."""
    log_p = posteriors(5, num_pdfs)
    log_p[0] = torch.log_softmax(torch.nn.functional.one_hot(torch.tensor(num_pdfs - 1), num_pdfs) * 100.0, 0)
    (counts, pdf, q), table = keep_mass(log_p, 0.98), table_of(log_p, 0.98)
    assert table.entries.dtype == type
    found = table[torch.arange(5)]
    assert torch.equal(found.pdf, pdf.long()) and found.best.tolist() == log_p.argmax(1).tolist()
    for t, part in enumerate(np.split(q.double().numpy(), counts.cumsum(0)[:-1])):
        ends = np.round(65535 * part.cumsum() / part.sum())
        assert (found.weight[found.frame == t] * 65535).round().tolist() == np.diff(
            ends, prepend=0
        ).tolist() and ends[-1] == 65535


@pytest.mark.parametrize("spread", [2.0, 4.0, 6.0])
def test_quantised_weights_are_as_good_as_exact_ones(spread):
    """Loss and gradient of a minibatch, with teachers of high and low confidence that keep 1049, 113 and 18
    pdfs per frame."""
    random = torch.Generator().manual_seed(2)
    scores = torch.randn(256, 2000, generator=random)
    log_p, noise = torch.log_softmax(spread * scores, 1), torch.randn(256, 2000, generator=random)
    logits = (spread * (scores + 0.5 * noise)).requires_grad_()
    counts, pdf, q = keep_mass(log_p, 0.98)
    frame = torch.arange(256).repeat_interleave(counts)
    exact = SoftTargets(frame, pdf.long(), q, pdf[counts.cumsum(0) - counts].long())
    found = table_of(log_p, 0.98)[torch.arange(256)]
    losses = [targets.loss(logits) for targets in (exact, found)]
    grads = [torch.autograd.grad(loss, logits)[0] for loss in losses]
    assert abs(losses[1] - losses[0]) < 1e-5 * losses[0]
    assert (grads[1] - grads[0]).norm() < (2e-3 if spread < 4 else 2e-4) * grads[0].norm()


def test_targets_of_consecutive_minibatches():
    table = table_of(posteriors(), 0.9)
    both, whole = table[torch.arange(7)].followed_by(table[torch.arange(7, 20)]), table[torch.arange(20)]
    assert all(
        torch.equal(getattr(both, name), getattr(whole, name)) for name in ("frame", "pdf", "weight", "best")
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus, a teacher with two layers that was trained on all of it, and targets of which most are
    wrong."""
    path = tmp_path_factory.mktemp("corpus")
    targets = dataclasses.replace(
        make_data(path / "data", {f"a-{i:02d}": 40 + i for i in range(24)}, NUM_PDFS),
        heldout=np.arange(24) % 4 == 0,
    )
    (path / "teacher").mkdir()
    targets.save(path / "teacher" / TARGETS_FILE)
    splice = InputOptions(cmvn="none", splice_left=2, splice_right=2)
    train_rank(
        TrainSpec(path / "data", path / "teacher", splice, with_options(schedule=dict(num_epochs=8))),
        SoloComm(),
    )
    splice.save(path / "teacher")
    wrong = np.random.default_rng(1).integers(NUM_PDFS, size=len(targets.pdfs))
    wrong[np.repeat(targets.heldout, np.diff(targets.offsets))] = targets.pdfs[
        np.repeat(targets.heldout, np.diff(targets.offsets))
    ]
    return path, targets, dataclasses.replace(targets, pdfs=wrong.astype(targets.pdfs.dtype))


@pytest.fixture(scope="module")
def blstm(corpus):
    """A teacher that reads chunks in both directions, with its own features of the same frames, which have
    more columns."""
    path, targets, _ = corpus
    seen, out, input = path / "seen", path / "blstm", InputOptions(cmvn="none")
    shutil.copytree(path / "data", seen)
    mixed = np.random.default_rng(2).standard_normal((DIM, DIM + 3)).astype(np.float32)
    reader = FeatureReader(path / "data", input)
    with ArkWriter(seen / "f.ark", seen / "feats.scp") as writer:
        for key in targets.keys:
            writer.write(key, reader[key] @ mixed)
    out.mkdir()
    (out / "layers.net").write_text("blstm cells=8\nlinear dim=8", encoding="utf-8")
    targets.save(out / TARGETS_FILE)
    natural = NaturalGradientOptions(natural_gradient="online", ng_rank_in=4, ng_rank_out=4)
    options = with_options(
        over_time=dict(network=out / "layers.net", chunk=10),
        schedule=dict(num_epochs=8, learning_rate=0.5),
        learner=dict(minibatch=100, natural_gradient=natural, max_change=0.5),
    )
    train_rank(TrainSpec(seen, out, input, options), SoloComm())
    input.save(out)
    return dict(teacher=out, teacher_data=seen)


@pytest.mark.parametrize(
    "kind, scheme", [("feed-forward", "allreduce"), ("feed-forward", "kaldi"), ("blstm", "allreduce")]
)
def test_student_learns_from_teacher_only(corpus, blstm, tmp_path, kind, scheme):
    """Training targets of the alignment are random, held-out targets are correct. The student sees single
    frames, and the BLSTM other columns."""
    path, right, wrong = corpus
    teacher = blstm if kind == "blstm" else dict(teacher=path / "teacher")
    out = tmp_path / "student"
    out.mkdir()
    wrong.save(out / TARGETS_FILE)
    options = with_options(teacher=teacher, schedule=dict(num_epochs=8), mixing=dict(parallel=scheme))
    run_threads(
        2, lambda comm: train_rank(TrainSpec(path / "data", out, InputOptions(cmvn="none"), options), comm)
    )
    model, reader = load_model(out / MODEL_FILE), FeatureReader(path / "data", InputOptions(cmvn="none"))
    held = right.shard(0, 1, heldout=True)
    correct = np.concatenate(
        [
            (model.log_likelihoods(reader[key]) + model.log_priors.numpy()).argmax(1) == right.pdfs_of(key)
            for key in held
        ]
    )
    assert correct.mean() > 0.7


def test_non_finite_teacher_features_are_named(corpus, monkeypatch):
    path, right, _ = corpus
    teacher, keys = Teacher(TeacherOptions(path / "teacher"), path / "data", NUM_PDFS), right.keys[:1]
    features = teacher.reader[keys[0]].copy()
    features[5, 1] = np.nan
    monkeypatch.setattr(type(teacher.reader), "__getitem__", lambda reader, key: features)
    with pytest.raises(
        UserError, match=rf"{keys[0]} has features that are not finite \(nan in frame 5, column 1\)"
    ):
        teacher.table(keys[0], right.pdfs_of(keys[0]))


def test_utterance_too_long_for_teacher_is_named(corpus, monkeypatch):
    path, right, _ = corpus
    teacher, keys = Teacher(TeacherOptions(path / "teacher"), path / "data", NUM_PDFS), right.keys[:3]
    compute = teacher.model.network.log_posteriors
    monkeypatch.setattr(
        teacher.model.network, "log_posteriors", lambda x: compute(x) if len(x) < 42 else torch.empty(10**15)
    )
    with pytest.raises(
        UserError,
        match=(
            "^a-02: memory is not enough for its 42 frames: .*; cut it into shorter utterances, or leave "
            "it out$"
        ),
    ):
        [teacher.table(key, right.pdfs_of(key)) for key in keys]


def test_teacher_of_other_tree_is_refused(corpus, tmp_path):
    """Even if it has as many pdfs."""
    path, right, _ = corpus
    for name in ("ali", "other"):
        make_alignments(tmp_path / name, right)
    phones = list(range(NUM_PDFS, 0, -1))
    monophone_tree([[phone] for phone in phones], dict.fromkeys(phones, 1)).write(tmp_path / "other" / "tree")
    check_teachers_tree(tmp_path / "ali", tmp_path / "ali")
    shutil.copytree(path / "teacher", tmp_path / "teacher")
    shutil.copy(tmp_path / "other" / "tree", tmp_path / "teacher")
    (tmp_path / "lang").mkdir()
    (tmp_path / "lang" / "phones.txt").write_text("<eps> 0\n")
    with pytest.raises(
        UserError,
        match=(
            "--teacher .*teacher: its tree differs from that of .*ali; give alignments with the teacher's "
            "tree"
        ),
    ):
        run_here(
            "train_dnn.py",
            "--cmvn",
            "none",
            "--teacher",
            tmp_path / "teacher",
            path / "data",
            tmp_path / "lang",
            tmp_path / "ali",
            tmp_path / "out",
            threads=True,
        )


def test_insufficient_memory_for_posteriors_is_reported(corpus, monkeypatch):
    path, right, _ = corpus
    teacher, keys = Teacher(TeacherOptions(path / "teacher"), path / "data", NUM_PDFS), right.keys[:3]
    keep = soft_targets._keep_mass
    monkeypatch.setattr(
        soft_targets, "_keep_mass", lambda p, mass: keep(p, mass) if len(p) < 42 else torch.empty(10**15)
    )
    with pytest.raises(UserError, match="^a-02: memory is not enough for its 42 frames"):
        [teacher.table(key, right.pdfs_of(key)) for key in keys]


def test_unsuitable_teachers_are_refused(corpus, tmp_path):
    path, right, _ = corpus
    with pytest.raises(UserError, match="the network has 5 pdfs, the alignments have 6"):
        Teacher(TeacherOptions(path / "teacher"), path / "data", 6)
    make_data(tmp_path / "other", {"a-00": 40, "a-01": 30}, NUM_PDFS)
    teacher = Teacher(TeacherOptions(path / "teacher", tmp_path / "other"), path / "data", NUM_PDFS)
    with pytest.raises(UserError, match="the teacher has no features of a-02"):
        teacher.table("a-02", np.zeros(42))
    with pytest.raises(UserError, match="the teacher has 30 frames of a-01, the alignment has 41"):
        teacher.table("a-01", np.zeros(41))
    with pytest.raises(
        UserError, match="--teacher cannot be combined with --priors posteriors: measurements on a sample"
    ):
        check_training(with_options(teacher=dict(teacher=path / "teacher"), priors=dict(priors="posteriors")))
