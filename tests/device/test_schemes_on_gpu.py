"""Every scheme of --parallel on the mock GPU gives the model of the CPU, and interrupted trainings give that
of an uninterrupted one."""

import dataclasses

import pytest
import torch
from gpu_trainings import NATURAL, distance, make_corpus, on_both, spec_of, trained
from mock_gpu import mock_gpu
from schemes import ranks_for
from toy_jobs import Crash

from pyasr.parallel.strategies import strategy_names
from pyasr.train.job.trainer import Trainer

BY_CHANCE = ("adpsgd", "asgd", "hadpsgd")  # schemes whose mixings depend on the speed of other ranks
APART = 0.5  # upper limit of the distance between models of such schemes
# distance from the model of the CPU, which rounds bfloat16 at other places and has no lag
DISTANCES = {"float32": 1e-6, "bfloat16": 3e-3}
OWN_CODE_FOR_A_GPU = ("allreduce", "adpsgd", "asgd", "delayed", "diloco", "easgd", "gradient", "kaldi")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"), 12)


class Dying(Trainer):
    """Ends after a checkpoint within the first epoch."""

    def _save(self, equal):
        super()._save(equal)
        if self.position.frames_seen > 200:
            raise Crash


def distance_of(corpus, out, scheme: str, precision: str, learner: dict) -> float:
    """Distance between the models of the mock GPU and of the CPU."""
    mixing = dict(parallel=scheme, period_frames=60, ranks_per_node=2)
    groups = dict(
        learner=dict(minibatch=20, precision=precision, **learner), mixing=mixing, schedule=dict(num_epochs=1)
    )
    host, there = on_both(
        lambda device: trained(spec_of(corpus, out / device, device, **groups), ranks_for(scheme))
    )
    return distance(there, host)


@pytest.mark.parametrize("scheme", strategy_names())
def test_every_scheme_trains_same_model_as_cpu(corpus, tmp_path, scheme):
    assert distance_of(corpus, tmp_path, scheme, "float32", {}) < (
        APART if scheme in BY_CHANCE else DISTANCES["float32"]
    )


@pytest.mark.parametrize("scheme", OWN_CODE_FOR_A_GPU)
def test_schemes_in_bfloat16_with_natural_gradient_are_close_to_cpu(corpus, tmp_path, scheme):
    found = distance_of(corpus, tmp_path, scheme, "bfloat16", dict(natural_gradient=NATURAL, momentum=0.5))
    assert found < (APART if scheme in BY_CHANCE else DISTANCES["bfloat16"])


def assert_goes_on(corpus, out, num_ranks: int, *lines, **groups) -> None:
    """A training interrupted after a checkpoint ends with the same bits as an uninterrupted one."""
    with mock_gpu():
        whole, again = (spec_of(corpus, out / name, "cuda", *lines, **groups) for name in ("whole", "again"))
        expected = trained(whole, num_ranks)
        with pytest.raises(Crash):
            trained(again, num_ranks, Dying)
        torch.manual_seed(12345)
        assert all(map(torch.equal, trained(again, num_ranks), expected))


@pytest.mark.parametrize("scheme", ["allreduce", "d1d", "gradient", "delayed"])
def test_interrupted_trainings_resume(corpus, tmp_path, scheme):
    """On three ranks, with the state of all options."""
    learner = dict(natural_gradient=NATURAL, momentum=0.5, precision="bfloat16")
    assert_goes_on(corpus, tmp_path, 3, learner=learner, mixing=dict(parallel=scheme, period_frames=60))


def test_training_with_carried_states_resumes(corpus, tmp_path):
    assert_goes_on(corpus, tmp_path, 2, "lstm cells=6 recurrent=4", carry_state=True)


def test_training_with_dropout_resumes(corpus, tmp_path):
    """Its random numbers are drawn on the device."""
    assert_goes_on(corpus, tmp_path, 1, dnn=dict(dropout=0.3))


def test_gpu_checkpoint_resumes_on_cpu_and_other_number_of_ranks(corpus, tmp_path):
    with mock_gpu():
        spec = spec_of(corpus, tmp_path / "out", "cuda")
        with pytest.raises(Crash):
            trained(spec, 3, Dying)
    learner = dataclasses.replace(spec.training.learner, device="cpu")
    elsewhere = dataclasses.replace(spec, training=dataclasses.replace(spec.training, learner=learner))
    assert all(value.isfinite().all() for value in trained(elsewhere, 2))
