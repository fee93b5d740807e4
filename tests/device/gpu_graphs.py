"""CUDA graphs of the mock GPU: captured operations are executed again on the same memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from gpu_streams import present
from nested_values import leaves


class CudaGraph:
    """For `torch.cuda.CUDAGraph`. Python values are those of the capture, as in a real graph; a replay is one
    launch.

    num_nodes  kernels of a replay
    """

    def __init__(self):
        self.num_nodes, self._num_bytes, self._steps = 0, 0, []

    def captured(self, compute: Callable[[], object], result: object) -> None:
        """Record an operation, as a function without arguments, with the CPU tensors that it returned."""
        self._steps.append((compute, [leaf for leaf in leaves(result) if isinstance(leaf, torch.Tensor)]))

    def launched(self, num_bytes: int) -> None:
        """Count a kernel of the capture."""
        self.num_nodes, self._num_bytes = self.num_nodes + 1, self._num_bytes + num_bytes

    @torch.no_grad()
    def replay(self) -> None:
        """Execute all operations again."""
        present[-1].launched("replay", self._num_bytes)
        for compute, places in self._steps:
            found = [leaf for leaf in leaves(compute()) if isinstance(leaf, torch.Tensor)]
            for place, value in zip(places, found, strict=True):
                if place.data_ptr() != value.data_ptr():
                    place.copy_(value)


@contextlib.contextmanager
def graph(made: CudaGraph, **_keywords) -> Iterator[None]:
    """For `torch.cuda.graph`. Unlike a GPU, the mock also executes what it captures."""
    gpu = present[-1]
    gpu.of_thread.graph = made
    try:
        yield
    finally:
        gpu.of_thread.graph = None
