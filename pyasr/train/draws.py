"""The share of its data that a learner draws in an epoch.

If each of n learners draws from all data (`--data-assignment all`), learner k takes the first N_k of the N
items in its own random order:

    N_k = floor(N (k + 1) / n) - floor(N k / n)        N_0 + ... + N_(n-1) = N

An item is a frame or a chunk in memory. It is an utterance if frames are streamed, if states are carried from
chunk to chunk, or if the network is trained on whole utterances. An order depends only on seed, epoch and
rank, so learners draw independently of each other. A learner draws no item twice in an epoch. Over all
learners, the expected number of occurrences of an item in an epoch is one: some items occur several times,
others not at all.
"""

from __future__ import annotations

ALL = 0, 1


def num_drawn(number: int, draw: tuple[int, int]) -> int:
    """N_k for `number` items; `draw` is (k, n)."""
    k, n = draw
    return number * (k + 1) // n - number * k // n
