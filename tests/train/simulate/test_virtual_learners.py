"""Training on virtual learners: bit-identical to ordinary training, times that can be computed by hand,
output of the step."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from scheme_toys import changed_groups
from schemes import fitting
from toy_jobs import metrics, store, trained, training, with_options
from training_corpora import make_alignments, make_data

sys.path.append(str(Path(__file__).parents[2]))
from steps_here import run_here  # noqa: E402

from pyasr.base.cli.seeds import generator  # noqa: E402
from pyasr.nn.networks.acoustic import load_scorer  # noqa: E402
from pyasr.parallel.communication.comm import SoloComm  # noqa: E402
from pyasr.parallel.simulation.network_model import ClusterNetwork  # noqa: E402
from pyasr.parallel.simulation.simulator import ComputeTime, run_simulated  # noqa: E402
from pyasr.train.simulate.virtual_learners import LearnerRecord, VirtualOptions, VirtualTrainer  # noqa: E402

OPTIONS = with_options(
    loop=dict(log_frames=10**9), schedule=dict(num_epochs=1), mixing=dict(period_frames=32)
)
DROPOUT = with_options(dnn=dict(hidden_layers=2, hidden_dim=16, dropout=0.5))


def virtual(
    directory: Path,
    num_learners: int,
    compute: ComputeTime,
    network=ClusterNetwork(0.0, 1e12),
    options=OPTIONS,
):
    """(parameters of each learner, courses) of learners with 6 utterances of 50 frames each."""
    courses = [LearnerRecord() for _ in range(num_learners)]

    def learner(comm) -> torch.Tensor:
        job = training(
            comm,
            directory,
            store(6, comm.rank),
            options,
            partial(VirtualTrainer, compute, 0, courses[comm.rank]),
        )
        job.run()
        return job.learner.flat.master.clone()

    return run_simulated(num_learners, learner, network), courses


def test_single_learner_equals_plain_training(tmp_path):
    alone = trained(SoloComm(), tmp_path / "alone", store(6), DROPOUT)
    (found,), _ = virtual(tmp_path / "virtual", 1, ComputeTime(0.1, 0.5), options=DROPOUT)
    assert torch.equal(found, alone)


@pytest.mark.parametrize("scheme", ["allreduce", "gradient"])
def test_speeds_do_not_change_synchronous_training(tmp_path, scheme):
    """Their minibatches interleave differently, but each learner has its own random numbers for dropout."""
    options = changed_groups(DROPOUT, mixing=dict(parallel=scheme))
    even, _ = virtual(tmp_path / "even", 3, ComputeTime(0.1), options=options)
    uneven, _ = virtual(tmp_path / "uneven", 3, ComputeTime(0.1, 1.0, {0: 7.3}), options=options)
    again, _ = virtual(tmp_path / "again", 3, ComputeTime(0.1, 1.0, {0: 7.3}), options=options)
    assert all(torch.equal(master, even[0]) for master in [*even, *uneven, *again])


def test_time_is_sum_of_minibatches_and_messages(tmp_path):
    """300 frames are 18 minibatches of 16 and one of 12; ranks mix after every two, and at the end."""
    compute, network = ComputeTime(0.5, 0.3), ClusterNetwork(0.0, 1e6)
    masters, courses = virtual(tmp_path / "job", 4, compute, network)
    times = [
        [compute.sample(stream, rank) * share for share in [1.0] * 18 + [12 / 16]]
        for rank, stream in enumerate(generator(0, "computing time", rank) for rank in range(4))
    ]
    allreduce_s = 2 * 3 * 4 * masters[0].numel() / (4 * 1e6)
    slowest = sum(max(sum(own[i : i + 2]) for own in times) for i in range(0, 19, 2))
    for own, course in zip(times, courses):
        computing, waiting, mixing = course.seconds
        assert computing == pytest.approx(sum(own)) and mixing == pytest.approx(10 * allreduce_s)
        assert waiting == pytest.approx(slowest - sum(own))
        (begin, *_), (end, *_) = course.history
        # plus a few bytes for the log
        assert end - begin == pytest.approx(slowest + 10 * allreduce_s, rel=1e-3)


def test_straggler_slows_all(tmp_path):
    _, (even, *_) = virtual(tmp_path / "even", 4, ComputeTime(1.0))
    _, (slow, *_) = virtual(tmp_path / "slow", 4, ComputeTime(1.0, factors={3: 10.0}))
    assert slow.history[-1][0] == pytest.approx(10 * even.history[-1][0], rel=1e-3)
    assert slow.seconds[0] == even.seconds[0] and slow.seconds[1] == pytest.approx(
        9 * even.seconds[0], rel=1e-3
    )
    line = next(line for line in metrics(tmp_path / "slow") if "waiting" in line)
    assert line["waiting"] == pytest.approx(0.675, abs=1e-3)  # three learners of four, for 0.9 of the time
    assert line["frames_per_s"] == round(1200 / 187.5)  # in virtual time


def test_learners_are_evaluated_before_consensus(tmp_path):
    ring = with_options(
        loop=dict(log_frames=10**9),
        mixing=dict(parallel="ring", period_frames=32),
        schedule=dict(num_epochs=1),
    )
    _, (course, *_) = virtual(tmp_path / "ring", 8, ComputeTime(0.1), options=ring)
    ((apart_s, objective, _),), (seconds, consensus, _) = course.apart, course.history[-1]
    assert 0 < apart_s <= seconds and objective < consensus < 0 and len(course.history) == 2


def test_server_is_evaluated_by_its_own_parameters(tmp_path):
    """The evaluation before the last consensus uses the server's present parameters, which contain the work
    of all learners."""
    server = with_options(
        loop=dict(log_frames=10**9), mixing=dict(parallel="asgd"), schedule=dict(num_epochs=1)
    )
    _, (course, *_) = virtual(tmp_path / "asgd", 4, ComputeTime(0.1), options=server)
    ((_, objective, _),), (_, initial, _), (_, consensus, _) = course.apart, *course.history
    assert abs(objective - consensus) < 0.15 * abs(initial - consensus)


def test_minibatches_without_duration(tmp_path):
    """A single learner does not communicate."""
    _, (course,) = virtual(tmp_path / "job", 1, ComputeTime(0.0))
    assert course.seconds == (0.0, 0.0, 0.0)
    (line,) = [line for line in metrics(tmp_path / "job") if "frames_per_s" in line]
    assert line["frames"] == 300 and line["data"] == line["waiting"] == line["communication"] == 0


def test_speed_counts_reported_frames(tmp_path):
    """Four learners with one minibatch of 16 per second; 1200 frames, of which the last report may count a
    few too many."""
    options = with_options(
        loop=dict(log_frames=50), mixing=dict(parallel="adpsgd"), schedule=dict(num_epochs=1)
    )
    virtual(tmp_path / "job", 4, ComputeTime(1.0), options=options)
    (line,) = [line for line in metrics(tmp_path / "job") if "frames_per_s" in line]
    assert line["frames_per_s"] == pytest.approx(64, rel=0.1)


@pytest.mark.parametrize("scheme", ["ring", "dpsgd", "adpsgd"])
def test_distance_from_consensus_is_from_mean_of_all(tmp_path, scheme):
    """At the end of an epoch. Log lines also cover other mixings, in which learners of a ring see only their
    neighbours."""
    options = with_options(
        loop=dict(log_frames=10**9),
        mixing=dict(parallel=scheme, period_frames=32),
        schedule=dict(num_epochs=1),
    )
    own = {}

    def learner(comm) -> torch.Tensor:
        job = training(comm, tmp_path / "job", store(6, comm.rank), options)
        job.strategy.training.before_consensus = lambda: own.update(
            {comm.rank: job.learner.flat.master.clone()}
        )
        job.run()
        return job.learner.flat.master

    mean = run_simulated(8, learner, ClusterNetwork(0.0, 1e12))[0]
    distances = torch.stack([(own[rank] - mean).norm() / mean.norm() for rank in range(8)])
    assert metrics(tmp_path / "job")[-1]["consensus_distance"] == pytest.approx(
        float(distances.square().mean().sqrt()), rel=1e-3
    )
    if scheme == "ring":
        assert torch.allclose(torch.stack(list(own.values())).mean(dim=0), mean, atol=1e-5)


def test_small_network_represents_large_one():
    options = VirtualOptions(
        model_mb=160.0, bandwidth_mb=690.0, host_bandwidth_mb=5000.0, learners_per_host=2
    )
    network = options.network(1000)
    assert network.wire((0, 2)).spread_s(2, 1000) == pytest.approx(options.latency_s + 160 / 690)
    assert network.wire((0, 1)).spread_s(2, 1000) == pytest.approx(network.intra_host_latency_s + 160 / 5000)
    assert VirtualOptions(model_mb=0.0).network(1000).bandwidth == 690e6


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    make_alignments(
        path / "ali",
        make_data(path / "data", {f"{speaker}-{i}": 80 + i for speaker in "abcdef" for i in range(6)}, 6),
    )
    (path / "lang").mkdir()
    (path / "lang" / "phones.txt").write_text("<eps> 0\n")
    return path


def simulated(corpus: Path, out: Path, *flags) -> dict:
    run_here("simulate_parallel.py", "--num-learners", 4, "--cmvn", "none", "--hidden-layers", 1,
             "--hidden-dim", 32, "--num-epochs", 2, "--minibatch", 16, "--heldout-share", 0.2,
             "--precision", "float32", "--device", "cpu", *fitting(["--period-frames", 64, *flags]),
             corpus / "data", corpus / "lang", corpus / "ali", out)  # fmt: skip
    return json.loads((out / "simulation.json").read_text())


def test_step_writes_model_and_history(corpus, tmp_path):
    found = simulated(corpus, tmp_path / "one", "--parallel", "butterfly")
    assert found == simulated(corpus, tmp_path / "other", "--parallel", "butterfly")
    assert load_scorer(tmp_path / "one").num_pdfs == 6
    assert found["diverged"] is None and found["training"]["mixing"]["parallel"] == "butterfly"
    times, objectives, accuracies = zip(*found["history"])
    assert (
        len(times) == 3
        and times[0] < times[1] < times[2]
        and found["epoch_s"] == pytest.approx((times[2] - times[0]) / 2)
    )
    assert objectives[0] < objectives[1] and accuracies[-1] > 0.5
    assert sum(found["seconds"].values()) == pytest.approx(times[-1] - times[0], rel=0.05)


@pytest.mark.parametrize(
    "scheme, waits", [("allreduce", True), ("d1d", True), ("adpsgd", False), ("asgd", False)]
)
def test_only_synchronous_learners_wait_for_straggler(corpus, tmp_path, scheme, waits):
    """Asynchronous learners do the straggler's share of the work, and the model is as good."""
    flags = ["--parallel", scheme, "--bandwidth-mb", 1e4]
    even, slow = (
        simulated(corpus, tmp_path / str(factor), *flags, "--straggler", factor) for factor in (1, 20)
    )
    slower = slow["epoch_s"] / even["epoch_s"]
    assert slower > 10 if waits else slower < 3
    assert slow["history"][-1][2] > 0.5


def test_divergence_is_a_result(corpus, tmp_path):
    found = simulated(corpus, tmp_path / "far", "--learning-rate", 1e35)
    assert (
        "diverged" in found["diverged"] and len(found["history"]) >= 1 and found["verdict"] == "not a number"
    )
    assert not (tmp_path / "far" / "final.nnet").exists()
