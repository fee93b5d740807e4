"""Strategies in which ranks mix periodically, all ranks the same number of times."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from pyasr.parallel.mixing.base import Mixing, Strategy, finish_on_device
from pyasr.parallel.mixing.best_of_ranks import choose_best
from pyasr.parallel.mixing.mixing_schedule import MinibatchSchedule, MixingSchedule, in_whole_minibatches
from pyasr.parallel.mixing.payload_codec import PayloadCodec
from pyasr.parallel.mixing.scheme_options import PeriodicOptions, PeriodOptions

if TYPE_CHECKING:
    import torch


class PeriodicStrategy(Strategy):
    """Mixes after every `period_frames` frames of this rank. A rank without data mixes as often as the other
    ranks need it.

    A subclass defines `mix`. After the last mixing of an epoch, all ranks have the same parameters, the
    consensus.

    mixes_equal  whether all ranks have the same parameters after every mixing
    round        number of mixings since the beginning of the training
    seen         frames per rank since the beginning of the training, the mean over ranks
    epoch        number of finished epochs
    """

    options_kind = PeriodicOptions
    timetable: MixingSchedule | MinibatchSchedule  # of this epoch
    _PLACE: tuple[str, ...] = ("own_frames", "mixings", "round", "epoch", "seen")

    def __init__(self, comm, options):
        super().__init__(comm, options)
        self.own_frames = self.mixings = self.round = self.epoch = 0
        self.seen: float = 0

    @property
    def mixes_equal(self) -> bool:
        """No, unless a scheme overrides it."""
        return False

    def begin_epoch(self, frames: int, minibatch: int) -> None:
        """Exchange the ranks' numbers of frames, which determine the timetable."""
        self.timetable = self.make_timetable(self.comm.allgather(frames), minibatch)

    def make_timetable(self, totals: list[int], minibatch: int) -> MixingSchedule:
        """Mixing schedule of an epoch in which rank r has `totals[r]` frames."""
        return MixingSchedule(totals, self.period(self.epoch), minibatch)

    def period(self, epoch: int) -> int:
        """Frames of a rank between two mixings in epoch 0, 1, ..."""
        assert isinstance(self.options, PeriodOptions)
        return self.options.period_frames

    def meets(self, frames: int, epoch_frames: int, minibatch: int) -> int:
        """At the next mixing, approximately, because ranks may have fewer frames left."""
        epoch, within = divmod(frames, epoch_frames)
        between = in_whole_minibatches(self.period(epoch), minibatch) * self.comm.size
        return epoch * epoch_frames + min(-(-within // between) * between, epoch_frames)

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """Mix at the end of a period, and whenever this rank has no data left."""
        self.own_frames += frames
        if frames and not self.timetable.is_due(self.comm.rank, self.own_frames, self.mixings + 1):
            return None
        self.mixings += 1
        shares, last = self.timetable.shares(self.mixings), self.timetable.is_last(self.mixings)
        equal = self.mixes_equal or self.compares or self._takes_turns or last or self.comm.size == 1
        if self.comm.size > 1 and shares.any():
            self._mix_with_others(master, shares, last)
        self.round += 1
        self.seen += int(shares.sum()) / self.comm.size
        self.compares = False
        if last:
            self.own_frames = self.mixings = 0
            self.epoch += 1
        return Mixing(int(shares.sum()), last, equal)

    def mix(self, master: torch.Tensor, shares: np.ndarray, last: bool) -> None:
        """Change `master`, with other ranks; `shares` are the frames of each rank since the last mixing."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait for the ranks that this rank mixes with."""
        self.comm.barrier()

    def _mix_with_others(self, master: torch.Tensor, shares: np.ndarray, last: bool) -> None:
        if last:
            self.waiting(self.comm.barrier)
            self.training.before_consensus()
            self.drift = None  # measure the drift of this mixing, which is with all ranks
        finish_on_device(master)
        self.waiting(self.wait)
        self.mix_measured(master, self._mix_or_choose, shares, last)

    def _mix_or_choose(self, master: torch.Tensor, shares: np.ndarray, last: bool) -> None:
        if self.compares:
            choose_best(self.wire, master, int(shares[self.comm.rank]), self.training.objective())
            self.adopt(master)
            return
        if self._takes_turns:
            learning = np.flatnonzero(shares)
            turn = int(learning[self.round % len(learning)])
            self._with_velocity(master, self.wire.host.change, lambda x: self.comm.bcast(x, turn), True)
            self.adopt(master)
            return
        self._with_velocity(master, self.mix, shares, last)
        if last and not self.mixes_equal:
            self.training.after_mixing(master)
            self.consensus(master)
        if last or self.mixes_equal:
            self.wire.agree(master)

    @property
    def _takes_turns(self) -> bool:
        """Whether all ranks take one rank's parameters instead of mixing (the paper's program:
        --frames-start-reduce)."""
        return self.seen < self.options.turns_frames

    def _with_velocity(self, master: torch.Tensor, function: Callable, *arguments) -> None:
        """Call `function(x, *arguments)`, which changes x in place: the parameters, followed by the velocity
        if it is mixed."""
        velocity = self.training.velocity
        if velocity is None:
            function(master, *arguments)
            return
        both = master.new_empty(len(master) + len(velocity))
        both[: len(master)] = master
        both[len(master) :] = velocity
        function(both, *arguments)
        master.copy_(both[: len(master)])
        velocity.copy_(both[len(master) :])

    def state_dict(self) -> dict:
        """Position in the epoch and in the training."""
        return {**super().state_dict(), **{name: getattr(self, name) for name in self._PLACE}}

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`."""
        super().load_state_dict(state)
        for name in self._PLACE:
            setattr(self, name, state[name])

    def resume_resized(self, state: dict) -> None:
        """Restore the position in the training; the rest of the epoch gets a new timetable."""
        super().resume_resized(state)
        self.round, self.epoch, self.seen = state["round"], state["epoch"], state["seen"]


def average(wire: PayloadCodec, master: torch.Tensor, shares: np.ndarray) -> None:
    """Replace all ranks' parameters by their average, with weights proportional to `shares`."""
    share = float(shares[wire.comm.rank] / shares.sum())
    wire.host.change(master, lambda array: wire.sum(array, share, 1.0), wire.adds_pieces)
