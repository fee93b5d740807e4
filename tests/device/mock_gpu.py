"""A GPU for tests on machines without one: tensors that compute on the CPU and report `cuda:0` as their
device.

    with mock_gpu() as gpu:
        x = torch.randn(4, 3).to("cuda")          # a GpuTensor
        with gpu.counting() as counts:
            y = x @ x.T
            float(y.sum())
        assert counts.num_launches == 2 and counts.syncs == ["item: 4 bytes at test_x.py:12 test_y"]
        torch.testing.assert_close(on_host(y), ...)

What it shows. Code takes its CUDA branches, with the values that the CPU's kernels give. Tensors of both
devices in one operation, `.numpy()` of a tensor on the device and a generator of the other device raise
errors as on a GPU. Counted are, for the calling thread: launches, one for each operation of ATen that is no
view and no allocation; the bytes that these read and write; and `syncs`, the places where the host waits for
the device. The host waits for `.item()`, `float()`, `bool()`, `.tolist()`, `.cpu()`, operations whose output
has a size that depends on values, `synchronize`, and for every copy between host and device except one with
`non_blocking=True` whose host side is pinned and contiguous. Such a copy to the host arrives late: the memory
holds NaN, or -1, until the host has waited for an event or a stream behind the copy. Dropout and other draws
on the device have a random state of their own.

What it cannot show. Kernels are those of the CPU, so there are no errors of cuBLAS or cuDNN, and cuDNN is
never used. Nothing else is late: a missing `wait_event` between two streams, or a pinned buffer that is
overwritten while the device still reads it, passes. There is one device, with as much memory as the host.
Launches of operations that run several kernels on a GPU are counted as one. Copies between devices are not
differentiated. What a CUDA graph captures is executed, too, and the graph may not draw random numbers.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import NamedTuple
from unittest.mock import patch

import torch
from gpu_counts import Counts, bytes_moved, place
from gpu_graphs import CudaGraph, graph
from gpu_streams import Event, LateCopy, Stream, present
from nested_values import leaves, mapped
from torch.overrides import TorchFunctionMode

DEVICE, HOST = torch.device("cuda", 0), torch.device("cpu")
_WITHOUT_KERNEL = {
    "_unsafe_view",
    "_local_scalar_dense",
    "is_same_size",
    "set_",
    "resize_",
    "_has_compatible_shallow_copy_type",
    "_linalg_check_errors",
    "_sparse_coo_tensor_unsafe",
    "_sparse_coo_tensor_with_dims_and_tensors",
}
_SYNCHRONISING = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
    "equal",
    "_linalg_check_errors",
    "_linalg_eigh",
    "_linalg_svd",
    "linalg_eig",
    "_ctc_loss",
}
# CTC takes lengths from the host
_OF_ANY_DEVICE = {"set_", "_has_compatible_shallow_copy_type", "_ctc_loss", "_ctc_loss_backward"}
# these refuse host scalars, which other operations accept
_JOINING = {"cat", "stack", "mm", "addmm", "bmm"}


def on_host(value):
    """Value of a device tensor as a plain CPU tensor of the same memory; anything else unchanged. Nothing is
    counted."""
    return value.inner if isinstance(value, GpuTensor) else value


class GpuTensor(torch.Tensor):
    """A device tensor. `inner` has its values."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> GpuTensor:
        if inner.layout is torch.strided:
            return torch.Tensor._make_subclass(cls, inner, inner.requires_grad)
        # sparse tensors are seen only by operations
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor):
        self.inner = inner.detach()

    device = property(lambda self: DEVICE)
    is_cuda, is_cpu = property(lambda self: True), property(lambda self: False)

    @property
    def data(self) -> GpuTensor:
        """Like `data` of any tensor."""
        return GpuTensor(self.inner)

    @data.setter
    def data(self, value: GpuTensor) -> None:
        torch.Tensor.data.__set__(self, value)
        self.inner = value.inner

    def numpy(self, *_arguments, **_keywords):
        """Refused, as on a GPU."""
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
            "memory first."
        )

    __array__ = numpy

    def get_device(self) -> int:
        """Number of the device."""
        return 0

    def record_stream(self, _stream: Stream) -> None:
        """No operation, because memory is never reused by another stream."""

    def __repr__(self) -> str:
        return f"GpuTensor({self.inner})"

    def __reduce_ex__(self, protocol: int):
        return self.inner.__reduce_ex__(protocol)  # result of torch.load with map_location="cpu"

    def __deepcopy__(self, memo: dict) -> GpuTensor:
        copy = GpuTensor(self.inner.clone())
        is_parameter = isinstance(self, torch.nn.Parameter)
        memo[id(self)] = copy = (
            torch.nn.Parameter(copy, self.requires_grad)
            if is_parameter
            else copy.requires_grad_(self.requires_grad)
        )
        return copy

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return present[-1].execute(operation, args, kwargs or {})


