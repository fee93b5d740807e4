#!/usr/bin/env python3
"""Inject faults at random moments into the toy recipe, run the same command again, and check that the results
are correct.

The seed of a trial determines one of five kinds of faults (`fault_kinds.py`) and a moment of the recipe. The
recipe is run from the stage of that moment (for a damaged file: from the first stage), disturbed, and run
again by the same command. A trial succeeds if

* the disturbed run ended with an exit status other than 0 and one report of the failure, or did not need the
  disturbed process or file;
* the second run succeeds, and all files except logs are bit-identical to those of an undisturbed run, with
  the same word error rates;
* no incomplete files and no processes are left.

A trial ends with the disturbed stage, because the same files lead to the same later results; --to-end true
runs the whole recipe.

RUN_DIR keeps the undisturbed run: use another directory after a change of the toolkit that changes results.
TABLE (JSON) grows by one row per trial; the next call continues with the next seeds. The counts in PAGE are
generated from TABLE.

Example:
    nice benchmarks/failures/faults.py --num-trials 50 /tmp/faults docs/running/reliability.json \\
        docs/running/reliability.md
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from fault_ground import NUM_STAGES, Ground, contents, end, half_written, wait_until, word_error_rates
from fault_kinds import KINDS, Undo, possible_kinds
from fault_page import Trial, problems_of_report, read_table, write_page, write_table

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.base.outputs.run_record import commit

_MAX_S, _GRACE_S = 1800.0, 15.0


@dataclass(frozen=True)
class Benchmark:
    run_dir: Path = argument("working directory")
    table: Path = argument("table of all trials so far (JSON)")
    page: Path = argument("page whose generated table is updated")
    num_trials: int = option(5, "number of trials to add", minimum=0)
    seeds: str = option("", "seeds of trials to repeat instead, such as 3,17")
    to_end: bool = option(
        False, "run trials to the end of the recipe instead of the end of the disturbed stage"
    )
    num_train: int = option(40, "number of training utterances of the recipe", minimum=40)


def cpu_of_children_s() -> float:
    """CPU seconds of all processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def undisturbed(ground: Ground, snapshots: Path, num_stages: int) -> list[float]:
    """CPU seconds of each stage of a run without faults. Directory N of `snapshots` keeps the state after N
    stages."""
    kept = snapshots / "seconds.json"
    if kept.exists():
        return json.loads(kept.read_text(encoding="utf-8"))
    snapshots.mkdir(parents=True, exist_ok=True)
    ground.lay_out(None)
    ground.take_snapshot(snapshots / "0")
    seconds = []
    for number in range(1, num_stages + 1):
        before = cpu_of_children_s()
        if ground.start("--stage", str(number), "--stop-stage", str(number)).wait():
            raise UserError(f"the recipe fails without any fault: see {ground.output}")
        seconds.append(round(cpu_of_children_s() - before, 2))
        log.info(f"stage {number} takes {seconds[-1]} CPU s")
        ground.take_snapshot(snapshots / str(number))
    kept.write_text(json.dumps(seconds), encoding="utf-8")
    return seconds


def moment(chance: random.Random, seconds: list[float]) -> tuple[int, float]:
    """(stage, CPU seconds after its beginning), uniform over the whole recipe, however busy the machine
    is."""
    left = chance.uniform(0, sum(seconds))
    for stage, length in enumerate(seconds, 1):
        if left < length:
            return stage, left
        left -= length
    return len(seconds), seconds[-1]


