"""GPU seconds of the training of networks: products at the rate of a large one, and launches of kernels, on which small networks depend.

The file of rates has the numbers, and docs/recipes.md says where they come from.
"""

from __future__ import annotations

from pyasr.report.plan.calls import Call
from pyasr.report.plan.corpus import Corpus
from pyasr.report.plan.works import FRAMES_PER_HOUR, hours_of_epochs, with_natural_gradient

_MINIBATCHES = {"train_dnn": 512, "train_lfmmi": 1600}  # frames by default


def gpu_seconds(call: Call, corpus: Corpus, gpu: dict) -> float | None:
    """Of a call that trains a network; None where there is no estimate."""
    network = corpus.model_of(call.words[-1]).network
    if not gpu or not network or call.name not in _MINIBATCHES:
        return None
    frames = FRAMES_PER_HOUR * hours_of_epochs(call, corpus)
    num_minibatches = frames / call.number("minibatch", _MINIBATCHES[call.name])
    launches = gpu["launches"]
    of_minibatch = network.maps * launches["natural gradient" if with_natural_gradient(call) else "SGD"]
    of_minibatch += network.steps * launches["recurrent step"] + launches.get(call.name, 0)
    return network.training_gflop(frames) / gpu["gflop_per_s"] + num_minibatches * of_minibatch * gpu["s_per_launch"]
