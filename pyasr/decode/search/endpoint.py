"""Endpoint detection in continuous audio: an utterance ends when one of Kaldi's rules
(online2/online-endpoint.h) is true.

rule                  silence at the end   words before   final path worse than the best path by less than
nothing is said             5.0 s              -                 -
surely at an end            0.5 s             yes                2
probably at an end          1.0 s             yes                8
long silence                2.0 s             yes                -
too long                    0.0 s              -                 -          and the utterance is 20 s long
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.base.cli.options import option

SURE_GAP, LIKELY_GAP = 2.0, 8.0


@dataclass(frozen=True)
class EndpointOptions:
    """Durations in seconds of the endpoint rules."""

    heading = "streaming"

    nothing_said_s: float = option(
        5.0, "seconds of silence that end an utterance without words", minimum=0.1, rare=True
    )
    sure_end_s: float = option(
        0.5,
        "seconds of silence that end an utterance after words that surely end a sentence",
        minimum=0.05,
        rare=True,
    )
    likely_end_s: float = option(
        1.0,
        "seconds of silence that end an utterance after words that may end a sentence",
        minimum=0.05,
        rare=True,
    )
    any_end_s: float = option(
        2.0, "seconds of silence that end an utterance after any words", minimum=0.05, rare=True
    )
    utterance_s: float = option(
        20.0, "seconds after which an utterance ends, with or without silence", minimum=1.0, rare=True
    )

    def ends(self, silence_s: float, length_s: float, has_words: bool, gap: float) -> bool:
        """Whether an utterance of `length_s`, the last `silence_s` of them silence, has ended.

        gap  cost difference of the best path to a final state and the best path
        """
        if length_s >= self.utterance_s or silence_s >= self.nothing_said_s:
            return True
        least = min(
            self.any_end_s,
            self.likely_end_s if gap < LIKELY_GAP else np.inf,
            self.sure_end_s if gap < SURE_GAP else np.inf,
        )
        return has_words and silence_s >= least


def trailing_silence(phones: np.ndarray, silence: list[int]) -> int:
    """The number of silence frames at the end of a path; `phones`: the phone of each frame."""
    spoken = np.flatnonzero(~np.isin(phones, silence))
    return len(phones) - (int(spoken[-1]) + 1 if len(spoken) else 0)
