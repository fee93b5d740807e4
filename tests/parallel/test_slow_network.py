"""MPI between hosts, simulated by network namespaces, which need root."""

import os
import sys
from pathlib import Path

import pytest

from pyasr.base.errors import UserError

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def slow_network(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import slow_network

    return slow_network


@pytest.fixture
def private_network(slow_network):
    import private_network

    return private_network


def test_sums_between_hosts(slow_network, private_network):
    from host_workers import MBIT_PER_S
    from host_workers import __file__ as workers

    network = slow_network.SlowNetwork(3)
    try:
        network.__enter__()
    except UserError as error:
        pytest.skip(str(error))
    try:
        network.limit(MBIT_PER_S)
        network.run_ranks([sys.executable, "-m", "mpi4py", workers], timeout_s=120)
    finally:
        network.__exit__()
    assert not [name for name in private_network.namespaces() if f".{os.getpid()}." in name]


def test_missing_root_gives_one_sentence(private_network, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserError, match="run this program as root"):
        private_network.check_possible()
