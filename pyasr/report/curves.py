"""Curves of trainings: objective, drift and learning rate against the number of frames, as lines of text or a
picture.

The input is the lines of metrics.jsonl (`pyasr.train.job.progress`), as dictionaries.
"""

from __future__ import annotations

import math

from pyasr.report.svg import Series, line_plot, stacked

OBJECTIVE, HELDOUT, DRIFT, RATE = "objective", "held-out objective", "drift", "learning rate"
_KEYS = {OBJECTIVE: "objective", HELDOUT: "heldout_objective", DRIFT: "drift", RATE: "rate"}
_ERRORS = {OBJECTIVE: "reconstruction_error", HELDOUT: "heldout_reconstruction_error"}  # of RBMs
_BARS, _NO_BAR = "▁▂▃▄▅▆▇█", "×"
_SPARK_COLUMNS = 24
_MILLION = 1e6


def curves(lines: list[dict]) -> Series:
    """{name: [(million frames, value), ...]} of a training's curves; the rate is that of its intervals."""
    found: Series = {}
    for line in lines:
        for name, key in _KEYS.items():
            value = line.get(key, line.get(_ERRORS.get(name, "")))
            if isinstance(value, int | float) and (name == HELDOUT or "left_s" in line):
                found.setdefault(name, []).append((line["frames"] / _MILLION, value))
    return {name: found[name] for name in _KEYS if name in found}


def spark_lines(lines: list[dict]) -> list[str]:
    """A line for each curve: name, first value, bars, last value."""
    found = {name: [value for _, value in points] for name, points in curves(lines).items()}
    return [
        f"{name:18} {values[0]:>9.4g} {spark(values)} {values[-1]:.4g}"
        for name, values in found.items()
        if len(values) > 1
    ]


def spark(values: list[float], columns: int = _SPARK_COLUMNS) -> str:
    """A bar per value, or `columns` bars of means over parts, scaled from the smallest to the largest of
    them; a cross for a mean that is not finite, as after divergence."""
    columns = min(columns, len(values))
    bounds = [number * len(values) // columns for number in range(columns + 1)]
    means = [sum(values[begin:end]) / (end - begin) for begin, end in zip(bounds, bounds[1:])]
    finite = list(filter(math.isfinite, means)) or [0.0]
    return "".join(_bar(mean, min(finite), max(finite)) if math.isfinite(mean) else _NO_BAR for mean in means)


def _bar(value: float, least: float, greatest: float) -> str:
    return (
        _BARS[round((value - least) / (greatest - least) * (len(_BARS) - 1))]
        if greatest > least
        else _BARS[0]
    )


def picture(trainings: dict[str, list[dict]]) -> str:
    """An SVG with a plot for each kind of curve, one below the other. Each training is a line of its finite
    values; its name in the legend is marked if it also has values that are not finite."""
    found, plots = {name: curves(lines) for name, lines in trainings.items()}, []
    for kind in _KEYS:
        finite = {
            name: [point for point in of[kind] if math.isfinite(point[1])]
            for name, of in found.items()
            if kind in of
        }
        series = {
            name if len(points) == len(found[name][kind]) else f"{name} (diverged)": points
            for name, points in finite.items()
        }
        if any(series.values()):
            plots.append(line_plot(series, kind, "million frames", ""))
    return stacked(plots)
