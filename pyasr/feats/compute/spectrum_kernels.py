r"""Spectra of LANES frames side by side, and weighted sums of them; notation as in `spectrum`.

The spectrum of a frame of M real samples x is computed from that of N = M / 2 complex ones:

    z[n] = x[2n] + j x[2n + 1],   v = exp(-2 pi j / M)
    2 X[k]     = Z[k] + conj Z[N - k] - j v^k (Z[k] - conj Z[N - k])         0 < k < N
    2 X[N - k] = conj(Z[k] + conj Z[N - k] + j v^k (Z[k] - conj Z[N - k]))
    X[0] = Re Z[0] + Im Z[0],   X[N] = Re Z[0] - Im Z[0]

Z is computed in place by decimation in frequency. A pass replaces each section of S elements by four sections
of S / 4, with w = exp(-2 pi j / S) and r = 0 .. 3,

    y_r[i] = w^(r i) sum_{q=0..3} (-j)^(q r) x[i + q S / 4],     i < S / 4

which contain every fourth element of the spectrum, from the r-th on. The last pass is over pairs if N is not
a power of four. Reference: J. W. Cooley, J. W. Tukey, "An algorithm for the machine calculation of complex
Fourier series", Mathematics of Computation 19 (1965).

Row i of the workspace, LANES numbers, is sample i of each frame, so real and imaginary parts take turns. The
spectrum of a frame does not depend on its place among others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.compiled.lanes import (
    LANES,
    load_columns,
    load_lanes,
    sqrt_lanes,
    store_columns,
    store_lanes,
    zero_lanes,
)

SIZES = tuple(2**i for i in range(7, 12))  # M for which the kernels are used
NO_ENERGY, RAW_ENERGY, WINDOWED_ENERGY = range(3)
_ROW_BYTES = 8 * LANES


class Plan(NamedTuple):
    """Tables of the computation for one kind of frames.

    window       (size,), float64, times 1/2
    twiddles     (number, 6): real and imaginary parts of w^i, w^2i and w^3i for all i of a pass, for the
                 passes with S > 4
    unpacking    (N / 2, 2): v^k
    places       (N,): the element of the workspace where Z[k] begins
    filter_ends  (num_filters,): where the weights of a filter end in the next two
    weights      (number,), float64, without zeros
    lines        (number,): the element of the workspace where the power of the line of a weight begins
    """

    window: np.ndarray
    twiddles: np.ndarray
    unpacking: np.ndarray
    places: np.ndarray
    filter_ends: np.ndarray
    weights: np.ndarray
    lines: np.ndarray


class Signal(NamedTuple):
    """Frames of the samples (N,) float32, at the positions `begins`, int64."""

    samples: np.ndarray
    begins: np.ndarray


class Steps(NamedTuple):
    """What is done with a frame before and after the transform: `preemphasis` is c of `spectrum`, `energy`
    one of NO_ENERGY, RAW_ENERGY, WINDOWED_ENERGY."""

    remove_mean: bool
    preemphasis: float
    power: bool
    energy: int


def plan_of(window: np.ndarray, fft_size: int, weights: np.ndarray | None) -> Plan:
    """The plan for a window (size,) and weights (M / 2 + 1, num_filters); None: each line by itself."""
    num = fft_size // 2
    filters = np.eye(num + 1) if weights is None else weights
    of_filter, of_line = np.nonzero(filters.T)
    places = 2 * LANES * _order(num)
    line_places = np.append(places, places[0] + LANES)
    return Plan(
        window / 2,
        _twiddles(num),
        _parts(np.exp(-2j * np.pi / fft_size * np.arange(num // 2))[:, None]),
        places,
        np.searchsorted(of_filter, np.arange(filters.shape[1]), side="right"),
        filters[of_line, of_filter],
        line_places[of_line],
    )


def _order(num: int) -> np.ndarray:
    """The row of each element of the spectrum after the last pass."""
    if num == 1:
        return np.zeros(1, np.int64)
    radix = min(num, 4)
    section = _order(num // radix)
    return (section[:, None] + np.arange(radix) * len(section)).reshape(-1)


def _twiddles(num: int) -> np.ndarray:
    tables, section = [np.empty((0, 6))], num
    while section > 4:
        phase = -2j * np.pi / section * np.arange(section // 4)[:, None]
        tables.append(_parts(np.exp(phase * np.arange(1, 4))))
        section //= 4
    return np.concatenate(tables)


def _parts(numbers: np.ndarray) -> np.ndarray:
    """Complex (T, N) as float64 (T, 2 N)."""
    return np.ascontiguousarray(numbers).view(np.float64)


def workspace(num_rows: int) -> np.ndarray:
    """Zeros for `num_rows` vectors of LANES numbers, float64, of which none is on two cache lines."""
    whole = np.zeros((num_rows + 1) * LANES)
    first = -whole.ctypes.data % _ROW_BYTES // 8
    return whole[first : first + num_rows * LANES]


@njit(nogil=True, cache=True)
def weighted_sums(signal, plan, steps, work, sums, out, energies):
    """Fill row t of `out` (T, num_filters) with the sums of the frame at signal.begins[t], and element t of
    `energies` (T,) with its energy. T is a multiple of LANES.

    work  workspace of M vectors
    sums  workspace of at least num_filters + LANES - 1 vectors
    """
    num_filters, flat = out.shape[1], out.reshape(-1)
    for begin in range(0, len(signal.begins), LANES):
        mean = _read_frames(signal, begin, len(plan.window), work)
        store_lanes(energies, begin, _window(plan.window, steps, mean, work))
        for i in range(len(plan.window) * LANES, len(work)):
            work[i] = 0.0
        _transform(plan.twiddles, work)
        _unpack(plan, steps.power, work)
        _filter(plan, work, sums)
        _write_rows(sums, num_filters, begin * num_filters, flat)


@njit(nogil=True)
def _read_frames(signal, begin, size, work):
    """Copy the samples of LANES frames to `work`; returns their means."""
    total = zero_lanes()
    whole = size - size % LANES
    for i in range(0, size, LANES):
        a, b, c, d, e, f, g, h = load_columns(signal.samples, signal.begins, begin, i)
        first = i * LANES
        store_lanes(work, first, a)
        store_lanes(work, first + LANES, b)
        store_lanes(work, first + 2 * LANES, c)
        store_lanes(work, first + 3 * LANES, d)
        store_lanes(work, first + 4 * LANES, e)
        store_lanes(work, first + 5 * LANES, f)
        store_lanes(work, first + 6 * LANES, g)
        store_lanes(work, first + 7 * LANES, h)
        if i < whole:
            total = total + (((a + b) + (c + d)) + ((e + f) + (g + h)))
    for i in range(whole, size):
        total = total + load_lanes(work, i * LANES)
    return total / float(size)


@njit(nogil=True)
def _window(window, steps, mean, work):
    """Replace the samples d + mean by w p / 2; returns the energies of the frames."""
    if not steps.remove_mean:
        mean = zero_lanes()
    before = load_lanes(work, 0) - mean
    raw, windowed = zero_lanes(), zero_lanes()
    for i in range(len(window)):
        now = load_lanes(work, i * LANES) - mean
        product = (now - before * steps.preemphasis) * window[i]
        store_lanes(work, i * LANES, product)
        if steps.energy == RAW_ENERGY:
            raw = raw + now * now
        if steps.energy == WINDOWED_ENERGY:
            windowed = windowed + product * product
        before = now
    return raw + windowed * 4.0


@njit(nogil=True)
def _transform(twiddles, work):
    """Replace the N complex rows by their spectrum, in the order of `_order`."""
    step = 2 * LANES
    section, first = len(work), 0
    while section > 4 * step:
        quarter = section // 4
        for i in range(quarter // step):
            row = twiddles[first + i]
            one, two, three = (row[0], row[1]), (row[2], row[3]), (row[4], row[5])
            for begin in range(i * step, len(work), section):
                a, b, c, d = _four_sums(work, begin, quarter)
                _put(work, begin, a)
                _put(work, begin + quarter, _turned(b, one))
                _put(work, begin + 2 * quarter, _turned(c, two))
                _put(work, begin + 3 * quarter, _turned(d, three))
        first += quarter // step
        section = quarter
    for begin in range(0, len(work), section):
        if section == 4 * step:
            a, b, c, d = _four_sums(work, begin, step)
            _put(work, begin, a)
            _put(work, begin + step, b)
            _put(work, begin + 2 * step, c)
            _put(work, begin + 3 * step, d)
        else:
            (ar, ai), (br, bi) = _get(work, begin), _get(work, begin + step)
            _put(work, begin, (ar + br, ai + bi))
            _put(work, begin + step, (ar - br, ai - bi))


@njit(nogil=True)
def _get(work, place):
    """A complex row."""
    return load_lanes(work, place), load_lanes(work, place + LANES)


@njit(nogil=True)
def _put(work, place, number):
    store_lanes(work, place, number[0])
    store_lanes(work, place + LANES, number[1])


@njit(nogil=True)
def _turned(number, factor):
    """Product of a complex row and a complex number."""
    return number[0] * factor[0] - number[1] * factor[1], number[0] * factor[1] + number[1] * factor[0]


@njit(nogil=True)
def _four_sums(work, begin, quarter):
    """sum_q (-j)^(q r) x[begin + q quarter] for r = 0 .. 3."""
    (ar, ai), (br, bi) = _get(work, begin), _get(work, begin + quarter)
    (cr, ci), (dr, di) = _get(work, begin + 2 * quarter), _get(work, begin + 3 * quarter)
    even_r, even_i, odd_r, odd_i = ar + cr, ai + ci, br + dr, bi + di
    left_r, left_i, right_r, right_i = ar - cr, ai - ci, br - dr, bi - di
    return (
        (even_r + odd_r, even_i + odd_i),
        (left_r + right_i, left_i - right_r),
        (even_r - odd_r, even_i - odd_i),
        (left_r - right_i, left_i + right_r),
    )


@njit(nogil=True)
def _unpack(plan, power, work):
    """Replace Z[k] by the powers, or magnitudes, of X[k], and that of X[N] follows that of X[0]."""
    places, num = plan.places, len(plan.places)
    re, im = _get(work, places[0])
    store_lanes(work, places[0], _strength(re + im, zero_lanes(), 4.0, power))
    store_lanes(work, places[0] + LANES, _strength(re - im, zero_lanes(), 4.0, power))
    re, im = _get(work, places[num // 2])
    store_lanes(work, places[num // 2], _strength(re, im, 4.0, power))
    for k in range(1, num // 2):
        turn = plan.unpacking[k]
        (ar, ai), (br, bi) = _get(work, places[k]), _get(work, places[num - k])
        sum_r, sum_i = ar + br, ai - bi
        odd_r, odd_i = _turned((ai + bi, br - ar), (turn[0], turn[1]))
        store_lanes(work, places[k], _strength(sum_r + odd_r, sum_i + odd_i, 1.0, power))
        store_lanes(work, places[num - k], _strength(sum_r - odd_r, sum_i - odd_i, 1.0, power))


@njit(nogil=True)
def _strength(re, im, factor, power):
    """The power times `factor`, or its square root."""
    square = (re * re + im * im) * factor
    return square if power else sqrt_lanes(square)


@njit(nogil=True)
def _filter(plan, work, sums):
    """Weighted sums of spectral lines, one vector per filter."""
    i = 0
    for b in range(len(plan.filter_ends)):
        total = zero_lanes()
        while i < plan.filter_ends[b]:
            total = total + load_lanes(work, plan.lines[i]) * plan.weights[i]
            i += 1
        store_lanes(sums, b * LANES, total)


@njit(nogil=True)
def _write_rows(sums, num, first, out):
    """Copy `num` vectors, one per column, to the LANES rows of `out` from element `first` on."""
    whole = num - num % LANES
    for b in range(0, whole, LANES):
        at = b * LANES
        columns = (
            load_lanes(sums, at),
            load_lanes(sums, at + LANES),
            load_lanes(sums, at + 2 * LANES),
            load_lanes(sums, at + 3 * LANES),
            load_lanes(sums, at + 4 * LANES),
            load_lanes(sums, at + 5 * LANES),
            load_lanes(sums, at + 6 * LANES),
            load_lanes(sums, at + 7 * LANES),
        )
        store_columns(out, first + b, num, columns)
    for b in range(whole, num):
        for lane in range(LANES):
            out[first + lane * num + b] = sums[b * LANES + lane]
