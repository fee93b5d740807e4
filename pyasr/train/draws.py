"""How much of its data a learner draws in an epoch.

Where each of n learners draws from all data (`--data-assignment all`), the k-th takes the first N_k of the N items in a random order of its
own:

    N_k = floor(N (k + 1) / n) - floor(N k / n)        N_0 + ... + N_(n-1) = N

An item is a frame or a chunk that lies in memory; an utterance where frames are streamed, where states are carried from chunk to chunk, and
where whole utterances are learned from. An order depends on seed, epoch and rank alone, so learners draw independently of each other. A
learner draws nothing twice in an epoch. Over all learners an item comes once in an epoch in expectation: some come several times, others
not at all.
"""

from __future__ import annotations

ALL = 0, 1


def num_drawn(number: int, draw: tuple[int, int]) -> int:
    """N_k of `number` items; `draw` is (k, n)."""
    k, n = draw
    return number * (k + 1) // n - number * k // n