class MockGpu:
    """The device: executes operations on its tensors, and counts.

    pinned        memory of the host that a GPU copies by itself, by address; kept until the block ends, so
                  that no address comes twice
    random_state  of draws on the device
    num_launches  of all threads, so far
    """

    def __init__(self):
        self.num_launches = 0
        self.pinned: dict[int, torch.UntypedStorage] = {}
        self.random_state = torch.Generator().manual_seed(0).get_state()
        self.default_stream = Stream()
        self.lock = threading.RLock()
        self.of_thread = threading.local()

    @contextlib.contextmanager
    def counting(self) -> Iterator[Counts]:
        """Count the device operations of this thread in the block."""
        counts = Counts()
        self._counts.append(counts)
        try:
            yield counts
        finally:
            self._counts.remove(counts)

    @property
    def _counts(self) -> list[Counts]:
        return self.of_thread.__dict__.setdefault("counts", [])

    @property
    def graph(self) -> CudaGraph | None:
        """Graph that this thread captures."""
        return self.of_thread.__dict__.get("graph")

    @property
    def stream(self) -> Stream:
        """Current stream of this thread."""
        return self.of_thread.__dict__.get("stream", self.default_stream)

    def wait(self, what: str, num_bytes: int = 0) -> None:
        """Let the host wait for the current stream."""
        self.note_sync(what, num_bytes)
        self.stream.arrive()

    def note_sync(self, what: str, num_bytes: int = 0) -> None:
        """Count a synchronisation. Raises RuntimeError in a capture."""
        if self.graph is not None:
            raise RuntimeError(f"operation not permitted when stream is capturing: {what} at {place()}")
        for counts in self._counts:
            counts.syncs.append(f"{what}: {num_bytes} bytes at {place()}")

    def execute(self, operation: torch._ops.OpOverload, args: tuple, kwargs: dict):
        """Execute an ATen operation with a device tensor among its arguments."""
        name, is_view, has_kernel, is_random = _kind_of(operation)
        if name == "copy_" and not all(isinstance(x, GpuTensor) for x in args[:2]):
            return self.copy(*args, **kwargs)
        tensors = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        self._check_devices(name, args, tensors)
        self._look_for_syncs(name, args, tensors)
        draws = is_random and kwargs.get("generator") is None
        if "device" in kwargs:
            kwargs = {**kwargs, "device": HOST}
        if operation is torch.ops.aten.bmm.dtype:  # exist only on GPUs
            operation = _bmm_in
        inner, inner_keywords = mapped(on_host, args), mapped(on_host, kwargs)
        with self._random_state_of_device() if draws else _AS_IT_IS:
            result = operation(*inner, **inner_keywords)
        if self.graph is not None and not is_view:
            self.graph.captured(lambda: operation(*inner, **inner_keywords), result)
        if has_kernel:
            is_counted = self.graph is not None or self._counts
            self.launched(
                name, bytes_moved(name, list(map(on_host, tensors)), leaves(result)) if is_counted else 0
            )
        known = {id(x.inner): x for x in tensors if isinstance(x, GpuTensor)}
        return mapped(lambda x: known[id(x)] if id(x) in known else on_device(x), result)

    def launched(self, name: str, num_bytes: int) -> None:
        """Count a kernel."""
        if self.graph is not None:
            self.graph.launched(num_bytes)
            return
        self.num_launches += 1
        for counts in self._counts:
            counts.launches[name, place()] += 1
            counts.num_bytes += num_bytes

    def _check_devices(self, name: str, args: tuple, tensors: list[torch.Tensor]) -> None:
        """Raise RuntimeError if an operation mixes host and device tensors. Scalars are allowed, and indices
        are copied."""
        if name in _OF_ANY_DEVICE:
            return
        strangers = [
            x
            for x in tensors
            if not isinstance(x, GpuTensor)
            and (x.dim() or name in _JOINING or name.endswith("_") and x is args[0])
        ]
        if name in ("index", "index_put_", "_index_put_impl_"):
            indices = [x for x in strangers if any(x is index for index in args[1])]
            for index in indices:
                self.wait("copy of indices to the device", index.nbytes)
            strangers = [x for x in strangers if not any(x is index for index in indices)]
        if strangers:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and "
                f"cpu! (in {name}, of shapes {[tuple(x.shape) for x in strangers]} on the CPU, at {place()})"
            )

    def _look_for_syncs(self, name: str, args: tuple, tensors: list[torch.Tensor]) -> None:
        """Synchronise if an operation needs device values on the host."""
        if name == "_local_scalar_dense":
            self.wait("item", tensors[0].dtype.itemsize)
        elif name in _SYNCHRONISING:
            self.wait(name)
        elif name in ("index", "index_put_") and any(
            x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1]
        ):
            self.wait(f"{name} by a mask")

    @contextlib.contextmanager
    def _random_state_of_device(self):
        """Let the block draw from the device's random state."""
        with self.lock:
            of_host = torch.get_rng_state()
            torch.set_rng_state(self.random_state)
            try:
                yield
            finally:
                self.random_state = torch.get_rng_state()
                torch.set_rng_state(of_host)

    def seed(self, number: int) -> None:
        """Restart the device's random numbers."""
        self.random_state = torch.Generator().manual_seed(number).get_state()

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Mark the memory of a CPU tensor as pinned."""
        self.pinned[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether the memory of a tensor is pinned."""
        return not isinstance(tensor, GpuTensor) and tensor.untyped_storage().data_ptr() in self.pinned

    def copy(
        self, destination: torch.Tensor, source: torch.Tensor, non_blocking: bool = False
    ) -> torch.Tensor:
        """Copy between host and device. The device converts the type if the host does not wait."""
        to_device, moved = isinstance(destination, GpuTensor), source.numel() * source.element_size()
        host, what = (source, "copy to the device") if to_device else (destination, "copy to the host")
        waits = not (
            non_blocking and host.layout is torch.strided and host.is_contiguous() and self.is_pinned(host)
        )
        if waits:
            self.wait(what, moved)
        for counts in [] if waits else self._counts:
            counts.copies.append(f"{what}: {moved} bytes at {place()}")
        if waits or to_device:
            on_host(destination).copy_(on_host(source))
        else:
            self.stream.work.append(LateCopy(destination, on_host(source)))
        return destination

    def moved(
        self,
        tensor: torch.Tensor,
        device: torch.device,
        dtype: torch.dtype | None = None,
        non_blocking: bool = False,
    ) -> torch.Tensor:
        """A copy on the other device."""
        if tensor.requires_grad and not tensor.is_leaf and torch.is_grad_enabled():
            raise NotImplementedError("the mock GPU does not differentiate copies between devices")
        inner = on_host(tensor)
        if inner.layout is not torch.strided:
            self.wait("copy of a sparse matrix", inner.values().nbytes)
            copy = inner.to(dtype or inner.dtype, copy=True)
            return on_device(copy) if device.type == "cuda" else copy
        copy = torch.empty_like(inner, dtype=dtype or inner.dtype, requires_grad=False)
        if device.type == "cuda":
            return self.copy(on_device(copy), tensor.detach(), non_blocking)
        return self.copy(self.pin(copy) if non_blocking else copy, tensor.detach(), non_blocking)


