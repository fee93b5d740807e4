"""A lack of memory is reported before training, with a message that says what to lower. The trial of the
largest minibatch has no side effects."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_jobs import NUM_PDFS, shard, store, streamed, training, with_options
from training_corpora import DIM, frames_of, random_pdfs

from pyasr.base.errors import UserError
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.job import memory_check, trainer
from pyasr.train.minibatches.chunks import Packing
from pyasr.train.minibatches.feature_codec import Plain
from pyasr.train.minibatches.rows import Rows
from pyasr.train.targets.soft_targets import SoftTable, keep_mass

PROGRAM = """
import resource
from pathlib import Path
from toy_jobs import store, training, with_options
from pyasr.parallel.communication.comm import SoloComm
options = with_options(dnn=dict(hidden_layers=4, hidden_dim=2048), learner=dict(minibatch=8000))
job = training(SoloComm(), Path({directory!r}), store(200), options)
{limit}
job.run()
"""
SENTENCE = (
    r"UserError: memory is not enough for a minibatch of 8000 frames: {}; "
    r"lower --minibatch \(now 8000\), give a --max-store-mb below 0.34 MB to stream the frames from disk, "
    r"or run fewer ranks on a host"
)
VARIANTS = {
    "natural gradient, dropout, momentum": dict(dnn=dict(dropout=0.3), learner=dict(momentum=0.5)),
    "gradients are added over ranks": dict(mixing=dict(parallel="gradient")),
    "natural gradient of two ranks": dict(
        learner=dict(momentum=0.5, natural_gradient=NaturalGradientOptions("online"))
    ),
}


@pytest.mark.parametrize("groups", VARIANTS.values(), ids=list(VARIANTS))
@pytest.mark.parametrize("kind", ["in memory", "streamed"])
def test_trial_step_has_no_side_effects(kind, groups, tmp_path, monkeypatch):
    """The result is bit-identical to a training without the trial and without the measurement of the
    single-rank throughput."""
    num_ranks = 1 if "dnn" in groups else 2  # ranks in threads share one random state
    frames = [
        store(8, rank) if kind == "in memory" else streamed(shard(tmp_path / f"data{rank}", 8), 2, rank)
        for rank in range(num_ranks)
    ]

    def rank(comm):
        job = training(
            comm,
            tmp_path / name / str(comm.rank),
            frames[comm.rank],
            with_options(**groups),
            tries_speed=True,
        )
        torch.manual_seed(3)
        job.run()
        return job.learner.flat.master.clone(), torch.get_rng_state() if num_ranks == 1 else torch.empty(0)

    found = []
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
        if name == "without":
            monkeypatch.setattr(trainer, "try_out", lambda job: None)
            monkeypatch.setattr(trainer, "single_rank_frames_per_s", lambda *_: 0.0)
        found.append(run_threads(num_ranks, rank))
    for with_it, without in zip(*found):
        assert all(torch.equal(a, b) for a, b in zip(with_it, without))


def test_trial_step_uses_largest_minibatch(tmp_path, monkeypatch):
    job, tried = training(SoloComm(), tmp_path, store(8)), []
    monkeypatch.setattr(
        job.learner,
        "try_out",
        lambda x, pdfs: tried.append((tuple(x.shape), pdfs.numel(), job.learner.num_steps)),
    )
    job.run()
    assert tried == [((16, x_dim(job)), 16, 0)]


def test_required_memory_is_reported(tmp_path, caplog):
    """Twice the outputs of the hidden layer, for the largest minibatch of all ranks."""
    caplog.set_level("INFO", "pyasr")
    options = with_options(dnn=dict(hidden_layers=1, hidden_dim=5000), learner=dict(minibatch=400))
    run_threads(
        2,
        lambda comm: training(
            comm, tmp_path / str(comm.rank), store(8 if comm.rank else 0), options
        ).check_memory(),
    )
    [sentence] = [record.getMessage() for record in caplog.records]
    taken = re.fullmatch(r"the largest minibatch takes about ([\d.]+) MB of a rank's memory", sentence)[1]
    assert 2 * 4 * 400 * 5000 / 1e6 <= float(taken) < 3 * 2 * 4 * 400 * 5000 / 1e6


def spliced_with_soft_targets(path: Path):
    frames = store(8)
    frames.targets = SoftTable.of(
        *keep_mass(torch.randn(frames.num_frames, NUM_PDFS).log_softmax(1), 0.9), NUM_PDFS
    )
    return frames, with_options(learner=dict(minibatch=160))


def in_chunks(path: Path, carried: bool, num_chunks: int):
    (path / "x.net").write_text("lstm cells=16")
    rng = np.random.default_rng(1)
    pdfs = [random_pdfs(50, NUM_PDFS, rng) for _ in range(16)]
    features, code = [frames_of(states, NUM_PDFS, rng) for states in pdfs], Plain(torch.float32)
    over_time = dict(network=path / "x.net", chunk=10, carry_state=carried)
    frames = Packing(chunk=10, carried=carried).store(features, pdfs, DIM, code, False)
    return frames, with_options(learner=dict(minibatch=10 * num_chunks), over_time=over_time)


@pytest.mark.parametrize(
    "make",
    [
        spliced_with_soft_targets,
        lambda path: in_chunks(path, carried=True, num_chunks=16),
        lambda path: in_chunks(path, carried=False, num_chunks=3),
        lambda path: in_chunks(path, carried=False, num_chunks=1),
    ],
    ids=["soft targets", "state carried over", "three chunks", "one chunk"],
)
def test_every_kind_of_minibatch_is_estimated(make, tmp_path, monkeypatch):
    """The estimate from a part of the minibatch is within a quarter of the requirement of the whole."""
    job = training(SoloComm(), tmp_path / "out", *make(tmp_path))
    x, targets = job.training.largest(job.minibatch)
    inputs = x.x if isinstance(x, Rows) else x
    needed = 2 * memory_check.saved_bytes(lambda: job.learner.loss(x, targets), job.learner.network, inputs)
    monkeypatch.setattr(memory_check, "free_bytes", lambda device: 1.25 * needed)
    memory_check.try_out(job)
    monkeypatch.setattr(memory_check, "free_bytes", lambda device: 0.8 * needed)
    with pytest.raises(
        UserError, match="memory is not enough .* it takes about .* MB, .* MB are free for each rank"
    ):
        memory_check.try_out(job)


def x_dim(job) -> int:
    return job.training.store.in_turn(1).__next__()[0].shape[1]


def run_with(limit: str, directory: Path, **keywords):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(directory=str(directory), limit=limit)],
        capture_output=True,
        text=True,
        timeout=300,
        **keywords,
    )


def test_failing_allocation_is_reported(tmp_path, jobs_import_tests):
    """The address space is limited, which the system's figure of free memory does not show."""
    limit = """
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + 300_000_000
resource.setrlimit(resource.RLIMIT_AS, (size, size))"""
    done = run_with(limit, tmp_path / "out")
    assert re.search(SENTENCE.format(r".*allocate.*"), done.stderr), done.stderr
    assert not list(tmp_path.glob("out/checkpoint*"))


