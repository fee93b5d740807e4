"""Line plots as SVG, without a plotting library."""

from __future__ import annotations

import math
from html import escape

COLOURS = (
    "#1b6ca8",
    "#d1495b",
    "#2e933c",
    "#edae49",
    "#6a4c93",
    "#00798c",
    "#8d6346",
    "#444444",
    "#e76f51",
    "#7fb069",
)
_WIDTH, _HEIGHT, _LEFT, _TOP, _PLOT_WIDTH, _PLOT_HEIGHT = 760, 420, 70, 40, 480, 320

Series = dict[str, list[tuple[float, float]]]


def line_plot(series: Series, title: str, x_label: str, y_label: str, log2: bool = False) -> str:
    """A plot with a line for each name in `series`, from points (x, y) in order; with `log2`, both axes are
    logarithmic."""
    points = [point for line in series.values() for point in line]
    xs, ys = (_Axis([point[i] for point in points], log2) for i in range(2))
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            'font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT + _PLOT_WIDTH / 2, 22, title, "middle", 15),
        _text(_LEFT + _PLOT_WIDTH / 2, _TOP + _PLOT_HEIGHT + 40, x_label, "middle"),
        _text(8, _TOP - 10, y_label),
    ]
    for tick in xs.ticks:
        x, bottom = _x(xs, tick), _TOP + _PLOT_HEIGHT
        parts += [_line(x, _TOP, x, bottom), _text(x, bottom + 18, f"{tick:g}", "middle")]
    for tick in ys.ticks:
        parts += [
            _line(_LEFT, _y(ys, tick), _LEFT + _PLOT_WIDTH, _y(ys, tick)),
            _text(_LEFT - 8, _y(ys, tick) + 4, f"{tick:g}", "end"),
        ]
    for number, (name, line) in enumerate(series.items()):
        parts += _curve(name, [(_x(xs, x), _y(ys, y)) for x, y in line], number)
    return "\n".join([*parts, "</svg>\n"])


def stacked(plots: list[str]) -> str:
    """One picture of several plots of `line_plot`, one below the other."""
    places = [
        f'<svg y="{number * _HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" ' for number in range(len(plots))
    ]
    parts = [plot.replace("<svg ", place, 1) for plot, place in zip(plots, places)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {len(plots) * _HEIGHT}">'
    return "\n".join([head, *parts, "</svg>\n"])


class _Axis:
    """Maps values to 0 .. 1; its tick marks are round numbers."""

    def __init__(self, values: list[float], log2: bool):
        self.log2 = log2
        low, high = min(values), max(values)
        if log2:
            first = math.floor(math.log2(low))
            last = max(math.ceil(math.log2(high)), math.floor(math.log2(low)) + 1)
            self.ticks = [2.0**k for k in range(first, last + 1)]
        else:
            step = _round_step((high - low) / 6)
            first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
            self.ticks = [round(k * step, 12) for k in range(first, last + 1)]
        self.low, self.high = self._scaled(self.ticks[0]), self._scaled(self.ticks[-1])

    def _scaled(self, value: float) -> float:
        return math.log2(value) if self.log2 else value

    def share(self, value: float) -> float:
        """The position between the first and the last mark."""
        return (self._scaled(value) - self.low) / (self.high - self.low)


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, ... times a power of ten that is at least `least`."""
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least or least <= 0)


def _x(axis: _Axis, value: float) -> float:
    return _LEFT + _PLOT_WIDTH * axis.share(value)


def _y(axis: _Axis, value: float) -> float:
    return _TOP + _PLOT_HEIGHT * (1 - axis.share(value))


def _curve(name: str, points: list[tuple[float, float]], number: int) -> list[str]:
    """A line with its dots, and its name in the legend; another line style when colours repeat."""
    colour, dashes = COLOURS[number % len(COLOURS)], ("", "6 3", "2 2")[number // len(COLOURS) % 3]
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
    y, x = _TOP + 8 + 15 * number, _LEFT + _PLOT_WIDTH + 14
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    lines = [f'<polyline points="{points}" {style}/>' for points in (drawn, f"{x},{y} {x + 24},{y}")]
    return [lines[0], *dots, lines[1], _text(x + 30, y + 4, name)]


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#dddddd"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
