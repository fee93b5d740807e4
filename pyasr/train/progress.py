"""What a training job tells about itself: log lines, metrics.jsonl, and where its time goes."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.parallel.comm import Comm


@dataclass
class Totals:
    """Sums over frames: loss (nats), correct frames, frames."""

    sums: np.ndarray = field(default_factory=lambda: np.zeros(3))

    @property
    def objective(self) -> float:
        """Mean log probability of the targets (nats a frame)."""
        return float(-self.sums[0] / max(self.sums[2], 1.0))

    @property
    def accuracy(self) -> float:
        """Share of frames whose target is the most probable pdf."""
        return float(self.sums[1] / max(self.sums[2], 1.0))

    def text(self) -> str:
        """For log lines."""
        return f"objective {self.objective:.4f}  accuracy {self.accuracy:.2%}"

    def metrics(self) -> dict[str, float]:
        """For metrics.jsonl."""
        return {"objective": round(self.objective, 6), "accuracy": round(self.accuracy, 6)}


class Clock:
    """Wall-clock seconds by activity: `with clock("data"): ...`; `seconds` since the last `restart`."""

    def __init__(self):
        self.restart()

    def restart(self) -> None:
        self.begin, self.parts, self._open = time.perf_counter(), {}, None

    def __call__(self, activity: str) -> Clock:
        self._open = activity
        return self

    def __enter__(self) -> None:
        self._since = time.perf_counter()

    def __exit__(self, *_) -> None:
        self.parts[self._open] = self.parts.get(self._open, 0.0) + time.perf_counter() - self._since

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begin


class Reporter:
    """Log line and metrics of an interval, over all ranks; every rank must call `interval` at the same moments.

    path          metrics.jsonl, written by rank 0
    total_frames  frames of all epochs, for the percentage and the time left
    totals        what sums mean: `Totals`, or another class with its methods
    """

    def __init__(self, path: Path, comm: Comm, total_frames: int, frames_seen: int, totals: type = Totals):
        self.path, self.comm, self.total_frames, self.totals = path, comm, total_frames, totals
        self.clock = Clock()
        self._begin, self._frames_at_begin = time.perf_counter(), frames_seen
        if comm.rank == 0:
            self._forget_after(frames_seen)

    def _forget_after(self, frames_seen: int) -> None:
        """Drop what an interrupted run wrote after its last checkpoint."""
        if self.path.exists():
            whole = [line for line in self.path.read_text(encoding="utf-8").splitlines(True) if line.endswith("\n")]
            self.path.write_text("".join(line for line in whole if json.loads(line)["frames"] <= frames_seen), encoding="utf-8")

    def interval(self, epoch: int, frames_seen: int, sums: list[float], rate: float) -> Totals:
        """Report `sums`, this rank's (loss, correct, frames) since the last call. Returns their totals over ranks."""
        parts = self.clock.parts
        own = np.array([*sums, self.clock.seconds, parts.get("data", 0.0), parts.get("communication", 0.0)])
        self.comm.allreduce(own)
        self.clock.restart()
        totals = self.totals(own[:3])
        if self.comm.rank == 0:
            self._tell(epoch, frames_seen, totals, rate, own[3:] / self.comm.size)
        return totals

    def _tell(self, epoch: int, frames_seen: int, totals: Totals, rate: float, times: np.ndarray) -> None:
        """Log line and metrics; `times` are seconds of the interval: whole, data, communication, the mean of all ranks."""
        seconds, data, communication = times
        done = frames_seen - self._frames_at_begin
        left = (time.perf_counter() - self._begin) * (self.total_frames - frames_seen) / max(done, 1)
        line = {
            "epoch": epoch, "frames": frames_seen, "rate": rate,
            **totals.metrics(),
            "frames_per_s": round(totals.sums[2] / seconds),
            "data": round(data / seconds, 4), "communication": round(communication / seconds, 4),
        }  # fmt: skip
        compute = 1 - line["data"] - line["communication"]
        log.info(
            f"epoch {epoch}  {frames_seen / 1e6:.2f} M frames ({frames_seen / self.total_frames:.0%})  "
            f"{totals.text()}  lr {rate:.5g}  "
            f"{line['frames_per_s']} frames/s  {int(left) // 60:02d}:{int(left) % 60:02d} left  "
            f"compute {compute:.0%} communication {line['communication']:.0%} data {line['data']:.0%}"
        )
        self.write(line)

    def write(self, line: dict) -> None:
        """One more line of metrics.jsonl (rank 0)."""
        if self.comm.rank == 0:
            with self.path.open("a", encoding="utf-8") as f:
                f.write(json.dumps(line) + "\n")
