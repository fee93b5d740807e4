"""Training in simulated time: what learners and network are like."""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.cli.option_uses import unless_is
from pyasr.base.cli.options import option
from pyasr.parallel.simulation.network_model import Network
from pyasr.parallel.simulation.simulator import ComputeTime
from pyasr.train.steps.dnn_step import TrainSpec

_MB = 1e6
_PACKET = 1500  # bytes: what learners tell each other beside parameters is smaller


@dataclass(frozen=True)
class VirtualOptions:
    """Simulated learners and their network."""

    num_learners: int = option(2, "learners", minimum=1)
    compute_s: float = option(0.16, "seconds that a learner computes on a minibatch, on average", minimum=0.0)
    compute_variation: float = option(0.1, "standard deviation of that time, relative to it", minimum=0.0)
    straggler: float = option(1.0, "factor by which the last learner is slower than the others", minimum=0.0)
    latency_s: float = option(5e-5, "latency of a message between hosts", minimum=0.0)
    bandwidth_mb: float = option(690.0, "bandwidth between hosts, in MB/s", minimum=1e-6)
    model_mb: float = option(160.0, "size of the model that the network stands for, in MB; 0: its own", minimum=0.0)
    learners_per_host: int = option(1, "learners that share a host", minimum=1)
    host_bandwidth_mb: float = option(5000.0, "bandwidth between learners of a host, in MB/s", minimum=1e-6,
                                      only=unless_is("learners-per-host", 1))  # fmt: skip
    virtual_seed: int = option(0, "seed of the computing times")

    def network(self, num_bytes: int) -> Network:
        """The network that takes as long for `num_bytes` as the real one for the declared size."""
        scale = _MB * (num_bytes / (_MB * self.model_mb) if self.model_mb else 1.0)
        between, within = scale * self.bandwidth_mb, scale * self.host_bandwidth_mb
        return Network(self.latency_s, between, self.learners_per_host, intra_host_bandwidth=within, packet=_PACKET)

    def compute_time(self) -> ComputeTime:
        """How long a minibatch takes."""
        return ComputeTime(self.compute_s, self.compute_variation, {self.num_learners - 1: self.straggler})


@dataclass(frozen=True)
class SimulationSpec:
    """The work of a simulation's one job."""

    training: TrainSpec
    virtual: VirtualOptions
