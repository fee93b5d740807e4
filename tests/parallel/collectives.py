"""Checks for every communicator: each rank creates the arrays of all ranks and compares the result with a
plain numpy sum."""

import numpy as np
import pytest
import torch

from pyasr.parallel.communication.mpi_comm import MpiComm


def arrays_of(size: int, dtype: str) -> list[np.ndarray]:
    """Inputs of `size` ranks, the same on every rank: small integers, exact in every type except for bfloat16
    sums."""
    generator = np.random.default_rng(7)
    return [generator.integers(0, 40, size=(5, 7)).astype(dtype) for _ in range(size)]


def check_all(comm) -> None:
    check_numpy(comm)
    check_layouts(comm)
    check_tensors(comm)
    check_refused(comm)
    check_bcast(comm)
    check_objects(comm)
    check_split(comm)
    check_messages(comm)
    check_background(comm)
    check_condition(comm)


def check_numpy(comm) -> None:
    for dtype in ("float64", "float32", "float16", "int64", "int32", "int16", "uint8"):
        parts = arrays_of(comm.size, dtype)
        for op, reduce in (("sum", np.sum), ("max", np.max), ("min", np.min)):
            mine = parts[comm.rank].copy()
            assert comm.allreduce(mine, op) is mine
            assert mine.dtype == dtype
            np.testing.assert_array_equal(
                mine, reduce(np.stack(parts), axis=0).astype(dtype), err_msg=f"{dtype} {op}"
            )
    mean = comm.allreduce(arrays_of(comm.size, "float64")[comm.rank].copy(), "mean")
    np.testing.assert_allclose(mean, np.mean(arrays_of(comm.size, "float64"), axis=0), rtol=1e-15)
    assert comm.reduce_scalar(comm.rank + 0.5) == sum(rank + 0.5 for rank in range(comm.size))
    assert comm.reduce_scalar(comm.rank, "max") == comm.size - 1


def check_layouts(comm) -> None:
    """Transposed, sliced, empty and 0-dimensional arrays."""
    parts = arrays_of(comm.size, "float32")
    base = parts[comm.rank].copy()
    comm.allreduce(base.T[2:5])
    expected = parts[comm.rank].copy()
    expected[:, 2:5] = np.sum(parts, axis=0)[:, 2:5]
    np.testing.assert_array_equal(base, expected)
    comm.allreduce(np.zeros((0, 3), np.float32))
    assert comm.allreduce(np.array(2.0)) == 2.0 * comm.size


def check_tensors(comm) -> None:
    parts = arrays_of(comm.size, "float32")
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64):
        mine = torch.from_numpy(parts[comm.rank] / (1 if dtype is torch.int64 else 8)).to(dtype)
        total = sum(
            torch.from_numpy(part / (1 if dtype is torch.int64 else 8)).to(torch.float64) for part in parts
        )
        assert comm.allreduce(mine) is mine and mine.dtype == dtype
        torch.testing.assert_close(mine, total.to(dtype), rtol=0, atol=0)
    parameter = torch.nn.Parameter(torch.full((4, 3), float(comm.rank)))
    comm.allreduce(parameter, "mean")
    assert torch.all(parameter == (comm.size - 1) / 2)
    transposed = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    comm.allreduce(transposed.t())
    torch.testing.assert_close(transposed, torch.arange(6, dtype=torch.bfloat16).reshape(2, 3) * comm.size)


def check_refused(comm) -> None:
    """Unsupported arrays are refused with one sentence before any message is sent."""
    for bad, word in (
        (np.zeros(2, bool), "bool"),
        (np.zeros(2, complex), "complex"),
        (3.0, "float"),
        (torch.zeros(2, device="meta"), "meta"),
    ):
        with pytest.raises(TypeError, match=word):
            comm.allreduce(bad)
    with pytest.raises(TypeError, match="mean"):
        comm.allreduce(np.zeros(2, np.int32), "mean")
    with pytest.raises(ValueError, match="product"):
        comm.allreduce(np.zeros(2), "product")


def check_bcast(comm) -> None:
    root = comm.size - 1
    for array in (
        np.full((2, 3), comm.rank, np.int16),
        np.full((3, 2), comm.rank, np.float32).T,
        torch.full((3,), comm.rank, dtype=torch.bfloat16),
    ):
        assert comm.bcast(array, root) is array
        assert (array == root).all()


