"""Minibatches that a learner leaves out because something of them is not finite. All of it stays on the device, which is not waited for."""

from __future__ import annotations

import torch


class Skips:
    """Counts them.

    parts   names of what may be not finite, such as the layers of a network
    counts  number for each part, number in all, step of the last one; int64 (len(parts) + 2,), since the last `take`
    """

    def __init__(self, parts: list[str], device: torch.device):
        self.parts, self.counts = parts, torch.zeros(len(parts) + 2, dtype=torch.int64, device=device)

    def count(self, finite: torch.Tensor, step: int | torch.Tensor) -> torch.Tensor:
        """Put down which parts were finite, bool (len(parts),), in the minibatch number `step`. Returns whether all were, bool ()."""
        all_finite = finite.all()
        self.counts[:-1] += torch.cat([~finite, ~all_finite[None]])
        self.counts[-1] = torch.where(all_finite, self.counts[-1], step)
        return all_finite

    def take(self) -> tuple[int, list[str], int]:
        """How many minibatches were left out since the last call, the parts that were not finite, and the step of the last such minibatch.
        Waits for the device."""
        *by_part, number, last = self.counts.tolist()
        self.counts.zero_()
        return number, [name for name, count in zip(self.parts, by_part) if count], last


def clear_unless(finite: torch.Tensor, *tensors: torch.Tensor | None) -> None:
    """Set these tensors to zero unless `finite`, bool (); only a CPU is asked whether it is, another device need not wait."""
    if finite.device.type == "cpu" and finite:
        return
    for values in tensors:
        if values is not None:
            values.masked_fill_(~finite, 0)
