"""Base class of the strategies of parallel training.

A strategy receives `(master, frames)` after every minibatch. It decides when, and with which ranks, this
rank's parameters are mixed. The training loop does not depend on any particular strategy. A new scheme is one
module in this package:

    @dataclass(frozen=True)
    class RingOptions(PeriodOptions):
        ring_rate: float = option(0.5, "share of the neighbour's parameters")

    @register("my-ring", options=RingOptions)
    class Ring(PeriodicStrategy): ...

Every command with the option `--parallel` imports the modules of this package to read their options.
Therefore, they import torch inside functions only.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyasr.parallel.mixing.payload_codec import PayloadCodec
from pyasr.parallel.mixing.scheme_options import SchemeOptions

if TYPE_CHECKING:
    import torch

    from pyasr.parallel.communication.comm import Comm
    from pyasr.parallel.mixing.gradient_sum import GradientSum


class Mixing(NamedTuple):
    """Result of one mixing on this rank.

    frames  number of frames that all ranks have processed since the last mixing
    last    whether this is the last mixing of the epoch: no rank has data left
    equal   whether all ranks have the same parameters now
    joint   whether all ranks are in this mixing, so that they can run further collective operations before
            they continue
    saves   whether all ranks have synchronised within an epoch in a scheme in which they otherwise do so at
            its end only, and can save a checkpoint
    """

    frames: int
    last: bool
    equal: bool
    joint: bool = True
    saves: bool = False


class TrainingView:
    """The part of the training that a strategy reads and calls. The training loop attaches a subclass
    (`Strategy.attach`).

    num_epochs  number of epochs of the training
    """

    num_epochs = 1

    @property
    def rate(self) -> float:
        """This rank's learning rate since the last mixing, in a fixed unit."""
        raise NotImplementedError

    @property
    def velocity(self) -> torch.Tensor | None:
        """The learner's momentum buffer, mixed in the same way as the parameters; None: the buffer is not
        mixed."""
        raise NotImplementedError

    def objective(self) -> float:
        """This rank's objective per frame since `Strategy.compares` was set."""
        return 0.0

    def before_consensus(self) -> None:
        """Called on all ranks before the last mixing of an epoch."""

    def after_mixing(self, master: torch.Tensor) -> None:
        """Called with a rank's own parameters after the last mixing of an epoch, before all become equal."""

    def wants_synchronisation(self) -> bool:
        """Whether this rank requests a checkpoint, for which all ranks synchronise."""
        return False

    def frames_to_synchronisation(self) -> int:
        """Frames of all ranks until they synchronise within the epoch; 0: they do so at its end only. All
        ranks call this at the same points."""
        return 0


class NoTraining(TrainingView):
    """What a strategy sees without a training: constants, which can be set."""

    rate = 1.0
    velocity: torch.Tensor | None = None


