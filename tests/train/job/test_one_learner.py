"""The model of one learner after the last mixing: its parameters, its files, and interruptions."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from schemes import fitting
from toy_jobs import Crash, crash_after, store, training, with_options
from training_corpora import make_alignments, make_data

sys.path.append(str(Path(__file__).parents[2]))
from steps_here import run_here  # noqa: E402

from pyasr.feats.inputs import FeatureReader, InputOptions  # noqa: E402
from pyasr.hmm.model.model_file import read_transitions  # noqa: E402
from pyasr.nn.networks.acoustic import load_scorer  # noqa: E402
from pyasr.parallel.communication.rank_threads import run_threads  # noqa: E402
from pyasr.parallel.simulation.simulator import ClusterNetwork, run_simulated  # noqa: E402
from pyasr.train.job.one_learner import DIRECTORY, OneLearner  # noqa: E402
from pyasr.train.targets.pdf_targets import HeldoutOptions, choose_heldout  # noqa: E402

NUM_PDFS = 6


def options(name, **schedule):
    return with_options(
        mixing=dict(parallel=name, period_frames=32),
        schedule=dict(num_epochs=2, learning_rate=0.05) | schedule,
        loop=dict(log_frames=100, checkpoint_frames=150),
    )


def run(how, directory, given, num_steps=None):
    """Train four learners. Returns for each (job, parameters before the consensus, parameters after the last
    mixing)."""

    def rank(comm):
        job = training(comm, directory, store(4, comm.rank), given)
        job.one_learner, seen = OneLearner(job.strategy), {}
        after, before = job.strategy.training.after_mixing, job.strategy.training.before_consensus

        def remember(name, function, *arguments):
            seen[name] = job.learner.flat.master.clone()
            function(*arguments)

        job.strategy.training.before_consensus = lambda: remember("before", before)
        job.strategy.training.after_mixing = lambda master: remember("after", after, master)
        if num_steps and comm.rank == 0:
            crash_after(job, num_steps)
        job.run()
        job.of_one = job.one_learner.parameters(job.learner.flat.master)
        return job, seen.get("before"), seen.get("after")

    return how(4, rank)


def test_single_learner_mixes_once_more_with_its_neighbour(tmp_path):
    """In a directed ring, it mixes with its left neighbour; the mean of all learners is the model of the
    training."""
    jobs, before, after = zip(*run(run_threads, tmp_path, options("ring")))
    torch.testing.assert_close(after[0], (before[0] + before[3]) / 2)
    torch.testing.assert_close(torch.stack(after).mean(0), jobs[0].learner.flat.master, atol=1e-6, rtol=1e-5)
    assert all(torch.equal(job.of_one, after[0]) for job in jobs)
    assert (after[0] - jobs[0].learner.flat.master).norm() > 1e-3


@pytest.mark.parametrize("name", ["allreduce", "gradient", "bmuf", "adpsgd", "asgd", "dpsgd", "d1d"])
def test_model_equals_that_of_all_if_mixing_makes_all_equal(tmp_path, name):
    """An asynchronous learner has its own parameters; the server of asgd is not a learner."""
    (job, *_), (other, _, of_second), *_ = run(
        lambda num, rank: run_simulated(num, rank, ClusterNetwork(1e-4, 1e7)), tmp_path, options(name)
    )
    assert torch.equal(job.of_one, job.learner.flat.master) == (name in ("allreduce", "gradient", "bmuf"))
    if name == "asgd":
        assert torch.equal(job.of_one, of_second)


@pytest.mark.parametrize("num_steps", [8, 17, 24])
def test_interrupted_training_gives_same_model(tmp_path, num_steps):
    """Each learner has 13 minibatches per epoch."""
    given = options("ring")
    whole = run(run_threads, tmp_path / "whole", given)[0][0].of_one
    with pytest.raises(Crash):
        run(run_threads, tmp_path / "again", given, num_steps)
    assert torch.equal(run(run_threads, tmp_path / "again", given)[0][0].of_one, whole)
    # resumed after its last epoch
    assert torch.equal(run(run_threads, tmp_path / "again", given)[0][0].of_one, whole)


def test_model_of_rejected_epoch_is_discarded(tmp_path):
    """The second epoch is discarded, because it is worse: its rate is much too high."""
    given = options("ring", schedule="newbob", learning_rate=0.05, num_epochs=1)
    first = run(run_threads, tmp_path / "one", given)[0][0].of_one

    def rank(comm):
        job = training(
            comm, tmp_path / "two", store(4, comm.rank), options("ring", schedule="newbob", num_epochs=2)
        )
        job.one_learner, end_epoch = OneLearner(job.strategy), job.schedule.end_epoch
        job.schedule.end_epoch = lambda loss, accuracy: (
            end_epoch(loss, accuracy) and job.schedule.state.epoch < 2
        )
        job.run()
        return job.one_learner.parameters(job.learner.flat.master)

    assert all(torch.equal(found, first) for found in run_threads(4, rank))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    targets = make_data(
        path / "data", {f"{speaker}-{i}": 80 + i for speaker in "abcdef" for i in range(6)}, NUM_PDFS
    )
    make_alignments(path / "ali", targets)
    (path / "lang").mkdir()
    (path / "lang" / "phones.txt").write_text("<eps> 0\n")
    return path, targets


def trained(corpus, step, out, *flags, **how):
    path, _ = corpus
    run_here(step, *flags, "--cmvn", "none", "--hidden-layers", 1, "--hidden-dim", 32, "--num-epochs", 1,
             "--minibatch", 16, "--heldout-share", 0.2, "--precision", "float32", "--device", "cpu",
             "--save-learner", "true", *fitting(["--parallel", "ring", "--period-frames", 64]), path / "data",
             path / "lang", path / "ali", out, **how)  # fmt: skip
    return out


@pytest.mark.parametrize("step", ["simulate_parallel.py", "train_dnn.py"])
def test_model_is_decoded_by(corpus, tmp_path, capsys, step):
    """Its directory has the files that decoding reads; its loss is the logged one, and differs from that of
    the mean of all learners."""
    how = dict(threads=True) if step == "train_dnn.py" else {}
    flag = "--num-ranks" if how else "--num-learners"
    out = trained(corpus, step, tmp_path / "out", flag, 8, **how)
    assert {path.name for path in (out / DIRECTORY).iterdir()} == {
        "final.nnet",
        "final.mdl",
        "tree",
        "phones.txt",
        "input.json",
    }
    assert read_transitions(out / DIRECTORY / "final.mdl").num_pdfs == NUM_PDFS
    output = (
        capsys.readouterr().out.split("one learner after the last mixing: held-out objective ")[1].split()
    )
    losses = [loss(corpus, out / name) for name in ("", DIRECTORY)]
    assert losses[1] == pytest.approx(-float(output[0]), abs=1e-4) and losses[0] != losses[1]
    if not how:
        found = json.loads((out / "simulation.json").read_text())
        assert found["learner"] == pytest.approx([-losses[1], float(output[2].rstrip("%")) / 100], abs=1e-4)
        assert -found["history"][-1][1] == pytest.approx(losses[0], abs=1e-4)


def loss(corpus, directory) -> float:
    """Loss of the model file on the held-out speaker."""
    path, targets = corpus
    model, reader = load_scorer(directory), FeatureReader(path / "data", InputOptions.load(directory))
    lengths = np.array([reader.num_frames(key) for key in reader.keys])
    heldout = choose_heldout(reader.keys, lengths, reader.original, HeldoutOptions(heldout_share=0.2))
    picked = [
        model.log_posteriors(reader[key])[range(length), targets.pdfs_of(key)]
        for key, length, is_held in zip(reader.keys, lengths, heldout)
        if is_held
    ]
    return -float(np.concatenate(picked).mean())
