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
    fused,
    load_columns,
    load_lanes,
    prefetch,
    sqrt_lanes,
    store_columns,
    store_lanes,
    zero_lanes,
)
from pyasr.feats.compute.mel import EPSILON

SIZES = tuple(2**i for i in range(7, 12))  # M for which the kernels are used
NO_ENERGY, RAW_ENERGY, WINDOWED_ENERGY = range(3)
_ROW_BYTES = 8 * LANES
_LINE = 16  # samples of a cache line
_ROOT_BITS, _ONE_BITS = np.uint64(0x3FE6A09E667F3BCD), np.uint64(0x3FF0000000000000)  # of sqrt(1/2) and 1
_FRACTION, _NUM_FRACTION_BITS = np.uint64((1 << 52) - 1), np.uint64(52)
_TWO_52_BITS = np.uint64(0x4330000000000000)  # of 2^52, to which a smaller integer is added as bits
_TO_EXPONENT = 2.0**52 + 1023
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


class FramePlan(NamedTuple):
    """Tables of the computation for one kind of frames.

    size         samples of a frame
    window       (M,), float64, times 1/2, zeros after the first `size`
    twiddles     (number, 6): real and imaginary parts of w^i, w^2i and w^3i for all i of a pass, for the
                 passes with S > 4
    unpacking    (N / 2, 2): v^k
    places       (N,): the element of the workspace where Z[k] begins
    filter_ends  (num_filters,): where the weights of a filter end in the next two
    weights      (number,), float64, without zeros
    lines        (number,): the element of the workspace where the power of the line of a weight begins
    """

    size: int
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
    """What is computed before and after the transform.

    preemphasis  c of `spectrum`
    energy       one of NO_ENERGY, RAW_ENERGY, WINDOWED_ENERGY
    power        power spectrum; False: magnitude
    logarithms   L instead of E
    """

    remove_mean: bool
    preemphasis: float
    energy: int
    power: bool
    logarithms: bool


