#!/usr/bin/env python3
"""A long training on streamed frames with a memory limit, which is killed and resumed: its memory, and the
time until it trains again.

Creates synthetic features in SCRATCH, 8-bit archives of 40 columns (4.3 GB for 300 hours), with alignments to
8806 pdfs; an existing corpus of the same size is used again. Trains a network on ranks with a memory limit of
--limit-gb each (RLIMIT_DATA, which the kernel enforces for every process of the step). Kills all processes
after --train-s seconds, and runs the same command again. Prints the peak memory of the ranks, and the seconds
from the second command to the first report of new minibatches (the goal is 60 on an idle machine), with the
CPU seconds of all processes until then.

Private memory is the quantity limited by RLIMIT_DATA (VmData). Resident memory also includes memory that
ranks share: libraries, and targets mapped from disk.

Example:
    benchmarks/long_training.py --hours 30 --train-s 120 /tmp/long
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.base.files.places import remove_tree
from pyasr.hmm.model.topology import NO_PDF, HmmState, Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import monophone_tree
from pyasr.io.ark import ArkWriter
from pyasr.io.int_vectors import write_int_vectors
from pyasr.io.kaldi_objects import KaldiWriter
from pyasr.io.text_tables import read_table, write_table

STEP = Path(__file__).resolve().parents[1] / "steps/train_dnn.py"
DIM, NUM_PDFS, STAY = 40, 8806, 8
NUM_DIFFERENT = 500  # utterances; all others repeat them
NUM_ARCHIVES, OF_SPEAKER = 32, 50
FRAMES_OF_HOUR = 360_000
MEMORY_FIELDS = ("VmHWM", "VmData")


@dataclass(frozen=True)
class Benchmark:
    scratch: Path = argument("directory for corpus and training; the corpus is kept")
    hours: float = option(300.0, "hours of speech in the corpus", minimum=0.1)
    num_ranks: int = option(2, "MPI ranks", minimum=1)
    limit_gb: float = option(3.0, "memory limit of a process in GB", minimum=0.5)
    train_s: int = option(600, "seconds until the training is killed", minimum=20)
    hidden_layers: int = option(4, "number of hidden layers of the network", minimum=1)
    hidden_dim: int = option(1024, "number of units per hidden layer", minimum=1)
    flags: str = option("", "further flags of steps/train_dnn.py, separated by spaces")


@dataclass
class Seen:
    """Observations of a run of the step, with times in seconds since its beginning.

    peaks    maximum bytes of any rank, by field of /proc/PID/status
    reports  (time at which a report of new minibatches was first seen, CPU seconds of all processes, frames
             processed)
    """

    peaks: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MEMORY_FIELDS, 0))
    reports: list[tuple[float, float, int]] = field(default_factory=list)


def make_corpus(path: Path, hours: float) -> None:
    """Create DATA, LANG and ALI_DIR in PATH; utterances of 200 to 630 frames."""
    rng = np.random.default_rng(1)
    for name in ("data", "ali", "lang"):
        (path / name).mkdir(parents=True)
    pdfs = [
        rng.integers(NUM_PDFS, size=length // STAY + 1).repeat(STAY)[:length]
        for length in rng.integers(200, 630, NUM_DIFFERENT)
    ]
    (path / "lang/phones.txt").write_text("<eps> 0\n", encoding="utf-8")
    tids = write_model(path / "ali")
    entries = compressed(path / "data", pdfs, rng)
    num = int(hours * FRAMES_OF_HOUR / np.mean([len(one) for one in pdfs]))
    names = [f"s{i // OF_SPEAKER:06d}-{i:08d}" for i in range(num)]
    parts = np.array_split(np.arange(num), NUM_ARCHIVES)
    table = dict(
        pair
        for job, part in enumerate(parts, 1)
        for pair in write_archive(path / f"data/raw.{job}.ark", names, part, entries)
    )
    for job, part in enumerate(parts, 1):
        write_int_vectors(path / f"ali/ali.{job}.gz", {names[i]: tids[pdfs[i % NUM_DIFFERENT]] for i in part})
    (path / "ali/num_jobs").write_text(f"{NUM_ARCHIVES}\n", encoding="utf-8")
    write_table(path / "data/feats.scp", table)
    write_table(path / "data/utt2spk", {name: name.partition("-")[0] for name in names})
    write_table(
        path / "data/utt2num_frames", {name: len(pdfs[i % NUM_DIFFERENT]) for i, name in enumerate(names)}
    )


def write_model(path: Path) -> np.ndarray:
    """Write a model of one-state phones, one per pdf; returns a transition-id of each pdf that leaves the
    phone."""
    phones = list(range(1, NUM_PDFS + 1))
    tree = monophone_tree([[phone] for phone in phones], dict.fromkeys(phones, 1))
    entry = (HmmState(0, ((0, 0.5), (1, 0.5))), HmmState(NO_PDF, ()))
    transitions = TransitionModel.from_tree(Topology([entry], dict.fromkeys(phones, 0)), tree)
    with KaldiWriter(path / "final.mdl") as writer:
        transitions.write(writer)
    tree.write(path / "tree")
    tids = np.zeros(NUM_PDFS, np.int32)
    tids[transitions.tid2pdf[1:]] = np.arange(1, len(transitions.tid2pdf))  # the last one of each stays
    return tids


def compressed(path: Path, pdfs: list[np.ndarray], rng: np.random.Generator) -> list[bytes]:
    """Features of utterances with these pdfs in archive format: a point per pdf, plus noise."""
    points = rng.standard_normal((NUM_PDFS, DIM)).astype(np.float32)
    with ArkWriter(path / "different.ark", path / "different.scp", compress=True) as writer:
        for number, one in enumerate(pdfs):
            writer.write(
                f"{number:04d}", points[one] + rng.standard_normal((len(one), DIM)).astype(np.float32)
            )
    begins = [int(place.rpartition(":")[2]) for place in read_table(path / "different.scp").values()]
    content = (path / "different.ark").read_bytes()
    ends = [*(begin - len("0000 ") for begin in begins[1:]), len(content)]
    return [content[begin:end] for begin, end in zip(begins, ends)]


def write_archive(
    path: Path, names: list[str], members: np.ndarray, entries: list[bytes]
) -> Iterator[tuple[str, str]]:
    """Write the utterances `members`; yields (utterance, offset) of each."""
    with open(path, "wb") as file:
        for i in members.tolist():
            file.write(f"{names[i]} ".encode())
            place = file.tell()
            file.write(entries[i % len(entries)])
            yield names[i], f"{path}:{place}"


def command(options: Benchmark, corpus: Path, out: Path) -> list[str]:
    """Command of the step. It reports at every mixing and saves a checkpoint before it is killed. Few frames
    are held out, because 3 % of 300 hours would take minutes before the first minibatch."""
    flags = {
        "num-ranks": options.num_ranks,
        "device": "cpu",
        "cmvn": "none",
        "hidden-layers": options.hidden_layers,
        "hidden-dim": options.hidden_dim,
        "heldout-share": 0.002,
        "learning-rate": 0.01,
        "period-frames": 2048,
        "log-frames": 1,
        "checkpoint-minutes": options.train_s / 60 / 6,
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    inputs = [str(corpus / name) for name in ("data", "lang", "ali")]
    return [sys.executable, str(STEP), *words, *options.flags.split(), *inputs, str(out)]


def run(options: Benchmark, words: list[str], out: Path, seconds: float, reports: int) -> Seen:
    """Run the command for at least `seconds` and `reports` reports, then kill all of its processes.

    Raises UserError if the step ends earlier.
    """
    most, seen, begin = int(options.limit_gb * 1e9), Seen(), time.monotonic()
    before = frames_reported(out)
    with open(options.scratch / "step.log", "ab") as log:
        step = subprocess.Popen(
            words,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (most, most)),
        )
    try:
        while time.monotonic() - begin < seconds or len(seen.reports) < reports:
            time.sleep(0.2)
            if step.poll() is not None:
                raise UserError(
                    f"{words[1]} ended with status {step.returncode} after {time.monotonic() - begin:.0f} s; "
                    f"see {options.scratch}/step.log"
                )
            look(step.pid, out, before, time.monotonic() - begin, seen)
    finally:
        for pid in reversed(family(step.pid)):
            end(pid)
        step.wait()
    return seen


def look(pid: int, out: Path, before: int, now: float, seen: Seen) -> None:
    """Add the current memory and reports to `seen`."""
    processes = family(pid)
    for one in processes:
        if b"pyasr.parallel.ranks.rank" in read(Path(f"/proc/{one}/cmdline")) and b"mpiexec" not in read(
            Path(f"/proc/{one}/cmdline")
        ):
            lines = dict(
                line.split(":", 1) for line in read(Path(f"/proc/{one}/status")).decode().splitlines()
            )
            seen.peaks = {
                name: max(seen.peaks[name], 1024 * int(lines.get(name, "0").split()[0]))
                for name in MEMORY_FIELDS
            }
    frames = frames_reported(out)
    if frames > (seen.reports[-1][2] if seen.reports else resumed_at(out, before)):
        seen.reports.append((now, sum(map(cpu_seconds, processes)), frames))


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and of the children that it has waited for."""
    fields = read(Path(f"/proc/{pid}/stat")).rpartition(b") ")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def frames_reported(out: Path) -> int:
    """Frames processed according to the last complete line of the metrics."""
    lines = read(out / "metrics.jsonl").split(b"\n")[:-1]
    return int(json.loads(lines[-1])["frames"]) if lines else 0


