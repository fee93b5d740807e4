"""Triton's kernels of a step against their plain form. As a program with TRITON_INTERPRET=1, it checks all
cases in float32 on the CPU and prints their names. The interpreter's bfloat16 products differ from those of a
GPU."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pyasr.tensor import step_kernels
from pyasr.tensor.step_kernels import Verdict

NUM_LAYERS, NUM_ROWS = 4, 50
HIDDEN, NUM_OUTPUTS = 40, 90


class Step(NamedTuple):
    """Arguments of `judge` after the verdict."""

    losses: Tensor
    correct: Tensor
    squares: list[Tensor]
    columns: list[Tensor | None]
    biases: list[Tensor]
    rate: Tensor
    number: Tensor


def to(x, device: str):
    """A tensor, or those of a list, on this device. Tensors that are views of one vector remain so."""
    return [to(part, device) for part in x] if isinstance(x, list) else x if x is None else x.to(device)


def components_of_a_step(natural: bool, dtype: torch.dtype, device: str = "cpu") -> Step:
    """Four layers whose biases are in one vector."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64).to(device, dtype) + 0.1

    vector = (random(400) - 0.5).contiguous()
    biases = [
        vector[begin : begin + size]
        for begin, size in ((10, HIDDEN), (60, HIDDEN), (110, HIDDEN), (200, NUM_OUTPUTS))
    ]
    squares = (
        [random(2, 1, 5), random(2, NUM_LAYERS - 1, 7), random(2, NUM_LAYERS - 1, 6), random(2, 1, 9)]
        if natural
        else []
    )
    columns = [random(1, 1, NUM_ROWS), random(NUM_LAYERS - 1, 1, NUM_ROWS), None, None] if natural else []
    correct = (random(NUM_ROWS) > 0.5).to(dtype)
    return Step(
        random(NUM_ROWS),
        correct,
        squares,
        columns,
        biases,
        torch.tensor(0.3, dtype=dtype, device=device),
        torch.tensor(17, device=device),
    )


def make_verdict(step: Step) -> Verdict:
    traces = [part.new_zeros(part.shape[1]) for part in step.squares]
    return Verdict(
        traces,
        step.losses.new_zeros(NUM_LAYERS),
        torch.zeros(3, dtype=torch.float64, device=step.losses.device),
        torch.arange(NUM_LAYERS + 2, device=step.losses.device),
    )


def check_cross_entropy(kernels, dtype: torch.dtype, tolerance: float, device: str) -> None:
    """Numbers of classes above and below that of one program; the last class; a largest value after the
    classes; a negative target."""
    for width, num_classes in ((4224, 4200), (128, 67)):
        z = torch.randn(6, width, generator=torch.Generator().manual_seed(1)).to(device, dtype)
        targets = torch.tensor([0, 5, -100, num_classes - 1, 3, 1], device=device)
        z[0, 0], z[3, num_classes - 1], z[4, num_classes:] = 9, 9, 99
        expected, losses, correct = (
            z.double(),
            *(torch.zeros(6, dtype=torch.float64, device=device) for _ in range(2)),
        )
        step_kernels.cross_entropy_(expected, targets, num_classes, losses, correct)
        found = [torch.full((6,), float("nan"), device=device) for _ in range(2)]
        kernels.cross_entropy_(z, targets, num_classes, *found)
        torch.testing.assert_close(z.double(), expected, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(found[0].double(), losses, rtol=1e-5, atol=1e-5)
        assert torch.equal(found[1].double(), correct) and not z[:, num_classes:].any()


def check_residual(kernels, dtype: torch.dtype, tolerance: float, device: str) -> None:
    """Sizes that are not multiples of a program's, several sides, ranks of two layers' sides."""
    generator = torch.Generator().manual_seed(2)
    for rank, num_rows, dim in ((5, 100, 150), (20, 64, 130), (80, 70, 128)):
        x, w = (torch.randn(2, num, dim, generator=generator).to(device, dtype) for num in (num_rows, rank))
        w = 0.1 * w
        ht, xhat, expected = w @ x.mT, torch.full_like(x, float("nan")), x.double()
        squares = kernels.residual(x, ht, w, xhat)
        right = step_kernels.residual(x.double(), ht.double(), w.double(), expected)
        torch.testing.assert_close(xhat.double(), expected, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(squares.double().sum(2), right.sum(2), rtol=tolerance, atol=0)


def check_judge(kernels, dtype: torch.dtype, tolerance: float, device: str) -> None:
    """With and without natural gradient, finite and not. Losses and squares are float32 for any type of
    gradients."""
    for natural in (True, False):
        for bad in (None, "bias", "trace", "square", "loss"):
            step = components_of_a_step(natural, torch.float32, device)
            vector = torch.cat(list(step.biases)).to(dtype)
            step = step._replace(biases=list(vector.split([len(bias) for bias in step.biases])))
            if bad == "bias":
                step.biases[2][7] = float("nan")
            elif bad == "trace" and natural:
                step.squares[1][0, 1, 2] = float("inf")
            elif bad == "square" and natural:
                step.squares[3][0, 0, 2] = float("nan")
            elif bad == "loss":
                step.losses[NUM_ROWS - 1] = float("nan")
            check_verdict(kernels, step)


def check_verdict(kernels, step: Step) -> None:
    found = make_verdict(step)
    kernels.judge(found, *step)
    on_host = Step(*(to(part, "cpu") for part in step))
    right = make_verdict(on_host)
    step_kernels.judge(right, *on_host)
    for part in ("factors", "counts", "nonfinite_counts"):
        torch.testing.assert_close(getattr(found, part).cpu(), getattr(right, part), rtol=1e-5, atol=1e-6)
    for one, other in zip(found.traces, right.traces, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-5, atol=1e-6, equal_nan=True)


def check_descend(kernels, dtype: torch.dtype, tolerance: float, device: str) -> None:
    """With and without a copy in bfloat16, with a relative rate. A factor of 0 changes nothing."""
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(5000, generator=generator).to(device)
    grad = torch.randn(5000, generator=generator).to(device, dtype)
    for factor, relative in ((-0.1, 1.0), (-0.1, 0.25), (0.0, 1.0)):
        factor, master, alone = torch.tensor(factor, device=device), start.clone(), start.clone()
        work = start.to(torch.bfloat16)
        kernels.descend(master, grad, work, factor, relative)
        kernels.descend(alone, grad, alone, factor, relative)
        torch.testing.assert_close(
            master, torch.addcmul(start, grad.float(), factor * relative), rtol=1e-6, atol=1e-7
        )
        assert torch.equal(alone, master)
        # the interpreter truncates
        torch.testing.assert_close(
            work, master.to(torch.bfloat16), rtol=2**-7 if device == "cpu" else 0, atol=0
        )
    spoiled, master = grad.clone(), start.clone()
    spoiled[4] = float("nan")
    kernels.descend(master, spoiled, master, torch.zeros((), device=device))
    assert torch.equal(master, start)


CASES = {
    "cross_entropy": check_cross_entropy,
    "residual": check_residual,
    "judge": check_judge,
    "descend": check_descend,
}


def main() -> None:
    from pyasr.tensor import step_triton

    for name, check in CASES.items():
        check(step_triton, torch.float32, 1e-5, "cpu")
        print(name)


if __name__ == "__main__":
    main()
