#!/usr/bin/env python3
"""Show the state of the outputs of a recipe: finished, in progress and how far, or stopped.

The line of an unfinished output says whether it is in progress, was stopped by a signal, failed, or was
killed (which leaves no record), when it was last written, and the state of its jobs. A training adds a line
from metrics.jsonl: epochs, objective and time left. The program also plots the objective, drift and learning
rate of unfinished trainings, and of EXP if it is a training.

Reads   EXP/**/.done.json of finished outputs; .started.json, log/ and metrics.jsonl of unfinished ones
Writes  a line for each output to standard output, in the order of creation; with --svg a figure (SVG) with
        the curves of all trainings (an existing file that is not such a figure is replaced only with --force)

    utils/show_progress.py exp
    utils/show_progress.py --svg exp/dnn.svg exp/dnn
"""

import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import check_replaceable, run_step
from pyasr.base.errors import UserError
from pyasr.base.outputs.displaced_files import STARTED, is_scratch_or_kept
from pyasr.base.outputs.fingerprint import DONE, read_done
from pyasr.base.outputs.lock import is_held
from pyasr.base.outputs.output import atomic_write
from pyasr.base.outputs.run_times import Run, changed, last_change, last_run
from pyasr.cluster.runner.group_progress import lasting
from pyasr.cluster.runner.status import failures, read_status
from pyasr.report.curves import picture, spark_lines
from pyasr.report.svg import COLOURS
from pyasr.train.job.progress import METRICS_FILE
from pyasr.train.job.progress_bar import bar, last_interval, whole_lines

_MARK = r'<svg xmlns="[^"]*" viewBox="[^"]*">\n<svg y="0" '
_MAX_DRAWN = 2 * len(COLOURS)


@dataclass(frozen=True)
class ShowProgress:
    exp: Path = argument("experiment directory of a recipe, or one output")
    svg: Path | None = option(None, "SVG file to write: a figure with the curves of all trainings")


def done_line(out: Path) -> str:
    """Date and duration of a finished output; of a training also its last epoch."""
    done = read_done(out) or {}
    took = f", in {lasting(done['seconds'])}" if "seconds" in done else ""
    return (
        f"{out}: done "
        f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(changed(out / DONE)))}"
        f"{took}{last_epoch(out / METRICS_FILE)}"
    )


def last_epoch(metrics: Path) -> str:
    epochs = [line for line in lines_of(metrics) if "heldout_objective" in line] if metrics.exists() else []
    return (
        f", epoch {epochs[-1]['epoch']}: objective of held-out frames {epochs[-1]['heldout_objective']:.4f}"
        if epochs
        else ""
    )


def lines_of(metrics: Path) -> list[dict]:
    return whole_lines(metrics.read_text(encoding="utf-8", errors="replace"))


def lines_begun(scratch: Path) -> list[str]:
    """Lines on an output that was unfinished when the directory was searched."""
    try:
        return lines_under_way(scratch)
    except FileNotFoundError:
        out = scratch.with_suffix("")
        return [done_line(out)] if (out / DONE).exists() else []


def lines_under_way(scratch: Path) -> list[str]:
    """Lines on the state of OUT.tmp, of its jobs, and on the progress of a training."""
    is_in_progress, sentence = state_of(scratch, last_run(scratch))
    head = (
        f"{scratch.with_suffix('')}: begun "
        f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(changed(scratch / STARTED)))}"
    )
    metrics = sorted(scratch.rglob(METRICS_FILE), key=changed)
    interval = last_interval(metrics[-1]) if metrics else None
    if interval and not is_in_progress:
        del interval["left_s"]
    shown = [bar(interval, shutil.get_terminal_size().columns)] if interval else []
    return [
        f"{head}, {sentence}{jobs(scratch)}",
        *shown,
        *(spark_lines(lines_of(metrics[-1])) if metrics else []),
    ]


