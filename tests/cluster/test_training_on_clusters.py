"""A training with several ranks on real schedulers: over two nodes, and moved by preemption or loss of a
host, with the same final model."""

import contextlib
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from runner_case import ROOT, WAIT_S
from slurm_cluster import parent_of
from test_run_pl import wait_until
from training_corpora import make_alignments, make_data

from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.nn.networks.acoustic import load_scorer

FLAGS = ["--cmvn", "none", "--hidden-layers", 1, "--hidden-dim", 24, "--minibatch", 48,
         "--learning-rate", 0.03, "--period-frames", 96, "--momentum", 0.5, "--precision", "float32",
         "--heldout-share", 0.1, "--splice-left", 1, "--splice-right", 1, "--num-epochs", 40,
         "--checkpoint-minutes", 0, "--log-frames", 500, "--max-restarts", 0, "--num-ranks", 4]  # fmt: skip
OF_MPI = (b"hydra_pmi_proxy", b"prte")  # programs that start the ranks of a host: MPICH's, Open MPI's


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    make_alignments(
        path / "ali",
        make_data(
            path / "data", {f"{speaker}-{i}": 60 + 7 * i for speaker in "abcdefgh" for i in range(5)}, 6
        ),
    )
    (path / "lang").mkdir()
    (path / "lang" / "phones.txt").write_text("<eps> 0\n")
    return path


