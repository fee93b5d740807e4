"""All fast paths of the library and their plain forms: `python fast_paths.py` prints, as JSON, the distance
between each pair.

A fast path is code that is taken for some processors, types, libraries or shapes, or compiled with leave to
reorder sums. A function here gives pairs (what the library computes, the same in plain form) and names the
file where the path lies, and how far the two may be apart, relative to the largest number of the plain form.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("sequence", "..")]

Pairs = Iterator[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class FastPath:
    """home: its file, below pyasr/."""

    home: str
    bound: float
    pairs: Callable[[], Pairs]

    def error(self) -> float:
        """Largest relative distance of the two forms; infinite if only one is finite."""
        return max(_distance(torch.as_tensor(fast), torch.as_tensor(plain)) for fast, plain in self.pairs())


FAST_PATHS: dict[str, FastPath] = {}


def fast_path(home: str, bound: float):
    """Add a function to the list."""

    def enter(pairs: Callable[[], Pairs]):
        FAST_PATHS[pairs.__name__] = FastPath(home, bound, pairs)
        return pairs

    return enter


def _distance(fast: Tensor, plain: Tensor) -> float:
    fast, plain = fast.detach().double(), plain.detach().double()
    if fast.shape != plain.shape or not torch.equal(fast.isfinite(), plain.isfinite()):
        return float("inf")
    finite = plain.isfinite()
    return float((fast - plain)[finite].abs().max() / plain[finite].abs().max()) if finite.any() else 0.0


def matrix(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normally distributed numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def _numbers_of_bfloat16() -> Tensor:
    """All except those below the smallest normal number."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    return x[(x.abs() >= torch.finfo(x.dtype).tiny) | (x == 0) | x.isnan()]


@fast_path("nn/layers/fast_tanh.py", 2.0**-7)
def tanh_of_bfloat16() -> Pairs:
    from pyasr.nn.layers.fast_tanh import Tanh

    x = _numbers_of_bfloat16()
    for shape in ((), (7,), (3, 5), (2, 3, 4), (2, 3, 2, 2, 2), (2, 1, 3, 2, 2, 2), (2, 0)):
        few = matrix(*shape, dtype=torch.bfloat16)
        yield Tanh()(few), few.float().tanh()
    yield Tanh()(x), x.float().tanh()
    yield Tanh()(x.view(-1, 2).T), x.view(-1, 2).T.float().tanh()
    own, peer = (matrix(40, 30, dtype=torch.bfloat16).requires_grad_() for _ in range(2))
    (Tanh()(own) * 3).sum().backward()
    (peer.float().tanh() * 3).sum().backward()
    yield own.grad, peer.grad


def _operands() -> Iterator[tuple[Tensor, Tensor]]:
    """Operands of products with more than 2^20 numbers, in several memory layouts."""
    for a in (
        matrix(120, 130),
        matrix(130, 120).T,
        matrix(120, 300)[:, 10:140],
        matrix(120, 1).expand(120, 130),
    ):
        for b in (matrix(130, 110), matrix(110, 130).T, matrix(1, 110).expand(130, 110)):
            yield a, b


@fast_path("tensor/products.py", 1e-5)
def products_of_float32() -> Pairs:
    from pyasr.tensor.products import add_mm, affine, minus_mm, mm

    bias, x = matrix(110), matrix(120, 110)
    for a, b in _operands():
        exact, total = a.double() @ b.double(), x.clone()
        yield mm(a, b), exact
        yield affine(a, b.T, bias), exact + bias.double()
        yield minus_mm(x, a, b), x.double() - exact
        add_mm(total, a, b, -2.5)
        yield total, x.double() - 2.5 * exact


def _of_layers(own: nn.Module, peer: nn.Module, *shape: int) -> Pairs:
    """Outputs and all derivatives of two layers."""
    peer.load_state_dict(own.state_dict())
    inputs = [matrix(*shape).requires_grad_() for _ in range(2)]
    outputs = [layer(x) for layer, x in zip((own, peer), inputs)]
    for y in outputs:
        y.square().sum().backward()
    yield tuple(outputs)
    yield inputs[0].grad, inputs[1].grad
    for first, second in zip(own.parameters(), peer.parameters()):
        yield first.grad, second.grad