def state_of(scratch: Path, run: Run | None) -> tuple[bool, str]:
    """(whether OUT.tmp is in progress, as far as this machine can tell; a sentence on its state)."""
    written = f"last written to {ago(last_change(scratch))}"
    if run and run.end is not None:
        what, colon, why = (run.how or "stopped").partition(": ")
        return False, f"{what} {ago(run.end)}{colon}{why}"
    if is_held(scratch):
        return True, f"in progress, {written}"
    if run and run.host not in ("", socket.gethostname()):
        return True, f"in progress on {run.host} or killed there (not visible from this machine), {written}"
    return False, f"was killed without a record (kill -9, out of memory, or a crash), {written}"


def ago(moment: float) -> str:
    return f"{lasting(max(time.time() - moment, 0))} ago"


def jobs(scratch: Path) -> str:
    logs = [log for log in sorted((scratch / "log").glob("*.log")) if not is_kept(log)]
    statuses = [status for log in logs if (status := read_status(log))]
    num_stopped = sum(status.stopped for status in statuses)
    failed = [log for log, _ in failures(logs)]
    sentence = f"; {len(statuses) - num_stopped} of {len(logs)} started jobs have ended" if logs else ""
    sentence += f", {len(failed)} of them failed, see {failed[0]}" if failed else ""
    return sentence + (
        f", {num_stopped} {'was' if num_stopped == 1 else 'were'} stopped" if num_stopped else ""
    )


def is_kept(log: Path) -> bool:
    """Whether this is the log of an earlier attempt of a job: NAME.1.log next to NAME.log, or
    NAME.requeued-1.log."""
    name, _, number = log.name.removesuffix(".log").rpartition(".")
    return number.startswith("requeued-") or number.isdigit() and log.with_name(f"{name}.log").exists()


def outputs_of(exp: Path) -> tuple[list[Path], list[Path]]:
    """(finished outputs, OUT.tmp of unfinished outputs), in the order of creation; `exp` itself may be
    one."""
    own = Path(f"{exp}.tmp")
    if not exp.is_dir() and not own.is_dir():
        raise UserError(f"{exp}: no such directory; give the exp/ of a recipe")
    finished, begun = (sorted(exp.rglob(name), key=changed) for name in (DONE, STARTED))
    begun += [own / STARTED] if (own / STARTED).exists() else []
    finished = [path.parent for path in finished if not is_scratch_or_kept(path.parent.relative_to(exp))]
    return finished, [path.parent for path in begun if path.parent.suffix == ".tmp"]


def main(options: ShowProgress) -> None:
    finished, begun = outputs_of(options.exp)
    if not finished and not begun:
        raise UserError(f"{options.exp}: no finished or unfinished output; give the exp/ of a recipe")
    lines = [*map(done_line, finished), *(line for scratch in begun for line in lines_begun(scratch))]
    if options.exp in finished and (options.exp / METRICS_FILE).exists():
        lines += spark_lines(lines_of(options.exp / METRICS_FILE))
    for line in lines:
        print(line)
    if options.svg is not None:
        draw(options.svg, options.exp, [*finished, *begun])


def draw(path: Path, exp: Path, outputs: list[Path]) -> None:
    found = [out / METRICS_FILE for out in outputs if (out / METRICS_FILE).exists()]
    trainings = {
        str(metrics.parent.relative_to(exp.parent)).removesuffix(".tmp"): lines_of(metrics)
        for metrics in found
    }
    if not found:
        raise UserError(f"{exp}: no training to plot; give a directory that contains one")
    if len(found) > _MAX_DRAWN:
        raise UserError(
            f"{exp}: {len(found)} trainings, but a figure shows at most {_MAX_DRAWN}; give a directory "
            "with fewer trainings"
        )
    check_replaceable(path, _MARK, "figure drawn by this program")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as f:
        f.write(picture(trainings))


if __name__ == "__main__":
    run_step(
        ShowProgress, main, __doc__, force="replace an existing file that is not a figure of this program"
    )
