"""Counts of minibatches that a learner skips because values are not finite. They stay on the device, without
a synchronisation."""

from __future__ import annotations

import torch


class NonfiniteGuard:
    """Counts of skipped minibatches.

    parts   names of the parts that are checked, such as the layers of a network
    counts  count of each part, total count, step of the last one; int64 (len(parts) + 2,), since the last
            `take`
    """

    def __init__(self, parts: list[str], device: torch.device):
        self.parts, self.counts = parts, torch.zeros(len(parts) + 2, dtype=torch.int64, device=device)

    def count(self, finite: torch.Tensor, step: int | torch.Tensor) -> torch.Tensor:
        """Note which parts of minibatch number `step` were finite, bool (len(parts),). Returns whether all
        were, bool ()."""
        all_finite = finite.all()
        self.counts[:-1] += torch.cat([~finite, ~all_finite[None]])
        self.counts[-1] = torch.where(all_finite, self.counts[-1], step)
        return all_finite

    def take(self) -> tuple[int, list[str], int]:
        """(minibatches skipped since the last call, parts that were not finite, step of the last skipped
        minibatch). Waits for the device."""
        *by_part, number, last = self.counts.tolist()
        self.counts.zero_()
        return number, [name for name, count in zip(self.parts, by_part) if count], last


def clear_unless(finite: torch.Tensor, *tensors: torch.Tensor | None) -> None:
    """Set the tensors to zero unless `finite`, bool (). Only on a CPU its value is read, so that other
    devices are not waited for."""
    if finite.device.type == "cpu" and finite:
        return
    for values in tensors:
        if values is not None:
            values.masked_fill_(~finite, 0)
