"""Progress of a job with ranks: a file written by rank 0 and read by the waiting step.

in the step    environment[VARIABLE] = str(path)
in the rank    course = Course("iteration", 40); course.tell(3, objective=-61.2, frames=120000)
in the step    note = read_note(path)
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import read_object
from pyasr.base.outputs.output import atomic_write

VARIABLE = "PYASR_PROGRESS_FILE"


@dataclass(frozen=True)
class Note:
    """what: `iteration 12 of 40`; share: of the whole, 0 to 1; objective: per frame; left_s: estimated."""

    what: str
    share: float
    objective: float
    frames_per_s: float
    left_s: float

    def text(self) -> str:
        """The note as a line, without the time left."""
        return (
            f"{self.what} ({self.share:.0%}), objective {self.objective:.4f}, {self.frames_per_s:.0f} "
            "frames/s"
        )


class Course:
    """`total` passes over the frames, each called a `unit`. Only rank 0 reports."""

    def __init__(self, unit: str, total: int):
        self.unit, self.total, self._begin, self._num_reports = unit, total, time.monotonic(), 0

    def tell(self, done: int, objective: float, frames: float) -> None:
        """Report that `done` passes are finished, the last over `frames` frames with this objective."""
        self._num_reports += 1
        each_s = (time.monotonic() - self._begin) / self._num_reports
        note = Note(
            f"{self.unit} {done} of {self.total}",
            done / self.total,
            objective,
            frames / max(each_s, 1e-6),
            each_s * (self.total - done),
        )
        _write(note)


def _write(note: Note) -> None:
    """Write the note to the file named by the step. Errors are ignored: they do not affect the job."""
    path = os.environ.get(VARIABLE)
    if path:
        with contextlib.suppress(OSError, UserError), atomic_write(Path(path)) as f:
            json.dump(asdict(note), f)


def read_note(path: Path) -> Note | None:
    """The latest note; None if there is none."""
    try:
        return Note(**read_object(path))
    except (OSError, ValueError, TypeError):
        return None
