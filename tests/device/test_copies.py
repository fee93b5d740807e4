"""Vectors and frames between GPU and host: values equal the CPU's, pinned memory is reused, no copy blocks
the host."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

mock_gpu = pytest.importorskip("mock_gpu", reason="the mock GPU is not here")

from pyasr.parallel.communication import host_copy  # noqa: E402
from pyasr.parallel.communication.host_copy import HostCopy  # noqa: E402
from pyasr.parallel.communication.rank_threads import run_threads  # noqa: E402
from pyasr.parallel.mixing import gradient_sum  # noqa: E402
from pyasr.parallel.mixing.gradient_sum import GradientSum  # noqa: E402
from pyasr.parallel.mixing.payload_codec import PayloadCodec  # noqa: E402
from pyasr.parallel.mixing.periodic import average  # noqa: E402
from pyasr.parallel.strategies import SchemeOptions  # noqa: E402
from pyasr.tensor import copies  # noqa: E402
from pyasr.train.minibatches.frames import FrameStore  # noqa: E402

LENGTH = 1000
GPU = torch.device("cuda", 0)


def vector(seed: int) -> torch.Tensor:
    return torch.randn(LENGTH, generator=torch.Generator().manual_seed(seed))


def types_changed(counts) -> set[str]:
    """Names of modules whose types the device converts, each with a kernel. Real torch would convert on the
    host, which the mock does not show."""
    return {place.partition(".")[0] for name, place in counts.launches if name in ("_to_copy", "copy_")}


@pytest.mark.parametrize("by_pieces, expected", [(False, [LENGTH]), (True, [333, 333, 334])])
def test_gpu_vector_is_changed_in_reused_pinned_memory(by_pieces, expected, monkeypatch):
    monkeypatch.setattr(host_copy, "MIN_PIECE", 300)
    with mock_gpu.mock_gpu() as gpu:
        host, x, lengths = HostCopy(), vector(1).to(GPU), []
        for turn in range(2):
            lengths.clear()
            with gpu.counting() as counts:
                host.change(x, lambda copy: lengths.append(len(copy)) or copy.mul_(2), by_pieces)
            assert lengths == expected and not counts.blocking_copies and len(counts.syncs) == len(expected)
            assert len(gpu.pinned) == 1 and torch.equal(mock_gpu.on_host(x), vector(1) * 2 ** (turn + 1))


def test_all_pieces_are_copied_before_first_is_mixed(monkeypatch):
    monkeypatch.setattr(host_copy, "MIN_PIECE", 300)
    begun = []
    monkeypatch.setattr(
        HostCopy,
        "fetch",
        lambda self, x, part, fetch=HostCopy.fetch: begun.append(part) or fetch(self, x, part),
    )
    with mock_gpu.mock_gpu():
        seen = []
        HostCopy().change(vector(1).to(GPU), lambda copy: seen.append(len(begun)), by_pieces=True)
    assert seen == [3] * 3


def averaged(num_ranks: int, device: torch.device, payload: str, counting) -> list[torch.Tensor]:
    """Parameters of the ranks after the average of `allreduce`."""

    def rank(comm):
        wire, master = PayloadCodec(comm, SchemeOptions(payload=payload)), vector(comm.rank).to(device)
        wire.agree(vector(9).to(device))
        with counting() as counts:
            average(wire, master, np.arange(comm.size) + 1)
        assert counts is None or not counts.blocking_copies
        return mock_gpu.on_host(master)

    return run_threads(num_ranks, rank)


@pytest.mark.parametrize("payload", ["float32", "float16"])
@pytest.mark.parametrize("num_ranks, num_pieces", [(2, 3), (4, 1)])
def test_gpu_averages_are_bit_identical_to_cpu(num_ranks, num_pieces, payload, monkeypatch):
    """Pieces are chosen such that the order of the sum over ranks is the same."""
    monkeypatch.setattr(host_copy, "MIN_PIECE", 300)
    pieces = []
    expected = averaged(num_ranks, torch.device("cpu"), payload, nullcontext)
    monkeypatch.setattr(
        PayloadCodec,
        "sum",
        lambda wire, x, *weights, sum=PayloadCodec.sum: pieces.append(len(x)) or sum(wire, x, *weights),
    )
    with mock_gpu.mock_gpu() as gpu:
        found = averaged(num_ranks, GPU, payload, gpu.counting)
    assert all(map(torch.equal, found, expected)) and len(pieces) == num_ranks * (
        num_pieces if payload == "float32" else 1
    )


def summed(device: torch.device, dtype: torch.dtype, counting) -> list[torch.Tensor]:
    """Gradients of two ranks after `GradientSum`."""

    def rank(comm):
        wire = PayloadCodec(comm, SchemeOptions(all_reduce="library"))
        total = GradientSum(wire, lambda frames: np.ones(comm.size), lambda function: function())
        grad = vector(comm.rank).to(dtype).to(device)
        total.attach(grad, [0, 400, 700])
        with counting() as counts:
            for _ in range(2):
                total.begin(1)
                for begin in (700, 400, 0):
                    total.ready(begin)
                total.finish()
        changed = {"host_copy", "copies"} if dtype == torch.bfloat16 else set()
        assert counts is None or not counts.blocking_copies and types_changed(counts) == changed
        return mock_gpu.on_host(grad)

    return run_threads(2, rank)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gpu_gradients_are_added_without_blocking_copy(dtype, monkeypatch):
    monkeypatch.setattr(gradient_sum, "_MIN_PART", 250)
    expected = summed(torch.device("cpu"), dtype, nullcontext)
    with mock_gpu.mock_gpu() as gpu:
        found = summed(GPU, dtype, gpu.counting)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype and torch.equal(one, other)


@pytest.mark.parametrize("piece", [100, 1 << 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_frames_are_narrowed_on_device(dtype, piece, monkeypatch):
    monkeypatch.setattr(copies, "_PIECE_BYTES", piece)
    features = [np.random.default_rng(seed).standard_normal((20, 7)).astype(np.float32) for seed in range(3)]
    here, there = (FrameStore(features, [np.arange(20)] * 3, 2, 1, 7) for _ in range(2))
    here.move(torch.device("cpu"), dtype)
    with mock_gpu.mock_gpu() as gpu:
        there.frames, there.targets, there._first_row, there._window = (
            gpu.pin(part) for part in there.tensors()
        )
        with gpu.counting() as counts:
            there.move(GPU, dtype)
        assert (
            types_changed(counts) == (set() if dtype == torch.float32 else {"copies"})
            and there.frames.dtype == dtype
        )
        assert not [sync for sync in counts.syncs if "copies.py" in sync]
        assert torch.equal(mock_gpu.on_host(there.frames), here.frames)
