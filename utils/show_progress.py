#!/usr/bin/env python3
"""Show what of a recipe's outputs is done, what is being made, and how far that is.

An output that is not complete has a line on what became of its making: it goes on, was stopped by a signal, has failed, or was killed,
which leaves no record. The line says when something was last written and what became of the jobs. A training has a line with the epochs,
objective and time left of metrics.jsonl. Of such a training, and of EXP where that is one, the courses of objective, drift and learning
rate are drawn.

Reads   EXP/**/.done.json of outputs, .started.json, log/ and metrics.jsonl of those that are being made
Writes  a line for each output to standard output, in the order in which they were made; with --svg a picture (SVG) of the courses of all
        trainings; a file that is none is replaced with --force alone

    utils/show_progress.py exp
    utils/show_progress.py --svg exp/dnn.svg exp/dnn
"""

import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.aside import STARTED, is_aside
from pyasr.base.errors import UserError
from pyasr.base.fingerprint import DONE, read_done
from pyasr.base.options import argument, option
from pyasr.base.output import atomic_write
from pyasr.base.run_times import Run, changed, is_held, last_change, last_run
from pyasr.base.step import check_replaceable, run_step
from pyasr.cluster.group_progress import lasting
from pyasr.cluster.status import failures, read_status
from pyasr.report.curves import picture, spark_lines
from pyasr.report.svg import COLOURS
from pyasr.train.progress import METRICS_FILE
from pyasr.train.progress_bar import bar, last_interval, whole_lines

_MARK = r'<svg xmlns="[^"]*" viewBox="[^"]*">\n<svg y="0" '
_MOST_DRAWN = 2 * len(COLOURS)


@dataclass(frozen=True)
class ShowProgress:
    exp: Path = argument("directory below which a recipe makes its outputs, or one of them")
    svg: Path | None = option(None, "SVG file for a picture of the courses of all trainings")


def done_line(out: Path) -> str:
    """When it was made and how long that took; of a training what its last epoch came to."""
    done = read_done(out) or {}
    took = f", in {lasting(done['seconds'])}" if "seconds" in done else ""
    return f"{out}: done {time.strftime('%Y-%m-%d %H:%M', time.localtime(changed(out / DONE)))}{took}{last_epoch(out / METRICS_FILE)}"


def last_epoch(metrics: Path) -> str:
    epochs = [line for line in lines_of(metrics) if "heldout_objective" in line] if metrics.exists() else []
    return f", epoch {epochs[-1]['epoch']}: objective of held-out frames {epochs[-1]['heldout_objective']:.4f}" if epochs else ""


def lines_of(metrics: Path) -> list[dict]:
    return whole_lines(metrics.read_text(encoding="utf-8", errors="replace"))


def lines_begun(scratch: Path) -> list[str]:
    """Of an output that was being made when the directory was searched."""
    try:
        return lines_under_way(scratch)
    except FileNotFoundError:
        out = scratch.with_suffix("")
        return [done_line(out)] if (out / DONE).exists() else []


def lines_under_way(scratch: Path) -> list[str]:
    """What became of the making of OUT.tmp, of its jobs, and how far training is."""
    goes_on, told = how_it_stands(scratch, last_run(scratch))
    head = f"{scratch.with_suffix('')}: begun {time.strftime('%Y-%m-%d %H:%M', time.localtime(changed(scratch / STARTED)))}"
    metrics = sorted(scratch.rglob(METRICS_FILE), key=changed)
    interval = last_interval(metrics[-1]) if metrics else None
    if interval and not goes_on:
        del interval["left_s"]
    shown = [bar(interval, shutil.get_terminal_size().columns)] if interval else []
    return [f"{head}, {told}{jobs(scratch)}", *shown, *(spark_lines(lines_of(metrics[-1])) if metrics else [])]


def how_it_stands(scratch: Path, run: Run | None) -> tuple[bool, str]:
    """(whether the making of OUT.tmp goes on, as far as can be seen from here; a sentence on it)."""
    written = f"last written to {ago(last_change(scratch))}"
    if run and run.end is not None:
        what, colon, why = (run.how or "stopped").partition(": ")
        return False, f"{what} {ago(run.end)}{colon}{why}"
    if is_held(scratch):
        return True, f"being made, {written}"
    if run and run.host not in ("", socket.gethostname()):
        return True, f"being made on {run.host}, or was killed there, which cannot be seen from here, {written}"
    return False, f"was killed without a record (kill -9, want of memory, or a crash), {written}"


def ago(moment: float) -> str:
    return f"{lasting(max(time.time() - moment, 0))} ago"


def jobs(scratch: Path) -> str:
    logs = [log for log in sorted((scratch / "log").glob("*.log")) if not is_kept(log)]
    statuses = [status for log in logs if (status := read_status(log))]
    num_stopped = sum(status.stopped for status in statuses)
    failed = [log for log, _ in failures(logs)]
    told = f"; of {len(logs)} jobs that have begun {len(statuses) - num_stopped} have ended" if logs else ""
    told += f", {len(failed)} of them failed, see {failed[0]}" if failed else ""
    return told + (f", {num_stopped} {'was' if num_stopped == 1 else 'were'} stopped" if num_stopped else "")


def is_kept(log: Path) -> bool:
    """Whether it is what a job had printed until it was begun again: NAME.1.log beside NAME.log, NAME.requeued-1.log."""
    name, _, number = log.name.removesuffix(".log").rpartition(".")
    return number.startswith("requeued-") or number.isdigit() and log.with_name(f"{name}.log").exists()


def outputs_of(exp: Path) -> tuple[list[Path], list[Path]]:
    """(those that are finished, the OUT.tmp of those that are not), in the order in which they were made; `exp` itself may be one."""
    own = Path(f"{exp}.tmp")
    if not exp.is_dir() and not own.is_dir():
        raise UserError(f"{exp}: no such directory; give the exp/ of a recipe")
    finished, begun = (sorted(exp.rglob(name), key=changed) for name in (DONE, STARTED))
    begun += [own / STARTED] if (own / STARTED).exists() else []
    finished = [path.parent for path in finished if not is_aside(path.parent.relative_to(exp))]
    return finished, [path.parent for path in begun if path.parent.suffix == ".tmp"]


def main(options: ShowProgress) -> None:
    finished, begun = outputs_of(options.exp)
    if not finished and not begun:
        raise UserError(f"{options.exp}: no step has made anything here, nor begun to; give the exp/ of a recipe")
    lines = [*map(done_line, finished), *(line for scratch in begun for line in lines_begun(scratch))]
    if options.exp in finished and (options.exp / METRICS_FILE).exists():
        lines += spark_lines(lines_of(options.exp / METRICS_FILE))
    for line in lines:
        print(line)
    if options.svg is not None:
        draw(options.svg, options.exp, [*finished, *begun])


def draw(path: Path, exp: Path, outputs: list[Path]) -> None:
    found = [out / METRICS_FILE for out in outputs if (out / METRICS_FILE).exists()]
    trainings = {str(metrics.parent.relative_to(exp.parent)).removesuffix(".tmp"): lines_of(metrics) for metrics in found}
    if not found:
        raise UserError(f"{exp}: no training is here to be drawn; give a directory that has one")
    if len(found) > _MOST_DRAWN:
        raise UserError(f"{exp}: {len(found)} trainings, more than the {_MOST_DRAWN} that a picture tells apart; give a directory of fewer")
    check_replaceable(path, _MARK, "picture that this program has drawn")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as f:
        f.write(picture(trainings))


if __name__ == "__main__":
    run_step(ShowProgress, main, __doc__, force="replace a file that is no picture of this program")
