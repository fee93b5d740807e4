"""GPU seconds of network trainings: matrix products at the rate of a large one, and kernel launches, which
dominate for small networks.

The numbers are in the file of rates; docs/recipes.md describes their origin.
"""

from __future__ import annotations

from pyasr.report.plan.planned_calls import Call
from pyasr.report.plan.planned_data import PlannedCorpus
from pyasr.report.plan.works import FRAMES_PER_HOUR, hours_of_epochs, with_natural_gradient

_MINIBATCHES = {"train_dnn": 512, "train_lfmmi": 1600}  # default minibatch in frames


def gpu_seconds(call: Call, corpus: PlannedCorpus, gpu: dict) -> float | None:
    """GPU seconds of a call that trains a network; None without an estimate."""
    network = corpus.model_of(call.words[-1]).network
    if not gpu or not network or call.name not in _MINIBATCHES:
        return None
    frames = FRAMES_PER_HOUR * hours_of_epochs(call, corpus)
    num_minibatches = frames / call.number("minibatch", _MINIBATCHES[call.name])
    launches = gpu["launches"]
    of_minibatch = network.maps * launches["natural gradient" if with_natural_gradient(call) else "SGD"]
    of_minibatch += network.steps * launches["recurrent step"] + launches.get(call.name, 0)
    return (
        network.training_gflop(frames) / gpu["gflop_per_s"]
        + num_minibatches * of_minibatch * gpu["s_per_launch"]
    )
