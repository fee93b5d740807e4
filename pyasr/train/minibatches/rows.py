"""Minibatches whose rows are streams: successive chunks of an utterance have the same row in successive
minibatches, so that a recurrent network continues each row from its last state.

    minibatch   1   2   3   4   5   6
    row 0       a1  a2  a3  e1  e2  e3
    row 1       b1  d1  d2  d3
    row 2       c1  c2  c3  f1

Utterances are assigned in the order of the epoch, each to the row that is free first, so the lengths of rows
differ by at most the longest utterance. Rows are sorted by length: the rows of a minibatch are the first rows
of the minibatch before it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import torch


@dataclass
class Rows:
    """Inputs of consecutive rows.

    x       (N, left + c + right, dim), a chunk of each row with its context
    begins  bool (N,): whether the chunk is the first of an utterance
    first   index of the first of these rows
    """

    x: torch.Tensor
    begins: torch.Tensor
    first: int = 0

    def chunk(self, number: int) -> list[Rows]:
        """Split into parts, like `torch.Tensor.chunk`."""
        parts, first = [], self.first
        for x, begins in zip(self.x.chunk(number), self.begins.chunk(number)):
            parts.append(Rows(x, begins, first))
            first += len(begins)
        return parts


def deal(num_chunks: np.ndarray, order: np.ndarray, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(indices of chunks over all utterances in training order, int64; number of chunks of each minibatch).

    num_chunks  chunks of each utterance
    order       utterances in the order of their assignment; others are skipped
    num_rows    maximum number of rows
    """
    begins, rows, dealt = np.zeros((3, len(num_chunks)), np.int64)
    dealt[order], free = 1, [(0, row) for row in range(num_rows)]
    for utterance, number in zip(order.tolist(), num_chunks[order].tolist()):
        begins[utterance], rows[utterance] = minibatch, row = free[0]
        heapq.heapreplace(free, (minibatch + number, row))
    lengths = np.array([length for length, _ in sorted(free, key=lambda entry: entry[1])])
    rank = np.argsort(np.argsort(-lengths, kind="stable"), kind="stable")
    within = np.arange(num_chunks.sum()) - (np.cumsum(num_chunks) - num_chunks).repeat(num_chunks)
    minibatch = begins.repeat(num_chunks) + within
    chunks = np.flatnonzero(dealt.repeat(num_chunks))
    sorting = np.lexsort((rank[rows].repeat(num_chunks)[chunks], minibatch[chunks]))
    return chunks[sorting], np.bincount(minibatch[chunks])
