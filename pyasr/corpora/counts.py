"""What a prepared data directory holds, beside the counts that are published for the corpus."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.data.datadir import DataDir

_ROWS = ("recordings", "utterances", "speakers", "hours", "words", "longest")


@dataclass(frozen=True)
class Published:
    """Published numbers of one quantity; several where releases differ. `tolerance`: the greatest relative difference that is no deviation."""

    quantity: str
    values: tuple[float, ...]
    tolerance: float = 0.005

    def __post_init__(self):
        assert self.quantity in _ROWS, self.quantity

    def fits(self, found: float) -> bool:
        """Whether `found` equals one of the published numbers within the tolerance."""
        return any(abs(found - value) <= self.tolerance * value for value in self.values)


def measured(path: Path) -> dict[str, float]:
    """{quantity: number} of a data directory; `longest` is the longest utterance in seconds."""
    data = DataDir(path)
    seconds = data.audio_durations
    recordings = len(data.wav_scp) if data.has("wav.scp") else 0
    words = sum(len(text.split()) for text in data.text.values()) if data.has("text") else 0
    return {"recordings": recordings, "utterances": len(data.utterances), "speakers": len(set(data.utt2spk.values())),
            "hours": sum(seconds.values()) / 3600, "words": words, "longest": max(seconds.values(), default=0.0)}


def compare(path: Path, published: list[Published]) -> list[str]:
    """The lines of a table of what `path` holds and what is published; a deviation is marked by its percentage."""
    found, known = measured(path), {row.quantity: row for row in published}
    lines = [f"{path}: found, published"]
    for quantity in _ROWS:
        row = known.get(quantity)
        lines.append(f"  {quantity:<12}{_number(found[quantity]):>10}  {_published(row, found[quantity]) if row else ''}".rstrip())
    return lines


def log_table(path: Path, published: list[Published]) -> None:
    """Write `compare` to the log, and a warning that names the quantities that deviate."""
    found = measured(path)
    for line in compare(path, published):
        log.info(line)
    deviating = [row.quantity for row in published if not row.fits(found[row.quantity])]
    if deviating:
        log.warning(f"{path}: {', '.join(deviating)}: not as published; compare the lines on what was left out")


def _published(row: Published, found: float) -> str:
    numbers = " or ".join(map(_number, row.values))
    nearest = min(row.values, key=lambda value: abs(found - value))
    return numbers if row.fits(found) else f"{numbers}  ({100 * (found - nearest) / nearest:+.1f} %)"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
