"""Selection of the best rank's parameters when those of different ranks are too far apart to be averaged (as
Kaldi's nnet2 and nnet3 scripts do in the first iteration and after a layer has been added)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyasr.parallel.mixing.payload_codec import PayloadCodec

if TYPE_CHECKING:
    import torch


def choose_best(codec: PayloadCodec, master: torch.Tensor, frames: int, objective: float) -> None:
    """Give all ranks the parameters of the rank with the best objective over its `frames`; ties go to the
    lowest rank.

    A rank with less than half the frames of another is not a candidate: its objective is unreliable, and the
    training of the other ranks would be lost.
    """
    results = codec.comm.allgather((frames, objective if math.isfinite(objective) else -math.inf))
    best = best_rank(results)
    objectives = ", ".join(f"{objective:.4f}" for _, objective in results)
    codec.comm.log(f"all ranks take the parameters of rank {best}; objectives by rank: {objectives}")
    codec.host.change(master, lambda array: codec.comm.bcast(array, best), by_pieces=True)


def best_rank(results: list[tuple[int, float]]) -> int:
    """Index of the best objective among (frames, objective) with at least half the maximum of frames."""
    most = max(frames for frames, _ in results)
    candidates = [rank for rank, (frames, _) in enumerate(results) if 2 * frames >= most]
    return max(candidates, key=lambda rank: results[rank][1])
