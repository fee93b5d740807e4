"""Networks of layers over time through the real loop: chunks, ranks, checkpoints, and the step with MPI."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from corpora import make_data
from toy_jobs import NUM_PDFS, Crash, with_options

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.nn.acoustic import MODEL_FILE, load_model
from pyasr.nn.preconditioned_layers import NaturalGradientOptions
from pyasr.parallel.comm import SoloComm
from pyasr.parallel.threads import run_threads
from pyasr.train.dnn import TrainSpec, check_training, train_rank
from pyasr.train.loop import Training
from pyasr.train.targets import TARGETS_FILE, Targets

NETWORKS = {
    "tdnn": "tdnn splice=-2..2 dim=16\ntdnn splice=-1,0,1 dim=16 dropout=0.1",
    "lstm": "lstm cells=12 recurrent=8 peepholes=true clip=3\ndelay frames=2",
    "blstm": "blstm cells=8\nlinear dim=8",
    "window": "affine dim=12\nwindow-blstm cells=6 left=2 right=2\naffine dim=12",
}


class Dying(Training):
    """Ends after a checkpoint in the first epoch."""

    def _save(self, equal):
        super()._save(equal)
        if self.position.frames_seen > 400:
            raise Crash


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """24 utterances of 31 to 54 frames, four of which are held out."""
    path = tmp_path_factory.mktemp("corpus")
    targets = make_data(path / "data", {f"a-{i:02d}": 31 + i for i in range(24)}, NUM_PDFS)
    dataclasses.replace(targets, heldout=np.arange(24) % 6 == 0).save(path / TARGETS_FILE)
    return path


def spec_of(corpus, out: Path, lines: str, chunk=10, **groups) -> TrainSpec:
    out.mkdir(parents=True)
    (out / "layers.net").write_text(lines)
    Targets.load(corpus / TARGETS_FILE).save(out / TARGETS_FILE)
    options = with_options(over_time=dict(network=out / "layers.net", chunk=chunk), learner=dict(minibatch=100, **groups.pop("learner", {})), **groups)
    return TrainSpec(corpus / "data", out, InputOptions(cmvn="none"), options)


def metrics_of(out: Path) -> list[dict]:
    return [line for line in map(json.loads, (out / "metrics.jsonl").read_text().splitlines()) if "heldout_objective" in line]


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_learn_and_their_models_tell_the_same(corpus, tmp_path, name):
    """On two ranks with natural gradient; held-out accuracy is that of the model on the utterances, which it cuts as training did."""
    learner = dict(natural_gradient=NaturalGradientOptions(natural_gradient="online", ng_rank_in=4, ng_rank_out=4), max_change=0.5)
    spec = spec_of(corpus, tmp_path / "out", NETWORKS[name], learner=learner, schedule=dict(num_epochs=24 if name == "lstm" else 8, learning_rate=0.5))
    run_threads(2, lambda comm: train_rank(spec, comm))
    told = metrics_of(spec.out)
    assert told[-1]["heldout_accuracy"] > 0.7
    model, reader = load_model(spec.out / MODEL_FILE), FeatureReader(spec.data, spec.input)
    targets = Targets.load(spec.out / TARGETS_FILE)
    held = targets.shard(0, 1, heldout=True)
    right = np.concatenate([(model.log_likelihoods(reader[key]) + model.log_priors.numpy()).argmax(1) == targets.pdfs_of(key) for key in held])
    assert right.mean() == pytest.approx(told[-1]["heldout_accuracy"], abs=1e-6)


@pytest.mark.parametrize("scheme", ["allreduce", "gradient", "adpsgd"])
def test_schemes_and_checkpoints(corpus, tmp_path, scheme):
    """An interrupted training ends with the same model; asynchronous ones with some."""
    groups = dict(mixing=dict(parallel=scheme, period_frames=200), schedule=dict(num_epochs=2, learning_rate=0.2), loop=dict(checkpoint_frames=400, log_frames=200))
    whole = spec_of(corpus, tmp_path / "whole", NETWORKS["blstm"], **groups)
    run_threads(3, lambda comm: train_rank(whole, comm))
    again = spec_of(corpus, tmp_path / "again", NETWORKS["blstm"], **groups)

    with pytest.raises(Crash):
        run_threads(3, lambda comm: train_rank(again, comm, Dying))
    run_threads(3, lambda comm: train_rank(again, comm))
    models = [load_model(spec.out / MODEL_FILE).network.state_dict() for spec in (whole, again)]
    assert scheme == "adpsgd" or all(torch.equal(a, b) for a, b in zip(*(model.values() for model in models)))


def test_another_number_of_ranks_goes_on(corpus, tmp_path):
    """In whole chunks, and no chunk is trained on twice in the epoch."""
    groups = dict(schedule=dict(num_epochs=2, learning_rate=0.2), loop=dict(checkpoint_frames=400, log_frames=200))
    spec = spec_of(corpus, tmp_path / "out", NETWORKS["tdnn"], **groups)
    with pytest.raises(Crash):
        run_threads(3, lambda comm: train_rank(spec, comm, Dying))
    run_threads(2, lambda comm: train_rank(spec, comm))
    frames = [line["frames"] for line in metrics_of(spec.out)]
    assert len(frames) == 2 and abs(frames[1] - 2 * frames[0]) <= 20  # two ranks round down to chunks of 10


def test_averages_of_models_and_priors_from_posteriors(corpus, tmp_path):
    groups = dict(combine=dict(combine="weights", combine_period_frames=300), priors=dict(priors="posteriors"), sample=dict(sample_frames=200))
    spec = spec_of(corpus, tmp_path / "out", NETWORKS["lstm"], schedule=dict(num_epochs=3, learning_rate=0.3), **groups)
    train_rank(spec, SoloComm())
    model = load_model(spec.out / MODEL_FILE)
    assert float(model.log_priors.exp().sum()) == pytest.approx(1.0, abs=1e-5)


def test_chunks_fit_the_network(corpus, tmp_path):
    spec = spec_of(corpus, tmp_path / "out", "tdnn splice=-1..1 stride=3 dim=8")
    with pytest.raises(UserError, match="--chunk 10: the network answers on every 3. frame"):
        train_rank(spec, SoloComm())


def test_options_of_other_networks_are_refused(tmp_path):
    (tmp_path / "a.net").write_text("affine dim=4")
    options = with_options(over_time=dict(network=tmp_path / "a.net"), growth=dict(mix_up=50), transform=dict(input_transform="lda"))
    with pytest.raises(UserError, match="--network and --mix-up, --input-transform do not go together"):
        check_training(options, None)
    with pytest.raises(UserError, match="--network and --dbn"):
        check_training(with_options(over_time=dict(network=tmp_path / "a.net")), tmp_path)
