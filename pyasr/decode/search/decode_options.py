"""Options of the beam search."""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError


@dataclass(frozen=True)
class DecodeOptions:
    """Beams and scales of the search; costs are negated natural logarithms."""

    heading = "search"

    beam: float = option(
        13.0, "drop tokens whose cost exceeds the frame's best by more than this", minimum=0.1
    )
    lattice_beam: float = option(
        6.0, "keep lattice paths whose cost is at most this above the best path's", minimum=0.0, maximum=1e6
    )
    max_active: int = option(7000, "maximum number of tokens per frame that are expanded", minimum=1)
    min_active: int = option(
        200,
        "minimum number of tokens per frame that are expanded, regardless of the beam",
        minimum=0,
        rare=True,
    )
    acoustic_scale: float = option(
        0.083333, "scale of the log-likelihoods during the search (1 / LM weight)", minimum=1e-6
    )
    beam_delta: float = option(
        0.5,
        "added to the beam of the next frame if --max-active or --min-active sets the beam of this frame",
        minimum=0.0,
        rare=True,
    )
    prune_interval: int = option(25, "frames between two prunings of the lattice links", minimum=1, rare=True)

    def check(self) -> None:
        """Raise UserError if the minimum number of tokens exceeds the maximum."""
        if self.min_active > self.max_active:
            raise UserError(
                f"--min-active {self.min_active} is above --max-active {self.max_active}; lower the one or "
                "raise the other"
            )
