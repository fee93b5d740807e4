"""The courses of trainings: objective, drift and learning rate over the frames seen, as lines of text or a picture.

A training is given by the lines of its metrics.jsonl (`pyasr.train.progress`), dictionaries.
"""

from __future__ import annotations

from pyasr.report.svg import Series, line_plot, stacked

OBJECTIVE, HELDOUT, DRIFT, RATE = "objective", "held-out objective", "drift", "learning rate"
_KEYS = {OBJECTIVE: "objective", HELDOUT: "heldout_objective", DRIFT: "drift", RATE: "rate"}
_ERRORS = {OBJECTIVE: "reconstruction_error", HELDOUT: "heldout_reconstruction_error"}  # of RBMs
_BARS = "▁▂▃▄▅▆▇█"
_SPARK_COLUMNS = 24
_MILLION = 1e6


def curves(lines: list[dict]) -> Series:
    """{name: [(million frames, value), ...]} of those that a training has; the rate is that of its intervals."""
    found: Series = {}
    for line in lines:
        for name, key in _KEYS.items():
            value = line.get(key, line.get(_ERRORS.get(name, "")))
            if isinstance(value, int | float) and (name == HELDOUT or "left_s" in line):
                found.setdefault(name, []).append((line["frames"] / _MILLION, value))
    return {name: found[name] for name in _KEYS if name in found}


def spark_lines(lines: list[dict]) -> list[str]:
    """A line for each curve: its name, first value, course, last value."""
    found = {name: [value for _, value in points] for name, points in curves(lines).items()}
    return [f"{name:18} {values[0]:>9.4g} {spark(values)} {values[-1]:.4g}" for name, values in found.items() if len(values) > 1]


def spark(values: list[float], columns: int = _SPARK_COLUMNS) -> str:
    """As many bars as there are values, or `columns`, each of the mean of its part, from the least to the greatest of these means."""
    columns = min(columns, len(values))
    bounds = [number * len(values) // columns for number in range(columns + 1)]
    means = [sum(values[begin:end]) / (end - begin) for begin, end in zip(bounds, bounds[1:])]
    least, span = min(means), max(means) - min(means)
    return "".join(_BARS[round((value - least) / span * (len(_BARS) - 1))] if span else _BARS[0] for value in means)


def picture(trainings: dict[str, list[dict]]) -> str:
    """SVG with a plot for each kind of curve, one below the other, in which each training, by its name, is a line."""
    found, plots = {name: curves(lines) for name, lines in trainings.items()}, []
    for kind in _KEYS:
        series = {name: of[kind] for name, of in found.items() if kind in of}
        if series:
            plots.append(line_plot(series, kind, "million frames", ""))
    return stacked(plots)