@fast_path("nn/layers/linear.py", 1e-5)
def linear_layer() -> Pairs:
    from pyasr.nn.layers.linear import Linear

    for shape in ((2000, 60), (40, 50, 60), (60,)):
        yield from _of_layers(Linear(60, 70), nn.Linear(60, 70), *shape)


@fast_path("nn/layers/natural_gradient.py", 1e-2)
def residual_of_natural_gradient() -> Pairs:
    """bfloat16 has 8 bits, and the plain form rounds once more."""
    from pyasr.nn.layers import natural_gradient

    x = matrix(50, 70, dtype=torch.bfloat16)
    ht = matrix(4, 50, dtype=torch.bfloat16)
    w = matrix(4, 70, dtype=torch.bfloat16)
    xhat, square, square_hat = natural_gradient._residual(x, ht, w)
    exact = x.float() - ht.T.float() @ w.float()
    yield xhat, exact
    yield torch.tensor([square, square_hat]), torch.stack([x.float().square().sum(), exact.square().sum()])


NETWORKS = {
    "tanh": ["affine dim=16 activation=tanh", "tdnn splice=-1..1 dim=16 activation=tanh"],
    "pnorm": ["tdnn splice=-1..1 dim=12 activation=pnorm pnorm-group=2", "affine dim=8 normalize=true"],
    "tdnnf": ["tdnn splice=-1..1 dim=16", "tdnnf dim=16 bottleneck-dim=4"],
    "lstm": ["lstm cells=6 recurrent=3 nonrecurrent=2 peepholes=true"],
    "cnn": ["conv channels=2 filters=3 time=3 bands=3 pool=2 step=2", "affine dim=8 activation=sigmoid"],
}


@fast_path("nn/layers/natural_gradient.py", 0.25)
def change_by_minibatches_in_bfloat16() -> Pairs:
    """Changes of every kind of network after two minibatches with natural gradient. Rounding may decide which
    of two bands is larger."""
    from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
    from pyasr.nn.networks.layered import LayeredNetwork
    from pyasr.train.sgd.learner import Learner, LearnerOptions

    for lines in NETWORKS.values():
        changes = []
        for precision in ("bfloat16", "float32"):
            network = LayeredNetwork(lines, 24, 7)
            network.initialise(torch.Generator().manual_seed(1))
            nn.init.normal_(network.output.weight, 0, 0.3, generator=torch.Generator().manual_seed(2))
            options = LearnerOptions(
                natural_gradient=NaturalGradientOptions("online"), device="cpu", precision=precision
            )
            learner, num_frames = Learner(network, options), network.left + 9 + network.right
            before = learner.flat.master.clone()
            x = matrix(5, num_frames, 24)
            for _ in range(2):
                outputs = network(x.to(options.torch_dtype())).shape[1]
                learner.step(
                    x.to(options.torch_dtype()), torch.arange(5 * outputs).view(5, outputs) % 7, 1e-3
                )
            changes.append(learner.flat.master - before)
        yield tuple(changes)


@fast_path("tensor/bfloat16_kernels.py", 2.0**-8)
def differences_of_bfloat16() -> Pairs:
    from pyasr.tensor.bfloat16_kernels import subtract_from

    every = _numbers_of_bfloat16()[:65000].view(100, 650)
    for x in (matrix(100, 650, dtype=torch.bfloat16), every):
        rest = matrix(100, 650, seed=1, dtype=torch.bfloat16)
        exact = x.float() - rest.float()
        subtract_from(x, rest)
        yield rest, exact


@fast_path("parallel/mixing/flat.py", 2.0**-8)
def update_of_parameters() -> Pairs:
    from pyasr.parallel.mixing.flat import FlatParameters

    flat = FlatParameters([nn.Parameter(matrix(50, 70))], torch.bfloat16)
    before, gradient = flat.master.clone(), matrix(*flat.master.shape, seed=2, dtype=torch.bfloat16)
    # among all NaNs, the one with most bits
    before[0] = flat.master[0] = torch.tensor(2**31 - 1, dtype=torch.int32).view(torch.float32)
    flat.grad.copy_(gradient)
    flat.add(flat.grad, [(slice(None), -0.3)])
    yield flat.master, before - 0.3 * gradient.float()
    yield flat.work, before - 0.3 * gradient.float()


