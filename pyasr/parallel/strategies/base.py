"""What a strategy of parallel training is.

A strategy sees `(master, frames)` after every minibatch and decides when, and with whom, this rank's parameters are mixed. The training
loop knows none by name. A new scheme is one module in this package:

    @dataclass(frozen=True)
    class RingOptions(PeriodOptions):
        ring_rate: float = option(0.5, "share of the neighbour's parameters")

    @register("my-ring", options=RingOptions)
    class Ring(PeriodicStrategy): ...

Every command that has `--parallel` imports the modules of this package for the options that they declare; so they import torch in functions
alone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyasr.parallel.strategies.options import SchemeOptions
from pyasr.parallel.strategies.wire import Wire

if TYPE_CHECKING:
    import torch

    from pyasr.parallel.comm import Comm
    from pyasr.parallel.strategies.gradient_sum import GradientSum


class Mixing(NamedTuple):
    """What one mixing told this rank.

    frames  that all ranks have seen since the last one
    last    of the epoch: nobody has data left
    equal   all ranks hold the same parameters now
    joint   all ranks take part in this mixing, and may do more together before they go on
    saves   they have met within an epoch, where they would do so at its end alone, and may save a checkpoint
    """

    frames: int
    last: bool
    equal: bool
    joint: bool = True
    saves: bool = False


class TrainingView:
    """What a strategy may read of a training, and what it may call. The training loop attaches a subclass (`Strategy.attach`).

    num_epochs  of the training
    rate        this rank's learning rate since the last mixing, in a unit that does not change
    velocity    what the learner remembers of earlier updates, to be mixed as the parameters are; None: it is not mixed
    """

    num_epochs = 1
    rate = 1.0
    velocity: torch.Tensor | None = None

    def objective(self) -> float:
        """This rank's objective, a frame, since the strategy `compares`."""
        return 0.0

    def before_consensus(self) -> None:
        """Called on all ranks before the last mixing of an epoch."""

    def after_mixing(self, master: torch.Tensor) -> None:
        """Called with a rank's own parameters after the last mixing of an epoch, before all are made equal."""

    def wants_meeting(self) -> bool:
        """Whether it is time, for this rank, that all meet for a checkpoint."""
        return False

    def frames_to_meeting(self) -> int:
        """After how many frames of all ranks they meet within an epoch; 0: at its end only. All ranks ask at the same moments."""
        return 0


