"""Networks of layers over time in the training loop: chunks, ranks, checkpoints, and the step with MPI."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from schemes import KINDS_OF_SCHEMES, ranks_for
from toy_jobs import NUM_PDFS, Crash, with_options
from training_corpora import DIM, make_data

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.io.ark import ArkWriter
from pyasr.io.text_tables import write_table
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.nn.layers.sequence_layers import Convolution
from pyasr.nn.networks.acoustic import MODEL_FILE, load_model
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.data import minibatch_stream
from pyasr.train.data.data_shard import Shard
from pyasr.train.job.trainer import Trainer
from pyasr.train.objectives.dnn_training import TrainSpec
from pyasr.train.objectives.rank_training import train_rank
from pyasr.train.steps.dnn_step import check_training
from pyasr.train.targets.pdf_targets import TARGETS_FILE, Targets

NETWORKS = {
    "tdnn": "tdnn splice=-2..2 dim=16\ntdnn splice=-1,0,1 dim=16 dropout=0.1",
    "tdnnf": (
        "tdnn splice=-2..2 dim=16\ntdnnf dim=16 bottleneck-dim=6 repeat=2\nlinear dim=8 semi-orthogonal=true"
    ),
    "lstm": "lstm cells=12 recurrent=8 peepholes=true clip=3\ndelay frames=2",
    "lstmp": (
        "lstm cells=16 recurrent=4 nonrecurrent=4 peepholes=true natural-peepholes=true "
        "projection-bias=true init=kaldi clip-gradient=30"
    ),
    "blstm": "blstm cells=8\nlinear dim=8",
    "window": "affine dim=12\nwindow-blstm cells=6 left=2 right=2\naffine dim=12",
    "cnn": "conv channels=3 filters=8 time=3 bands=3 pool=2 step=2\naffine dim=12",
}


class Dying(Trainer):
    """Crashes after a checkpoint in the first epoch."""

    def _save(self, equal):
        super()._save(equal)
        if self.position.frames_seen > 400:
            raise Crash


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """24 utterances of 31 to 54 frames, of which four are held out."""
    path = tmp_path_factory.mktemp("corpus")
    targets = make_data(path / "data", {f"a-{i:02d}": 31 + i for i in range(24)}, NUM_PDFS)
    dataclasses.replace(targets, heldout=np.arange(24) % 6 == 0).save(path / TARGETS_FILE)
    return path


def spec_of(corpus, out: Path, lines: str, chunk=10, carry_state=False, deltas=0, **groups) -> TrainSpec:
    out.mkdir(parents=True)
    (out / "layers.net").write_text(lines)
    Targets.load(corpus / TARGETS_FILE).save(out / TARGETS_FILE)
    over_time = dict(network=out / "layers.net", chunk=chunk, carry_state=carry_state)
    options = with_options(
        over_time=over_time, learner=dict(minibatch=100, **groups.pop("learner", {})), **groups
    )
    return TrainSpec(corpus / "data", out, InputOptions(cmvn="none", deltas=deltas), options)


def metrics_of(out: Path) -> list[dict]:
    return [
        line
        for line in map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        if "heldout_objective" in line
    ]


@pytest.mark.parametrize("name, carry_state", [*((name, False) for name in NETWORKS), ("lstm", True)])
def test_networks_learn_and_models_reproduce_accuracy(corpus, tmp_path, name, carry_state):
    """On two ranks with natural gradient. The held-out accuracy is that of the model on the utterances, which
    it cuts into chunks as in training, or reads as a whole if states were carried. The channels of the CNN
    are features and both orders of derivatives."""
    learner = dict(
        natural_gradient=NaturalGradientOptions(natural_gradient="online", ng_rank_in=4, ng_rank_out=4),
        max_change=0.5,
    )
    spec = spec_of(
        corpus,
        tmp_path / "out",
        NETWORKS[name],
        carry_state=carry_state,
        deltas=2 if name == "cnn" else 0,
        learner=learner,
        schedule=dict(num_epochs=24 if name == "lstm" else 8, learning_rate=0.5),
        loop=dict(log_frames=1000, checkpoint_frames=1000),
    )
    run_threads(2, lambda comm: train_rank(spec, comm))
    output = metrics_of(spec.out)
    assert output[-1]["heldout_accuracy"] > 0.7
    model, reader = load_model(spec.out / MODEL_FILE), FeatureReader(spec.data, spec.input)
    targets = Targets.load(spec.out / TARGETS_FILE)
    held = targets.shard(0, 1, heldout=True)
    right = np.concatenate(
        [
            (model.log_likelihoods(reader[key]) + model.log_priors.numpy()).argmax(1) == targets.pdfs_of(key)
            for key in held
        ]
    )
    assert right.mean() == pytest.approx(output[-1]["heldout_accuracy"], abs=1e-6)


def test_cnn_channels_are_features_and_deltas(corpus):
    """Slopes over five frames, computed here; the first and last frames are repeated."""
    plain, derived = (
        FeatureReader(corpus / "data", InputOptions(cmvn="none", deltas=order))["a-03"] for order in (0, 2)
    )
    static = torch.nn.functional.pad(torch.from_numpy(plain).T, (4, 4), mode="replicate").T
    first = (
        sum(k * (static[2 + k : len(static) - 2 + k] - static[2 - k : len(static) - 2 - k]) for k in (1, 2))
        / 10
    )
    second = (
        sum(k * (first[2 + k : len(first) - 2 + k] - first[2 - k : len(first) - 2 - k]) for k in (1, 2)) / 10
    )
    images = torch.stack([static[4:-4], first[2:-2], second])[None]
    layer = Convolution(3 * DIM, 3, filters=4, time=3, bands=3, pool=2, step=2)
    expected = torch.nn.functional.max_pool2d(layer.convolution(images).relu(), (1, 2))
    torch.testing.assert_close(
        layer(torch.from_numpy(derived)[:, None]),
        expected.permute(2, 0, 1, 3).flatten(2),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("scheme, name, other", [
    ("allreduce", "blstm", {}),
    ("gradient", "carried", {}),
    ("adpsgd", "carried", {}),
    ("allreduce", "tdnnf", {}),
    ("allreduce", "lstm",
     dict(growth=dict(shrink_value=0.9, shrink_saturation_threshold=0.0, shrink_value_period_frames=500))),
    ("gradient", "tdnnf", dict(learner=dict(momentum=0.5))),
    ("gradient", "lstmp",
     dict(learner=dict(natural_gradient=NaturalGradientOptions(natural_gradient="online", ng_rank_in=4,
                                                               ng_rank_out=4)))),
    ("bmuf", "carried", dict(mixing=dict(first_mixing="best"))),
    ("allreduce", "carried in blocks", {}),
])  # fmt: skip
def test_interrupted_training_resumes_with_each_scheme(corpus, tmp_path, monkeypatch, scheme, name, other):
    """An interrupted training ends with the same model; with asynchronous schemes it only ends."""
    if name == "carried in blocks":
        monkeypatch.setattr(Shard, "varies", True)
        monkeypatch.setattr(minibatch_stream, "_num_blocks", lambda num_bytes, room: 3)
    groups = dict(
        schedule=dict(num_epochs=2, learning_rate=0.2),
        loop=dict(checkpoint_frames=400, log_frames=200),
        **other,
    )
    groups["mixing"] = dict(parallel=scheme, period_frames=200, **other.get("mixing", {}))
    lines, groups["carry_state"] = NETWORKS.get(name, NETWORKS["lstm"]), name not in NETWORKS
    whole = spec_of(corpus, tmp_path / "whole", lines, **groups)
    run_threads(3, lambda comm: train_rank(whole, comm))
    again = spec_of(corpus, tmp_path / "again", lines, **groups)

    with pytest.raises(Crash):
        run_threads(3, lambda comm: train_rank(again, comm, Dying))
    run_threads(3, lambda comm: train_rank(again, comm))
    models = [load_model(spec.out / MODEL_FILE).network.state_dict() for spec in (whole, again)]
    assert scheme == "adpsgd" or all(torch.equal(a, b) for a, b in zip(*(model.values() for model in models)))


def test_scheduled_dropout_of_chunks_resumes(corpus, tmp_path):
    """Bit for bit, on a rank that has its own random numbers."""
    groups = dict(
        schedule=dict(num_epochs=2, learning_rate=0.2), loop=dict(checkpoint_frames=400, log_frames=200)
    )
    groups["learner"] = dict(dropout_schedule="0,0@0.2,0.4@0.5,0.1")
    whole, again = (
        spec_of(corpus, tmp_path / name, NETWORKS["tdnnf"], **groups) for name in ("whole", "again")
    )
    train_rank(whole, SoloComm())
    with pytest.raises(Crash):
        train_rank(again, SoloComm(), Dying)
    torch.manual_seed(12345)
    train_rank(again, SoloComm())
    models = [load_model(spec.out / MODEL_FILE).network.state_dict() for spec in (whole, again)]
    assert all(torch.equal(a, b) for a, b in zip(*(model.values() for model in models)))


@pytest.mark.parametrize("name, carry_state", [("tdnn", False), ("lstm", True)])
def test_other_number_of_ranks_resumes(corpus, tmp_path, name, carry_state):
    """Ranks skip whole chunks, and no chunk is trained on twice in the epoch."""
    groups = dict(
        schedule=dict(num_epochs=2, learning_rate=0.2), loop=dict(checkpoint_frames=400, log_frames=200)
    )
    spec = spec_of(corpus, tmp_path / "out", NETWORKS[name], carry_state=carry_state, **groups)
    with pytest.raises(Crash):
        run_threads(3, lambda comm: train_rank(spec, comm, Dying))
    run_threads(2, lambda comm: train_rank(spec, comm))
    frames = [line["frames"] for line in metrics_of(spec.out)]
    assert len(frames) == 2 and abs(frames[1] - 2 * frames[0]) <= 20  # two ranks round down to chunks of 10


@pytest.mark.parametrize("name, carry_state, share", [("blstm", False, 0.85), ("lstm", True, 0.95)])
@pytest.mark.parametrize("scheme", KINDS_OF_SCHEMES)
def test_each_kind_of_scheme_learns(corpus, tmp_path, scheme, name, carry_state, share):
    """Networks that start at the level of guessing: chunks of a BLSTM, and of an LSTM with carried state."""
    groups = dict(
        mixing=dict(parallel=scheme, period_frames=200, ranks_per_node=2), learner=dict(max_change=1.0)
    )
    schedule = dict(num_epochs=2, learning_rate=5.0, lr_scaling="none")
    spec = spec_of(
        corpus, tmp_path / "out", NETWORKS[name], carry_state=carry_state, schedule=schedule, **groups
    )
    run_threads(ranks_for(scheme), lambda comm: train_rank(spec, comm))
    assert metrics_of(spec.out)[-1]["heldout_objective"] > -share * np.log(NUM_PDFS)


def test_carried_state_is_learned(tmp_path):
    """The first frame of an utterance determines the pdf of all its frames, also in later chunks. Without
    carried state, only the first chunk can be learned."""
    rng, lengths = np.random.default_rng(5), {f"a-{i:02d}": 12 + i % 9 for i in range(60)}
    pdfs = {key: np.full(n, rng.integers(2), np.int32) for key, n in lengths.items()}
    data = tmp_path / "data"
    data.mkdir()
    with ArkWriter(data / "f.ark", data / "feats.scp") as writer:
        for key, answers in pdfs.items():
            x = rng.standard_normal((len(answers), 3)).astype(np.float32)
            x[0, 0] = 6 * answers[0] - 3
            writer.write(key, x)
    write_table(data / "utt2spk", dict.fromkeys(lengths, "a"))
    write_table(data / "utt2num_frames", lengths)
    offsets = np.concatenate([[0], np.cumsum(list(lengths.values()))])
    Targets(list(lengths), offsets, np.concatenate(list(pdfs.values())), np.arange(60) % 4 == 0, 2).save(
        tmp_path / TARGETS_FILE
    )
    accuracies = []
    for carry_state in (False, True):
        groups = dict(schedule=dict(num_epochs=15, learning_rate=2.0), learner=dict(max_change=1.0))
        spec = spec_of(
            tmp_path, tmp_path / str(carry_state), "lstm cells=8", chunk=4, carry_state=carry_state, **groups
        )
        train_rank(spec, SoloComm())
        accuracies.append(metrics_of(spec.out)[-1]["heldout_accuracy"])
    assert accuracies[0] < 0.75 and accuracies[1] > 0.9


def test_averaged_models_with_priors_from_posteriors(corpus, tmp_path):
    groups = dict(
        combine=dict(combine="weights", combine_period_frames=300),
        priors=dict(priors="posteriors"),
        sample=dict(sample_frames=200),
    )
    spec = spec_of(
        corpus, tmp_path / "out", NETWORKS["lstm"], schedule=dict(num_epochs=3, learning_rate=0.3), **groups
    )
    train_rank(spec, SoloComm())
    model = load_model(spec.out / MODEL_FILE)
    assert float(model.log_priors.exp().sum()) == pytest.approx(1.0, abs=1e-5)


def test_chunk_must_match_network(corpus, tmp_path):
    spec = spec_of(corpus, tmp_path / "out", "tdnn splice=-1..1 stride=3 dim=8")
    with pytest.raises(
        UserError, match="--chunk 10: the network has one output per 3 frames; give a multiple of 3"
    ):
        train_rank(spec, SoloComm())


@pytest.mark.parametrize(
    "lines, reason",
    [
        ("blstm cells=4", "a blstm layer reads an utterance from its end"),
        ("affine dim=4", "the network has no recurrent layer"),
    ],
)
def test_networks_with_uncarriable_state_are_refused(corpus, tmp_path, lines, reason):
    with pytest.raises(
        UserError, match=f"--carry-state with .*layers.net: {reason}.*, or leave --carry-state out"
    ):
        train_rank(spec_of(corpus, tmp_path / "out", lines, carry_state=True), SoloComm())


def test_carried_states_refuse_priors_from_posteriors(tmp_path):
    over_time = dict(network=tmp_path / "a.net", carry_state=True)
    with pytest.raises(UserError, match="--carry-state cannot be combined with --priors posteriors"):
        check_training(with_options(over_time=over_time, priors=dict(priors="posteriors")))
