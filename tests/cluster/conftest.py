"""The schedulers that tests share."""

import grid_engine_cluster
import pytest
import slurm_cluster


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
