"""Minibatches of whole utterances: any length that fits into memory, and finite features."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from training_corpora import DIM, make_data

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.io.ark import ArkWriter
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.parallel.communication.comm import SoloComm
from pyasr.train.job import memory_check
from pyasr.train.minibatches.lattice_utterances import LatticeUtterances
from pyasr.train.minibatches.padded_utterances import PaddedUtterances
from pyasr.train.objectives.ctc_training import Ctc
from pyasr.train.sgd.learner import Learner, LearnerOptions
from pyasr.train.targets.pdf_targets import Targets

NUM_UNITS = 4
LINES = ["tdnn splice=-1..1 stride=3 dim=6", "lstm cells=4"]
BACKWARDS_TOO = ["tdnn splice=-1..1 dim=6", "blstm cells=4 recurrent=2", "blstm cells=3"]


def utterances_of(data, minibatch=400, lines=LINES) -> PaddedUtterances:
    """Utterances of a data directory, each with the label 1."""
    reader = FeatureReader(data, InputOptions(cmvn="none"))
    num = len(reader.keys)
    targets = Targets(reader.keys, np.arange(num + 1), np.ones(num, np.int32), np.zeros(num, bool), NUM_UNITS)
    options = LearnerOptions(minibatch=minibatch, device="cpu", precision="float32")
    utterances = PaddedUtterances(reader, targets, reader.keys, options, 7, 0)
    utterances.normalise_by(
        np.zeros(DIM, np.float32), np.ones(DIM, np.float32), LayeredNetwork(lines, DIM, NUM_UNITS)
    )
    return utterances


def learner_of(lines=LINES) -> Learner:
    network = LayeredNetwork(lines, DIM, NUM_UNITS)
    network.initialise(torch.Generator().manual_seed(1))
    return Learner(network, LearnerOptions(device="cpu", precision="float32"), criterion=Ctc())


def job_of(learner, utterances) -> SimpleNamespace:
    """The parts of a training that the memory check uses."""
    return SimpleNamespace(
        learner=learner,
        training=utterances,
        comm=SoloComm(),
        minibatch=utterances.minibatch,
        memory_advice=lambda: "lower --minibatch",
    )


@pytest.mark.parametrize("lines", [LINES, BACKWARDS_TOO], ids=["LSTM", "BLSTM"])
def test_lengths_from_1_to_10000_frames(tmp_path, lines):
    """Every minibatch has a finite loss that changes the parameters, and each utterance occurs once."""
    lengths = {"a-0": 1, "a-1": 2, "a-2": 10_000, "a-3": 3, "a-4": 40}
    make_data(tmp_path / "data", lengths, NUM_UNITS)
    utterances, learner, seen = utterances_of(tmp_path / "data", lines=lines), learner_of(lines), []
    for x, supervision in utterances.minibatches(0, 1):
        before = learner.flat.master.clone()
        sums = learner.step(x, supervision, 1e-3)
        assert (
            torch.isfinite(sums).all()
            and sums[2] == len(supervision.names)
            and not torch.equal(before, learner.flat.master)
        )
        seen += supervision.names
    assert sorted(seen) == sorted(lengths) and not learner.nonfinite_guard.take()[0]


@pytest.mark.parametrize(
    "fault, sentence",
    [
        (
            np.nan,
            (
                r"a-02 has features that are not finite \(nan in frame 7, column 3\); compute the features "
                r"of "
                r".* again, or remove the utterance"
            ),
        ),
        (np.inf, r"a-02 has features that are not finite \(inf in frame 7, column 3\)"),
        ("narrow", "a-02 has 5 columns, other utterances have 6"),
        ("short", "a-02 has 19 frames, utt2num_frames says 20"),
    ],
)
def test_unusable_features_are_named(tmp_path, fault, sentence):
    make_data(tmp_path / "data", {f"a-{i:02d}": 20 for i in range(4)}, NUM_UNITS)
    reader = FeatureReader(tmp_path / "data", InputOptions(cmvn="none"))
    features = {key: reader[key].copy() for key in reader.keys}
    if isinstance(fault, str):
        features["a-02"] = features["a-02"][:, :-1] if fault == "narrow" else features["a-02"][:-1]
    else:
        features["a-02"][7, 3] = fault
    with ArkWriter(tmp_path / "data/f.ark", tmp_path / "data/feats.scp") as writer:
        for key, matrix in features.items():
            writer.write(key, matrix)
    utterances = utterances_of(tmp_path / "data")
    with pytest.raises(UserError, match=sentence):
        utterances.statistics()
    with pytest.raises(UserError, match=sentence):
        list(utterances.minibatches(0, 1))


def test_utterance_too_long_for_memory_is_refused_by_name(tmp_path, monkeypatch):
    make_data(tmp_path / "data", {"a-0": 60, "a-1": 30, "a-2": 30, "a-3": 3000}, NUM_UNITS)
    utterances, learner = utterances_of(tmp_path / "data"), learner_of()
    job = job_of(learner, utterances)
    memory_check.check_utterances_fit(job)
    kept = [
        memory_check.saved_bytes(lambda: learner.loss(*utterances.minibatch_of([i])), learner.network)
        for i in (0, 3)
    ]
    assert 35 < kept[1] / kept[0] < 51
    monkeypatch.setattr(memory_check, "free_bytes", lambda device: 1.5 * kept[1])
    with pytest.raises(
        UserError,
        match=(
            r"data: a-3 has 3000 frames, too many to train on as a whole: it takes about \d MB of memory, "
            r"\d MB are free"
        ),
    ):
        memory_check.check_utterances_fit(job)


def test_too_many_utterances_for_memory_are_reported_before_trial(tmp_path, monkeypatch):
    """Each utterance fits alone. On a CPU, the system might kill the process instead of raising an error."""
    make_data(tmp_path / "data", {f"a-{i}": 100 for i in range(20)}, NUM_UNITS)
    utterances, learner = utterances_of(tmp_path / "data", minibatch=2000), learner_of()
    kept = memory_check.saved_bytes(lambda: learner.loss(*utterances.minibatch_of([0])), learner.network)
    monkeypatch.setattr(memory_check, "free_bytes", lambda device: 2 * 21 * kept)
    memory_check.check_utterances_fit(job_of(learner, utterances))
    monkeypatch.setattr(memory_check, "free_bytes", lambda device: 2 * 10 * kept)
    report = (
        r"a minibatch of 2000 frames: it takes about \d MB, \d MB are free for each rank, enough for "
        r"about 1000 frames; lower --minibatch"
    )
    with pytest.raises(UserError, match=report):
        memory_check.check_utterances_fit(job_of(learner, utterances))


def test_gpu_memory_is_tried_instead_of_estimated(tmp_path, monkeypatch):
    """The estimate is about twice the requirement on a GPU, which frees memory while it computes
    derivatives."""
    make_data(tmp_path / "data", {f"a-{i}": 100 for i in range(20)}, NUM_UNITS)
    utterances, learner = utterances_of(tmp_path / "data", minibatch=2000), learner_of()
    kept = memory_check.saved_bytes(lambda: learner.loss(*utterances.minibatch_of([0])), learner.network)
    monkeypatch.setattr(memory_check, "free_bytes", lambda device: 1.5 * 20 * kept)
    job = job_of(learner, utterances)
    with pytest.raises(UserError, match="a minibatch of 2000 frames"):
        memory_check.check_utterances_fit(job)
    on_gpu = SimpleNamespace(master=SimpleNamespace(device=torch.device("cuda")))
    job.learner = copy.copy(learner)
    job.learner.flat = on_gpu
    memory_check.check_utterances_fit(job)


def test_largest_padded_minibatch_has_most_frames(tmp_path):
    """Here it does not contain the longest utterance; padding frames count."""
    make_data(tmp_path / "data", {"a-0": 70, "a-1": 100, "a-2": 66, "a-3": 60}, NUM_UNITS)
    utterances = utterances_of(tmp_path / "data", minibatch=150)
    x, supervision = utterances.largest(800)
    assert supervision.lengths.tolist() == [70, 66] and len(x) == 2 and utterances.most_frames() == 140


def test_largest_lattice_minibatch_has_most_frames(tmp_path):
    """Here it does not contain the longest utterance."""
    references = make_data(tmp_path / "data", {"a-0": 60, "a-1": 100, "a-2": 60, "a-3": 50}, NUM_UNITS)
    reader = FeatureReader(tmp_path / "data", InputOptions(cmvn="none"))
    model = SimpleNamespace(mean=torch.zeros(DIM), inverse_std=torch.ones(DIM))
    options = LearnerOptions(minibatch=120, device="cpu", precision="float32")
    utterances = LatticeUtterances(
        reader, model, references, references.keys, dict.fromkeys(references.keys), options, 7, 0
    )
    x, supervision = utterances.largest(800)
    assert [len(reference) for reference in supervision.references] == [60, 60] and x.shape == (120, DIM)


def units_of_minibatches(utterances: PaddedUtterances) -> list[int]:
    return [len(supervision.names) for _, supervision in utterances.minibatches(0, 1)]


@pytest.mark.parametrize("minibatch, tolerance", [(1, 0), (30, 0.02), (120, 0.05), (1000, 0.05)])
def test_units_per_minibatch_are_counted(tmp_path, minibatch, tolerance):
    """Also if utterances are longer than a minibatch should be; each of them is a minibatch of its own."""
    make_data(tmp_path / "data", {f"a-{i:03}": 20 + i % 50 for i in range(300)}, NUM_UNITS)
    utterances = utterances_of(tmp_path / "data", minibatch)
    found = units_of_minibatches(utterances)
    assert sum(found) == 300 and utterances.mean_units(SoloComm()) == pytest.approx(
        np.mean(found), rel=tolerance
    )


@pytest.mark.parametrize(
    "kind, minibatch", [("lattices", 1), ("lattices", 150), ("padded", 1), ("padded", 300)]
)
def test_resumption_positions_are_exact(tmp_path, kind, minibatch):
    """After a resumption with another number of ranks, which starts at any place of an epoch, a further
    interruption resumes exactly, and the remaining frames are complete."""
    lengths = {f"a-{i:02}": length for i, length in enumerate(np.random.default_rng(2).integers(20, 200, 30))}
    references = make_data(tmp_path / "data", lengths, NUM_UNITS)
    if kind == "padded":
        utterances = utterances_of(tmp_path / "data", minibatch)
    else:
        reader = FeatureReader(tmp_path / "data", InputOptions(cmvn="none"))
        model = SimpleNamespace(mean=torch.zeros(DIM), inverse_std=torch.ones(DIM))
        options = LearnerOptions(minibatch=minibatch, device="cpu", precision="float32")
        utterances = LatticeUtterances(
            reader, model, references, references.keys, dict.fromkeys(references.keys), options, 7, 0
        )
    utterances.minibatch_of = lambda members: sorted(map(int, members))  # instead of their features

    def frames(minibatches):
        return int(sum(utterances.lengths[members].sum() for members in minibatches))

    assert (
        utterances.border(2, 0) == 0 and utterances.border(2, utterances.num_frames) == utterances.num_frames
    )
    for done in range(1, utterances.num_frames, 97):
        begin = utterances.border(2, done)
        left = list(utterances.minibatches(minibatch, 2, begin))
        assert (
            begin >= done
            and begin + frames(left) == utterances.num_frames
            and left == list(utterances.minibatches(minibatch, 2, done))
        )
        for number in range(1, len(left)):
            assert list(utterances.minibatches(minibatch, 2, begin + frames(left[:number]))) == left[number:]


def test_memory_advice_names_longest_utterance(tmp_path):
    make_data(tmp_path / "data", {"a-0": 20, "a-1": 60, "a-2": 30}, NUM_UNITS)
    advice = (
        "lower --minibatch (now 800), cut long utterances (the longest is a-1, 60 frames), or run "
        "fewer ranks on a host"
    )
    assert utterances_of(tmp_path / "data", minibatch=800).advice(800) == advice


def test_saved_activations_are_measured():
    """Two products of (100, 10) by (10, 10) and a ReLU keep their inputs and outputs, 4000 bytes each."""
    network = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU(), torch.nn.Linear(10, 10))
    x = torch.randn(100, 10)
    assert memory_check.saved_bytes(lambda: network(x).sum(), network) == 8000
    with torch.no_grad():
        assert memory_check.saved_bytes(lambda: network(x).sum(), network) == 0
