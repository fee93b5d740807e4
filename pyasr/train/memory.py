"""Whether memory is enough for whole utterances, of whose frames a criterion of sequences keeps all that their derivatives are made of.

What is kept is measured on an utterance of middle length, and taken to grow with the frames; the derivatives themselves take as much again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.parallel.comm import Comm
from pyasr.train.learner import Learner

_MB = 1_000_000


def check_utterances_fit(learner: Learner, training, comm: Comm) -> None:
    """Raise UserError, by its name, where the longest utterance is too long for the memory of this rank. Every rank must call this.

    training  this rank's utterances: `PaddedUtterances` or `Utterances`
    """
    device = learner.flat.master.device
    sharing = comm.split_by_host().size if device.type == "cpu" else 1
    free = free_bytes(device)
    if not len(training.keys) or free is None:
        return
    order = np.argsort(training.lengths, kind="stable")
    middle, longest = int(order[len(order) // 2]), int(order[-1])
    learner.network.eval()
    kept = kept_bytes(lambda: learner.loss(*training.minibatch_of([middle])), learner.network)
    needed = 2 * kept * int(training.lengths[longest]) / max(int(training.lengths[middle]), 1)
    if needed > free / sharing:
        found = f"{training.keys[longest]} has {training.lengths[longest]} frames, too many to be learned as a whole"
        memory = f"it takes about {needed / _MB:.0f} MB of memory, {free / sharing / _MB:.0f} MB are free for each rank"
        raise UserError(f"{training.reader.data}: {found}: {memory}; cut it into shorter utterances, or leave it out")


def kept_bytes(compute: Callable[[], object], network: torch.nn.Module) -> int:
    """Bytes that the graph of what `compute` returns keeps for derivatives, without the parameters of `network`."""
    kept = {}

    def note(tensor: torch.Tensor) -> None:
        kept[tensor.untyped_storage().data_ptr()] = tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(note, lambda nothing: nothing):
        compute()
    parameters = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in parameters)


def free_bytes(device: torch.device) -> int | None:
    """Of the device's memory, or of this host's; None where that is not known."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="utf-8") as f:
            return next(1024 * int(line.split()[1]) for line in f if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None  # harmless: no Linux, so nothing is checked