class Strategy:
    """Base of all strategies.

    Every rank calls `begin_epoch`, then `step` after each of its minibatches. A rank without data calls
    `step(master, 0)` until it has the last mixing of the epoch. So shards may have different sizes, and all
    ranks take part in the same number of mixings.

    options    options of the scheme, of the class `options_kind`
    codec      the `PayloadCodec` for all parameters that travel between ranks
    share      (k, n): this rank learns from the k-th of n parts of the data; None: from no data
    draw       (k, n): in an epoch, this rank draws as much of its part as the k-th of n learners
               (`pyasr.train.draws`)
    is_idle    whether this rank idles until the next mixing
    is_logger  whether this rank logs its own statistics while ranks do not report together
    num_averaged  divisor of each rank's move, by which the learning rate may be scaled up: the number of
                  ranks if moves are averaged, 1 if they are added
    num_active    number of these ranks that learn until the next mixing
    compares   whether the next mixing selects the parameters of one rank, because the parameters are too new
               to be averaged
    training   the `TrainingView` that `attach` has set
    drift      distance of this rank's parameters from the mixture, relative to the mixture, in the last
               measured mixing; None requests a measurement in the next mixing
    times      seconds spent so far on waiting for other ranks and on mixing, float64 (2,)
    staleness  Counter: number of mixed parameters by the number of moves that they were behind this rank's
               own, for log lines; None: not measured
    """

    options_kind = SchemeOptions
    # whether parameters travel while the loop communicates, on a communicator of their own
    in_background = False
    # whether every rank draws from all data, in its own order, until all together have processed an epoch
    draws_from_all = False
    resets_momentum = False  # whether learners reset their velocity after a mixing

    def __init__(self, comm: Comm, options: SchemeOptions):
        self.comm, self.options, self.compares = comm, options, False
        self.training: TrainingView = NoTraining()
        self.codec = PayloadCodec(comm.split(0) if self.in_background else comm, options)
        own, whole = (comm.rank, comm.size), (0, 1)
        in_shards = not self.draws_from_all and options.data_assignment != "all"
        self.share: tuple[int, int] | None = own if in_shards else whole
        self.draw = whole if in_shards or self.draws_from_all else own
        self.is_logger, self.num_averaged = comm.rank == 0, comm.size
        self.drift: float | None = None
        self.times = np.zeros(2)

    def attach(self, training: TrainingView) -> None:
        """Attach the training, in place of `NoTraining`."""
        self.training = training

    def take_drift(self) -> float:
        """The drift of the last mixing measured since the last call, else 0. Requests a measurement of the
        next mixing."""
        drift, self.drift = self.drift or 0.0, None
        return drift

    @property
    def staleness(self) -> Counter | None:
        """Not measured, unless a scheme overrides it."""
        return None

    @property
    def is_idle(self) -> bool:
        """Never, unless a scheme overrides it."""
        return False

    @property
    def num_active(self) -> int:
        """All averaged ranks, unless a scheme overrides it."""
        return self.num_averaged

    def epoch_frames(self, own_frames: int) -> int:
        """Frames of an epoch over all ranks; `own_frames` are this rank's. Collective."""
        return int(self.comm.reduce_scalar(own_frames, "max" if self.draws_from_all else "sum"))

    def next_synchronisation(self, frames: int, epoch_frames: int, minibatch: int) -> int:
        """Frames of all ranks at which the first synchronisation at or after `frames` of them happens."""
        raise NotImplementedError

    def sum_gradients(self, of_any_size: bool = False) -> GradientSum | None:
        """The object by which a learner adds its gradients over ranks; None: gradients stay local. Only
        learners with gradients call this.

        of_any_size  whether the sizes of minibatches differ; otherwise all but the last of an epoch have the
                     same number of frames
        """
        return None

    def begin_epoch(self, frames: int, minibatch: int) -> None:
        """Begin or resume an epoch, on all ranks: this rank has `frames` in all of it, in minibatches of at
        most `minibatch` frames."""
        raise NotImplementedError

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """Report `frames` more frames of training. Returns the result of a mixing, which has changed `master`
        in place, or None."""
        raise NotImplementedError

    def continue_epoch(self) -> None:
        """Continue the epoch when all ranks have finished their collective work after a joint mixing."""

    def restart(self, master: torch.Tensor) -> None:
        """Start with these parameters of a network that is new or has grown, the same on all ranks."""
        self.adopt(master)
        self.compares = self.options.first_mixing == "best"

    def adopt(self, master: torch.Tensor) -> None:
        """Take over these parameters, the same on all ranks, and discard all state about other ranks."""
        self.codec.set_base(master)

    def consensus(self, master: torch.Tensor) -> None:
        """Give all ranks the same parameters: the mean of theirs."""
        if self.comm.size > 1:
            self.codec.host.change(master, self.codec.mean, self.codec.adds_pieces)

    def model(self, master: torch.Tensor) -> torch.Tensor:
        """A copy of the consensus, on all ranks, without a change of state."""
        copy = master.clone()
        self.consensus(copy)
        return copy

    def state_dict(self) -> dict:
        """This rank's state as tensors and plain values, for a checkpoint saved directly after a mixing."""
        return {"compares": self.compares, "base": self.codec.base}

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`, after `restart`."""
        self.compares = state["compares"]
        self.codec.restore(state.get("base"))

    def resume_resized(self, state: dict) -> None:
        """Resume, after `restart` with the consensus, from rank 0's `state_dict` of a training with another
        number of ranks. Only state that does not depend on the number of ranks is restored; the rest of the
        epoch gets a new schedule."""
        self.compares = state["compares"]

    def mix_measured(self, master: torch.Tensor, function, *arguments) -> None:
        """Call `function(master, *arguments)`, count its time as mixing, and measure the drift if
        requested."""
        before = master.clone() if self.drift is None else None
        self.mixing(function, master, *arguments)
        if before is not None:
            self.drift = float((before - master).norm() / master.norm())

    def waiting(self, function, *arguments):
        """Call `function(*arguments)` and count its time as waiting."""
        return self._timed(0, function, *arguments)

    def mixing(self, function, *arguments):
        """Call `function(*arguments)` and count its time as mixing."""
        return self._timed(1, function, *arguments)

    def _timed(self, kind: int, function, *arguments):
        """Time a call, without the time that the function itself has already counted."""
        begin, before = self.comm.time(), self.times.sum()
        try:
            return function(*arguments)
        finally:
            self.times[kind] += self.comm.time() - begin - (self.times.sum() - before)


def finish_on_device(master: torch.Tensor) -> None:
    """Wait for pending work of the device, so that it is not counted as communication."""
    if master.is_cuda:
        import torch  # here, see above

        torch.cuda.synchronize(master.device)
