"""Formatting of numbers in messages."""

from __future__ import annotations

import math


def figure(value: float, digits: int = 2) -> str:
    """A number without exponent, rounded to `digits` significant digits but not before the decimal point:
    0.00213 -> '0.0021', 3.25 -> '3.2', 107.4 -> '107'. Only 0 is shown as 0."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(digits - 1 - math.floor(math.log10(abs(value))), 0)}f}"
