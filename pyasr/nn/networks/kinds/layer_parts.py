"""What several kinds of layers have in common: layers that are one line of a file, dropout of outputs, values
of options."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.nn.dropout import ByteDropout, SequenceDropout
from pyasr.nn.layers.sequence_layers import SequenceLayer
from pyasr.nn.network_options import MAX_SPREAD


class Stack(SequenceLayer):
    """Layers that are one layer in a file: the first combines frames, the others act on single frames,
    optional dropout is last."""

    def __init__(self, first: SequenceLayer, *others: nn.Module, dropout: nn.Module | None, dim_out: int):
        super().__init__()
        self.first, self.others, self.dropout = first, nn.Sequential(*others), dropout or nn.Identity()
        self.left, self.right, self.stride, self.dim_out = first.left, first.right, first.stride, dim_out

    def forward(self, x: Tensor) -> Tensor:
        """Apply all layers to (T, N, D)."""
        spliced = self.first(x)
        return self.dropout(self.others(spliced.flatten(0, 1)).view(*spliced.shape[:2], self.dim_out))


@dataclass(frozen=True)
class DropoutOptions:
    """Options of layers with dropout of their outputs."""

    dropout: float = option(0.0, "proportion of units dropped in training", minimum=0.0, maximum=0.9)
    dropout_per_dim: bool = option(
        False, "instead, multiply units by random factors in 1 - 2p .. 1 + 2p (p: --dropout), one per chunk"
    )

    def of_outputs(self) -> nn.Module | None:
        """The dropout module, or None. Raises UserError if the proportion is too large for factors."""
        if not self.dropout_per_dim:
            return ByteDropout(self.dropout) if self.dropout else None
        if self.dropout > MAX_SPREAD:
            raise UserError(f"--dropout {self.dropout:g}: with --dropout-per-dim the maximum is {MAX_SPREAD}")
        return SequenceDropout(self.dropout)


def number_or_kaldi(init: str, meaning: str) -> float | None:
    """The number of an option `init`; None for `kaldi`. Raises UserError, with the number's meaning, for
    other values."""
    if init == "kaldi":
        return None
    try:
        number = float(init)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise UserError(f"--init {init}: give 0 or more, {meaning}, or kaldi")
    return number


def offsets_of(text: str) -> list[int]:
    """Parse -2..2 or -1,0,1 into an ascending list without repetitions. Raises UserError for other texts."""
    try:
        first, dots, last = text.partition("..")
        found = list(range(int(first), int(last) + 1)) if dots else [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or found != sorted(set(found)):
        raise UserError(
            f"--splice {text}: offsets must be ascending integers like -1,0,1 or a range like -2..2"
        )
    return found
