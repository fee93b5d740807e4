"""Model sizes, by the hours of training speech.

hours up to  why these numbers
0.25         a few minutes: measured on egs/toy, whose models have 80 leaves and 200 Gaussians
1            egs/amazon_queen --quick: 0.57 h
10           egs/amazon_queen: 3.6 h. Kaldi's mini_librispeech (5 h): 2000 leaves and 10000 Gaussians, 2500
             and 15000 with LDA+MLLT
50           between the rows above and below; Kaldi's WSJ (15 h of si84): 2000 and 10000, 2500 and 15000
200          Kaldi's WSJ (81 h) and LibriSpeech (100 h): 2500 and 15000, 4200 and 40000 with SAT
more         Kaldi's Switchboard (300 h): 11500 leaves and 200000 Gaussians with SAT; networks of six layers
             of 2048 units
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Models for up to `hours` hours: Gaussians of monophones; leaves and Gaussians of triphones on deltas,
    on LDA+MLLT, with SAT; a network of `layers` layers of `units` units."""

    hours: float
    mono: int
    tri1: tuple[int, int]
    tri2: tuple[int, int]
    tri3: tuple[int, int]
    layers: int
    units: int
    epochs: int
    minibatch: int
    learning_rate: float
    dropout: float


TABLE = (
    Sizes(0.25, 200, (80, 250), (80, 300), (80, 300), 2, 128, 12, 128, 0.25, 0.0),
    Sizes(1.0, 1000, (500, 3000), (600, 4000), (600, 5000), 4, 512, 12, 256, 0.5, 0.2),
    Sizes(10.0, 1000, (1200, 9000), (1800, 15000), (2000, 20000), 4, 768, 8, 512, 1.0, 0.2),
    Sizes(50.0, 1000, (2000, 12000), (2500, 20000), (3200, 30000), 5, 1024, 6, 512, 1.0, 0.1),
    Sizes(200.0, 1000, (2500, 20000), (3200, 40000), (4200, 60000), 6, 1536, 5, 512, 1.0, 0.0),
    Sizes(float("inf"), 1000, (3200, 30000), (5500, 90000), (11500, 200000), 6, 2048, 4, 1024, 1.0, 0.0),
)
_SMALL_TEXT, _LARGE_TEXT = 3000, 1_000_000
_ENOUGH_S = 5.0  # seconds of a speaker for which the default minimum number of frames of fMLLR suits


def sizes_for(hours: float) -> Sizes:
    """The row of the table for `hours` hours of training speech."""
    return next(row for row in TABLE if hours <= row.hours)


def lm_order(num_words: int) -> int:
    """The n-gram order for a text of `num_words` words: trigrams need some thousand, 4-grams some million."""
    return 2 if num_words < _SMALL_TEXT else 3


def lm_min_counts(num_words: int) -> str:
    """Minimum counts of n-grams: in large texts, trigrams that occur once are dropped for a small graph."""
    return "1" if lm_order(num_words) == 2 else "1,2" if num_words >= _LARGE_TEXT else "1,1"


def fmllr_min_count(seconds: Collection[float]) -> int:
    """The minimum number of frames for the adaptation of a speaker: 500, or 100 if most of the speech is from
    speakers with less than 5 s, because a SAT model recognises unadapted speakers badly.

    seconds  seconds of speech of each speaker of dev and test
    """
    return 100 if sum(one for one in seconds if one < _ENOUGH_S) > sum(seconds) / 2 else 500
