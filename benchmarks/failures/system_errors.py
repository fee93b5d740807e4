#!/usr/bin/env python3
"""Make system calls of one step of each kind fail, one at a time, and check that the step ends with one
sentence.

In a trial, strace makes the N-th call of a name fail with an error (EIO, ENOSPC, EMFILE, ESTALE, EACCES,
EINTR, ...) in a step of the toy recipe, or in one of its jobs. Then the same command runs undisturbed. A
trial has no problem if

* the disturbed run printed no traceback, also in logs; if it failed, its exit status is 1 and it ended with
  one sentence;
* if it succeeded, its files are bit-identical to those of an undisturbed run;
* the files after the second run are bit-identical, too, and no incomplete files are left.

Works in RUN_DIR. Each trial adds a row to TABLE (JSON); another call runs the missing trials. --most N
selects N calls of each name and step, evenly spaced, and cycles through the errors; 0 selects every call with
every error. Calls on pipes and sockets do not fail.

Example:
    nice benchmarks/failures/system_errors.py --most 12 /tmp/errors docs/running/system_errors.json \\
        docs/running/reliability.md
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from error_ground import ROOT, Call, Ended, Ground, check_strace
from fault_ground import contents, half_written

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write

sys.path.append(str(Path(__file__).resolve().parents[1]))
from marked_page import replace_between  # noqa: E402

_PATH_ERRORS = ("EIO", "ENOSPC", "EMFILE", "ESTALE", "EACCES", "EINTR")
_START_ERRORS = ("EAGAIN", "ENOMEM", "EMFILE")
ERRORS = {
    **dict.fromkeys(
        ("openat", "rename", "mkdir", "unlink", "rmdir", "unlinkat", "newfstatat", "getdents64", "symlink"),
        _PATH_ERRORS,
    ),
    **dict.fromkeys(
        ("write", "fsync", "sendfile", "copy_file_range", "ftruncate"), ("EIO", "ENOSPC", "EINTR", "ESTALE")
    ),
    **dict.fromkeys(("read", "pread64", "lseek", "fstat", "close"), ("EIO", "ESTALE", "EINTR")),
    **dict.fromkeys(("clone", "clone3", "vfork", "fork"), _START_ERRORS),
    "pipe2": ("EMFILE", "ENFILE"),
    "flock": ("EINTR", "EIO", "ENOLCK"),
    "utimensat": ("EIO", "EACCES"),
    "fchmodat": ("EIO", "EACCES"),
}
_BEGIN = "<!-- figures, written by benchmarks/failures/system_errors.py -->"
_END = "<!-- end of figures of system errors -->"
_TRACES = (
    "Traceback (most recent call last)",
    "Exception ignored",
    "Logging error",
    "Fatal Python error",
    "Exception in thread",
)
_TOY = "egs/toy/s5"
_MFCC = f"steps/make_mfcc.py --config {ROOT / _TOY / 'conf/mfcc.conf'} --nj 1"
STEPS = {
    "make_corpus": f"{_TOY}/local/make_corpus.py --num-train 16 --num-test 4 --num-speakers 2 data",
    "prepare_lang": "utils/prepare_lang.py data/local/dict <unk> data/lang",
    "make_mfcc": f"{_MFCC} data/train",
    "compute_cmvn": "steps/compute_cmvn.py data/train",
    "copy_data_dir": "utils/copy_data_dir.py data/train data/copy",
    "fix_data_dir": "utils/fix_data_dir.py data/copy",
    "subset_data_dir": "utils/subset_data_dir.py --shortest 6 data/train data/subset",
    "make_mfcc_test": f"{_MFCC} data/test",
    "compute_cmvn_test": "steps/compute_cmvn.py data/test",
    "combine_data": "utils/combine_data.py data/both data/train data/test",
    "split_data_dir": "utils/split_data_dir.py data/train 2",
    "validate_data_dir": "utils/validate_data_dir.py --need-feats true data/train",
    "train_lm": "utils/train_lm.py data/train/text data/local/dict/lexicon.txt data/local/lm",
    "make_grammar": "utils/make_grammar.py data/lang data/local/lm/lm.arpa.gz data/lang_test",
    "train_mono": "steps/train_mono.py --nj 1 --num-iters 3 --num-gauss 60 data/train data/lang exp/mono",
    "align_si": "steps/align_si.py --nj 1 data/train data/lang exp/mono exp/mono_ali",
    "make_graph": "utils/make_graph.py data/lang_test exp/mono exp/mono/graph",
    "decode": "steps/decode.py --nj 1 exp/mono/graph data/test exp/mono/decode_test",
    "score": "steps/score.py --nj 1 data/test data/lang_test exp/mono/decode_test",
    "train_dnn": (
        "steps/train_dnn.py --num-ranks 1 --hidden-layers 1 --hidden-dim 32 --minibatch 64 --num-epochs 1 "
        "data/train data/lang exp/mono_ali exp/dnn"
    ),
    "collect_results": "utils/collect_results.py exp exp/RESULTS.md",
}


@dataclass(frozen=True)
class Benchmark:
    run_dir: Path = argument("working directory")
    table: Path = argument("table of all trials so far (JSON)")
    page: Path = argument("page whose generated table is updated")
    most: int = option(12, "number of calls per name and step; 0: all, with every error", minimum=0)
    steps: str = option("", "steps to test, separated by commas; empty: all")
    most_s: float = option(0.0, "seconds after which no further trial starts; 0: no limit", minimum=0.0)


@dataclass(frozen=True)
class Trial:
    """A system call that failed, and the result.

    step, call, number, error  the step, the name and number of the call, and its error
    status, `told`             the disturbed run's exit status and last line
    problems                   deviations from the conditions of the module
    """

    step: str
    call: str
    number: int
    error: str
    status: int
    message: str
    problems: list[str]

    @property
    def name(self) -> str:
        return f"{self.step} {self.call} {self.number} {self.error}"


class Sweep:
    """Steps that were run once without errors, in sequence, with copies of the directory after each."""

    def __init__(self, run_dir: Path, steps: dict[str, str]):
        check_strace()
        self.place, self.kept, self.steps = run_dir / "place", run_dir / "kept", steps
        for directory in (self.place, self.kept):
            directory.mkdir(parents=True, exist_ok=True)
        self.ground = Ground(self.place, run_dir)

    def prepare(self) -> None:
        """Run all steps, each twice to find the files that differ between runs."""
        previous = None
        for step in self.steps:
            if not (self.kept / step).exists():
                self.lay_out(previous)
                first = self._undisturbed(step)
                self.lay_out(previous)
                second = self._undisturbed(step)
                unlike = [
                    name for name in first.keys() | second.keys() if first.get(name) != second.get(name)
                ]
                (self.kept / f"{step}.unlike").write_text("\n".join(unlike), encoding="utf-8")
                shutil.copytree(self.place, self.kept / step, symlinks=True)
                log.info(
                    f"{step} has run"
                    + (f"; these files differ between runs: {' '.join(unlike)}" if unlike else "")
                )
            previous = step
        self.ground.warm()

    def lay_out(self, after: str | None) -> None:
        """Restore the directory to its state after this step."""
        shutil.rmtree(self.place)
        if after:
            shutil.copytree(self.kept / after, self.place, symlinks=True)
        else:
            self.place.mkdir()

    def calls(self, step: str) -> dict[str, list[int]]:
        """{name of a call: numbers of the calls that may fail in this step}."""
        self.lay_out(self._before(step))
        made = self.ground.run(
            self.steps[step].split(), ["-e", f"trace={','.join(f'?{name}' for name in ERRORS)}"]
        )
        if made.status:
            raise UserError(f"{step} fails without any error: {_last_line(made.said)}")
        found: dict[str, set[int]] = {}
        for call in made.calls:
            found.setdefault(call.name, set()).add(call.number)
        return {name: sorted(numbers) for name, numbers in sorted(found.items())}

    def run(self, step: str, call: Call, error: str) -> Trial:
        """One trial."""
        self.lay_out(self._before(step))
        tracing = ["-e", f"trace={call.name}", "-e", f"inject={call.name}:error={error}:when={call.number}"]
        disturbed = self.ground.run(self.steps[step].split(), tracing)
        problems = self._problems_of_end(disturbed, step, call.name)
        self.ground.said.unlink()
        again = self.ground.run(self.steps[step].split())
        if again.status:
            problems.append(f"the second run failed: {_last_line(again.said)}")
        elif self._differs(step):
            problems.append(f"other files after the second run: {self._differs(step)}")
        problems += [f"incomplete file left: {name}" for name in half_written(self.place)]
        message = _last_line(disturbed.said).replace(f"{ROOT}/", "").replace(f"{self.place}/", "")
        return Trial(step, call.name, call.number, error, disturbed.status, message, problems)

    def _before(self, step: str) -> str | None:
        names = list(self.steps)
        return names[names.index(step) - 1] if names.index(step) else None

    def _undisturbed(self, step: str) -> dict[str, str]:
        ended = self.ground.run(self.steps[step].split())
        if ended.status:
            raise UserError(f"{step} fails without any error: {_last_line(ended.said)}")
        return contents(self.place)

    def _differs(self, step: str) -> list[str]:
        """Files that differ from those of an undisturbed run."""
        unlike = set((self.kept / f"{step}.unlike").read_text(encoding="utf-8").splitlines())
        wanted, found = contents(self.kept / step), contents(self.place)
        return sorted(
            name
            for name in wanted.keys() | found.keys()
            if name not in unlike and wanted.get(name) != found.get(name)
        )

    def _problems_of_end(self, ended: Ended, step: str, call: str) -> list[str]:
        logs = (path.read_text(encoding="utf-8", errors="replace") for path in self.place.rglob("*.log"))
        shown = [mark for text in (ended.said, *logs) for mark in _TRACES if mark in text]
        problems = [f"{mark}: {_last_line(ended.said)}" for mark in dict.fromkeys(shown)]
        sentences = re.findall(r"(?m)^\S+: error: ", ended.said)
        if ended.status == 0 and self._differs(step):
            problems.append(f"exit status 0 and other files: {self._differs(step)}")
        if ended.status not in (0, 1) or len(sentences) != ended.status and call != "write":
            problems.append(f"exit status {ended.status} with {len(sentences)} sentences")
        return problems


def chosen(calls: dict[str, list[int]], most: int) -> Iterator[tuple[Call, str]]:
    """Calls and errors of a step: `most` calls of each name, evenly spaced, cycling through the errors; 0:
    all calls with every error."""
    for name, numbers in calls.items():
        if not most:
            yield from ((Call(name, number), error) for number in numbers for error in ERRORS[name])
            continue
        count = min(most, len(numbers))
        spread = [numbers[i * (len(numbers) - 1) // max(count - 1, 1)] for i in range(count)]
        yield from (
            (Call(name, number), ERRORS[name][i % len(ERRORS[name])]) for i, number in enumerate(spread)
        )


def read_table(path: Path) -> dict[str, Trial]:
    """Read {name: trial}; empty if there is no table yet."""
    if not path.exists():
        return {}
    return {(trial := Trial(**row)).name: trial for row in json.loads(path.read_text(encoding="utf-8"))}


def write_table(path: Path, trials: dict[str, Trial]) -> None:
    rows = ",\n".join(json.dumps(asdict(trial), ensure_ascii=False) for trial in trials.values())
    with atomic_write(path) as f:
        f.write(f"[\n{rows}\n]\n")


def figures(trials: dict[str, Trial]) -> str:
    """The results as a Markdown table."""
    lines = [
        (
            "| step | trials | failed with a sentence | succeeded | traceback | wrong output | incorrect "
            "after the same command |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for step in [*dict.fromkeys(trial.step for trial in trials.values()), "all"]:
        of_step = [trial for trial in trials.values() if step in (trial.step, "all")]
        problems = Counter(
            kind for trial in of_step for kind in {_kind(problem) for problem in trial.problems}
        )
        message = sum(trial.status != 0 for trial in of_step)
        ends = [
            len(of_step),
            message,
            len(of_step) - message,
            problems["traceback"],
            problems["output"],
            problems["again"],
        ]
        lines.append(f"| {step} | {' | '.join(map(str, ends))} |")
    return "\n".join(lines)


def _kind(problem: str) -> str:
    if problem.startswith(_TRACES) or problem.startswith("exit status") and "other files" not in problem:
        return "traceback"
    return "output" if problem.startswith("exit status 0") else "again"


def write_page(page: Path, trials: dict[str, Trial]) -> None:
    replace_between(page, _BEGIN, _END, figures(trials))


def _last_line(said: str) -> str:
    return (said.strip().splitlines() or [""])[-1][:300]


def main(options: Benchmark) -> None:
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    wanted = options.steps.split(",") if options.steps else list(STEPS)
    if unknown := [step for step in wanted if step not in STEPS]:
        raise UserError(f"--steps {unknown[0]}: no such step; choose from {','.join(STEPS)}")
    needed = list(STEPS)[: 1 + max(map(list(STEPS).index, wanted))]
    sweep = Sweep(options.run_dir.resolve(), {step: STEPS[step] for step in needed})
    trials = read_table(options.table)
    sweep.prepare()
    begin = time.monotonic()
    todo = [(step, call, error) for step in wanted for call, error in chosen(sweep.calls(step), options.most)]
    random.Random(0).shuffle(todo)  # so that all steps have trials when the time limit is reached
    for step, call, error in todo:
        if (
            f"{step} {call.name} {call.number} {error}" in trials
            or 0 < options.most_s < time.monotonic() - begin
        ):
            continue
        trial = sweep.run(step, call, error)
        trials[trial.name] = trial
        write_table(options.table, trials)
        log.info(
            f"{trial.name}: {trial.status} {trial.message}"
            + (f"; PROBLEMS: {'; '.join(trial.problems)}" if trial.problems else "")
        )
    write_page(options.page, trials)
    print(figures(trials))


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
