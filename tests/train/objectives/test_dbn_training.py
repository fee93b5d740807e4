"""Pretraining RBM by RBM, on virtual and on MPI ranks; networks that start from the result; files that do not
fit."""

import shutil

import numpy as np
import pytest
import torch
import toy_dbn
from toy_dbn import (
    INPUT,
    OPTIONS,
    make_toy,
    parameters,
    pretrained,
    spec_of,
    trained_without_chance,
    with_options,
)
from toy_jobs import Crash, metrics

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import save, to_json
from pyasr.base.errors import UserError
from pyasr.cluster.ranks.jobs import run_ranks
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.feats.options import OPTIONS_FILE, MfccOptions
from pyasr.feats.origin import save_origins
from pyasr.io.ark import ArkWriter, read_scp
from pyasr.io.text_tables import write_table
from pyasr.nn.files import DBN_FILE
from pyasr.nn.networks.dbn import Below, load_dbn
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward
from pyasr.nn.networks.rbm import Rbm
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.data.minibatch_stream import ResidentFrames
from pyasr.train.job.trainer import Trainer
from pyasr.train.objectives.dbn_training import mean_activation
from pyasr.train.sgd.rbm_learner import RbmLearner
from pyasr.train.steps.dbn_step import prepare_utterances
from pyasr.train.steps.network_checks import check_dbn
from pyasr.train.targets.pdf_targets import HeldoutOptions, Targets


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """(DBN, its directory) of one rank."""
    spec = spec_of(data, tmp_path_factory.mktemp("trained") / "dbn")
    spec.input.save(spec.out)
    return pretrained(spec, SoloComm()), spec.out


def test_every_rbm_reconstructs_better_after_training(trained):
    dbn, directory = trained
    assert dbn.dims == [18, 16, 16, 16] and [rbm.gaussian for rbm in dbn.rbms] == [True, False, False]
    for number in (1, 2, 3):
        lines = metrics(directory / f"rbm{number}")
        first, last = lines[0]["reconstruction_error"], lines[-1]["heldout_reconstruction_error"]
        assert last < 0.85 * first, number
        assert sum("train_reconstruction_error" in line for line in lines) == (4 if number == 1 else 2)


def test_normalisation_equals_training_data(data, trained):
    reader = FeatureReader(data, InputOptions(cmvn="none"))
    utterances = Targets.load(trained[1] / "utterances.npz")
    frames = np.vstack([reader[key] for key, held in zip(utterances.keys, utterances.heldout) if not held])
    np.testing.assert_allclose(trained[0].mean.numpy(), frames.mean(0), atol=1e-5)
    np.testing.assert_allclose(trained[0].inverse_std.numpy(), 1 / frames.std(0), rtol=1e-4)


def test_mean_activation_over_ranks(trained):
    dbn, _ = trained
    torch.manual_seed(0)
    rows = [torch.randn(num, 18) for num in (70, 5, 0)]
    below = Below(dbn.rbms[:2], torch.device("cpu"), torch.float32)
    stores = [
        toy_dbn.FrameStore([x.numpy()] if len(x) else [], [np.zeros(len(x))] if len(x) else [], 0, 0, 18)
        for x in rows
    ]
    found = run_threads(
        3, lambda comm: mean_activation(ResidentFrames(stores[comm.rank], 0, comm.rank), below, comm, seed=1)
    )
    h = torch.cat(rows).double()
    for rbm in dbn.rbms[:2]:
        h = torch.sigmoid(h @ rbm.weight.double().T + rbm.hidden_bias.double())
    for mean in found:
        torch.testing.assert_close(mean.double(), h.mean(0), atol=1e-6, rtol=0)


def test_mpi_ranks_mixing_every_minibatch_equal_one_rank(tmp_path, monkeypatch, jobs_import_tests):
    """With two and three ranks. The mean of momenta is the momentum of the mean; samples do not depend on the
    rank."""
    run_ranks(
        JobOptions(), tmp_path / "log" / "x.log", "toy_dbn:period_one", JobOptions(cmd=str(tmp_path)), 3
    )
    monkeypatch.setattr(toy_dbn.rbm_module, "sample_bernoulli", None)  # restored at the end
    for gaussian in (True, False):
        single = trained_without_chance(SoloComm(), tmp_path / f"solo-{gaussian}", gaussian, 8, 6)
        for size in (2, 3):
            masters = [torch.load(tmp_path / f"{size}-{gaussian}.rank-{rank}.pt") for rank in range(size)]
            assert all(torch.equal(master, masters[0]) for master in masters)
            torch.testing.assert_close(masters[0], single, atol=1e-5, rtol=0)


def test_shards_may_be_uneven_and_empty(tmp_path):
    """Three utterances on four ranks, one of them held out."""
    data = make_toy(tmp_path, 3)
    spec = spec_of(
        data, tmp_path / "dbn", with_options(hidden=dict(hidden_layers=2), loop=dict(log_frames=50)), 0.4
    )
    results = run_threads(4, lambda comm: parameters(pretrained(spec, comm)))
    assert all(torch.equal(result, results[0]) for result in results) and results[0].isfinite().all()
    utterances = Targets.load(spec.out / "utterances.npz")
    num_frames = np.diff(utterances.offsets)[~utterances.heldout].sum()
    assert [metrics(spec.out / f"rbm{number}")[-1]["frames"] for number in (1, 2)] == [
        4 * num_frames,
        2 * num_frames,
    ]


