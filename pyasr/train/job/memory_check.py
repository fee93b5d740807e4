"""Whether memory is enough, found out before anything is learned, and told in one sentence that says what to lower.

Before its first minibatch a rank computes the gradient of its largest one and forgets it. A GPU then says by itself that its memory is
too small. A processor's system may kill the process instead, so what the derivatives need is estimated first: what a part of the minibatch
keeps for them, which grows with its frames; the derivatives themselves take as much again.

Criteria of sequences keep all of an utterance; what that takes is measured on one of middle length.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.base.memory_errors import ADVICE, is_for_want_of_memory, what_it_says
from pyasr.parallel.communication.comm import Comm
from pyasr.train.data.frame_memory import free_bytes
from pyasr.train.job.checkpoints import random_state, set_random_state
from pyasr.train.minibatches.rows import Rows
from pyasr.train.minibatches.whole_utterances import Utterances
from pyasr.train.sgd.learner import Learner
from pyasr.train.targets.soft_targets import SoftTargets

if TYPE_CHECKING:
    from pyasr.train.data.minibatch_stream import Frames

_MB = 1_000_000
_PART = 8  # of a minibatch is measured, one chunk where there are fewer


class Workload(NamedTuple):
    """What takes memory on a rank.

    training   this rank's data
    minibatch  frames that a minibatch should have
    comm       the ranks of the training, some of which may share this one's memory
    """

    learner: Learner
    training: Frames | Utterances
    minibatch: int
    comm: Comm


def try_out(work: Workload) -> None:
    """Compute the gradient of this rank's largest minibatch, log what that takes, and forget it. Every rank must call this. Raises
    UserError where memory is not enough for that."""
    device, needed = work.learner.flat.master.device, 0.0
    sharing = num_sharing(work.comm, device)
    with telling_what_to_lower(work), unchanged(work.learner):
        minibatch = work.training.largest(work.minibatch)
        if minibatch is not None:
            needed = _check_part(work, *minibatch, sharing)
            before = _peak_bytes(device, anew=True)
            work.learner.try_out(*minibatch)
            needed = max(needed, _peak_bytes(device) - before)
    most = work.comm.reduce_scalar(needed, "max")
    if most:
        work.comm.say(f"the largest minibatch takes {'' if device.type == 'cuda' else 'about '}{most / _MB:.3g} MB of a rank's memory")


def _peak_bytes(device: torch.device, anew: bool = False) -> int:
    """The most that tensors have taken of a GPU's memory since it was asked for `anew`, which gives what they take now."""
    if device.type != "cuda":
        return 0
    if anew:
        torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.max_memory_allocated(device)


@contextlib.contextmanager
def unchanged(learner: Learner):
    """Have the learner and the random state be afterwards, bit by bit, what they are now, gradients having been computed meanwhile."""
    device = learner.flat.master.device
    remembered, random = copy.deepcopy(learner.state_dict()), random_state(device)
    try:
        yield
    finally:
        learner.flat.grad.zero_()
        learner.load_state_dict(remembered)
        set_random_state(random, device)


@contextlib.contextmanager
def telling_what_to_lower(work: Workload):
    """Have a failure to get memory become a UserError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_for_want_of_memory(error):
            raise
        raise _too_little(work, what_it_says(error)) from None


def _check_part(work: Workload, x, targets, sharing: int) -> float:
    """Bytes of the host's memory that the minibatch will take, by what a part of it keeps; 0 where that is not known. Raises UserError
    where less is free for each of those that share it."""
    device, learner = work.learner.flat.master.device, work.learner
    free = free_bytes(device) if device.type == "cpu" and isinstance(learner, Learner) else None
    if free is None or not isinstance(x, torch.Tensor | Rows) or not isinstance(targets, torch.Tensor | SoftTargets):
        return 0.0
    part, its_targets = x.chunk(_PART)[0], targets.chunk(_PART)[0]
    learner.network.train()
    kept = kept_bytes(lambda: learner.loss(part, its_targets), learner.network, x.x if isinstance(x, Rows) else x)
    needed = 2 * kept * len(targets) / len(its_targets)
    _check_free(work, needed, free / sharing)
    return needed


def _check_free(work: Workload, needed: float, free: float) -> None:
    """Raise UserError where the largest minibatch needs more bytes than are free for a rank."""
    if needed > free:
        memory = f"it takes about {needed / _MB:.0f} MB, {free / _MB:.0f} MB are free for each rank"
        raise _too_little(work, f"{memory}, enough for about {int(work.minibatch * free / needed)} frames")


def _too_little(work: Workload, found: str) -> UserError:
    advice = work.training.advice(work.minibatch)
    return UserError(f"memory is not enough to learn from a minibatch of {work.minibatch} frames: {found}; {advice}")


def check_utterances_fit(work: Workload) -> None:
    """Check that memory holds the utterances of a training on whole ones. Every rank must call this.

    Raises UserError if the longest utterance, which is named, or, on a processor, the largest minibatch takes more than this rank has.
    """
    if not isinstance(work.training, Utterances):
        return
    learner, training = work.learner, work.training
    device = learner.flat.master.device
    sharing, free = num_sharing(work.comm, device), free_bytes(device)
    if not len(training.keys) or free is None:
        return
    order = np.argsort(training.lengths, kind="stable")
    middle, longest = int(order[len(order) // 2]), int(order[-1])
    learner.network.eval()
    kept = kept_bytes(lambda: learner.loss(*training.minibatch_of([middle])), learner.network)
    of_a_frame = 2 * kept / max(int(training.lengths[middle]), 1)
    if (needed := of_a_frame * int(training.lengths[longest])) > free / sharing:
        found = f"{training.keys[longest]} has {training.lengths[longest]} frames, too many to be learned as a whole"
        memory = f"it takes about {needed / _MB:.0f} MB of memory, {free / sharing / _MB:.0f} MB are free for each rank"
        raise UserError(f"{training.reader.data}: {found}: {memory}; {ADVICE}")
    if device.type == "cpu":
        _check_free(work, of_a_frame * training.most_frames(), free / sharing)


def num_sharing(comm: Comm, device: torch.device) -> int:
    """Ranks that take their memory from where this one does."""
    return comm.split_by_host().size if device.type == "cpu" else 1


def kept_bytes(compute: Callable[[], object], network: torch.nn.Module, *inputs: torch.Tensor) -> int:
    """Bytes that the graph of what `compute` returns keeps for derivatives, without the parameters of `network` and what holds `inputs`."""
    kept = {}

    def note(tensor: torch.Tensor) -> None:
        kept[tensor.untyped_storage().data_ptr()] = tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(note, lambda nothing: nothing):
        compute()
    there = {tensor.untyped_storage().data_ptr() for tensor in (*network.parameters(), *inputs)}
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in there)