def resumed_at(out: Path, before: int) -> int:
    """Frames seen by the checkpoint from which the training resumes; `before` until the log names it."""
    message = read(out / "log/train.log").decode().rpartition("resuming at ")[2].split()
    return int(message[0]) if before and message and message[0].isdecimal() else before


def read(path: Path) -> bytes:
    """The content of a file; empty if it does not exist, or if it belongs to a process that has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def family(pid: int) -> list[int]:
    """A process and all of its descendants."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            found += map(int, read(task).split())
    return found


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended with another


def main(options: Benchmark) -> None:
    corpus, out = options.scratch / f"{options.hours:g}h", options.scratch / "dnn"
    scratch = out.with_name(f"{out.name}.tmp")
    if not (corpus / "data/utt2num_frames").exists():
        make_corpus(corpus, options.hours)
    if scratch.exists():
        remove_tree(scratch)
    words = command(options, corpus, out)
    for name, seconds, reports, limit in (
        ("trained, then killed", options.train_s, 5, ""),
        ("resumed", 0, 1, "60 s"),
    ):
        seen = run(options, words, scratch, seconds, reports)
        first, cpu, _ = seen.reports[0]
        peaks = "".join(f"{peak / 1e9:>8.2f} GB" for peak in seen.peaks.values())
        print(
            f"{name:<22}{first:>7.1f} s ({cpu:.0f} CPU s) to the first report (goal: {limit or 'none'}), "
            f"{seen.reports[-1][2]} frames, peaks of a rank: resident, private{peaks} of "
            f"{options.limit_gb:g}",
            flush=True,
        )


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
