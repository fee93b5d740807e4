"""Cost of a step on the mock GPU: launches, bytes, and waits of the host. The host must not wait between two
log lines."""

from itertools import pairwise

import pytest
import torch
from budgets import check, counted_steps
from gpu_trainings import make_corpus, spec_of
from mock_gpu import mock_gpu
from toy_jobs import learner_of, with_options

from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.parallel.communication.comm import SoloComm
from pyasr.train.job.trainer import Trainer
from pyasr.train.objectives.rank_training import train_rank

DIM, NUM_PDFS, MINIBATCH = 44, 100, 64
# the natural gradient updates F in each of the first minibatches, then in every fourth
FIRST_STEPS, PERIOD = 12, 4
LINES = dict(log_frames=60, checkpoint_frames=0)
LIMITS = dict(momentum=0.9, l2=1e-4, max_change=0.5, max_change_per_layer=0.3)
ONLINE = dict(natural_gradient=NaturalGradientOptions(natural_gradient="online"))


def steps_of_dnn(num: int, **learner):
    """Counts of `num` steps, after the first ones, of a DNN with Su's six hidden layers, in bfloat16."""
    options = with_options(
        dnn=dict(hidden_layers=6, hidden_dim=128),
        learner=dict(precision="bfloat16", device="cuda", **learner),
    )
    with mock_gpu() as gpu:
        made = learner_of(options, DIM, SoloComm(), num_pdfs=NUM_PDFS)
        x = torch.randn(MINIBATCH, DIM).to("cuda", torch.bfloat16)
        pdfs = torch.randint(NUM_PDFS, (MINIBATCH,)).to("cuda")
        with counted_steps(gpu) as steps:
            for _ in range(FIRST_STEPS + num):
                made.step(x, pdfs, 1e-3)
    return steps[FIRST_STEPS:]


@pytest.mark.parametrize(
    "name, learner", [("captured sgd", {}), ("sgd with momentum, l2 and limits", LIMITS)]
)
def test_sgd_step_stays_within_budget(name, learner):
    check(name, steps_of_dnn(2, **learner))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_natural_gradient_step_stays_within_budget(momentum):
    """One of four steps updates F. No step waits for the device."""
    check("captured natural gradient", steps_of_dnn(2 * PERIOD, momentum=momentum, **ONLINE))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


def waits_between_lines(spec) -> list[list[str]]:
    """Waits of the host between successive log lines of an epoch, on one rank."""
    lines = []
    with mock_gpu() as gpu, gpu.counting() as counts:

        class Watched(Trainer):
            def _report(self, epoch):
                before = len(counts.syncs)
                saves = super()._report(epoch)
                lines.append((epoch, before, len(counts.syncs)))
                return saves

        train_rank(spec, SoloComm(), Watched)
    return [
        counts.syncs[after:before] for (one, _, after), (other, before, _) in pairwise(lines) if one == other
    ]


@pytest.mark.parametrize(
    "lines", ["", "tdnn splice=-2..2 dim=16", "lstm cells=12 recurrent=8"], ids=["dnn", "tdnn", "lstm"]
)
@pytest.mark.parametrize("learner", [{}, LIMITS], ids=["sgd", "limits"])
def test_host_does_not_wait_between_log_lines(corpus, tmp_path, lines, learner):
    spec = spec_of(corpus, tmp_path / "out", "cuda", lines, learner=dict(minibatch=20, **learner), loop=LINES)
    waits = waits_between_lines(spec)
    assert len(waits) > 3 and not any(waits)


def test_wait_between_log_lines_is_detected(corpus, tmp_path):
    """Updates of F without capture wait."""
    spec = spec_of(
        corpus, tmp_path / "out", "cuda", learner=dict(minibatch=20, l2=1e-4, **ONLINE), loop=LINES
    )
    assert any("natural_gradient.py" in wait for waits in waits_between_lines(spec) for wait in waits)