def plan_of(window: np.ndarray, fft_size: int, weights: np.ndarray | None) -> FramePlan:
    """The plan for a window (size,) and weights (M / 2 + 1, num_filters); None: each line by itself."""
    num = fft_size // 2
    filters = np.eye(num + 1) if weights is None else weights
    of_filter, of_line = np.nonzero(filters.T)
    places = 2 * LANES * _order(num)
    line_places = np.append(places, places[0] + LANES)
    return FramePlan(
        len(window),
        np.append(window / 2, np.zeros(fft_size - len(window))),
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
        mean = _read_frames(signal, begin, plan.size, steps.remove_mean, work)
        _prefetch_frames(signal, begin, plan.size)
        store_lanes(energies, begin, _first_pass(plan, steps, mean, work))
        _later_passes(plan.twiddles, work)
        _unpack(plan, steps.power, work)
        _filter(plan, work, sums)
        if steps.logarithms:
            for i in range(num_filters * LANES):
                sums[i] = floored_log(sums[i], EPSILON)
        _write_rows(sums, num_filters, begin * num_filters, flat)


@njit(nogil=True)
def _read_frames(signal, begin, size, remove_mean, work):
    """Copy the samples of LANES frames to `work`; returns their means, or zeros, and fills the remaining rows
    with these."""
    total, whole = zero_lanes(), size - size % LANES
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
    mean = total / float(size) if remove_mean else zero_lanes()
    for place in range(size * LANES, len(work), LANES):
        store_lanes(work, place, mean)
    return mean


@njit(nogil=True)
def _prefetch_frames(signal, begin, size):
    """Prefetch the samples of the next LANES frames that are after those of the frames from `begin` on."""
    last = begin + LANES - 1
    following = min(last + LANES, len(signal.begins) - 1)
    for place in range(signal.begins[last] + size, signal.begins[following] + size, _LINE):
        prefetch(signal.samples, place)


@njit(nogil=True)
def _first_pass(plan, steps, mean, work):
    """Remove the mean, apply preemphasis and the window, and make the first pass of the transform; returns
    the energies of the frames."""
    window, factor, energy = plan.window, -steps.preemphasis, zero_lanes()
    quarter = len(window) // 4
    before_a, before_b = _centred(work, 0, mean), _centred(work, quarter - 1, mean)
    before_c, before_d = _centred(work, 2 * quarter - 1, mean), _centred(work, 3 * quarter - 1, mean)
    for row in range(0, quarter, 2):
        row_b, row_c, row_d = row + quarter, row + 2 * quarter, row + 3 * quarter
        pair_a, pair_b = _centred_pair(work, row, mean), _centred_pair(work, row_b, mean)
        pair_c, pair_d = _centred_pair(work, row_c, mean), _centred_pair(work, row_d, mean)
        a = _windowed(pair_a, before_a, factor, window, row)
        b = _windowed(pair_b, before_b, factor, window, row_b)
        c = _windowed(pair_c, before_c, factor, window, row_c)
        d = _windowed(pair_d, before_d, factor, window, row_d)
        before_a, before_b, before_c, before_d = pair_a[1], pair_b[1], pair_c[1], pair_d[1]
        if steps.energy == RAW_ENERGY:
            energy = energy + (_squares(pair_a, pair_b) + _squares(pair_c, pair_d))
        if steps.energy == WINDOWED_ENERGY:
            energy = energy + (_squares(a, b) + _squares(c, d)) * 4.0
        _put_turned(work, row * LANES, quarter * LANES, _butterfly(a, b, c, d), plan.twiddles[row // 2])
    return energy


@njit(nogil=True)
def _centred(work, row, mean):
    return load_lanes(work, row * LANES) - mean


@njit(nogil=True)
def _centred_pair(work, row, mean):
    """d of two samples."""
    return _centred(work, row, mean), _centred(work, row + 1, mean)


@njit(nogil=True)
def _windowed(pair, before, factor, window, row):
    """w p / 2 of two samples, after the sample `before`; `factor` is -c."""
    even, odd = pair
    return fused(before, factor, even) * window[row], fused(even, factor, odd) * window[row + 1]


@njit(nogil=True)
def _squares(first, second):
    """The sum of the squares of four vectors."""
    return fused(first[0], first[0], first[1] * first[1]) + fused(second[0], second[0], second[1] * second[1])


@njit(nogil=True)
def _later_passes(twiddles, work):
    """The passes of the transform after the first, which leave the spectrum in the order of `_order`."""
    step = 2 * LANES
    section = len(work) // 4
    first = section // step
    while section > 4 * step:
        quarter = section // 4
        for i in range(quarter // step):
            turns = twiddles[first + i]
            for begin in range(i * step, len(work), section):
                _put_turned(work, begin, quarter, _four_sums(work, begin, quarter), turns)
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
    re, im = number
    return fused(re, factor[0], -(im * factor[1])), fused(re, factor[1], im * factor[0])


@njit(nogil=True)
def _four_sums(work, begin, quarter):
    """The sums of four complex rows at a distance of `quarter`."""
    return _butterfly(
        _get(work, begin),
        _get(work, begin + quarter),
        _get(work, begin + 2 * quarter),
        _get(work, begin + 3 * quarter),
    )


@njit(nogil=True)
def _butterfly(a, b, c, d):
    """sum_q (-j)^(q r) x_q for r = 0 .. 3, for complex rows x_0 .. x_3."""
    even_r, even_i, odd_r, odd_i = a[0] + c[0], a[1] + c[1], b[0] + d[0], b[1] + d[1]
    left_r, left_i, right_r, right_i = a[0] - c[0], a[1] - c[1], b[0] - d[0], b[1] - d[1]
    return (
        (even_r + odd_r, even_i + odd_i),
        (left_r + right_i, left_i - right_r),
        (even_r - odd_r, even_i - odd_i),
        (left_r - right_i, left_i + right_r),
    )


@njit(nogil=True)
def _put_turned(work, begin, quarter, numbers, turns):
    """Multiply the last three of four complex rows by twiddle factors, and write all four."""
    one, two, three = (turns[0], turns[1]), (turns[2], turns[3]), (turns[4], turns[5])
    _put(work, begin, numbers[0])
    _put(work, begin + quarter, _turned(numbers[1], one))
    _put(work, begin + 2 * quarter, _turned(numbers[2], two))
    _put(work, begin + 3 * quarter, _turned(numbers[3], three))


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
    square = fused(re, re, im * im) * factor
    return square if power else sqrt_lanes(square)


@njit(nogil=True)
def _filter(plan, work, sums):
    """Weighted sums of spectral lines, one vector per filter."""
    i = 0
    for b in range(len(plan.filter_ends)):
        total = zero_lanes()
        while i < plan.filter_ends[b]:
            total = fused(load_lanes(work, plan.lines[i]), plan.weights[i], total)
            i += 1
        store_lanes(sums, b * LANES, total)


@njit(nogil=True, error_model="numpy")
def floored_log(x, floor):
    """ln max(x, floor), float64, in a form that LLVM vectorises; `floor` is at least 2.3e-308. NaN and
    infinity remain. The relative error is below 5e-16.

    With x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), and s = f / (2 + f),

        ln x = k ln 2 + f - f^2 / 2 + s (f^2 / 2 + R(s^2)),    R(z) = 2 z / 3 + 2 z^2 / 5 + ...

    R is a polynomial with the coefficients of FDLIBM (K. C. Ng, Sun Microsystems 1993, e_log.c).
    """
    x = floor if x < floor else x
    bits = np.float64(x).view(np.uint64) + (_ONE_BITS - _ROOT_BITS)
    exponent = np.uint64((bits >> _NUM_FRACTION_BITS) | _TWO_52_BITS).view(np.float64) - _TO_EXPONENT
    f = np.uint64((bits & _FRACTION) + _ROOT_BITS).view(np.float64) - 1.0
    half_square = 0.5 * f * f
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = w * (0.3999999999940941908 + w * (0.2222219843214978396 + w * 0.1531383769920937332))
    even = z * (
        0.6666666666666735130
        + w * (0.2857142874366239149 + w * (0.1818357216161805012 + w * 0.1479819860511658591))
    )
    found = s * (half_square + (odd + even)) + exponent * _LN2_LOW - half_square + f + exponent * _LN2_HIGH
    return found if x < np.inf else x


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