@contextlib.contextmanager
def training(corpus, out, cmd, environment, *flags, on=lambda words: words):
    """Process of a step, started by the command that `on` returns for a command; ended at the end of the
    block."""
    words = [
        sys.executable,
        ROOT / "steps/train_dnn.py",
        *FLAGS,
        *flags,
        "--cmd",
        cmd,
        corpus / "data",
        corpus / "lang",
        corpus / "ali",
        out,
    ]
    environment = {**environment, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with subprocess.Popen(on(list(map(str, words))), env=environment, cwd=corpus, **pipes) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def uninterrupted(corpus):
    """Scores of a model that was trained on this machine without interruption."""
    with training(corpus, corpus / "local", "run.pl", os.environ) as process:
        said, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, said + errors
    return scores(corpus, corpus / "local")


def scores(corpus, out):
    scorer, reader = load_scorer(out), FeatureReader(corpus / "data", InputOptions.load(out))
    return np.concatenate([scorer.log_likelihoods(reader[key]) for key in reader.keys])


def log_of(out, name="train.log"):
    """Log of a running or finished training."""
    path = next(
        (
            path
            for path in (out.with_name(out.name + ".tmp") / "log" / name, out / "log" / name)
            if path.exists()
        ),
        None,
    )
    return path.read_text() if path else ""


def has_learned(process, out):
    """Wait for the second epoch."""
    wait_until(lambda: "epoch 2 ended" in log_of(out) or process.poll() is not None, WAIT_S)
    assert process.poll() is None, process.communicate()


def was_requeued(process, out):
    """Frames at which the training was asked to end and resumed."""
    said, errors = process.communicate(timeout=2 * WAIT_S)
    assert process.returncode == 0, said + errors
    report = (
        "the job was asked to end, has saved its state and is submitted again, time 1 of at most 3 (log "
        "until then: "
    )
    assert report in errors and errors.count("submitted again") == 1, errors
    [frames] = re.findall(
        r"error: stopped on request; saved at (\d+) frames", log_of(out, "train.requeued-1.log")
    )
    assert f"resuming at {frames} frames" in log_of(out)
    return int(frames)


def test_slurm_requeues_preempted_training_on_two_nodes(slurm, corpus, uninterrupted):
    """Four ranks on two nodes are preempted by a job of a partition with higher priority."""
    (corpus / "slurm.conf").write_text(
        "option num_ranks=* --ntasks=$0 --ntasks-per-node=2 --signal=B:USR1@120\n"
    )
    out = corpus / "slurm"
    with training(corpus, out, "slurm.pl --config slurm.conf", slurm.environment) as process:
        has_learned(process, out)
        assert ranks_by_node(slurm) == [0, 2, 2]
        slurm.call(
            "sbatch", "--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=true"
        )
        assert was_requeued(process, out) > 0
    assert np.array_equal(scores(corpus, out), uninterrupted)


def test_srun_starts_ranks_without_mpiexec(slurm, corpus, uninterrupted):
    """Four ranks on two nodes."""
    slurm.wait_until_idle("urgent", 2, WAIT_S)
    (corpus / "srun.conf").write_text("option num_ranks=* --nodes=2 --ntasks=$0 --ntasks-per-node=2\n")
    out = corpus / "srun"
    # emulated nodes share the memory that MPICH uses within a node
    apart = {"MPIR_CVAR_NOLOCAL": "1"}
    with training(
        corpus, out, "slurm.pl --config srun.conf", {**slurm.environment, "PYASR_MPIEXEC": "srun", **apart}
    ) as process:
        wait_until(
            lambda: ranks_by_node(slurm, b"slurmstepd") == [0, 2, 2] or process.poll() is not None, WAIT_S
        )
        assert process.poll() is None, process.communicate()
        said, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, said + errors
    assert np.array_equal(scores(corpus, out), uninterrupted)


def ranks_by_node(slurm, *starters):
    """Number of ranks on each node of the partition, ascending."""
    return sorted(num_ranks(slurm.processes(f"n{i}"), *starters) for i in (1, 2, 3))


def num_ranks(pids, *starters):
    """Number of processes that these programs or MPI's own launcher started as ranks. Each is the watchdog of
    its only child."""
    return sum(
        of_a_rank(pid) and any(name in command_of(parent_of(pid)) for name in starters or OF_MPI)
        for pid in pids
    )


def of_a_rank(pid):
    """Whether a process is a rank or its watchdog."""
    return command_of(pid).split(b"\0")[1:5] == [b"-m", b"mpi4py", b"-m", b"pyasr.parallel.ranks.rank"]


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_grid_engine_suspends_ranks(grid, corpus, uninterrupted):
    """Four ranks are suspended and resumed."""
    out = corpus / "grid"
    with training(corpus, out, "queue.pl", grid.environment) as process:
        has_learned(process, out)
        grid.call("qmod", "-sj", "train")
        assert was_requeued(process, out) > 0
    assert np.array_equal(scores(corpus, out), uninterrupted)


def on_hosts(grid_of_hosts, corpus, out, hosts, first, *flags):
    """A training with ranks on these hosts, at most two per host, the first on one of `first`. Ranks
    communicate over the network, not through shared memory."""
    queues, of_first = (",".join(f"all.q@{host}" for host in some) for some in (hosts, first))
    cmd = f"queue.pl -v UCX_TLS=tcp -q {queues} -masterq {of_first}"
    return training(
        corpus,
        out,
        cmd,
        grid_of_hosts.environment,
        *flags,
        on=functools.partial(grid_of_hosts.on, grid_of_hosts.host),
    )


def ranks_by_host(grid_of_hosts):
    """Number of ranks on each host."""
    return [num_ranks(grid_of_hosts.network.processes(host)) for host in grid_of_hosts.hosts]


def test_grid_engine_starts_ranks_on_several_hosts(grid_of_hosts, corpus, uninterrupted):
    """Four ranks on two of three hosts; on one of these, Grid Engine's qrsh starts them."""
    out = corpus / "hosts"
    with on_hosts(grid_of_hosts, corpus, out, ["host1", "host2"], ["host1", "host2"]) as process:
        has_learned(process, out)
        assert ranks_by_host(grid_of_hosts) == [2, 2, 0]
        said, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, said + errors
    assert np.array_equal(scores(corpus, out), uninterrupted)


@pytest.mark.parametrize("which", ["first", "other"])
def test_training_resumes_after_loss_of_grid_engine_host(which, grid_of_hosts, corpus):
    """The lost host is named, and the training resumes from its last checkpoint on the other hosts. Grid
    Engine itself would never end a job whose first host does not answer."""
    out = corpus / f"lost-{which}"
    with on_hosts(
        grid_of_hosts, corpus, out, grid_of_hosts.hosts, ["host2", "host3"], "--max-restarts", 1
    ) as process:
        has_learned(process, out)
        [first] = re.findall("# Running on (host[23])", log_of(out))
        host = first if which == "first" else {"host2": "host3", "host3": "host2"}[first]
        grid_of_hosts.lose(host)
        said, errors = process.communicate(timeout=WAIT_S)
        grid_of_hosts.restore(host)
    assert process.returncode == 0, said + errors
    report = (
        rf"its host {host} was lost \(Grid Engine says au\); 3 ranks continue from (\d+) frames, restart "
        r"1 of at most 1"
    )
    [frames] = re.findall(report, said + errors)
    assert f"resuming at {frames} frames" in log_of(out)
    wait_until(
        lambda: (
            not any(
                of_a_rank(pid)
                for host in grid_of_hosts.hosts
                for pid in grid_of_hosts.network.processes(host)
            )
        ),
        WAIT_S,
    )