@fast_path("tensor/squares.py", 1e-3)
def sums_of_squares() -> Pairs:
    """Norms of rows of bfloat16 are rounded to that type."""
    from pyasr.tensor.squares import sum_of_squares

    for dtype in (torch.float32, torch.bfloat16):
        for scale in (1e-15, 1.0, 1e15):
            x = (scale * matrix(60, 200)).to(dtype)
            yield (
                torch.tensor([sum_of_squares(x), sum_of_squares(x.T)], dtype=torch.float64),
                x.double().square().sum().repeat(2),
            )


def _lstm_frame(dtype: torch.dtype, peepholes: Tensor | None, clip: float, limit: float) -> list[Tensor]:
    from pyasr.tensor import lstm_cells

    dm, dc, before, c = (matrix(9, 20, seed=seed).to(dtype)[None].clone() for seed in range(4))
    a = matrix(9, 80).sigmoid().to(dtype)[None]
    da = torch.empty_like(a)
    lstm_cells.step_back(
        dm, dc, a, before, c, da, None if peepholes is None else peepholes.to(dtype)[None], clip, limit
    )
    return [da, dc]


@fast_path("tensor/lstm_cells.py", 1e-5)
def derivatives_of_an_lstm() -> Pairs:
    """The loop over float32, and torch's operations in float64."""
    for peepholes in (None, matrix(3, 20)):
        for limits in ((0.0, 0.0), (1.0, 0.0), (0.0, 0.5)):
            yield from zip(
                _lstm_frame(torch.float32, peepholes, *limits), _lstm_frame(torch.float64, peepholes, *limits)
            )


@fast_path("tensor/lstm_kernels.py", 3e-7)
def nonlinearities_of_an_lstm() -> Pairs:
    """tanh(c) as computed by the loop: da_o is dm tanh(c) o (1 - o)."""
    from pyasr.tensor import lstm_kernels

    c = np.linspace(-30, 30, 20_000, dtype=np.float32)[None, None]
    size, zero = c.shape[-1], np.zeros_like(c)
    a, da = np.full((1, 1, 4 * size), 0.5, np.float32), np.empty((1, 1, 4 * size), np.float32)
    lstm_kernels.backwards(
        np.ones_like(c), zero.copy(), a, zero, c, da, np.zeros((1, 0, size), np.float32), 0.0, 0.0
    )
    yield da[0, 0, 3 * size :] * 4, np.tanh(c[0, 0].astype(np.float64))


def _lstm_layer(dtype: torch.dtype, **options) -> list[Tensor]:
    """Outputs and gradients of a layer of both directions."""
    from pyasr.nn.layers.lstm import Lstm
    from pyasr.nn.layers.sequence_layers import Recurrent

    layer = Recurrent([Lstm(6, 20, backward=backward, **options) for backward in (False, True)]).to(dtype)
    for number, parameter in enumerate(layer.parameters()):
        parameter.data = 0.3 * matrix(*parameter.shape, seed=number).to(dtype)
    x = matrix(9, 5, 6).to(dtype).requires_grad_()
    y = layer(x)
    return [y, *torch.autograd.grad((y * matrix(*y.shape, seed=1).to(dtype)).sum(), [x, *layer.parameters()])]


@fast_path("tensor/lstm_small.py", 1e-5)
def small_lstm() -> Pairs:
    """One kernel for all frames of float32, and torch's operations in float64."""
    for options in ({}, {"peepholes": True, "cell_clip": 0.4}, {"gradient_clip": 0.5, "delay": 2}):
        yield from zip(_lstm_layer(torch.float32, **options), _lstm_layer(torch.float64, **options))


@fast_path("sequence/lfmmi/leaky_hmm.py", 1e-4)
def forward_backward() -> Pairs:
    from lfmmi_toys import chain_model, random_sequences

    from pyasr.sequence.lfmmi import leaky_hmm
    from pyasr.sequence.lfmmi.denominator_graph import make_denominator_graph
    from pyasr.sequence.lfmmi.phone_lm import PhoneLmOptions, estimate_phone_lm

    graph = make_denominator_graph(
        estimate_phone_lm(random_sequences(0), PhoneLmOptions(3, 2, 4)), *chain_model(2, 1)
    )
    lengths = np.array([12, 7, 12, 1] * 5)
    for dtype in (torch.float32, torch.float64):
        logits = 2 * matrix(20, 12, graph.num_pdfs, dtype=dtype)
        exact = leaky_hmm._by_sparse_matrices(logits.double(), graph, 1e-5, lengths)
        yield from zip(leaky_hmm._over_blocks(logits, graph, 1e-5, lengths), exact)