class _Kind(NamedTuple):
    """What is known of an ATen operation: its name without `aten::`; whether it is a view, runs a kernel, or
    may draw random numbers."""

    name: str
    is_view: bool
    has_kernel: bool
    is_random: bool


@functools.cache
def _kind_of(operation: torch._ops.OpOverload) -> _Kind:
    name, is_view = operation._schema.name.partition("::")[2], operation.is_view
    allocates = name in _WITHOUT_KERNEL or name.startswith(("empty", "new_empty"))
    return _Kind(
        name, is_view, not (is_view or allocates), torch.Tag.nondeterministic_seeded in operation.tags
    )


_AS_IT_IS = contextlib.nullcontext()


def _bmm_in(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return a.to(dtype) @ b.to(dtype)


def on_device(value):
    """A device tensor with the memory of a CPU tensor; anything else unchanged. Nothing is counted."""
    return GpuTensor(value) if isinstance(value, torch.Tensor) and not isinstance(value, GpuTensor) else value


class Generator(torch.Generator):
    """For `torch.Generator` of either device. The same seed gives the same numbers on both."""

    def __new__(cls, device: torch.device | str = "cpu"):
        made = super().__new__(cls)
        made.place = torch.device(device)
        return made

    device = property(lambda self: DEVICE if self.place.type == "cuda" else HOST)


class _Calls(TorchFunctionMode):
    """Intercepts calls that name a device before any device tensor exists: `torch.zeros(3, device="cuda")`,
    `x.to("cuda")`."""

    def __init__(self, gpu: MockGpu):
        super().__init__()
        self.gpu = gpu
        self.special = {
            torch.Tensor.to: self._to,
            torch.Tensor.cpu: lambda x, *_: self._to(x, HOST),
            torch.Tensor.tolist: self._to_list,
            torch.Tensor.cuda: lambda x, *_, non_blocking=False: self._to(
                x, DEVICE, non_blocking=non_blocking
            ),
            torch.Tensor.pin_memory: lambda x, *_: gpu.pin(x.clone()),
            torch.Tensor.is_pinned: lambda x, *_: gpu.is_pinned(x),
        }

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if not kwargs and function not in self.special and getattr(function, "__name__", "") != "new_tensor":
            return function(*args)
        kwargs = dict(kwargs or {})
        _check_generator(kwargs.get("generator"), kwargs.get("device"), args)
        if function in self.special:
            return self.special[function](*args, **kwargs)
        is_pinned = kwargs.pop("pin_memory", False)
        if getattr(function, "__name__", "") == "new_tensor":
            kwargs.setdefault("device", args[0].device)
        if kwargs.get("device") is None:
            made = function(*args, **kwargs)
        else:
            made = self._make(function, args, kwargs)
        return self.gpu.pin(made) if is_pinned else made

    def _make(self, function: Callable, args: tuple, kwargs: dict):
        """Create the tensor of a call with a device on the host; count it if it belongs to the device."""
        device, name = torch.device(kwargs["device"]), function.__name__
        if name in ("tensor", "as_tensor", "new_tensor") and device.type == "cuda":
            if isinstance(args[0], GpuTensor) and name == "as_tensor":
                return self._to(args[0], kwargs.get("dtype") or args[0].dtype)
            made = function(*map(on_host, args), **{**kwargs, "device": HOST})
            return self.gpu.moved(made, DEVICE)
        made = function(*mapped(on_host, args), **{**kwargs, "device": HOST})
        if self.gpu.graph is not None:
            value = made.clone()
            self.gpu.graph.captured(lambda: value, made)
        if device.type == "cuda" and not name.startswith(("empty", "new_empty")):
            self.gpu.launched(name, made.nbytes)
        return on_device(made) if device.type == "cuda" else made

    def _to(self, tensor: torch.Tensor, *args, copy: bool = False, **kwargs) -> torch.Tensor:
        if args and isinstance(args[0], torch.Tensor):
            args = (args[0].device, args[0].dtype, *args[1:])
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
        if device is not None and device.type != tensor.device.type:
            return self.gpu.moved(tensor, device, dtype, non_blocking)
        return torch.Tensor.to(tensor, dtype or tensor.dtype, copy=copy)

    def _to_list(self, tensor: torch.Tensor) -> list:
        return self._to(tensor, HOST).detach().tolist()


def _check_generator(generator: torch.Generator | None, device: object, args: tuple) -> None:
    """Raise RuntimeError if a generator belongs to another device than its output."""
    if generator is not None:
        first = args[0].device if args and isinstance(args[0], torch.Tensor) else HOST
        wanted = first if device is None else torch.device(device)
        if generator.device.type != wanted.type:
            raise RuntimeError(
                f"Expected a '{wanted.type}' device type for generator but found '{generator.device.type}'"
            )


def _stand_ins(gpu: MockGpu, bfloat16: bool, free_bytes: int) -> dict[str, object]:
    """Replacements for functions of `torch.cuda` in the block."""

    @contextlib.contextmanager
    def on_stream(stream: Stream | None):
        before = gpu.stream
        gpu.of_thread.stream = stream or before
        try:
            yield
        finally:
            gpu.of_thread.stream = before

    def synchronize(_device=None) -> None:
        gpu.note_sync("torch.cuda.synchronize")
        for stream in {gpu.stream, gpu.default_stream}:
            stream.arrive()

    properties = SimpleNamespace(
        name="mock GPU", uuid="mock", major=9, minor=0, total_memory=free_bytes, multi_processor_count=1
    )
    return dict(
        is_available=lambda: True, is_initialized=lambda: True, device_count=lambda: 1,
        current_device=lambda: 0, set_device=lambda _device: None,
        get_device_properties=lambda _device=None: properties,
        get_device_name=lambda _device=None: properties.name, manual_seed=gpu.seed, manual_seed_all=gpu.seed,
        is_bf16_supported=lambda including_emulation=True: bfloat16, Stream=Stream, Event=Event,
        stream=on_stream, CUDAGraph=CudaGraph, graph=graph, synchronize=synchronize,
        current_stream=lambda _device=None: gpu.stream,
        default_stream=lambda _device=None: gpu.default_stream,
        mem_get_info=lambda _device=None: (free_bytes, free_bytes), memory_allocated=lambda _device=None: 0,
        empty_cache=lambda: None, max_memory_allocated=lambda _device=None: 0,
        reset_peak_memory_stats=lambda _device=None: None,
        get_rng_state=lambda _device=None: gpu.random_state.clone(),
        set_rng_state=lambda state, _device=None: setattr(gpu, "random_state", state.clone()),
    )  # fmt: skip


@contextlib.contextmanager
def mock_gpu(bfloat16: bool = True, free_bytes: int = 80 << 30) -> Iterator[MockGpu]:
    """Provide torch with this GPU in the block, for this thread and threads started meanwhile.

    bfloat16    whether it multiplies that by itself
    free_bytes  of memory, by what it says
    """
    gpu = MockGpu()
    run, backward = threading.Thread.run, torch.autograd._engine_run_backward

    def inside(function: Callable) -> Callable:
        def call(*args, **kwargs):
            with _Calls(gpu):
                return function(*args, **kwargs)

        return call

    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    with (
        patch.multiple(torch.cuda, **_stand_ins(gpu, bfloat16, free_bytes)),
        patch.object(torch, "Generator", Generator),
        patch.object(threading.Thread, "run", inside(run)),
        patch.object(torch.autograd, "_engine_run_backward", inside(backward)),
    ):
        present.append(gpu)
        # Module.to gives parameters of another class
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            with _Calls(gpu):
                yield gpu
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
            present.remove(gpu)
