"""Progress reports of a training job: log lines, metrics.jsonl, TensorBoard curves, and the time spent on
each activity."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pyasr.base import log
from pyasr.base.outputs.output import atomic_write
from pyasr.train.totals import Totals

if TYPE_CHECKING:
    from pyasr.parallel.strategies import Strategy

METRICS_FILE = "metrics.jsonl"
_MIN_S = 1e-6  # minimum duration of an interval: in virtual time it may be 0


class Clock:
    """Seconds by activity: `with clock("data"): ...`; `seconds` since the last `restart`. `time` returns the
    present time in seconds."""

    def __init__(self, time: Callable[[], float]):
        self.time = time
        self.restart()

    def restart(self) -> None:
        self.begin, self._open = self.time(), ""
        self.parts: dict[str, float] = {}

    def __call__(self, activity: str) -> Clock:
        self._open = activity
        return self

    def __enter__(self) -> None:
        self._since = self.time()

    def __exit__(self, *_) -> None:
        self.parts[self._open] = self.parts.get(self._open, 0.0) + self.time() - self._since

    @property
    def seconds(self) -> float:
        return self.time() - self.begin


class Reporter:
    """Log line and metrics of an interval, over all ranks; every rank must call `interval` at the same
    moments.

    directory     of metrics.jsonl and tensorboard/, written by rank 0
    strategy      source of the waiting and communication times
    total_frames  frames of all epochs, for the percentage and the time left
    totals        class of the sums: `Totals`, or another class with its methods
    alone         single-rank throughput in frames per second, the baseline of the speed-up; 0: unknown
    """

    def __init__(
        self,
        directory: Path,
        strategy: Strategy,
        total_frames: int,
        frames_seen: int,
        totals: type = Totals,
        alone: float = 0.0,
    ):
        self.comm, self.strategy, self.total_frames, self.totals, self.alone = (
            strategy.comm,
            strategy,
            total_frames,
            totals,
            alone,
        )
        self.path, self.clock = directory / METRICS_FILE, Clock(strategy.comm.time)
        self._begin, self._frames_at_begin, self._frames_reported = self.comm.time(), frames_seen, frames_seen
        self._mixing_times, self._drift = strategy.times.copy(), 0.0
        self._staleness = Counter(strategy.staleness)
        if self.comm.rank == 0:
            from pyasr.train.job.tensorboard import EventWriter  # imports torch

            _forget_after(frames_seen, self.path)
            self._events = EventWriter(directory / "tensorboard", frames_seen + 1)

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *_) -> None:
        if self.comm.rank == 0:
            self._events.close()

    def interval(self, epoch: int, frames_seen: int, sums: list[float], rate: float) -> Totals:
        """Report `sums`, this rank's (loss, correct, frames) since the last call. Returns their totals over
        ranks."""
        mixing_times = self.strategy.times - self._mixing_times
        drift = self.strategy.take_drift()
        seconds, parts = self.clock.seconds, [self.clock.parts.get("data", 0.0), *mixing_times]
        computing = np.zeros(self.comm.size)
        computing[self.comm.rank] = seconds - sum(parts)
        own = np.array([*sums, drift**2, seconds, *parts, *computing, *self._own_staleness()])
        self.comm.allreduce(own)
        self.clock.restart()
        self._mixing_times = self.strategy.times.copy()
        totals, self._drift = self.totals(own[:3]), float(np.sqrt(own[3] / self.comm.size))
        if self.comm.rank == 0:
            computing, staleness = np.split(own[8:], [self.comm.size])
            self._report(
                epoch,
                frames_seen,
                totals,
                rate,
                self._drift,
                own[4:8] / self.comm.size,
                computing,
                _mean_and_most(staleness),
            )
        return totals

    def _own_staleness(self) -> list[float]:
        """Staleness of this rank since the last call: number of mixed publications, sum of their absolute
        distances in moves, and the maximum distance in the place of this rank among all; [] if the strategy
        does not record it."""
        if self.strategy.staleness is None:
            return []
        new, self._staleness = self.strategy.staleness - self._staleness, Counter(self.strategy.staleness)
        most = np.zeros(self.comm.size)
        most[self.comm.rank] = max(map(abs, new), default=0)
        return [new.total(), sum(abs(moves) * number for moves, number in new.items()), *most]

    def log_own_rank(self, epoch: int, frames_seen: int, own: Totals, rate: float) -> None:
        """Log the statistics of this rank alone since its last log line."""
        log.info(
            f"epoch {epoch}  {frames_seen / 1e6:.2f} M frames ({frames_seen / self.total_frames:.0%})  "
            f"rank {self.comm.rank}: {own.text()}  lr {rate:.5g}"
        )

    def _report(
        self,
        epoch: int,
        frames_seen: int,
        totals: Totals,
        rate: float,
        drift: float,
        times: np.ndarray,
        computing: np.ndarray,
        staleness: dict[str, float],
    ) -> None:
        """Write log line and metrics.

        drift      root mean square over ranks of their relative distance from the mixture
        times      seconds of the interval, averaged over ranks: total, data, waiting, communication
        computing  seconds of computation of each rank
        staleness  of the mixed publications, by metric
        """
        seconds, *parts = times.tolist()
        seconds = max(seconds, _MIN_S)
        done = frames_seen - self._frames_at_begin
        left = (self.comm.time() - self._begin) * (self.total_frames - frames_seen) / max(done, 1)
        speed = round((frames_seen - self._frames_reported) / seconds)
        self._frames_reported = frames_seen
        shares = {
            name: round(part / seconds, 4) for name, part in zip(("data", "waiting", "communication"), parts)
        }
        apart = f"drift {drift:.2g}  " if self.comm.size > 1 else ""
        apart += (
            "stale by {staleness:.2g} moves, at most {most_stale}  ".format(**staleness) if staleness else ""
        )
        compared = self._compared(speed, computing)
        comparison = f"  {self._comparison(compared)}" if compared else ""
        log.info(
            f"epoch {epoch}  {frames_seen / 1e6:.2f} M frames ({frames_seen / self.total_frames:.0%})  "
            f"{totals.text()}  lr {rate:.5g}  {apart}{speed} frames/s  {minutes(left)} left  compute "
            f"{1 - sum(shares.values()):.0%} communication {shares['communication']:.0%} waiting "
            f"{shares['waiting']:.0%} data {shares['data']:.0%}{comparison}"
        )
        self._write(
            {
                "epoch": epoch,
                "frames": frames_seen,
                "total_frames": self.total_frames,
                "rate": rate,
                **totals.metrics(),
                "drift": round(drift, 6),
                "frames_per_s": speed,
                "left_s": round(left),
                **shares,
                **compared,
                **staleness,
            }
        )
        self._draw(frames_seen, "train", {**totals.metrics(), "rate": rate, "drift": drift})
        self._draw(frames_seen, "time", {"frames_per_s": speed, **shares})

    def _compared(self, speed: int, computing: np.ndarray) -> dict[str, float]:
        """Metrics of several ranks: speed-up over a single rank, the rank with the longest computation, and
        its excess over the median; {} for one rank."""
        if self.comm.size == 1:
            return {}
        slowest, median = int(computing.argmax()), max(float(np.median(computing)), _MIN_S)
        compared = {
            "slowest_rank": slowest,
            "slowest_excess": round(float(computing[slowest]) / median - 1, 4),
        }
        return {"speed_up": round(speed / self.alone, 3), **compared} if self.alone else compared

    def _comparison(self, compared: dict[str, float]) -> str:
        """The metrics of `_compared` as text for log lines."""
        speed_up = f"{compared['speed_up']:.2f} x one rank alone  " if "speed_up" in compared else ""
        return f"{speed_up}slowest rank {compared['slowest_rank']} ({compared['slowest_excess']:+.0%})"

    def epoch(
        self, epoch: int, frames_seen: int, rate: float, accepted: bool, train: Totals, heldout: Totals
    ) -> None:
        """Report an epoch: totals over ranks of its minibatches, and of the held-out set after it.

        The drift of the last interval is the distance of the ranks from the consensus that ended the epoch.
        """
        if self.comm.rank == 0:
            parts = {"train": train.metrics(), "heldout": heldout.metrics()}
            named = {
                f"{part}_{name}": value for part, metrics in parts.items() for name, value in metrics.items()
            }
            self._write(
                {
                    "epoch": epoch,
                    "frames": frames_seen,
                    "rate": rate,
                    "accepted": accepted,
                    "consensus_distance": round(self._drift, 6),
                    **named,
                }
            )
            self._draw(frames_seen, "epoch", named)

    def _write(self, line: dict) -> None:
        """Append a line to metrics.jsonl."""
        with self.path.open("a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")

    def _draw(self, frames_seen: int, group: str, values: dict[str, float]) -> None:
        """Add a point to TensorBoard's curves."""
        self._events.add(frames_seen, {f"{group}/{name}": value for name, value in values.items()})


def _mean_and_most(staleness: np.ndarray) -> dict[str, float]:
    """Mean and maximum staleness of all ranks, from the summed `_own_staleness`; {} if nothing was mixed."""
    if not staleness.size or not staleness[0]:
        return {}
    return {"staleness": round(float(staleness[1] / staleness[0]), 4), "most_stale": int(staleness[2:].max())}


def minutes(seconds: float) -> str:
    """`01:30` for 90 seconds."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def _forget_after(frames_seen: int, path: Path) -> None:
    """Drop the lines that an interrupted run wrote after its last checkpoint."""
    if path.exists():
        whole = [line for line in path.read_text(encoding="utf-8").splitlines(True) if line.endswith("\n")]
        with atomic_write(path) as f:
            f.writelines(line for line in whole if json.loads(line)["frames"] <= frames_seen)
