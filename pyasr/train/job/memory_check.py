"""Memory checks before training. A shortage ends the training with one message that says which option to
lower.

Before its first minibatch, a rank computes the gradient of its largest minibatch and discards it. If a GPU's
memory is too small, PyTorch raises an error at this point. On a CPU, the system may kill the process instead,
so the memory is estimated first: the bytes that autograd saves for a part of the minibatch, scaled to all
frames, times two because the derivatives take as much again.

Sequence criteria keep all of an utterance. Their memory is measured on an utterance of median length.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.base.memory_errors import ADVICE, first_line_of, is_for_want_of_memory
from pyasr.parallel.communication.comm import Comm
from pyasr.train.data.frame_memory import free_bytes
from pyasr.train.job.checkpoints import random_state, set_random_state
from pyasr.train.minibatches.rows import Rows
from pyasr.train.minibatches.whole_utterances import Utterances
from pyasr.train.sgd.any_learner import AnyLearner
from pyasr.train.sgd.learner import Learner
from pyasr.train.targets.soft_targets import SoftTargets

if TYPE_CHECKING:
    from pyasr.train.data.minibatch_stream import Frames

_MB = 1_000_000
_PART = 8  # one part in 8 of a minibatch is measured, at least one chunk


class Workload(NamedTuple):
    """The consumers of memory on a rank.

    training   this rank's data
    minibatch  requested frames per minibatch
    comm       all ranks of the training; ranks of the same host share its memory
    """

    learner: AnyLearner
    training: Frames | Utterances
    minibatch: int
    comm: Comm


def try_out(work: Workload) -> None:
    """Compute the gradient of this rank's largest minibatch, log the memory that it takes, and discard it.
    Every rank must call this. Raises UserError if the memory is not enough."""
    device, needed = work.learner.flat.master.device, 0.0
    sharing = num_sharing(work.comm, device)
    with advising_on_memory(work), unchanged(work.learner):
        minibatch = work.training.largest(work.minibatch)
        if minibatch is not None:
            x, targets = minibatch
            needed = _check_part(work, x, targets, sharing)
            before = _peak_bytes(device, reset=True)
            work.learner.try_out(x, targets)
            needed = max(needed, _peak_bytes(device) - before)
    most = work.comm.reduce_scalar(needed, "max")
    if most:
        work.comm.log(
            f"the largest minibatch takes {'' if device.type == 'cuda' else 'about '}{most / _MB:.3g} MB of "
            "a rank's memory"
        )


def _peak_bytes(device: torch.device, reset: bool = False) -> int:
    """Peak bytes of tensors on a GPU since the last `reset`, which returns the present bytes; 0 on CPUs."""
    if device.type != "cuda":
        return 0
    if reset:
        torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.max_memory_allocated(device)


@contextlib.contextmanager
def unchanged(learner: AnyLearner) -> Iterator[None]:
    """On exit, restore the learner and the random state bit for bit; gradients may be computed in the
    block."""
    device = learner.flat.master.device
    state, random = copy.deepcopy(learner.state_dict()), random_state(device)
    try:
        yield
    finally:
        learner.flat.grad.zero_()
        learner.load_state_dict(state)
        set_random_state(random, device)


@contextlib.contextmanager
def advising_on_memory(work: Workload) -> Iterator[None]:
    """Turn a failed memory allocation into a UserError that says what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_for_want_of_memory(error):
            raise
        raise _memory_error(work, first_line_of(error)) from None


def _check_part(work: Workload, x, targets, sharing: int) -> float:
    """Estimated bytes of host memory for the minibatch, from what autograd saves for a part of it; 0 if
    unknown. Raises UserError if less is free for each of the `sharing` ranks of the host."""
    device, learner = work.learner.flat.master.device, work.learner
    free = free_bytes(device) if device.type == "cpu" else None
    if (
        free is None
        or not isinstance(learner, Learner)
        or not isinstance(x, torch.Tensor | Rows)
        or not isinstance(targets, torch.Tensor | SoftTargets)
    ):
        return 0.0
    part, its_targets = x.chunk(_PART)[0], targets.chunk(_PART)[0]
    learner.network.train()
    kept = saved_bytes(
        lambda: learner.loss(part, its_targets), learner.network, x.x if isinstance(x, Rows) else x
    )
    needed = 2 * kept * len(targets) / len(its_targets)
    _check_free(work, needed, free / sharing)
    return needed


def _check_free(work: Workload, needed: float, free: float) -> None:
    """Raise UserError if the largest minibatch needs more bytes than are free for a rank."""
    if needed > free:
        memory = f"it takes about {needed / _MB:.0f} MB, {free / _MB:.0f} MB are free for each rank"
        raise _memory_error(work, f"{memory}, enough for about {int(work.minibatch * free / needed)} frames")


def _memory_error(work: Workload, found: str) -> UserError:
    advice = work.training.advice(work.minibatch)
    return UserError(f"memory is not enough for a minibatch of {work.minibatch} frames: {found}; {advice}")


def check_utterances_fit(work: Workload) -> None:
    """Check that the utterances of a training on whole utterances fit into memory. Every rank must call this.

    Raises UserError if the longest utterance, which the message names, takes more memory than this rank has,
    or, on a CPU, the largest minibatch does.
    """
    learner, training = work.learner, work.training
    if not isinstance(training, Utterances) or not isinstance(learner, Learner):
        return
    device = learner.flat.master.device
    sharing, free = num_sharing(work.comm, device), free_bytes(device)
    if not len(training.keys) or free is None:
        return
    order = np.argsort(training.lengths, kind="stable")
    middle, longest = int(order[len(order) // 2]), int(order[-1])
    learner.network.eval()
    kept = saved_bytes(lambda: learner.loss(*training.minibatch_of(np.array([middle]))), learner.network)
    of_a_frame = 2 * kept / max(int(training.lengths[middle]), 1)
    if (needed := of_a_frame * int(training.lengths[longest])) > free / sharing:
        found = (
            f"{training.keys[longest]} has {training.lengths[longest]} frames, too many to train on as "
            "a whole"
        )
        memory = (
            f"it takes about {needed / _MB:.0f} MB of memory, {free / sharing / _MB:.0f} MB are free "
            "for each rank"
        )
        raise UserError(f"{training.reader.data}: {found}: {memory}; {ADVICE}")
    if device.type == "cpu":
        _check_free(work, of_a_frame * training.most_frames(), free / sharing)


def num_sharing(comm: Comm, device: torch.device) -> int:
    """Number of ranks that share the memory of `device` with this one, itself included."""
    return comm.split_by_host().size if device.type == "cpu" else 1


def saved_bytes(compute: Callable[[], object], network: torch.nn.Module, *inputs: torch.Tensor) -> int:
    """Bytes that autograd saves while `compute` runs, without the parameters of `network` and the storage of
    `inputs`."""
    kept = {}

    def note(tensor: torch.Tensor) -> None:
        kept[tensor.untyped_storage().data_ptr()] = tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(note, lambda nothing: nothing):
        compute()
    excluded = {tensor.untyped_storage().data_ptr() for tensor in (*network.parameters(), *inputs)}
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in excluded)
