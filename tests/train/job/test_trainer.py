"""The training loop on virtual ranks: equality with larger minibatches, uneven shards, reports."""

import numpy as np
import pytest
import torch
from toy_jobs import metrics, store, trained, training, with_options
from training_corpora import DIM

from pyasr.base.errors import UserError
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.minibatches.frames import FrameStore


class FixedOrderStore(FrameStore):
    """Frames in the order of the store."""

    def epoch_order(self, seed, *names):
        return torch.arange(self.num_frames)


@pytest.mark.parametrize("convention, scaling", [("mean", "none"), ("sum", "linear")])
def test_two_ranks_mixing_every_minibatch_equal_one_with_double_batch(tmp_path, convention, scaling):
    """With gradients averaged over minibatches, the mean of two ranks' updates is the update by the mean
    gradient of both. With sums and twice the rate, it is the update by the summed gradient."""
    whole = store(8, kind=FixedOrderStore, context=0, length=32)
    blocks = np.arange(whole.num_frames).reshape(-1, 2, 16)  # minibatch, rank, frame
    halves = []
    for rank in range(2):
        index = blocks[:, rank].ravel()
        halves.append(
            FixedOrderStore([whole.frames.numpy()[index]], [whole.targets.numpy()[index]], 0, 0, DIM)
        )
    schedule = dict(
        lr_convention=convention, lr_scaling=scaling, learning_rate=0.1 if convention == "mean" else 0.005
    )
    two = with_options(schedule=schedule, mixing=dict(period_frames=1))
    one = with_options(schedule=schedule, mixing=dict(period_frames=1), learner=dict(minibatch=32))
    masters = run_threads(2, lambda comm: trained(comm, tmp_path / "two", halves[comm.rank], two))
    assert torch.equal(masters[0], masters[1])
    single = trained(SoloComm(), tmp_path / "one", whole, one)
    torch.testing.assert_close(masters[0], single, atol=1e-6, rtol=0)


def test_uneven_shards_end_together_and_learn(tmp_path):
    sizes = [10, 10, 3, 0]

    def rank(comm):
        job = training(comm, tmp_path / "job", store(sizes[comm.rank], comm.rank))
        job.run()
        return job.learner.flat.master.clone(), job.evaluate(), job.position.frames_seen

    results = run_threads(4, rank)
    for master, totals, frames_seen in results:
        assert torch.equal(master, results[0][0])
        assert frames_seen == 3 * 50 * sum(sizes)
        assert totals.accuracy > 0.8 and totals.sums[2] == 4 * 100


@pytest.mark.parametrize("minibatch", [1, 49, 50, 1000])
def test_minibatches_of_any_size(tmp_path, minibatch):
    """One frame; a last minibatch of one frame; a single full minibatch; a minibatch larger than the data."""
    options = with_options(learner=dict(minibatch=minibatch), schedule=dict(learning_rate=0.02, num_epochs=2))
    job = training(SoloComm(), tmp_path / "job", store(1), options)
    sizes, step = [], job.learner.step
    job.learner.step = lambda x, pdfs, rate: sizes.append(len(pdfs)) or step(x, pdfs, rate)
    job.run()
    whole, rest = divmod(50, minibatch)
    assert (
        sizes == 2 * ([minibatch] * whole + [rest] * (rest > 0)) and job.learner.flat.master.isfinite().all()
    )


def test_divergence_is_reported(tmp_path):
    options = with_options(schedule=dict(learning_rate=1e6))
    with pytest.raises(UserError, match="training has diverged.*lower --learning-rate"):
        trained(SoloComm(), tmp_path / "job", store(6), options)


def test_rate_follows_frames_between_mixings(tmp_path):
    """Halved after 1.5 of 3 epochs of 500 frames; ranks mix every 64 frames."""
    schedule = dict(schedule="step", step_epochs="1.5", learning_rate=0.08)
    job = training(
        SoloComm(), tmp_path / "job", store(10), with_options(schedule=schedule, loop=dict(log_frames=100))
    )
    rates, step = [], job.learner.step
    job.learner.step = lambda x, pdfs, rate: (
        rates.append((job.position.frames_seen, rate)) or step(x, pdfs, rate)
    )
    job.run()
    assert all(rate == pytest.approx(0.08 / 16 / (2 if frames >= 750 else 1)) for frames, rate in rates)
    assert {line["rate"] for line in metrics(tmp_path / "job")} == {0.08, 0.04}


def test_l2_penalty_equals_nnet3_with_growing_number_of_ranks(tmp_path):
    """As in nnet3, l2 / J on each of J learning ranks, at J times the rate of one. If nothing else changes
    the parameters, a minibatch of N frames multiplies them by 1 - 2 lr l2 N, as on one rank, however many
    ranks learn."""
    rate, l2 = 1e-3, 0.5
    options = with_options(
        mixing=dict(parallel="kaldi", period_frames=20),
        learner=dict(l2=l2, minibatch=10),
        schedule=dict(learning_rate=rate, final_factor=1.0, lr_convention="sum", num_epochs=2),
    )

    def rank(comm):
        job, active, sizes = training(comm, tmp_path / "job", store(4), options), set(), []
        step, loss, begin = job.learner.step, job.learner.loss, job.learner.flat.master.clone()

        def observed(x, pdfs, *arguments):
            active.add(job.strategy.num_active)
            sizes.append(len(pdfs))
            return step(x, pdfs, *arguments)

        def without_slope(x, pdfs):
            value, counts = loss(x, pdfs)
            return 0 * value, counts

        job.learner.step, job.learner.loss = observed, without_slope
        job.run()
        return begin, job.learner.flat.master, active, sizes

    begin, end, active, sizes = run_threads(4, rank)[0]
    assert active == {1, 2, 3, 4}
    torch.testing.assert_close(end, begin * float(np.prod(1 - 2 * rate * l2 * np.array(sizes))))
