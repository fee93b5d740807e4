"""The best rank's parameters instead of a mixture, where those of different ranks are still too far apart to be averaged (Kaldi's nnet2 and
nnet3 scripts, in the first iteration and where a layer was added)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyasr.parallel.strategies.wire import Wire

if TYPE_CHECKING:
    import torch


def choose_best(wire: Wire, master: torch.Tensor, frames: int, objective: float) -> None:
    """All go on with the parameters of the rank with the greatest objective, seen on so many frames; equally good ones: the lowest rank.

    A rank that has seen fewer than half as many frames as another is no candidate: its objective says little, and what the others have
    learned would be lost.
    """
    offers = wire.comm.allgather((frames, objective if math.isfinite(objective) else -math.inf))
    best = best_offer(offers)
    objectives = ", ".join(f"{objective:.4f}" for _, objective in offers)
    wire.comm.say(f"all ranks go on with the parameters of rank {best}; objectives by rank: {objectives}")
    wire.host.change(master, lambda array: wire.comm.bcast(array, best), by_pieces=True)


def best_offer(offers: list[tuple[int, float]]) -> int:
    """The place of the greatest objective among the (frames, objective) whose frames are at least half of the most."""
    most = max(frames for frames, _ in offers)
    candidates = [rank for rank, (frames, _) in enumerate(offers) if 2 * frames >= most]
    return max(candidates, key=lambda rank: offers[rank][1])
