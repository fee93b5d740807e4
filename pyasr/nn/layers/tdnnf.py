r"""Factorised TDNN layer: two maps through a bottleneck instead of one, with a bypass around them.

From Povey et al. (see `pyasr.nn.layers.semi_orthogonal`), as Kaldi's tdnnf-layer. With s the time stride, D'
the bottleneck, h_t the input:

    b_t = M [h_{t-s}; h_t]                                      M: (D', 2 D_in), kept semi-orthogonal
    y_t = dropout(norm(relu(W [b_t; b_{t+s}] + w))) + f h_t     W: (D, 2 D'),  f: the scale of the bypass

without splicing if s = 0. Output t belongs to input frame t, so the bypass has the input without the s frames
of context on both sides.

Kaldi's norm is batch normalisation. Here it is layer normalisation (Ba, Kiros, Hinton, arXiv:1607.06450,
without gains and biases), which normalises the units of each frame to mean 0 and variance 1. It has no
statistics to average over ranks and models and to save in checkpoints, and is the same in training and in
decoding. Scaling alone is not sufficient: outputs of ReLUs are positive, so bypasses would accumulate what
all frames have in common.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pyasr.nn.dropout import SequenceDropout
from pyasr.nn.layers.linear import Linear
from pyasr.nn.layers.semi_orthogonal import keep_semi_orthogonal
from pyasr.nn.layers.sequence_layers import SequenceLayer, Splice


class FactorisedTdnn(SequenceLayer):
    """The layer above. With a `stride` above 1 it has an output for every `stride`-th frame, from that frame
    only (`time_stride` 0)."""

    def __init__(
        self,
        dim_in: int,
        dim: int,
        bottleneck_dim: int,
        time_stride: int,
        stride: int,
        bypass_scale: float,
        dropout: float,
    ):
        super().__init__()
        self.left = self.right = time_stride
        self.stride, self.dim_out, self.bypass_scale = stride, dim, bypass_scale
        self.before = Splice(dim_in, sorted({-time_stride, 0}))
        self.linear = keep_semi_orthogonal(Linear(self.before.dim_out, bottleneck_dim, bias=False))
        self.after = Splice(bottleneck_dim, sorted({0, time_stride}))
        self.affine, self.norm = Linear(self.after.dim_out, dim), nn.LayerNorm(dim, elementwise_affine=False)
        self.dropout = SequenceDropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """See the module."""
        x = x[:: self.stride]
        y = F.relu(self.affine(self.after(self.linear(self.before(x)))))
        y = self.dropout(self.norm(y))
        return (
            torch.add(y, x[self.left : len(x) - self.right], alpha=self.bypass_scale)
            if self.bypass_scale
            else y
        )
