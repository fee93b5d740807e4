"""The schedulers that tests share."""

import contextlib
import signal

import grid_engine_cluster
import pytest
import slurm_cluster

from pyasr.base.errors import UserError


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """A Slurm of four nodes."""
    if lack := slurm_cluster.why_not():
        pytest.skip(lack)
    cluster = slurm_cluster.SlurmCluster(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def grid(tmp_path_factory):
    """A Grid Engine of one host."""
    if lack := grid_engine_cluster.why_not():
        pytest.skip(lack)
    cluster = grid_engine_cluster.GridEngineCluster(tmp_path_factory.mktemp("grid"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def grid_of_hosts(tmp_path_factory):
    """A Grid Engine of three hosts with two slots each, on a network of their own."""
    if lack := grid_engine_cluster.why_not():
        pytest.skip(lack)
    with contextlib.ExitStack() as stack:
        try:
            network = stack.enter_context(grid_engine_cluster.PrivateNetwork(3))
        except UserError as error:
            pytest.skip(str(error))
        cluster = grid_engine_cluster.GridEngineCluster(
            tmp_path_factory.mktemp("hosts"), slots=2, network=network
        )
        stack.callback(cluster.stop)
        yield cluster


@pytest.fixture
def default_sighup():
    """Restore the default action of SIGHUP for processes of tests, also if the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