class Trials:
    """Trials on a ground, compared with an undisturbed run."""

    def __init__(self, ground: Ground, snapshots: Path, to_end: bool = False, num_stages: int = NUM_STAGES):
        self.ground, self.snapshots, self.to_end = ground, snapshots, to_end
        self.seconds = undisturbed(ground, snapshots, num_stages)

    def run(self, seed: int) -> Trial:
        """Run the trial of this seed."""
        chance, kinds, begin = random.Random(seed), possible_kinds(), time.monotonic()
        kind, run = kinds[seed % len(kinds)], None
        while run is None:
            stage, after_s = moment(chance, self.seconds)
            words, last = self._words(kind, stage)
            run = self._running_at(stage, after_s, words)
        what, undo = KINDS[kind](self.ground, run, chance)
        status, ended_s, problems = self._end_of_disturbed(run, undo)
        message = _last_sentence(self.ground.said())
        problems += self._problems_of_second_run(words, last)
        taken = round(time.monotonic() - begin, 1)
        return Trial(
            seed,
            kind,
            stage,
            round(after_s, 2),
            " ".join(words),
            what,
            status,
            ended_s,
            message,
            problems,
            taken,
            commit(),
        )

    def _words(self, kind: str, stage: int) -> tuple[list[str], int]:
        """(arguments of run.sh for a fault in this stage, the last stage that it runs)."""
        first = 1 if kind == "damaged file" else stage  # any stage may have written the file
        last = len(self.seconds) if self.to_end else stage
        return ["--stage", str(first), "--stop-stage", str(last)], last

    def _running_at(self, stage: int, after_s: float, words: list[str]) -> subprocess.Popen | None:
        """A run, `after_s` CPU seconds after the beginning of the stage; None if it ended earlier, faster
        than the undisturbed run."""
        self.ground.lay_out(self.snapshots / str(stage - 1))
        run = self.ground.start(*words)
        wait_until(lambda: run.poll() is not None or f"== stage {stage}:" in self.ground.said(), _MAX_S)
        begin_s = self.ground.cpu_s()
        wait_until(lambda: run.poll() is not None or self.ground.cpu_s() >= begin_s + after_s, _MAX_S)
        if run.poll():
            raise UserError(f"the recipe fails without any fault: see {self.ground.output}")
        return run if run.poll() is None else None

    def _end_of_disturbed(self, run: subprocess.Popen, undo: Undo) -> tuple[int, float, list[str]]:
        """(exit status of the disturbed run, seconds from the fault to its end, problems of its end)."""
        begin, problems = time.monotonic(), []
        if not wait_until(lambda: run.poll() is not None, _MAX_S):
            problems.append(f"the disturbed run did not end within {_MAX_S:.0f} s")
            run.terminate()
        status, ended_s = run.wait(), round(time.monotonic() - begin, 1)
        problems += self._left_running()
        undo()
        return status, ended_s, problems + problems_of_report(self.ground.said(), status)

    def _left_running(self) -> list[str]:
        """Kill processes that have outlived their run; a description of each."""
        wait_until(lambda: not self.ground.processes(), _GRACE_S)
        left = self.ground.processes()
        end(left)
        return [f"left running: {command}" for command in left.values()]

    def _problems_of_second_run(self, words: list[str], last: int) -> list[str]:
        """Differences between the state after the same command and that of the undisturbed run after stage
        `last`."""
        status = self.ground.start(*words).wait()
        if status:
            return [f"the second run ended with status {status}: {_last_sentence(self.ground.said())}"]
        here, wanted = self.ground.recipe, self.snapshots / str(last)
        found = ["other word error rates"] if word_error_rates(here) != word_error_rates(wanted) else []
        a, b = contents(here), contents(wanted)
        names = sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))
        found += [f"{len(names)} files differ: {', '.join(names[:5])}"] if names else []
        return found + [f"half-written: {name}" for name in half_written(here)] + self._left_running()


def _last_sentence(said: str) -> str:
    """The last sentence of a run's output."""
    message = [
        line
        for line in said.splitlines()
        if line.startswith("run.sh: ") and ("error" in line or "stopped" in line)
    ]
    return message[-1] if message else ""


def main(options: Benchmark) -> None:
    done = read_table(options.table)
    first = max(done, default=0) + 1
    seeds = (
        [int(seed) for seed in options.seeds.split(",")]
        if options.seeds
        else range(first, first + options.num_trials)
    )
    with Ground(options.run_dir, options.num_train) as ground:
        trials = Trials(ground, options.run_dir / "snapshots", options.to_end)
        for seed in seeds:
            done[seed] = trial = trials.run(seed)
            write_table(options.table, done)
            where = f"stage {trial.stage} + {trial.after_s} CPU s"
            log.info(
                f"{seed}: {where}: {trial.what}; status {trial.status}; "
                f"{'; '.join(trial.problems) or 'correct'}"
            )
    write_page(options.page, done)


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