@pytest.mark.parametrize("parallel, num_learning", [("allreduce", {2}), ("kaldi", {1, 2})])
def test_momentum_equals_schedule(data, tmp_path, monkeypatch, parallel, num_learning):
    """For any number of training ranks. The rate is (1 - m) times their number times the rate of one rank."""
    step, seen = RbmLearner.step, []

    def watched(self, x, targets, rate, *rest):
        seen.append(
            (self.momentum, rate / (options.rbm.rbm_lr_low if self.rbm.gaussian else options.rbm.rbm_lr) * 20)
        )
        return step(self, x, targets, rate, *rest)

    monkeypatch.setattr(RbmLearner, "step", watched)
    monkeypatch.setattr(
        Trainer, "single_rank_speed", lambda job: 0.0
    )  # no other steps than those of the training
    momentum = dict(
        with_bug=False, momentum_initial=0.2, momentum_final=0.8, momentum_steps=3, momentum_step_frames=400
    )
    options = with_options(
        hidden=dict(hidden_layers=2),
        momentum=momentum,
        scaling=dict(lr_scaling="linear"),
        mixing=dict(parallel=parallel),
    )
    spec = spec_of(data, tmp_path / "dbn", options)
    run_threads(2, lambda comm: pretrained(spec, comm))
    assert {round(m, 9) for m, _ in seen} == {0.2, 0.4, 0.6, 0.8}
    assert {round(rate / (1 - m), 9) for m, rate in seen} == num_learning


def die_after(monkeypatch, num_steps):
    """Interrupt the ranks after `num_steps` minibatches in total."""
    step, done = RbmLearner.step, []

    def dying(self, *arguments):
        done.append(1)
        if len(done) > num_steps:
            raise Crash
        return step(self, *arguments)

    monkeypatch.setattr(RbmLearner, "step", dying)


@pytest.mark.parametrize(
    "precision, num_ranks, interruptions", [("float32", 1, (3, 60, 201, 330)), ("bfloat16", 2, (61, 330))]
)
def test_resumed_pretraining_gives_same_bits(
    tmp_path, data, monkeypatch, precision, num_ranks, interruptions
):
    """Interrupted before the first checkpoint, within the first RBM, between RBMs and within the last."""
    options = with_options(compute=dict(precision=precision))
    spec = spec_of(data, tmp_path / "whole", options)
    whole = run_threads(num_ranks, lambda comm: parameters(pretrained(spec, comm)))
    for num_steps in interruptions:
        spec = spec_of(data, tmp_path / f"cut{num_steps}", options)
        with monkeypatch.context() as patch, pytest.raises(Crash):
            die_after(patch, num_steps)
            run_threads(num_ranks, lambda comm: pretrained(spec, comm))
        torch.manual_seed(12345)
        again = run_threads(num_ranks, lambda comm: parameters(pretrained(spec, comm)))
        assert torch.equal(again[0], whole[0]), num_steps


def test_pretraining_resumes_with_other_number_of_ranks(tmp_path, data, monkeypatch):
    """With the momentum of each rank's checkpoint."""
    spec = spec_of(data, tmp_path / "dbn", OPTIONS)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        die_after(patch, 61)
        run_threads(3, lambda comm: pretrained(spec, comm))
    machines = run_threads(2, lambda comm: parameters(pretrained(spec, comm)))
    assert torch.equal(*machines) and machines[0].isfinite().all()


@pytest.mark.parametrize("parallel", ["bmuf", "gradient", "adpsgd"])
def test_rbms_learn_with_other_schemes(tmp_path, data, parallel):
    spec = spec_of(
        data, tmp_path / "dbn", with_options(hidden=dict(hidden_layers=1), mixing=dict(parallel=parallel))
    )
    run_threads(2, lambda comm: pretrained(spec, comm))
    lines = metrics(spec.out / "rbm1")
    assert lines[-1]["heldout_reconstruction_error"] < 0.85 * lines[0]["reconstruction_error"]


def test_network_starts_from_rbms(trained):
    dbn, _ = trained
    network = FeedForward(DnnOptions(hidden_layers=3, hidden_dim=16, activation="sigmoid"), 18, 7)
    output = network.affine_layers[-1].weight.detach().clone()
    dbn.start(network)
    x = torch.randn(10, 18)
    hidden = Below(dbn.rbms, torch.device("cpu"), torch.float32)(x)
    assert torch.equal(network.affine_layers[-1].weight, output)
    torch.testing.assert_close(network(x), hidden @ output.T + network.affine_layers[-1].bias)


FITTING = DnnOptions(hidden_layers=3, hidden_dim=16, activation="sigmoid")


