"""Vectors of LANES float64 numbers in compiled functions, for kernels that process LANES frames side by side.

LLVM vectorises a loop over lanes only if it can prove that arrays do not overlap. These vectors are always in
vector registers, of any width that the processor has. No operation is reordered, and only `fused` is
contracted, so results have the same bits on all processors that have fused operations (x86 with AVX2 or
AVX-512, ARM).

    a, b = load_lanes(array, 0), load_lanes(array, LANES)
    store_lanes(array, 0, a + 0.5 * b)     # -a; +, -, *, / of two vectors, or of a vector and a number

Indices are not checked, and negative ones do not count from the end.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

LANES = 8
# numbers of elements of two vectors: shuffles that, one after the other, transpose a matrix of LANES rows
_PAIRS = (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)
_FOURS = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
_HALVES = (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)


class LaneFunction:
    """A function that only compiled code can call. Its code is defined when numba compiles the first kernel
    that refers to it."""

    def __init__(self, function: Callable):
        self.__wrapped__, self.__name__, self.__doc__ = function, function.__name__, function.__doc__

    @property
    def _numba_type_(self):
        """numba's type of this function."""
        return _definitions()[self.__name__]


@LaneFunction
def load_lanes(array, index):
    """The elements index ... index + LANES - 1 of `array` (N,), float64."""


@LaneFunction
def store_lanes(array, index, lanes):
    """Write a vector to the elements index ... index + LANES - 1 of `array` (N,), float64."""


@LaneFunction
def zero_lanes():
    """A vector of zeros."""


@LaneFunction
def fused(factor, other, term):
    """factor * other + term, rounded once if the processor can; `other` is a vector or a number."""


@LaneFunction
def sqrt_lanes(lanes):
    """The square roots of the elements."""


@LaneFunction
def prefetch(array, index):
    """Begin to load the cache line of this element of `array` (N,) into the processor's cache."""


@LaneFunction
def load_columns(array, begins, first, shift):
    """LANES vectors: element l of vector i is array[begins[first + l] + shift + i], with `array` (N,) float32
    and `begins` (M,) int64."""


@LaneFunction
def store_columns(array, index, stride, columns):
    """Write LANES vectors: element l of vector i to array[index + l * stride + i], with `array` (N,)
    float64."""


@functools.cache
def _definitions() -> dict:
    """{name: numba's type of the function}."""
    from numba.core.registry import cpu_target
    from numba.extending import intrinsic

    lanes = _lanes_type()
    functions = {**_of_vectors(lanes), **_of_columns(lanes)}
    intrinsics = {name: intrinsic(definition) for name, definition in functions.items()}
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    return {name: cpu_target.typing_context.resolve_value_type(made) for name, made in intrinsics.items()}


def _lanes_type():
    """numba's type of vectors, with its arithmetic."""
    from llvmlite import ir
    from numba.core import types
    from numba.core.datamodel.models import PrimitiveModel
    from numba.core.imputils import lower_builtin
    from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
    from numba.extending import register_model

    class LanesType(types.Type):
        def __init__(self):
            super().__init__("Lanes")

    @register_model(LanesType)
    class LanesModel(PrimitiveModel):
        def __init__(self, manager, kind):
            super().__init__(manager, kind, _vector(ir.DoubleType()))

    lanes = LanesType()
    operands = (lanes, lanes), (lanes, types.float64), (types.float64, lanes)

    def define(symbol, instruction):
        """Define an operator of two operands by an instruction of LLVM."""

        @infer_global(symbol)
        class Arithmetic(ConcreteTemplate):
            cases = [signature(lanes, *kinds) for kinds in operands]

        def lower(context, builder, sig, values):
            pairs = zip(values, sig.args)
            vectors = [value if kind == lanes else _equal(builder, value) for value, kind in pairs]
            return getattr(builder, instruction)(*vectors)

        for kinds in operands:
            lower_builtin(symbol, *kinds)(lower)

    define(operator.add, "fadd")
    define(operator.sub, "fsub")
    define(operator.mul, "fmul")
    define(operator.truediv, "fdiv")

    @infer_global(operator.neg)
    class Negation(ConcreteTemplate):
        cases = [signature(lanes, lanes)]

    lower_builtin(operator.neg, lanes)(lambda context, builder, sig, values: builder.fneg(values[0]))
    return lanes


