"""Vectors of lanes in compiled functions, against numpy."""

import numpy as np

from pyasr.base.compiled.kernel_sources import sources_of
from pyasr.base.compiled.kernels import njit
from pyasr.base.compiled.lanes import (
    LANES,
    fused,
    load_columns,
    load_lanes,
    prefetch,
    sqrt_lanes,
    store_columns,
    store_lanes,
    zero_lanes,
)

RNG = np.random.default_rng(0)


@njit(nogil=True)
def arithmetic(values, number, out):
    a, b, c = load_lanes(values, 1), load_lanes(values, LANES), load_lanes(values, 3 * LANES)
    results = (
        a + b,
        a - number,
        number * b,
        a / b,
        -a,
        fused(a, b, c),
        fused(a, number, -c),
        sqrt_lanes(b * b),
        zero_lanes(),
    )
    prefetch(values, 0)
    for i, result in enumerate(results):
        store_lanes(out, i * LANES + 1, result)


def test_arithmetic_equals_numpy():
    values, out = RNG.standard_normal(4 * LANES), np.full(9 * LANES + 2, 7.0)
    arithmetic(values, 0.3, out)
    a, b, c = values[1 : LANES + 1], values[LANES : 2 * LANES], values[3 * LANES :]
    results = out[1:-1].reshape(9, LANES)
    exact = [a + b, a - 0.3, 0.3 * b, a / b, -a]
    np.testing.assert_array_equal(results[:5], exact)
    np.testing.assert_allclose(results[5:7], [a * b + c, a * 0.3 - c], rtol=1e-13, atol=1e-15)
    np.testing.assert_array_equal(results[7:], [abs(b), 0 * b])
    assert out[0] == out[-1] == 7.0


@njit(nogil=True)
def rows_of_columns(samples, begins, first, shift, out):
    columns = load_columns(samples, begins, first, shift)
    for i, column in enumerate(columns):
        store_lanes(out, i * LANES, column)


@njit(nogil=True)
def columns_of_rows(rows, index, stride, out):
    columns = (
        load_lanes(rows, 0),
        load_lanes(rows, LANES),
        load_lanes(rows, 2 * LANES),
        load_lanes(rows, 3 * LANES),
        load_lanes(rows, 4 * LANES),
        load_lanes(rows, 5 * LANES),
        load_lanes(rows, 6 * LANES),
        load_lanes(rows, 7 * LANES),
    )
    store_columns(out, index, stride, columns)


def test_columns_are_transposed():
    samples = RNG.standard_normal(100).astype(np.float32)
    begins, out = RNG.integers(0, 80, LANES + 3), np.empty(LANES * LANES)
    rows_of_columns(samples, begins, 2, 5, out)
    rows = samples[begins[2 : LANES + 2, None] + 5 + np.arange(LANES)]
    np.testing.assert_array_equal(out.reshape(LANES, LANES), rows.T)
    stored = np.zeros((LANES + 2, 11))
    columns_of_rows(out, 11 + 2, 11, stored.reshape(-1))
    np.testing.assert_array_equal(stored[1:-1, 2 : 2 + LANES], rows)
    assert np.count_nonzero(stored) == LANES * LANES


def test_kernel_depends_on_file_of_lanes():
    assert any(path.endswith("lanes.py") for path in sources_of(arithmetic.__wrapped__))
