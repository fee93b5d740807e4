"""The best rank's parameters instead of a mixture, where those of different ranks are still too far apart to be averaged."""

from __future__ import annotations

import math

import torch

from pyasr.parallel.comm import Comm
from pyasr.parallel.strategies.base import Mixing, MixingOptions, Strategy, in_host_memory
from pyasr.parallel.strategies.periodic import PeriodicStrategy


class BestOfRanks(PeriodicStrategy):
    """All go on with the parameters of the rank whose objective since the last mixing was the greatest.

    A rank that has seen fewer than half as many frames as another since then is no candidate: its objective says little, and what the
    others have learned would be lost.
    """

    def mix(self, master: torch.Tensor, total: int) -> None:
        """Take the best rank's parameters; equally good ones: the lowest rank's."""
        objective = self.objective()
        offers = self.comm.allgather((self.since_last, objective if math.isfinite(objective) else -math.inf))
        best = best_offer(offers)
        objectives = ", ".join(f"{objective:.4f}" for _, objective in offers)
        self.comm.say(f"all ranks go on with the parameters of rank {best}; objectives by rank: {objectives}")
        in_host_memory(master, lambda array: self.comm.bcast(array, best))


def best_offer(offers: list[tuple[int, float]]) -> int:
    """The place of the greatest objective among the (frames, objective) whose frames are at least half of the most."""
    most = max(frames for frames, _ in offers)
    candidates = [rank for rank, (frames, _) in enumerate(offers) if 2 * frames >= most]
    return max(candidates, key=lambda rank: offers[rank][1])


class BestFirst(Strategy):
    """Another strategy, but after every `restart` the first mixing is that of `BestOfRanks` (Kaldi's nnet2 and nnet3 scripts, in the first
    iteration and where a layer was added)."""

    def __init__(self, strategy: Strategy, comm: Comm, options: MixingOptions):
        super().__init__(comm, options)
        self.strategy, self.best = strategy, BestOfRanks(comm, options)
        self.best.times = strategy.times = self.times

    def restart(self) -> None:
        """The next mixing is the first."""
        self.compares = True
        self.strategy.restart()

    def step(self, master: torch.Tensor, frames: int) -> Mixing | None:
        """What the strategy in charge does."""
        strategy = self.best if self.compares else self.strategy
        strategy.vote, strategy.objective = self.vote, self.objective
        mixing = strategy.step(master, frames)
        if mixing is not None:
            self.vote = False
            self.compares = self.compares and not mixing.frames
        return mixing

    def state_dict(self) -> dict:
        """Whether the first mixing is still to come, and the strategy's own state."""
        return {"compares": self.compares, "strategy": self.strategy.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        """Go on from what `state_dict` gave."""
        self.compares = state["compares"]
        self.strategy.load_state_dict(state["strategy"])
