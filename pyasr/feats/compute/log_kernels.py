r"""Logarithms of many energies, with the same bits on all processors.

With x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), and s = f / (2 + f),

    ln x = k ln 2 + f - f^2 / 2 + s (f^2 / 2 + R(s^2)),    R(z) = 2 z / 3 + 2 z^2 / 5 + ...

R is a polynomial with the coefficients of FDLIBM (K. C. Ng, Sun Microsystems 1993, e_log.c). The relative
error is below 5e-16.
"""

from __future__ import annotations

import numpy as np

from pyasr.base.compiled.kernels import njit

_ROOT_BITS, _ONE_BITS = np.uint64(0x3FE6A09E667F3BCD), np.uint64(0x3FF0000000000000)  # of sqrt(1/2) and 1
_FRACTION, _NUM_FRACTION_BITS = np.uint64((1 << 52) - 1), np.uint64(52)
_TWO_52_BITS = np.uint64(0x4330000000000000)  # of 2^52, to which a smaller integer is added as bits
_TO_EXPONENT = 2.0**52 + 1023
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


@njit(nogil=True, error_model="numpy")
def floored_log(x, floor):
    """ln max(x, floor), float64, in a form that LLVM vectorises; `floor` is at least 2.3e-308. NaN and
    infinity remain."""
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