class Strategy:
    """Base of all strategies.

    Every rank calls `begin_epoch`, then `step` after each of its minibatches, and, out of data, `step(master, 0)` until the last mixing of
    the epoch comes back: so shards may be uneven, and all ranks take part in the same number of mixings.

    options    those of the scheme, of the class `options_kind`
    wire       by which all parameters travel between ranks
    share      (k, n): this rank learns from the k-th of n parts of the data; None: from none
    draw       (k, n): of its part, this rank draws in an epoch as much as the k-th of n learners (`pyasr.train.draws`)
    rests      whether this rank is to wait for the next mixing instead of learning until then
    speaks     whether this rank logs what it sees while ranks do not report together
    num_averaged  by how much moves are diminished, the number of ranks where they are averaged, with which the learning rate may grow; 1
                  where they are added up
    num_active    of these, those that learn until the next mixing
    compares   whether the next mixing is to choose between the ranks' parameters, which are too new to be mixed
    training   the `TrainingView` that `attach` has set
    drift      how far this rank's parameters were from the mixture, relative to that, in the last mixing that was measured; None has the
               next one measured
    times      seconds spent so far in waiting for other ranks, and in mixing, float64 (2,)
    staleness  how many of the parameters that this rank has mixed were so many moves behind its own, for log lines; None: not told
    """

    options_kind = SchemeOptions
    staleness: Counter | None = None
    rests = False
    in_background = False  # whether parameters travel while the loop talks to other ranks: on a communicator of their own
    draws_from_all = False  # whether every rank goes through all data, in an order of its own, until all together have seen enough
    resets_momentum = False  # whether learners are to forget their velocity after a mixing

    def __init__(self, comm: Comm, options: SchemeOptions):
        self.comm, self.options, self.training, self.compares = comm, options, TrainingView(), False
        self.wire = Wire(comm.split(0) if self.in_background else comm, options)
        own, whole = (comm.rank, comm.size), (0, 1)
        in_shards = not self.draws_from_all and options.data_assignment != "all"
        self.share: tuple[int, int] | None = own if in_shards else whole
        self.draw = whole if in_shards or self.draws_from_all else own
        self.speaks, self.num_averaged = comm.rank == 0, comm.size
        self.drift: float | None = None
        self.times = np.zeros(2)

    def attach(self, training: TrainingView) -> None:
        """Serve this training. Without it, nothing is read or called."""
        self.training = training

    def take_drift(self) -> float:
        """The drift of the last mixing that was measured since the last call, else 0. The next mixing is measured."""
        drift, self.drift = self.drift or 0.0, None
        return drift

    @property
    def num_active(self) -> int:
        """All that are averaged, unless a scheme says otherwise."""
        return self.num_averaged

    def epoch_frames(self, own_frames: int) -> int:
        """Frames of an epoch over all ranks, of which this one has `own_frames`. Every rank must call this."""
        return int(self.comm.reduce_scalar(own_frames, "max" if self.draws_from_all else "sum"))

    def meets(self, frames: int, epoch_frames: int, minibatch: int) -> int:
        """When all ranks take part in what is due after so many frames of theirs."""
        raise NotImplementedError

    def sum_gradients(self, of_any_size: bool = False) -> GradientSum | None:
        """By what a learner is to add its gradients over ranks; None: they stay its own. A learner that cannot does not ask.

        of_any_size  its minibatches have any numbers of frames; otherwise all have as many, but the last of an epoch
        """
        return None

    def begin_epoch(self, frames: int, minibatch: int) -> None:
        """All ranks begin an epoch, or go on with one: this rank has `frames` in all of it, in minibatches of at most `minibatch`."""
        raise NotImplementedError

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """Tell of `frames` more frames trained on; None, or what came of a mixing, which has changed `master` in place."""
        raise NotImplementedError

    def go_on(self) -> None:
        """All ranks have done what they do together after a joint mixing within an epoch."""

    def restart(self, master: torch.Tensor) -> None:
        """All ranks have a new network, or one that has grown, with these parameters."""
        self.adopt(master)
        self.compares = self.options.first_mixing == "best"

    def adopt(self, master: torch.Tensor) -> None:
        """All ranks have been given these parameters; what was remembered of others is no longer true."""
        self.wire.agree(master)

    def consensus(self, master: torch.Tensor) -> None:
        """Give all ranks the same parameters: the mean of theirs."""
        if self.comm.size > 1:
            self.wire.host.change(master, self.wire.mean, self.wire.adds_pieces)

    def model(self, master: torch.Tensor) -> torch.Tensor:
        """The consensus, on all ranks, as a copy; nothing changes."""
        copy = master.clone()
        self.consensus(copy)
        return copy

    def state_dict(self) -> dict:
        """What this rank remembers between two mixings, as tensors and plain values for a checkpoint, which is made just after one."""
        return {"compares": self.compares, "base": self.wire.base}

    def load_state_dict(self, state: dict) -> None:
        """Go on, after `restart`, from what `state_dict` gave."""
        self.compares = state["compares"]
        self.wire.restore(state.get("base"))

    def take_up(self, state: dict) -> None:
        """Go on, after `restart` with the consensus, from rank 0's `state_dict` of another number of ranks, in an epoch of their own:
        with what is true for any ranks."""
        self.compares = state["compares"]

    def mix_measured(self, master: torch.Tensor, function, *arguments) -> None:
        """`function(master, *arguments)`, its time taken for mixing; tells the drift where that is wanted."""
        before = master.clone() if self.drift is None else None
        self.mixing(function, master, *arguments)
        if before is not None:
            self.drift = float((before - master).norm() / master.norm())

    def waiting(self, function, *arguments):
        """`function(*arguments)`, its time taken for waiting."""
        return self._timed(0, function, *arguments)

    def mixing(self, function, *arguments):
        """`function(*arguments)`, its time taken for mixing."""
        return self._timed(1, function, *arguments)

    def _timed(self, kind: int, function, *arguments):
        """What the function itself has timed is not counted again."""
        begin, before = self.comm.time(), self.times.sum()
        try:
            return function(*arguments)
        finally:
            self.times[kind] += self.comm.time() - begin - (self.times.sum() - before)


def finish_on_device(master: torch.Tensor) -> None:
    """Wait for what the device has still to do, so that its time is not taken for that of a message."""
    if master.is_cuda:
        import torch  # here, see above

        torch.cuda.synchronize(master.device)