def test_cgroup_memory_limit_is_respected(tmp_path, jobs_import_tests):
    """In a control group as Slurm creates it for a job, processes would be killed without a message."""
    group = (
        Path("/sys/fs/cgroup/memory" if Path("/sys/fs/cgroup/memory").exists() else "/sys/fs/cgroup")
        / f"pyasr_test_{os.getpid()}"
    )
    try:
        group.mkdir()
        limit = group / "memory.limit_in_bytes"
        (limit if limit.exists() else group / "memory.max").write_text(str(700 << 20))
    except OSError as error:
        pytest.skip(f"no control group of memory can be made here: {error}")
    try:
        done = run_with("", tmp_path / "out", preexec_fn=lambda: (group / "cgroup.procs").write_text("0"))
        assert re.search(
            SENTENCE.format(
                r"it takes about \d{3,4} MB, \d{2,3} MB are free for each rank, enough for about \d{3,4} "
                r"frames"
            ),
            done.stderr,
        ), done.stderr
    finally:
        group.rmdir()


def test_suggested_minibatch_is_reported(tmp_path, monkeypatch):
    """Two of the 16 frames keep 1 MB, and their derivatives take as much: 2 MB per pair, so 5 MB hold two and
    a half pairs."""
    monkeypatch.setattr(memory_check, "saved_bytes", lambda *_: 1_000_000)
    monkeypatch.setattr(memory_check, "free_bytes", lambda device: 5_000_000)
    with pytest.raises(
        UserError,
        match=(
            "of 16 frames: it takes about 16 MB, 5 MB are free for each rank, enough for about 5 frames; "
            "lower --minibatch"
        ),
    ):
        training(SoloComm(), tmp_path, store(8)).run()


def test_later_memory_errors_are_reported(tmp_path):
    """Only errors caused by a lack of memory become a UserError."""
    for error, message in (
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore"), UserError),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), UserError),
        (RuntimeError("shapes do not fit"), RuntimeError),
    ):
        job = training(SoloComm(), tmp_path / type(error).__name__, store(8))
        job.learner.step = raising(error)
        with pytest.raises(
            message, match="lower --minibatch" if message is UserError else "shapes do not fit"
        ):
            job.run()


def test_streaming_limit_is_suggested(tmp_path):
    frames = streamed(shard(tmp_path / "data", 8), 3)
    assert "lower --minibatch (now 16), lower --max-store-mb (now 0), or run" in training(
        SoloComm(), tmp_path / "out", frames
    ).training.advice(16)


def raising(error: Exception):
    def step(*_):
        raise error

    return step
