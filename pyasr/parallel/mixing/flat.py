"""All parameters of a model in one contiguous buffer, so that a mixing over ranks needs one message only.

    flat = FlatParameters(model.parameters(), torch.bfloat16)
    loss.backward()                      # gradients arrive in flat.grad
    flat.add(flat.grad, [(slice(None), -learning_rate)])
    communicate(flat.master)             # after other changes of `master`, call
    flat.refresh()                       # to make the model compute with the new parameters

`master` is float32. The model computes with views into `work`, which is `master` itself or a copy of it in a
narrower type: matrix products are several times faster in bfloat16 on processors with hardware support, while
small updates are not lost to its 8-bit mantissa.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from pyasr.tensor.bfloat16_kernels import descend
from pyasr.tensor.step_kernels import descend as descend_at_once
from pyasr.tensor.step_kernels import has_kernels

ALIGNMENT = 16  # elements: each parameter starts at a multiple of a 64-byte cache line in float32
GPU_ROWS = 64


class FlatParameters:
    """The parameters of a model as three flat tensors of equal size: `master` (float32), `work` and `grad`
    (`dtype`).

    The given parameters become views into `work`, their `.grad` views into `grad`; parameter i is at
    `spans[i]` of all three. Padding between parameters stays zero.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], dtype: torch.dtype = torch.float32):
        parameters = list(parameters)
        sizes = [-(-p.numel() // ALIGNMENT) * ALIGNMENT for p in parameters]
        device, padding = parameters[0].device, _padding_elements(parameters)

        def zeros(dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(sum(sizes) + padding, dtype=dtype, device=device)[: sum(sizes)]

        self.master = zeros(torch.float32)
        self.work = self.master if dtype == torch.float32 else zeros(dtype)
        self.grad = zeros(dtype)
        self.num_parameters = sum(p.numel() for p in parameters)
        self.spans, self._shapes = [], [p.shape for p in parameters]
        begin = 0
        for p, size in zip(parameters, sizes):
            span = slice(begin, begin + p.numel())
            self.spans.append(span)
            self.master[span] = p.detach().flatten()
            p.data = self.work[span].view_as(p)
            p.grad = self.grad[span].view_as(p)
            begin += size
        self.refresh()

    def values(self, vector: torch.Tensor | None = None) -> list[torch.Tensor]:
        """The parameters, float32, in their original order and shapes: views into `master`, or into another
        vector of its layout."""
        vector = self.master if vector is None else vector
        return [vector[span].view(shape) for span, shape in zip(self.spans, self._shapes)]

    def padded(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """Views of the parameters in `work` or `grad`. On a GPU, the last two, weight and bias of the output
        layer, are padded to a multiple of 64 rows, for which matrix products are faster. The padding of the
        weight overlaps the bias: write the bias last.
        """
        *hidden, weight, bias = self.values(vector)
        return [*hidden, _with_padded_rows(weight), _with_padded_rows(bias)]

    def add(self, delta: torch.Tensor, factors: list[tuple[slice, float | torch.Tensor]]) -> None:
        """Add factor times `delta` to `master` in each of the given slices, update the model's copy, and set
        the gradient to zero."""
        if delta is self.grad and self.grad.dtype == torch.bfloat16 and self.grad.device.type == "cpu":
            for span, factor in factors:
                descend(self.master[span], self.grad[span], self.work[span], float(factor))
            return
        if has_kernels(delta):
            for span, factor in factors:
                factor = torch.as_tensor(factor, dtype=self.master.dtype, device=delta.device)
                descend_at_once(self.master[span], delta[span], self.work[span], factor)
            self.grad.zero_()
            return
        for span, factor in factors:
            self.master[span].addcmul_(delta[span], torch.as_tensor(factor, dtype=self.master.dtype))
        self.grad.zero_()
        self.refresh()

    def refresh(self, place: slice = slice(None)) -> None:
        """Update the model's copy after a change of `master` at `place`."""
        if self.work is not self.master:
            self.work[place].copy_(self.master[place])


def _multiple_of_rows(device: torch.device) -> int:
    return GPU_ROWS if device.type == "cuda" else 1


def _with_padded_rows(parameter: torch.Tensor) -> torch.Tensor:
    multiple = _multiple_of_rows(parameter.device)
    num_rows = -(-len(parameter) // multiple) * multiple
    return parameter.as_strided((num_rows, *parameter.shape[1:]), parameter.stride())


def _padding_elements(parameters: list[torch.nn.Parameter]) -> int:
    """Elements of memory behind the last parameter that `padded` needs."""
    return (_multiple_of_rows(parameters[0].device) - 1) * max(p[0].numel() for p in parameters[-2:])
