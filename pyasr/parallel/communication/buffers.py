"""Memory of arrays (numpy arrays or CPU tensors) as buffers for messages and sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Types that MPI adds natively. Narrower types are added in the type given here: MPI has no usable
# half-precision sum (MPICH refuses it, Open MPI adds bfloat16 bit patterns as integers), and it would round
# once per rank.
_ADDED_IN = {
    "float64": "float64",
    "float32": "float32",
    "int64": "int64",
    "int32": "int32",
    "uint8": "uint8",
    "float16": "float32",
    "bfloat16": "float32",
    "int16": "int32",
    "int8": "int32",
}


def _is_tensor(array) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def _host_view(array):
    """(view, name of its type): a numpy view of `array`'s memory; None for types that numpy does not have
    (bfloat16)."""
    if isinstance(array, np.ndarray):
        return array, array.dtype.name
    if not _is_tensor(array):
        raise TypeError(
            f"a collective takes numpy arrays and CPU tensors, not {type(array).__name__}; use "
            "reduce_scalar for a number"
        )
    if array.device.type != "cpu":
        raise TypeError(f"the tensor is on {array.device}: copy it to the host before a collective")
    name = str(array.dtype).removeprefix("torch.")
    return (None if name == "bfloat16" else array.detach().numpy()), name


def reduce_in_place(array, op: str, size: int, add: Callable[[np.ndarray, str], None]) -> None:
    """Reduce `array` over ranks by `add(buffer, op)`, which reduces a contiguous buffer of a natively added
    type in place."""
    if op not in ("sum", "max", "min", "mean"):
        raise ValueError(f"allreduce: unknown op '{op}'; use one of sum, max, min, mean")
    view, name = _host_view(array)
    if name not in _ADDED_IN:
        raise TypeError(
            f"allreduce: arrays of type {name} cannot be reduced; use one of {', '.join(_ADDED_IN)}"
        )
    if op == "mean" and "float" not in name:
        raise TypeError(f"allreduce: the mean of {name} is not {name}; convert the array to float64 first")
    wide = _ADDED_IN[name]
    direct = view is not None and wide == name and view.flags.c_contiguous and view.flags.writeable
    buffer = view if direct else _wide_copy(array, view, wide)
    add(buffer, "sum" if op == "mean" else op)
    if op == "mean":
        buffer /= size
    if not direct:
        _store(array, view, buffer)


def _wide_copy(array, view, wide: str) -> np.ndarray:
    if view is None:
        return array.detach().float().contiguous().numpy()
    return np.array(view, dtype=wide, order="C")


def _store(array, view, buffer: np.ndarray) -> None:
    if view is None:
        import torch

        array.detach().copy_(torch.from_numpy(buffer))
    else:
        view[...] = buffer


def bytes_of(array) -> tuple[np.ndarray, Callable[[], None]]:
    """(contiguous uint8 buffer of `array`'s content, function that writes a changed buffer back)."""
    view, _ = _host_view(array)
    if view is None:
        import torch

        view = array.detach().view(torch.int16).numpy()
    flat = np.ascontiguousarray(view).reshape(-1)
    raw = flat.view(np.uint8)
    if np.shares_memory(flat, view):
        return raw, lambda: None
    return raw, lambda: view.__setitem__(..., flat.reshape(view.shape))
