"""Minibatches whose rows are streams: the chunks of an utterance follow each other in one row, so that a recurrent network can go on in
every row where it was.

    minibatch   1   2   3   4   5   6
    row 0       a1  a2  a3  e1  e2  e3
    row 1       b1  d1  d2  d3
    row 2       c1  c2  c3  f1

Utterances are dealt in the order of the epoch, each to the row that is free first, so rows differ by no more than the longest utterance.
Rows are numbered by length: those that a minibatch has are the first ones of the minibatch before.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import torch


@dataclass
class Rows:
    """Inputs of neighbouring rows.

    x       (N, left + c + right, dim), a chunk of each row with its context
    begins  bool (N,): where an utterance begins
    first   number of the first of these rows
    """

    x: torch.Tensor
    begins: torch.Tensor
    first: int = 0

    def chunk(self, number: int) -> list[Rows]:
        """Parts, as of a tensor of inputs."""
        parts, first = [], self.first
        for x, begins in zip(self.x.chunk(number), self.begins.chunk(number)):
            parts.append(Rows(x, begins, first))
            first += len(begins)
        return parts


def deal(num_chunks: np.ndarray, order: np.ndarray, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(chunks in the order in which they are learned, counted over all utterances, int64; how many of them each minibatch has).

    num_chunks  of each utterance
    order       in which utterances are dealt; those that are not in it are left out
    num_rows    at most
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
