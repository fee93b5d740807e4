"""Compare a prepared data directory with the published counts of the corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.data.tables.datadir import DataDir

_LABELS = {"longest": "longest utterance, s"}  # quantities whose names do not include the unit


@dataclass(frozen=True)
class Published:
    """Published values of one quantity, several if releases differ; `tolerance`: maximum relative
    difference."""

    quantity: str
    values: tuple[float, ...]
    tolerance: float = 0.005

    def nearest(self, found: float) -> float:
        """The published number that is nearest to `found`."""
        return min(self.values, key=lambda value: abs(found - value))

    def fits(self, found: float) -> bool:
        """Whether `found` equals one of the published numbers within the tolerance."""
        nearest = self.nearest(found)
        return abs(found - nearest) <= self.tolerance * nearest


def measured(path: Path) -> dict[str, float]:
    """{quantity: number} of a data directory; `longest` is the longest utterance in seconds."""
    data = DataDir(path)
    seconds = data.audio_durations
    recordings = len(data.wav_scp) if data.has("wav.scp") else 0
    words = sum(len(text.split()) for text in data.text.values()) if data.has("text") else 0
    return {
        "recordings": recordings,
        "utterances": len(data.utterances),
        "speakers": len(set(data.utt2spk.values())),
        "hours": sum(seconds.values()) / 3600,
        "words": words,
        "longest": max(seconds.values(), default=0.0),
    }


def compare(path: Path, published: list[Published], more: Mapping[str, float] = {}) -> list[str]:
    """The lines of a table with the values of `path`, the published values and the deviations.

    more  {quantity: number} of quantities that are not in the directory's tables, such as calls
    Raises ValueError if a published quantity is neither measured nor in `more`.
    """
    found, known = {**measured(path), **more}, {row.quantity: row for row in published}
    if unknown := known.keys() - found.keys():
        raise ValueError(
            f"{', '.join(sorted(unknown))}: not a quantity of a data directory, and not in `more`"
        )
    return _aligned(
        [
            (str(path), "found", "published", ""),
            *(_row(name, number, known.get(name)) for name, number in found.items()),
        ]
    )


def log_table(path: Path, published: list[Published], more: Mapping[str, float] = {}) -> None:
    """Write `compare` to the log, and a warning that names the quantities that deviate."""
    for line in compare(path, published, more):
        log.info(line)
    found = {**measured(path), **more}
    deviating = [row.quantity for row in published if not row.fits(found[row.quantity])]
    if deviating:
        log.warning(
            f"{path}: {', '.join(deviating)}: not as published; check what was left out, and whether the "
            "corpus is complete"
        )


def _row(quantity: str, found: float, row: Published | None) -> tuple[str, str, str, str]:
    label = "  " + _LABELS.get(quantity, quantity)
    if row is None:
        return label, _number(found), "", ""
    nearest = row.nearest(found)
    deviation = "" if row.fits(found) else f"{100 * (found - nearest) / nearest:+.1f} %"
    return label, _number(found), " or ".join(map(_number, row.values)), deviation


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Lines with aligned columns: the first to the left, numbers to the right."""
    first, *widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            [row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], widths))]
        ).rstrip()
        for row in rows
    ]


def _number(value: float) -> str:
    """A number with commas between thousands and up to two decimal places."""
    text = f"{value:,.2f}"
    return text.rstrip("0").rstrip(".")