def _of_vectors(lanes) -> dict[str, Callable]:
    """The definitions of functions of one vector."""
    from llvmlite import ir
    from numba.core import types

    def load(context, array, index):
        return lanes(array, types.intp), lambda context, builder, sig, values: _read(
            builder, _address(context, builder, sig.args[0], *values)
        )

    def store(context, array, index, vector):
        def write(context, builder, sig, values):
            _write(builder, values[2], _address(context, builder, sig.args[0], *values[:2]))
            return context.get_dummy_value()

        return types.none(array, types.intp, lanes), write

    def zero(context):
        return lanes(), lambda context, builder, sig, values: ir.Constant(_vector(ir.DoubleType()), None)

    def fuse(context, factor, other, term):
        def call(context, builder, sig, values):
            factor, other, term = values
            vector = other if sig.args[1] == lanes else _equal(builder, other)
            return _called(builder, "fmuladd", [factor, vector, term])

        return lanes(lanes, lanes if other == lanes else types.float64, lanes), call

    def root(context, vector):
        return lanes(lanes), lambda context, builder, sig, values: _called(builder, "sqrt", values)

    def fetch(context, array, index):
        return types.none(array, types.intp), lambda context, builder, sig, values: _fetched(
            context, builder, _elements(context, builder, sig.args[0], values[0]), values[1]
        )

    names = "load_lanes", "store_lanes", "zero_lanes", "fused", "sqrt_lanes", "prefetch"
    return dict(zip(names, (load, store, zero, fuse, root, fetch)))


def _of_columns(lanes) -> dict[str, Callable]:
    """The definitions of functions of LANES vectors, which transpose."""
    from llvmlite import ir
    from numba.core import types
    from numba.core.types.containers import UniTuple

    columns = UniTuple(lanes, LANES)

    def load(context, array, begins, first, shift):
        """`load_columns`."""

        def read(context, builder, sig, values):
            """The transposed rows."""
            array, begins, first, shift = values
            starts = _elements(context, builder, sig.args[1], begins)
            rows = []
            for lane in range(LANES):
                place = builder.gep(starts, [builder.add(first, first.type(lane))])
                begin = builder.add(builder.load(place), shift)
                rows.append(_read(builder, _address(context, builder, sig.args[0], array, begin)))
            vectors = [builder.fpext(row, _vector(ir.DoubleType())) for row in _transposed(builder, rows)]
            return context.make_tuple(builder, sig.return_type, vectors)

        return columns(array, begins, types.intp, types.intp), read

    def store(context, array, index, stride, vectors):
        """`store_columns`."""

        def write(context, builder, sig, values):
            array, index, stride, vectors = values
            rows = [builder.extract_value(vectors, i) for i in range(LANES)]
            for lane, row in enumerate(_transposed(builder, rows)):
                place = builder.add(index, builder.mul(stride, stride.type(lane)))
                _write(builder, row, _address(context, builder, sig.args[0], array, place))
            return context.get_dummy_value()

        return types.none(array, types.intp, types.intp, columns), write

    return {"load_columns": load, "store_columns": store}


def _vector(kind):
    """LLVM's type of LANES elements of a type."""
    from llvmlite import ir

    return ir.VectorType(kind, LANES)


def _elements(context, builder, kind, array):
    """Pointer to the elements of an array in C order."""
    return context.make_array(kind)(context, builder, array).data


def _address(context, builder, kind, array, index):
    """Pointer to the vector that begins at an element of an array in C order."""
    place = builder.gep(_elements(context, builder, kind, array), [index])
    return builder.bitcast(place, _vector(place.type.pointee).as_pointer())


def _fetched(context, builder, elements, index):
    """Prefetch an element; returns the value of a function without a result."""
    from llvmlite import ir

    address = builder.bitcast(builder.gep(elements, [index]), ir.IntType(8).as_pointer())
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
    to_read, keep, of_data = number(0), number(3), number(1)
    function = builder.module.declare_intrinsic("llvm.prefetch.p0", fnty=kind)
    builder.call(function, [address, to_read, keep, of_data])
    return context.get_dummy_value()


def _called(builder, name: str, vectors: list):
    """The result of a function of LLVM for vectors."""
    from llvmlite import ir

    kinds = [vector.type for vector in vectors]
    function = builder.module.declare_intrinsic(
        f"llvm.{name}.v{LANES}f64", fnty=ir.FunctionType(kinds[0], kinds)
    )
    return builder.call(function, vectors)


def _read(builder, address):
    return builder.load(address, align=4)  # also of float32


def _write(builder, vector, address):
    builder.store(vector, address, align=8)


def _equal(builder, number):
    """A vector of equal elements."""
    from llvmlite import ir

    unknown = ir.Constant(_vector(number.type), ir.Undefined)
    first = builder.insert_element(unknown, number, ir.IntType(32)(0))
    return _shuffled(builder, first, unknown, [0] * LANES)


def _shuffled(builder, first, second, places: Sequence[int]):
    """The elements at `places` of two vectors, one after the other."""
    from llvmlite import ir

    return builder.shuffle_vector(first, second, ir.Constant(_vector(ir.IntType(32)), list(places)))


def _transposed(builder, rows: list) -> list:
    """The columns of LANES vectors."""
    rows = list(rows)
    for distance, (low, high) in ((1, _PAIRS), (2, _FOURS), (4, _HALVES)):
        upper = [i for i in range(LANES) if not i & distance]
        for i in upper:
            pair = rows[i], rows[i + distance]
            rows[i], rows[i + distance] = (_shuffled(builder, *pair, places) for places in (low, high))
    return [rows[i] for i in (0, 2, 1, 3, 4, 6, 5, 7)]
