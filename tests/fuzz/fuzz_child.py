"""Read damaged files in a separate process with limits on additional memory and on CPU seconds per file.

A file is read, or refused with one sentence that names it. All else is a finding: another exception, a crash,
a hang, memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pyasr.base.errors import UserError

MEMORY_BYTES = (
    256 << 20
)  # in addition to the memory of the process at its start; the damaged files are below 100 KB
CPU_S = 10
_SIGNALS = {
    signal.SIGPROF: f"more than {CPU_S} CPU seconds",
    signal.SIGSEGV: "a crash",
    signal.SIGABRT: "an abort",
    signal.SIGFPE: "a crash",
}


@dataclass
class Outcome:
    """Numbers of files that were read and refused, the messages, and findings: (number of the file,
    description)."""

    counts: Counter = field(default_factory=Counter)
    findings: list[tuple[int, str]] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)


def judge(read: Callable[[Path], object], path: Path, named: str) -> str:
    """'read', 'refused', or a description of a bad refusal: its sentence must contain `named`."""
    return ask(read, path, named)[0]


def ask(read: Callable[[Path], object], path: Path, named: str) -> tuple[str, str]:
    """Result of `judge`, and the sentence of the refusal."""
    try:
        read(path)
        return "read", ""
    except UserError as error:
        sentence = str(error)
        if not sentence.isprintable():
            return f"not one line of text: {sentence!r}", sentence
        return "refused" if named in sentence else f"does not name the file: {sentence!r}", sentence
    except MemoryError:
        return f"more than {MEMORY_BYTES >> 20} MB of memory: {_last_place()}", ""
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]!r}: {_last_place()}", ""


def _last_place() -> str:
    """Innermost lines of pyasr in the trace of the present exception."""
    lines = [line for line in traceback.format_exc().splitlines() if re.search(r"pyasr/", line)]
    return " < ".join(line.strip() for line in reversed(lines[-3:]))


def examine(read: Callable[[Path], object], path: Path, files: Iterable[bytes], named: str) -> Outcome:
    """Write each content to `path` and read it in child processes: one for all, replaced by a new one after
    each crash."""
    outcome, rest = Outcome(), list(enumerate(files))
    while rest:
        done, signal_number = _in_child(read, path, rest, named)
        for (number, _), (message, sentence) in zip(rest, done):
            outcome.sentences.append(sentence)
            outcome.counts[message if message in ("read", "refused") else "finding"] += 1
            if message not in ("read", "refused"):
                outcome.findings.append((number, message))
        if len(done) < len(rest):
            outcome.counts["finding"] += 1
            outcome.findings.append(
                (rest[len(done)][0], _SIGNALS.get(signal_number, f"ended by signal {signal_number}"))
            )
            outcome.sentences.append("")
            done.append(("died", ""))
        rest = rest[len(done) :]
    return outcome


def _in_child(
    read, path: Path, files: list[tuple[int, bytes]], named: str
) -> tuple[list[tuple[str, str]], int]:
    """(results of `ask` for each file up to a crash; signal of the crash)."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiving)
        with contextlib.suppress(BaseException):
            _tell_of_all(read, path, files, named, sending)
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, encoding="utf-8") as pipe:
        answer = [json.loads(line) for line in pipe if line.endswith("\n")]
    return answer, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) * -1


def _tell_of_all(read, path: Path, files: list[tuple[int, bytes]], named: str, sending: int) -> None:
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, even within compiled loops
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1), os.dup2(silence, 2)
    limit_memory(MEMORY_BYTES)
    for _, content in files:
        path.write_bytes(content)
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        answer = ask(read, path, named)
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(sending, (json.dumps(answer) + "\n").encode())


def limit_memory(num_bytes: int) -> None:
    """Allow this process `num_bytes` more than it uses now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + num_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