def check_objects(comm) -> None:
    assert comm.bcast_object({"epoch": comm.rank}, root=0) == {"epoch": 0}
    assert comm.allgather(comm.rank * 2) == [rank * 2 for rank in range(comm.size)]
    gathered = comm.gather("x" * comm.rank, root=0)
    assert gathered == (["x" * rank for rank in range(comm.size)] if comm.rank == 0 else None)
    comm.barrier()


def check_split(comm) -> None:
    """Even and odd ranks in separate groups: sums do not mix, and groups may have different numbers of
    calls."""
    group = comm.split(comm.rank % 2)
    members = list(range(comm.rank % 2, comm.size, 2))
    assert (group.size, group.rank) == (len(members), members.index(comm.rank))
    for _ in range(1 + comm.rank % 2):
        assert group.reduce_scalar(comm.rank) == sum(members)
    assert comm.reduce_scalar(1) == comm.size
    if isinstance(comm, MpiComm):
        comm.uses_ring = False
        assert not comm.split(0).uses_ring and not comm.split_by_host().uses_ring
        comm.uses_ring = True
    host = comm.split_by_host()
    assert host.reduce_scalar(1) == host.size and comm.reduce_scalar(1 / host.size) == pytest.approx(
        comm.reduce_scalar(host.rank == 0)
    )


def check_messages(comm) -> None:
    """Messages around the ring, to the rank itself, by tag and sender; narrow types and non-contiguous
    arrays."""
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        incoming = torch.zeros(3, 2, dtype=dtype)
        comm.exchange(torch.full((6,), comm.rank + 1, dtype=dtype), right, incoming.T, left)
        assert (incoming == left + 1).all()
    arriving = [torch.zeros(40_000) for _ in range(3)]
    on_their_way = [
        comm.start_exchange(torch.full((40_000,), 10.0 * comm.rank + i), right, incoming, left)
        for i, incoming in enumerate(arriving)
    ]
    for wait in on_their_way:
        wait()
    assert all((incoming == 10 * left + i).all() for i, incoming in enumerate(arriving))
    large = np.arange(2_500_000, dtype=np.float32)  # is sent in pieces
    comm.exchange(large + comm.rank, right, incoming := np.zeros_like(large), left)
    assert (incoming == large + left).all()
    if comm.size == 1:
        return
    big = np.full(300_000, comm.rank, np.float32)
    sending = comm.background(lambda: [comm.send(part, right, tag=5) for part in (big, np.array([7.0]))])
    received, last = np.zeros_like(big), np.zeros(1)
    assert comm.receive(received, tag=5) == left and (received == left).all()
    assert comm.receive(last, tag=5, source=left) == left and last == 7.0
    sending.join()
    comm.barrier()
    assert comm.probe(tag=6) is None
    comm.barrier()
    comm.send(np.zeros(1), right, tag=6)
    comm.barrier()
    assert comm.receive(np.zeros(1), tag=6) == left


def check_background(comm) -> None:
    """Another thread of the rank returns a value. Its exception is raised in the thread that asks for the
    value."""
    ready, box = comm.condition(), []

    def work():
        comm.sleep(0.01)
        with ready:
            box.append(comm.time())
            ready.notify()

    begin = comm.time()
    task = comm.background(work)
    with ready:
        while not box:
            ready.wait()
    task.join()
    assert box[0] >= begin + 0.01
    with pytest.raises(ZeroDivisionError):
        comm.background(lambda: 1 / 0).join()
    array = np.full(300_000, comm.rank + 1, np.float32)
    if comm.rank % 2:  # ranks may add in any thread
        comm.allreduce(array)
    else:
        comm.background(lambda: comm.allreduce(array)).join()
    assert (array == comm.size * (comm.size + 1) / 2).all()


def check_condition(comm) -> None:
    """The lock belongs to its owner, who may acquire it twice. Waiting has a timeout and ends when
    notified."""
    changed, counts = comm.condition(), []

    def count():
        for _ in range(3):
            with changed, changed:
                counts.append(len(counts))
                comm.sleep(0.001)
                assert counts[-1] == len(counts) - 1
                changed.notify_all()

    begin = comm.time()
    with changed:
        assert not changed.wait(0.01) and comm.time() >= begin + 0.009
    tasks = [comm.background(count) for _ in range(2)]
    with changed:
        while len(counts) < 6:
            assert changed.wait(10.0)
    for task in tasks:
        task.join()
        task.check()
    with pytest.raises(RuntimeError):
        changed.notify()
    with pytest.raises(RuntimeError):
        changed.wait()
