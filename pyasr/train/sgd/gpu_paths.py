"""Log lines on the implementations that a training uses on GPUs."""

from __future__ import annotations

from pyasr.nn.layers.sequence_layers import lstm_paths
from pyasr.parallel.communication.comm import Comm
from pyasr.train.sgd.any_learner import AnyLearner


def log_gpu_paths(learner: AnyLearner, comm: Comm) -> None:
    """Log the implementations of steps, and of LSTM layers in the minibatches so far, on GPUs. Every rank
    must call this."""
    if learner.flat.master.device.type == "cuda":
        reasons = learner.not_captured
        steps = (
            f"steps are not captured as CUDA graphs: {reasons}"
            if reasons
            else "steps are captured as CUDA graphs"
        )
        lines = comm.allgather([steps, *lstm_paths(learner.network)])
        for line in sorted({line for of_rank in lines for line in of_rank}):
            comm.log(line)
