"""Formatting of numbers in messages."""

import pytest

from pyasr.base.figures import figure


@pytest.mark.parametrize(
    "value, text",
    [
        (107 / 5000, "0.021"),
        (0.0, "0"),
        (3.25, "3.2"),
        (9.96, "10.0"),
        (107.4, "107"),
        (-0.034, "-0.034"),
        (1234567.8, "1234568"),
        (1, "1.0"),
        (4e-7, "0.00000040"),
    ],
)
def test_small_numbers_are_not_rounded_to_zero(value, text):
    assert figure(value) == text
    assert float(figure(value, 6)) == pytest.approx(value, rel=1e-5)