@pytest.mark.parametrize(
    "options, input, sentence",
    [
        (FITTING, INPUT, None),
        (
            DnnOptions(hidden_layers=3, hidden_dim=32, activation="sigmoid"),
            INPUT,
            "3 layers of 16 sigmoid units; give --hidden-dim 16, or",
        ),
        (
            DnnOptions(hidden_layers=2, hidden_dim=16),
            INPUT,
            "give --hidden-layers 3 --activation sigmoid, or pretrain another DBN",
        ),
        (
            FITTING,
            InputOptions(cmvn="none", splice_left=5, splice_right=1),
            r"pretrained with other input options \(splice_left: 1 -> 5\)",
        ),
    ],
)
def test_options_not_matching_dbn_are_refused(trained, data, options, input, sentence):
    if sentence is None:
        return check_dbn(trained[1], options, input, data)
    with pytest.raises(UserError, match=sentence):
        check_dbn(trained[1], options, input, data)


def test_features_of_other_dimension_are_refused(trained, tmp_path):
    data = tmp_path / "other"
    data.mkdir()
    with ArkWriter(data / "f.ark", data / "feats.scp") as writer:
        writer.write("a-1", np.zeros((4, 9), np.float32))
    write_table(data / "utt2spk", {"a-1": "a"})
    with pytest.raises(UserError, match="was trained on 18 columns per frame, but the input has 27"):
        check_dbn(trained[1], FITTING, INPUT, data)


def test_features_with_other_options_are_refused(trained, data, tmp_path):
    dbn_dir, other = tmp_path / "dbn", tmp_path / "data"
    shutil.copytree(trained[1], dbn_dir)
    save_origins(dbn_dir, [to_json(MfccOptions())])
    check_dbn(dbn_dir, FITTING, INPUT, data)  # features of unknown origin
    shutil.copytree(data, other)
    write_table(
        other / "feats.scp",
        {utt: rx.replace(str(data), str(other)) for utt, rx in read_scp(data / "feats.scp").items()},
    )
    save(other / OPTIONS_FILE, MfccOptions(num_ceps=20))
    report = (
        rf"^{other}: its features differ from those on which {dbn_dir} was trained \(--num-ceps 20, not 13\)"
    )
    with pytest.raises(UserError, match=report):
        check_dbn(dbn_dir, FITTING, INPUT, other)


def test_damaged_or_missing_dbn_is_refused(trained, tmp_path):
    with pytest.raises(UserError, match="no such file; pretrain first"):
        load_dbn(tmp_path / DBN_FILE)
    content = (trained[1] / DBN_FILE).read_bytes()
    (tmp_path / DBN_FILE).write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="not a whole DBN file"):
        load_dbn(tmp_path / DBN_FILE)
    broken = load_dbn(trained[1] / DBN_FILE)
    broken.rbms[1].weight[3, 4] = float("nan")
    broken.save(tmp_path / DBN_FILE)
    with pytest.raises(UserError, match=r"not a whole DBN file \(ValueError\); pretrain again"):
        load_dbn(tmp_path / DBN_FILE)


def test_rbms_and_checkpoints_of_other_shape_are_refused(data, tmp_path, monkeypatch):
    spec = spec_of(data, tmp_path / "dbn")
    with monkeypatch.context() as patch, pytest.raises(Crash):
        die_after(patch, 60)
        pretrained(spec, SoloComm())
    wider = with_options(hidden=dict(hidden_dim=24))
    with pytest.raises(UserError, match="a checkpoint of another network.*16x18"):
        pretrained(spec_of(data, tmp_path / "dbn", wider), SoloComm())
    pretrained(spec, SoloComm())
    with pytest.raises(
        UserError, match="RBMs of 16 units on 18 inputs, but these options give 24 units on 18 inputs"
    ):
        pretrained(spec_of(data, tmp_path / "dbn", wider), SoloComm())


@pytest.mark.parametrize("rate, error", [(1e30, "(nan|inf)"), (1e6, r"[\d.]+e\+\d\d")])
def test_divergence_is_reported(data, tmp_path, rate, error):
    options = with_options(rbm=dict(rbm_lr_low=rate))
    with pytest.raises(
        UserError,
        match=rf"pretraining has diverged \(reconstruction error {error}\): give a lower --rbm-lr-low",
    ):
        pretrained(spec_of(data, tmp_path / "dbn", options), SoloComm())


def test_long_utterances_are_skipped(data, tmp_path):
    prepare_utterances(data, tmp_path, HeldoutOptions(heldout_share=0.0), 60)
    assert Targets.load(tmp_path / "utterances.npz").keys == ["a-00", "b-01", "c-02", "d-03"]
    with pytest.raises(UserError, match="no utterance has from 1 to 40 frames; raise --max-frames"):
        prepare_utterances(data, tmp_path, HeldoutOptions(), 40)


def test_loaded_dbn_equals_saved_one(trained):
    """`load_dbn` returns RBMs that are bit-identical to those saved."""
    again = load_dbn(trained[1] / DBN_FILE)
    assert torch.equal(parameters(again), parameters(trained[0])) and isinstance(again.rbms[0], Rbm)
    assert OPTIONS.hidden.hidden_layers == len(again.rbms)
