"""Options of training in simulated time: virtual learners and their communication network."""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.cli.option_uses import unless_is
from pyasr.base.cli.options import option
from pyasr.parallel.simulation.network_model import ClusterNetwork
from pyasr.parallel.simulation.simulator import ComputeTime
from pyasr.train.steps.dnn_step import TrainSpec

_MB = 1e6
_PACKET = 1500  # bytes; messages without parameters are smaller


@dataclass(frozen=True)
class VirtualOptions:
    """Simulated learners and the network between them."""

    heading = "simulation"

    num_learners: int = option(2, "number of learners", minimum=1)
    compute_s: float = option(0.16, "mean computing time of a minibatch in seconds", minimum=0.0)
    compute_variation: float = option(
        0.1, "standard deviation of the computing time, relative to its mean", minimum=0.0, rare=True
    )
    straggler: float = option(1.0, "factor by which the last learner is slower than the others", minimum=0.0)
    latency_s: float = option(5e-5, "latency of a message between hosts in seconds", minimum=0.0)
    bandwidth_mb: float = option(690.0, "bandwidth between hosts in MB/s", minimum=1e-6)
    model_mb: float = option(
        160.0, "size in MB of the model that the trained network stands for; 0: its own size", minimum=0.0
    )
    learners_per_host: int = option(1, "number of learners per host", minimum=1, rare=True)
    host_bandwidth_mb: float = option(
        5000.0,
        "bandwidth between learners of a host in MB/s",
        minimum=1e-6,
        only=unless_is("learners-per-host", 1),
        rare=True,
    )
    virtual_seed: int = option(0, "seed of the computing times", rare=True)

    def network(self, num_bytes: int) -> ClusterNetwork:
        """A communication network that takes as long for `num_bytes` as the real one for `model_mb`."""
        scale = _MB * (num_bytes / (_MB * self.model_mb) if self.model_mb else 1.0)
        between, within = scale * self.bandwidth_mb, scale * self.host_bandwidth_mb
        return ClusterNetwork(
            self.latency_s, between, self.learners_per_host, intra_host_bandwidth=within, packet=_PACKET
        )

    def compute_time(self) -> ComputeTime:
        """Distribution of the computing time of a minibatch."""
        return ComputeTime(self.compute_s, self.compute_variation, {self.num_learners - 1: self.straggler})


@dataclass(frozen=True)
class SimulationSpec:
    """Spec of the single job of a simulation."""

    training: TrainSpec
    virtual: VirtualOptions
