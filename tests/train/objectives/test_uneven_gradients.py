"""Gradients of minibatches of any size, summed over ranks with different numbers of minibatches: whole
utterances, and rows of chunks with carried state. Against explicit synchronous SGD in one process, in
float64."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from lattice_corpus import write_lattice_corpus
from schemes import fitting
from steps_here import run_here
from test_train_ctc import NETWORK, write_corpus
from test_train_smbr import FLAGS as LATTICE_FLAGS
from toy_jobs import Crash, poisoned
from training_corpora import make_alignments, make_data

from pyasr.nn.layers.lstm import LstmState
from pyasr.nn.networks.acoustic import load_model
from pyasr.train.minibatches.chunks import NO_TARGET
from pyasr.train.objectives import rank_training
from pyasr.train.targets.pdf_targets import Targets

ROOT = Path(__file__).resolve().parents[3]
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
KINDS = ("ctc", "smbr", "carried")
RATES = {"ctc": 0.01, "smbr": 0.004, "carried": 0.03}
BY_UTTERANCE = ["--cmvn", "none", "--heldout-share", 0.1, "--heldout-by", "utterance"]
STEPS = {
    "ctc": ["train_ctc.py", *BY_UTTERANCE, "--minibatch", 200],
    "smbr": ["train_smbr.py", *LATTICE_FLAGS],
    "carried": ["train_dnn.py", *BY_UTTERANCE, "--minibatch", 50, "--chunk", 10, "--carry-state", "true"],
}
PLACES = {
    "ctc": ("data", "units", "network.net"),
    "smbr": ("data", "lang", "ali", "denlats", "dnn"),
    "carried": ("data", "lang", "ali"),
}
CONSTANT = {
    "num_epochs": 2,
    "final_factor": 1,
    "lr_convention": "sum",
    "lr_scaling": "none",
    "precision": "float32",
    "log_frames": 100,
}
ONLINE = dict(natural_gradient="online", ng_rank_in=4, ng_rank_out=4)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    write_corpus(path / "ctc/data", 24)
    run_here("train_subwords.py", "--num-units", 9, path / "ctc/data", path / "ctc/units", folder="utils")
    (path / "ctc/network.net").write_text(NETWORK)
    write_lattice_corpus(path / "smbr")
    make_alignments(
        path / "carried/ali", make_data(path / "carried/data", {f"a-{i:02d}": 31 + i for i in range(18)}, 5)
    )
    (path / "carried/network.net").write_text(
        "tdnn splice=-1..1 dim=8\nlstm cells=8 recurrent=4 delay=2\ndelay frames=2"
    )
    (path / "carried/lang").mkdir()
    (path / "carried/lang/phones.txt").write_text("<eps> 0\n")
    return path


@pytest.fixture
def uneven(monkeypatch):
    """Of three ranks, the first has two thirds of the training utterances and the last has none."""
    shard = Targets.shard

    def parts(self, rank, num_ranks, heldout):
        if heldout or num_ranks < 3:
            return shard(self, rank, num_ranks, heldout)
        keys = shard(self, 0, 1, heldout)
        return [keys[: 2 * len(keys) // 3], keys[2 * len(keys) // 3 :], []][rank]

    monkeypatch.setattr(Targets, "shard", parts)


def words_of(corpus, kind, out, **options) -> list[str]:
    """A step and its arguments, with a constant rate for summed gradients."""
    options = {"parallel": "gradient", "learning_rate": RATES[kind], **CONSTANT, **options}
    if kind == "carried":
        options["network"] = corpus / kind / "network.net"
    flags = [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), value)]
    step, *given = STEPS[kind]
    return [step, *fitting([*given, *flags]), *(corpus / kind / place for place in PLACES[kind]), out]


def train(corpus, kind, out, num_ranks=3, prepare=lambda job: None, **options) -> list:
    """[(job, its network before training)] of ranks in threads."""
    jobs, make = {}, rank_training.make_job

    def kept(learner, *others, **named):
        job = make(learner, *others, **named)
        jobs[job.comm.rank] = job, learner.network.with_parameters(learner.flat.values())
        prepare(job)
        return job

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rank_training, "make_job", kept)
        run_here(*words_of(corpus, kind, out, num_ranks=num_ranks, **options), threads=True)
    return [jobs[rank] for rank in range(num_ranks)]


def interrupted(*arguments, **options) -> None:
    """A training whose rank 0 dies after its first checkpoint, within an epoch."""

    def prepare(job):
        save = job._save

        def dying(equal):
            save(equal)
            if job.comm.rank == 0:
                raise Crash

        job._save = dying

    with pytest.raises(Crash):
        train(*arguments, prepare=prepare, **options)


def masters(jobs) -> list[torch.Tensor]:
    return [job.learner.flat.master for job, _ in jobs]


def lines(out) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def ctc_loss(network, x, supervision):
    """(summed loss, frames)."""
    known = supervision.lengths, supervision.num_frames, supervision.labels, supervision.num_labels
    lengths, outputs, labels, counts = map(torch.from_numpy, known)
    log_p = network(x.double(), lengths).log_softmax(2).transpose(0, 1)
    return F.ctc_loss(log_p, labels, outputs, counts, reduction="sum"), int(lengths.sum())


class Carried:
    """The same for consecutive minibatches of rows of a rank in an epoch, with the state of each row."""

    states = None

    def __call__(self, network, rows, targets):
        num, begins = len(rows.begins), rows.begins[:, None]
        states = self.states and [
            state and LstmState(*(part[:, :num].masked_fill(begins, 0) for part in state))
            for state in self.states
        ]
        logits, states = network.go_on(rows.x.double(), states)
        self.states = [state and LstmState(*(part.detach() for part in state)) for state in states]
        return F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=NO_TARGET
        ), targets.numel()


def losses_of(kind, job) -> list:
    """The loss functions of the ranks in an epoch."""
    if kind == "carried":
        return [Carried() for _ in range(3)]
    if kind == "ctc":
        return 3 * [ctc_loss]
    return 3 * [
        lambda network, x, lattices: (job.criterion.objective.loss(network(x.double()), lattices)[0], len(x))
    ]


def by_hand(kind, jobs) -> torch.Tensor:
    """The parameters after all ranks' minibatches, in one process, with one step for each minibatch of the
    first rank, G = sum G_r / 3."""
    first, network = jobs[0][0], jobs[0][1].double()
    for epoch in (1, 2):
        losses = losses_of(kind, first)
        ranks = [list(job.training.minibatches(job.minibatch, epoch)) for job, _ in jobs]
        assert len(ranks[0]) > len(ranks[1]) > 0 == len(ranks[2])
        sizes = set()
        for step in itertools.zip_longest(*ranks):
            parts = [loss(network, *minibatch) for loss, minibatch in zip(losses, step) if minibatch]
            gradient = torch.autograd.grad(
                sum(loss for loss, _ in parts) / len(ranks), list(network.parameters())
            )
            with torch.no_grad():
                for parameter, change in zip(network.parameters(), gradient):
                    parameter -= RATES[kind] * change
            sizes.update(num for _, num in parts)
        assert len(sizes) > 2
    return [parameter.detach() for parameter in network.parameters()]


@pytest.mark.parametrize("kind", KINDS)
def test_all_ranks_take_steps_of_synchronous_sgd(corpus, tmp_path, uneven, kind):
    jobs = train(corpus, kind, tmp_path / "out")
    assert all(torch.equal(master, masters(jobs)[0]) for master in masters(jobs))
    begun = [parameter.detach() for parameter in jobs[0][1].parameters()]
    found = jobs[0][0].learner.flat.values()
    assert max(float((after - before).abs().max()) for before, after in zip(begun, found)) > 0.05
    for values, expected in zip(found, by_hand(kind, jobs), strict=True):
        torch.testing.assert_close(values.double(), expected, atol=1e-5, rtol=1e-5)
    assert {line["drift"] for line in lines(tmp_path / "out") if "drift" in line} == {0.0}


@pytest.mark.parametrize("kind", KINDS)
def test_natural_gradient_momentum_and_limits_keep_ranks_equal(corpus, tmp_path, uneven, kind):
    jobs = train(corpus, kind, tmp_path / "out", momentum=0.5, max_change=1.0, **ONLINE)
    assert all(torch.equal(master, masters(jobs)[0]) for master in masters(jobs))
    report = [line["heldout_objective"] for line in lines(tmp_path / "out") if "heldout_objective" in line]
    assert report[-1] > report[0]


@pytest.mark.parametrize("kind", KINDS)
def test_post_local_ranks_diverge_in_second_epoch(corpus, tmp_path, uneven, kind):
    """Ranks drift apart only in the second epoch."""
    jobs = train(corpus, kind, tmp_path / "out", parallel="post-local", period_frames=100)
    drifts = {(line["epoch"], line["drift"] > 0) for line in lines(tmp_path / "out") if "drift" in line}
    assert drifts >= {(1, False), (2, True)} and (1, True) not in drifts
    assert all(torch.equal(master, masters(jobs)[0]) for master in masters(jobs))


@pytest.mark.parametrize("kind", KINDS)
def test_first_mixing_follows_best_rank(corpus, tmp_path, uneven, kind):
    jobs = train(corpus, kind, tmp_path / "out", first_mixing="best", momentum=0.5)
    assert all(torch.equal(master, masters(jobs)[0]) for master in masters(jobs))
    assert {job.position.frames_seen for job, _ in jobs} == {
        2 * sum(job.training.num_frames for job, _ in jobs)
    }


@pytest.mark.parametrize("kind", ["ctc", "smbr"])
def test_non_finite_gradient_skips_minibatch_on_all_ranks(corpus, tmp_path, uneven, kind):
    jobs = train(
        corpus, kind, tmp_path / "out", prepare=lambda job: job.comm.rank == 1 and poisoned(job, {2})
    )
    assert (
        all(torch.equal(master, masters(jobs)[0]) for master in masters(jobs))
        and masters(jobs)[0].isfinite().all()
    )
    assert [job.position.skipped for job, _ in jobs] == [1, 1, 1]


@pytest.mark.parametrize("kind, parallel", [*((kind, "gradient") for kind in KINDS), ("ctc", "post-local")])
def test_interrupted_training_resumes(corpus, tmp_path, uneven, kind, parallel):
    """Bit for bit, from within an epoch."""
    options = dict(parallel=parallel, momentum=0.5, checkpoint_frames=150, period_frames=100)
    whole = masters(train(corpus, kind, tmp_path / "whole", **options))
    interrupted(corpus, kind, tmp_path / "out", **options)
    assert torch.equal(masters(train(corpus, kind, tmp_path / "out", **options))[0], whole[0])


@pytest.mark.parametrize("kind", KINDS)
def test_other_number_of_ranks_resumes(corpus, tmp_path, uneven, capsys, kind):
    options = dict(momentum=0.5, checkpoint_frames=150)
    interrupted(corpus, kind, tmp_path / "out", **options)
    jobs = train(corpus, kind, tmp_path / "out", 2, **options)
    assert torch.equal(*masters(jobs)) and ", with 2 ranks instead of 3" in capsys.readouterr().out
    one, two = [line["frames"] for line in lines(tmp_path / "out") if "accepted" in line]
    assert two - one == sum(job.training.num_frames for job, _ in jobs) and abs(two - 2 * one) <= 2 * 200


def test_single_rank_takes_all_steps(corpus, tmp_path):
    """The steps of any scheme."""
    found = [
        masters(train(corpus, "ctc", tmp_path / name, 1, parallel=name))[0]
        for name in ("gradient", "allreduce")
    ]
    assert torch.equal(*found)


@pytest.mark.skipif(MPIEXEC is None, reason="needs MPI")
def test_mpi_equals_threads(corpus, tmp_path):
    """Three processes with different numbers of minibatches have the same result as threads."""
    jobs = train(corpus, "ctc", tmp_path / "threads", minibatch=120)
    assert len({len(list(job.training.minibatches(0, 1))) for job, _ in jobs}) > 1
    step, *words = map(str, words_of(corpus, "ctc", tmp_path / "mpi", num_ranks=3, minibatch=120))
    subprocess.run([sys.executable, ROOT / "steps" / step, *words], check=True, timeout=200)
    found, expected = (
        load_model(tmp_path / name / "final.nnet").network.parameters() for name in ("mpi", "threads")
    )
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
