"""Gradients that are summed over ranks during the backward pass: against explicit synchronous SGD in float64,
and their duration."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toy_jobs import NUM_PDFS, metrics, store, training, with_options
from training_corpora import DIM

from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions, precondition
from pyasr.parallel.communication.rank_threads import ThreadComm, run_threads
from pyasr.parallel.mixing import gradient_sum
from pyasr.parallel.mixing.flat import FlatParameters
from pyasr.parallel.mixing.gradient_sum import GradientSum
from pyasr.parallel.mixing.payload_codec import PayloadCodec
from pyasr.parallel.simulation.network_model import ClusterNetwork
from pyasr.parallel.simulation.simulator import run_simulated
from pyasr.parallel.strategies import SchemeOptions
from pyasr.train.sgd.completion import Completion

SHARDS = [10, 10, 3, 0]  # utterances of 50 frames
MOMENTUM, L2, MAX_CHANGE = 0.6, 1e-3, 0.05


def job(comm, directory, parallel="gradient", **groups):
    learner = {"momentum": MOMENTUM, "l2": L2, "max_change": MAX_CHANGE, **groups.pop("learner", {})}
    options = with_options(
        learner=learner, mixing=dict(parallel=parallel, **groups.pop("mixing", {})), **groups
    )
    return training(comm, directory, store(SHARDS[comm.rank], comm.rank), options)


def trained(directory, parallel="gradient", num_ranks=4, **groups) -> list[torch.Tensor]:
    def rank(comm):
        task = job(comm, directory, parallel, **groups)
        task.run()
        return task.learner.flat.master.clone()

    return run_threads(num_ranks, rank)


def by_hand(directory) -> torch.Tensor:
    """The steps of all ranks, in float64 and one process: a minibatch is that of all ranks, whose gradients
    are summed and divided by four."""

    def minibatches(comm):
        task = job(comm, directory)
        return (
            task.learner,
            task.schedule,
            [list(task.training.minibatches(16, epoch)) for epoch in (1, 2, 3)],
        )

    ranks = run_threads(4, minibatches)
    (learner, schedule, _), frames_seen = ranks[0], 0
    network, velocity = learner.network.double(), 0.0
    for epoch in range(3):
        schedule.state.epoch = epoch
        steps = max(len(batches[epoch]) for _, _, batches in ranks)
        for step in range(steps):
            parts = [batches[epoch][step] for _, _, batches in ranks if step < len(batches[epoch])]
            frames = sum(len(pdfs) for _, pdfs in parts)
            loss = (
                sum(
                    torch.nn.functional.cross_entropy(network(x.double()), pdfs, reduction="sum")
                    for x, pdfs in parts
                )
                / 4
            )
            rate = schedule.step_rate(frames_seen, 4)
            values = torch.cat([p.flatten() for p in network.parameters()]).detach()
            gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(network.parameters()))])
            velocity = MOMENTUM * velocity - rate * (gradient + 2 * L2 / 4 * frames / 4 * values)
            change = (1 - MOMENTUM) * velocity
            values += change * min(1.0, MAX_CHANGE / float(change.norm()))
            torch.nn.utils.vector_to_parameters(values, network.parameters())
            frames_seen += frames
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def test_all_ranks_take_steps_of_synchronous_sgd(tmp_path):
    """With uneven shards, momentum, l2 and an effective limit on changes."""
    masters, expected = trained(tmp_path / "job"), by_hand(tmp_path / "again")
    assert all(torch.equal(master, masters[0]) for master in masters)
    found = masters[0][masters[0] != 0].double()  # except for the padding between parameters
    torch.testing.assert_close(found, expected[expected != 0], atol=2e-6, rtol=1e-5)
    assert {line.get("drift", 0.0) for line in metrics(tmp_path / "job")} == {0.0}


@pytest.mark.parametrize("natural", ["none", "online"])
def test_partial_sums_equal_one_sum(tmp_path, monkeypatch, natural):
    """In the background, layer by layer, instead of all at once."""
    learner = dict(natural_gradient=NaturalGradientOptions(natural_gradient=natural))
    whole, in_background = trained(tmp_path / "whole", learner=learner), []
    monkeypatch.setattr(gradient_sum, "_MIN_PART", 20)
    monkeypatch.setattr(gradient_sum, "_NUM_PARTS", 1000)
    background = ThreadComm.background
    monkeypatch.setattr(
        ThreadComm,
        "background",
        lambda comm, function: (in_background.append(comm.rank), background(comm, function))[1],
    )
    assert torch.equal(trained(tmp_path / "parts", learner=learner)[0], whole[0])
    assert set(in_background) == {0, 1, 2}  # the last rank has nothing to compute


def test_narrow_types_stay_close(tmp_path):
    """Of communication and of products: the first rounds sums, the second gradients."""
    exact = trained(tmp_path / "exact")[0]
    for groups in (dict(mixing=dict(payload="bfloat16")), dict(learner=dict(precision="bfloat16"))):
        masters = trained(tmp_path / str(groups), **groups)
        assert all(torch.equal(master, masters[0]) for master in masters)
        assert 0 < (masters[0] - exact).norm() / exact.norm() < 0.02


def test_non_finite_gradient_skips_minibatch_on_all_ranks(tmp_path):
    def rank(comm):
        task = job(comm, tmp_path / "job", schedule=dict(num_epochs=1))
        if comm.rank == 1:
            task.training.store.frames[100] = torch.nan
        task.run()
        return task.learner.flat.master.clone(), task.position.skipped

    results = run_threads(4, rank)
    assert all(torch.equal(master, results[0][0]) and skipped == results[0][1] for master, skipped in results)
    assert results[0][0].isfinite().all() and results[0][1] > 0


def test_post_local_mixes_gradients_then_parameters(tmp_path):
    """post-local: ranks drift apart only from the second epoch on; ranks without data do not change
    parameters."""
    masters = trained(tmp_path / "job", "post-local", loop=dict(log_frames=100))
    drifts = [(line["epoch"], line["drift"] > 0) for line in metrics(tmp_path / "job") if "drift" in line]
    assert set(drifts) == {(1, False), (2, True), (3, True)}
    assert all(torch.equal(master, masters[0]) for master in masters)


def test_best_rank_is_followed_without_momentum(tmp_path):
    masters = trained(tmp_path / "job", mixing=dict(first_mixing="best"))
    assert all(torch.equal(master, masters[0]) for master in masters)


@pytest.mark.parametrize("seconds_of_sum, expected", [(1.0, 3.0 + 1.0), (3.0, 1.0 + 3 * 3.0)])
def test_sums_overlap_backward_pass(monkeypatch, seconds_of_sum, expected):
    """Three layers take a second each, and their sums run one after the other. If sums take no longer than
    layers, only the last sum is waited for. Otherwise only the computation of the first layer does not
    overlap with a sum."""
    size, length = 4, 1200
    monkeypatch.setattr(gradient_sum, "_MIN_PART", length // 3)

    def rank(comm):
        codec = PayloadCodec(comm, SchemeOptions(all_reduce="library"))
        total = GradientSum(codec, lambda frames: np.ones(size), lambda function: function())
        total.attach(torch.full((length,), float(comm.rank)), [0, length // 3, 2 * length // 3])
        total.begin(1)
        for begin in (2 * length // 3, length // 3, 0):
            comm.sleep(1.0)
            total.ready(begin)
        total.finish()
        assert (total._grad == 1.5).all()
        return comm.time()

    bandwidth = 2 * (size - 1) / size * 4 * length / 3 / seconds_of_sum
    assert max(run_simulated(size, rank, ClusterNetwork(0.0, bandwidth))) == pytest.approx(expected)


@pytest.mark.parametrize("natural", ["none", "online"])
def test_completion_is_reported_from_last_to_first_layer(natural):
    network = torch.nn.Sequential(
        torch.nn.Linear(DIM, 8),
        torch.nn.Tanh(),
        torch.nn.Linear(8, 8),
        torch.nn.Linear(8, NUM_PDFS, bias=False),
    )
    preconditioners, report = precondition(network, NaturalGradientOptions(natural_gradient=natural)), []
    flat = FlatParameters(network.parameters())

    def tell(begin):
        report.append(begin)
        before = flat.grad.clone()
        complete.append((begin, before))

    complete, begins = [], [span.start for span in flat.spans]
    completion = Completion(network, flat.spans, preconditioners, tell)
    for _ in range(2):
        report.clear(), complete.clear(), completion.restart(), flat.grad.zero_()
        network(torch.randn(20, DIM)).square().sum().backward()
        assert (
            report[-1] == 0
            and report == sorted(report, reverse=True)
            and set(report) <= set(begins)
            and len(report) >= 3
        )
        assert all(torch.equal(before[begin:], flat.grad[begin:]) for begin, before in complete)


def test_layers_used_twice_are_refused():
    layer = torch.nn.Linear(DIM, DIM)
    preconditioners = precondition(layer, NaturalGradientOptions(natural_gradient="online"))
    Completion(layer, FlatParameters(layer.parameters()).spans, preconditioners, lambda begin: None)
    with pytest.raises(RuntimeError, match="got a gradient twice in a minibatch"):
        layer(layer(torch.randn(4, DIM))).sum().backward()
