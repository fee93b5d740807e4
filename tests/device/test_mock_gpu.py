"""The mock GPU itself: values, refusals, counters, late copies, random states."""

import copy
import io
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from mock_gpu import GpuTensor, mock_gpu, on_host
from torch import nn


@pytest.fixture
def gpu():
    with mock_gpu() as gpu:
        yield gpu


def numbers(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def network():
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


def test_values_and_gradients_equal_cpu(gpu):
    torch.manual_seed(3)
    host, x = network(), numbers(7, 5)
    there = copy.deepcopy(host).to("cuda")
    parameters = list(there.parameters())
    assert all(
        isinstance(p, GpuTensor) and isinstance(p, nn.Parameter) and p.device.type == "cuda"
        for p in parameters
    )
    for module, given in ((host, x), (there, x.to("cuda"))):
        nn.functional.cross_entropy(module(given), torch.arange(7, device=given.device) % 3).backward()
    for ours, theirs in zip(parameters, host.parameters()):
        assert ours.grad.is_cuda and torch.equal(on_host(ours.grad), theirs.grad)
    again = copy.deepcopy(there)
    assert all(isinstance(p, nn.Parameter) and p.is_cuda for p in again.parameters())
    assert all(
        type(p) is nn.Parameter and torch.equal(p, q)
        for p, q in zip(there.cpu().parameters(), host.parameters())
    )


def test_views_share_memory_and_autograd_functions_run_on_device(gpu):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return 2 * x

        @staticmethod
        def backward(context, gradient):
            return gradient * torch.full((), 2.0, device=gradient.device)

    flat = torch.zeros(6, device="cuda")
    part = nn.Parameter(torch.ones(3, device="cuda"))
    part.data, part.grad = flat[:3], torch.zeros(3, device="cuda")
    flat.add_(1.5)
    Doubled.apply(part).sum().backward()
    assert on_host(part).tolist() == [1.5] * 3 and on_host(part.grad).tolist() == [2.0] * 3


@pytest.mark.parametrize(
    "statement",
    [
        "x + y",
        "x @ z",
        "torch.cat([x, y])",
        "torch.stack([x.sum(), y.sum()])",
        "y.add_(x)",
        "x.index_select(0, index)",
        "y.sum().add_(x.sum())",
        "torch.where(y > 0, x, x)",
    ],
)
def test_mixed_devices_are_refused(gpu, statement):
    names = dict(
        torch=torch, x=numbers(4, 3).to("cuda"), y=numbers(4, 3), z=numbers(3, 4), index=torch.tensor([0, 2])
    )
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device.*cuda:0 and cpu!"):
        eval(statement, names)


def test_other_invalid_operations_are_refused(gpu):
    x = numbers(3).to("cuda")
    for convert in (lambda: x.numpy(), lambda: np.asarray(x), lambda: np.add(x, 1)):
        with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
            convert()
    for draw in (
        lambda: torch.rand(3, device="cuda", generator=torch.Generator()),
        lambda: x.normal_(generator=torch.Generator("cpu")),
        lambda: torch.rand(3, generator=torch.Generator("cuda")),
    ):
        with pytest.raises(RuntimeError, match="device type for generator"):
            draw()


WAITING = {
    "x.sum().item()": "item: 4 bytes",
    "float(x[0, 0])": "item: 4 bytes",
    "bool(x[0, 0] > 0)": "item: 1 bytes",
    "1 if (x > 0).all() else 0": "item: 1 bytes",
    "x.tolist()": "copy to the host: 48 bytes",
    "x.cpu()": "copy to the host: 48 bytes",
    "x.to('cpu')": "copy to the host: 48 bytes",
    "x.to('cpu', torch.float64)": "copy to the host: 48 bytes",
    "y.to('cuda')": "copy to the device: 48 bytes",
    "y.cuda()": "copy to the device: 48 bytes",
    "y.to(x)": "copy to the device: 48 bytes",
    "x.copy_(y)": "copy to the device: 48 bytes",
    "y.copy_(x)": "copy to the host: 48 bytes",
    "torch.tensor([1, 2], device='cuda')": "copy to the device: 16 bytes",
    "x.new_tensor([1.0])": "copy to the device: 4 bytes",
    "x.nonzero()": "nonzero: 0 bytes",
    "x[x > 0]": "index by a mask: 0 bytes",
    "x[torch.tensor([0])]": "copy of indices to the device: 8 bytes",
    "torch.equal(x, x)": "equal: 0 bytes",
    "torch.unique(x)": "_unique2: 0 bytes",
    "y.to('cuda', non_blocking=True)": "copy to the device: 48 bytes",
    "x.copy_(y, non_blocking=True)": "copy to the device: 48 bytes",
    "y.copy_(x, non_blocking=True)": "copy to the host: 48 bytes",
    "pinned.T.copy_(x.T.contiguous(), non_blocking=True)": "copy to the host: 48 bytes",
    "x.copy_(pinned)": "copy to the device: 48 bytes",
    "torch.cuda.synchronize()": "torch.cuda.synchronize: 0 bytes",
    "torch.cuda.current_stream().synchronize()": "stream.synchronize: 0 bytes",
    "torch.cuda.current_stream().record_event().synchronize()": "event.synchronize: 0 bytes",
    "torch.linalg.eigh(x.T @ x)": "_linalg_eigh: 0 bytes",
}


@pytest.fixture
def named(gpu):
    """Tensors by name, for statements."""
    return dict(
        torch=torch, x=numbers(4, 3).to("cuda"), y=numbers(4, 3), pinned=torch.empty(4, 3, pin_memory=True)
    )


@pytest.mark.parametrize("statement", WAITING)
def test_operations_that_wait_are_counted(gpu, named, statement):
    with gpu.counting() as counts:
        eval(statement, named)
    assert len(counts.syncs) == 1 and counts.syncs[0].startswith(f"{WAITING[statement]} at "), counts.syncs
    assert counts.blocking_copies == (counts.syncs if WAITING[statement].startswith("copy") else [])


@pytest.mark.parametrize("statement, copies", [
    ("x[1] * 2 + x.sum()", 0), ("x.add_(1.5).clamp_(min=0)", 0), ("x.__setitem__(0, 2.0)", 0),
    ("x.masked_fill_(x > 0, 1)", 0), ("torch.zeros(5, device='cuda') + 1", 0), ("x.new_zeros(3)", 0),
    ("torch.full((3,), 2.0, device='cuda')", 0), ("x.to('cuda')", 0), ("x.to(torch.bfloat16)", 0),
    ("torch.as_tensor(x, device='cuda')", 0), ("x[torch.arange(2, device='cuda')]", 0),
    ("x * torch.tensor(2.0)", 0), ("x.copy_(pinned, non_blocking=True)", 1),
    ("pinned.copy_(x, non_blocking=True)", 1), ("pinned.to('cuda', torch.bfloat16, non_blocking=True)", 1),
    ("x.to('cpu', non_blocking=True)", 1), ("torch.cuda.current_stream().wait_event(torch.cuda.Event())", 0),
    ("list(x)", 0),
])  # fmt: skip
def test_operations_that_do_not_wait(gpu, named, statement, copies):
    with gpu.counting() as counts:
        eval(statement, named)
    assert counts.syncs == [] and len(counts.copies) == copies


def test_launches_bytes_and_places_are_counted(gpu):
    x = numbers(4, 3).to("cuda")
    with gpu.counting() as counts:
        y = x.T @ x  # 48 bytes twice, 36
        y[1:].view(-1).add_(1.0)  # 24 read, 24 written
        torch.empty(100, device="cuda")
        torch.zeros(5, device="cuda")  # 20
        torch.ones(1, 3) + 1  # on the host
        # 24 read, 24 written, zeros of 16 written and read
        x.index_select(0, torch.zeros(2, dtype=torch.long, device="cuda"))
    assert {name for name, _ in counts.launches} == {"mm", "add_", "zeros", "index_select"}
    assert counts.num_launches == 5 and counts.num_bytes == 132 + 48 + 20 + 48 + 32
    place = next(place for name, place in counts.launches if name == "mm")
    assert place.startswith("test_mock_gpu.py:") and place.endswith(
        " test_launches_bytes_and_places_are_counted"
    )


def test_pinned_copies_arrive_after_synchronisation(gpu):
    x, side = torch.ones(3, device="cuda"), torch.cuda.Stream()
    first, second, integers = (
        torch.empty(3, dtype=kind, pin_memory=True) for kind in (torch.float32, torch.float64, torch.int32)
    )
    event = torch.cuda.Event()
    with torch.cuda.stream(side):
        first.copy_(x, non_blocking=True)
        event.record()
        second.copy_(x, non_blocking=True)
    integers.copy_(x.int(), non_blocking=True)
    x.zero_()
    assert first.isnan().all() and second.isnan().all() and integers.tolist() == [-1] * 3
    event.synchronize()
    assert first.tolist() == [1, 1, 1] and second.isnan().all()
    float(x.sum())  # of the default stream
    assert integers.tolist() == [1, 1, 1] and second.isnan().all()
    torch.cuda.current_stream().wait_event(side.record_event())
    x.cpu()
    assert second.tolist() == [1, 1, 1]


def test_views_of_pinned_memory_are_pinned(gpu):
    pinned, other = torch.zeros(8, pin_memory=True), torch.zeros(8)
    assert pinned[2:].is_pinned() and not other.is_pinned() and other.pin_memory().is_pinned()
    assert (
        not torch.zeros(2, device="cuda").is_pinned()
        and torch.zeros(2, device="cuda").to("cpu", non_blocking=True).is_pinned()
    )


def test_device_generator_has_its_own_state(gpu):
    torch.manual_seed(5)
    of_host, of_device = torch.rand(4), torch.rand(4, device="cuda")
    torch.manual_seed(5)
    kept = torch.cuda.get_rng_state()
    dropped = [nn.functional.dropout(torch.ones(50, device="cuda"))]
    assert torch.equal(torch.rand(4), of_host)
    torch.cuda.set_rng_state(kept)
    dropped.append(nn.functional.dropout(torch.ones(50, device="cuda")))
    assert torch.equal(*map(on_host, dropped)) and 0 < on_host(dropped[0]).count_nonzero() < 50
    torch.cuda.manual_seed_all(5)
    assert torch.equal(on_host(torch.rand(4, device="cuda")), on_host(of_device))
    ours, theirs = (
        torch.randperm(9, generator=torch.Generator(place).manual_seed(3), device=place)
        for place in ("cuda", "cpu")
    )
    assert ours.is_cuda and torch.equal(on_host(ours), theirs)


def test_files_are_read_on_cpu(gpu):
    file = io.BytesIO()
    torch.save({"x": torch.arange(3, device="cuda"), "parameters": network().to("cuda").state_dict()}, file)
    file.seek(0)
    found = torch.load(file, map_location="cpu", weights_only=True)
    assert type(found["x"]) is torch.Tensor and found["x"].tolist() == [0, 1, 2]


def test_sparse_matrices(gpu):
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]])
    x = numbers(2, 4)
    assert torch.equal(on_host(dense.to_sparse().to("cuda") @ x.to("cuda")), dense @ x)


def test_threads_use_gpu_and_count_separately(gpu):
    def work():
        x = torch.ones(3, device="cuda")
        with gpu.counting() as counts:
            float((x * x).sum())
        return x.device.type, counts.num_launches, len(counts.syncs)

    with gpu.counting() as counts, ThreadPoolExecutor(2) as threads:
        assert [future.result() for future in [threads.submit(work) for _ in range(2)]] == [
            ("cuda", 2, 1)
        ] * 2
    assert counts.num_launches == 0 and counts.syncs == []


def test_patches_are_removed_at_end():
    def patched():
        return (
            torch.cuda.is_available,
            torch.cuda.Stream,
            torch.Generator,
            threading.Thread.run,
            torch.autograd._engine_run_backward,
        )

    before = patched()
    with mock_gpu(bfloat16=False, free_bytes=1000):
        assert (
            torch.cuda.is_available()
            and not torch.cuda.is_bf16_supported()
            and torch.cuda.mem_get_info()[0] == 1000
        )
    assert patched() == before
    if not torch.cuda.is_available():
        with pytest.raises((AssertionError, RuntimeError)):
            torch.zeros(1, device="cuda")