@fast_path("feats/compute/pitch.py", 1e-5)
def correlations_of_samples() -> Pairs:
    from pyasr.feats.compute import pitch

    signal = matrix(500).numpy()
    signal[300:] = 0
    begins, window, first, num = np.array([0, 100, 220, 320]), 80, 10, 40
    out = np.empty((len(begins), num), np.float32)
    pitch._nccf(signal, begins, window, first, 3.0, out)
    exact = np.empty(out.shape)
    for t, begin in enumerate(begins):
        part = signal[begin : begin + window + first + num].astype(np.float64)
        part -= part[:window].mean()
        for lag in range(num):
            own, other = part[:window], part[first + lag : first + lag + window]
            exact[t, lag] = own @ other / np.sqrt((own @ own) * (other @ other) + 3.0)
    yield out, exact


def _gaussians() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(exponent matrix (7, 1 + 2 * 5), offsets of 3 pdfs, features)."""
    weights = matrix(7, 11).numpy()
    weights[:, 6:] = -np.abs(weights[:, 6:])
    return weights, np.array([0, 3, 4, 7]), matrix(20, 5).numpy()


@fast_path("hmm/model/gmm_kernels.py", 1e-5)
def scores_of_gaussians() -> Pairs:
    from pyasr.hmm.model import gmm_kernels

    weights, offsets, feats = _gaussians()
    feats[3, 2] = np.nan
    exponents = (
        weights.astype(np.float64) @ np.hstack([np.ones((20, 1)), feats, feats.astype(np.float64) ** 2]).T
    )
    exact = np.stack([torch.from_numpy(exponents[a:b]).logsumexp(0) for a, b in zip(offsets, offsets[1:])])
    scores, blocks = np.empty((3, 20), np.float32), gmm_kernels.augmented_blocks(feats)
    gmm_kernels.log_sum_exp(exponents.astype(np.float32), offsets, scores)
    yield scores, exact
    of_blocks = np.empty((3, len(blocks), gmm_kernels.BLOCK), np.float32)
    for pdf in range(3):
        for number, block in enumerate(blocks):
            scratch = np.empty((offsets[pdf + 1] - offsets[pdf] + 2, gmm_kernels.BLOCK), np.float32)
            gmm_kernels.score_block(
                weights, offsets[pdf], offsets[pdf + 1], block, scratch, of_blocks[pdf, number]
            )
    yield of_blocks.reshape(3, -1)[:, :20], exact


@fast_path("hmm/transforms/fmllr_kernels.py", 1e-5)
def sums_over_gaussians() -> Pairs:
    from pyasr.hmm.transforms.fmllr_kernels import expected_parameters

    weights, offsets, feats = _gaussians()
    frames = np.array([0, 4, 4, 19])
    pdfs = np.array([2, 0, 1, 2])
    shares = np.array([1, 0.25, 0.75, 0.5], np.float32)
    values = [matrix(7, 5, seed=seed).numpy() for seed in (1, 2)]
    exact = np.zeros((2, 20, 5))
    for t, pdf, share in zip(frames, pdfs, shares):
        own, x = slice(offsets[pdf], offsets[pdf + 1]), feats[t].astype(np.float64)
        exponents = weights[own] @ np.concatenate([[1.0], x, x**2])
        gamma = share * np.exp(exponents - np.logaddexp.reduce(exponents))
        exact[:, t] += [gamma @ value[own] for value in values]
    yield from zip(expected_parameters(feats, frames, pdfs, shares, weights, offsets, *values), exact)


def choices() -> dict[str, bool]:
    """Choices of this process that depend on the processor."""
    from pyasr.nn.layers import fast_tanh
    from pyasr.tensor import processor, products

    return {
        "bfloat16 by default": processor.multiplies_bfloat16(),
        "registers of 512 bits": processor.has_avx512(),
        "tanh by oneDNN": fast_tanh.computes_bfloat16(),
        "products by oneDNN": products.prefers_onednn(),
    }


if __name__ == "__main__":
    torch.manual_seed(0)
    print(
        json.dumps(
            {"errors": {name: path.error() for name, path in FAST_PATHS.items()}, "choices": choices()}
        )
    )
