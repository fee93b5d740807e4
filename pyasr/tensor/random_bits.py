"""Fast random integers: one call of the generator gives 64 bits, which are used for several integers."""

from __future__ import annotations

import torch


def random_integers(
    shape: torch.Size, dtype: torch.dtype, device: torch.device, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Integers uniform over the whole range of `dtype` (uint8, int16, ...), from `generator` or torch's
    default generator."""
    num = shape.numel()
    per_word = 8 // dtype.itemsize
    words = torch.empty(-(-num // per_word), dtype=torch.int64, device=device).random_(
        -(2**63), None, generator=generator
    )
    return words.view(dtype)[:num].view(shape)


def sample_bernoulli(p: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """1 with probability `p`, else 0, in the type of `p`. `p` is rounded to multiples of 2^-16."""
    integers = random_integers(p.shape, torch.int16, p.device, generator)
    return (integers < p.float() * 65536 - 32768.5).to(p.dtype)
