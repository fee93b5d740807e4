#!/usr/bin/env python3
"""CPU seconds of programs for --help, or to find their output up to date, and of jobs until their work
begins, compared with a plain `import numpy`.

Runs `--help` of all programs in steps/ and utils/, and the imports of the jobs of steps. With --recipe, also
runs each command in the done-files below the recipe's exp/ and data/; outputs must be up to date, because
others would be computed again. Each is run --num-runs times; the minimum counts.

Example:
    benchmarks/startup.py --recipe egs/toy/s5
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.base.outputs.fingerprint import DONE

ROOT = Path(__file__).resolve().parents[1]
PEER = [sys.executable, "-c", "import numpy"]
IMPORT_OF_JOB = "import sys; from pyasr.base.jobs import job; job.resolve(sys.argv[1])"
FOLDERS = ("exp", "data")


@dataclass(frozen=True)
class Benchmark:
    recipe: Path | None = option(None, "directory of a finished recipe; none: measure only --help and jobs")
    num_runs: int = option(3, "runs per program", minimum=1)
    shown: int = option(10, "number of slowest programs to list", minimum=1)


def cpu_seconds(command: list[str], directory: Path | None, wanted: str = "") -> float:
    """CPU seconds of one run. Raises UserError if it fails, or does not print `wanted`."""
    process = subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or wanted not in output:
        raise UserError(f"{shlex.join(command)}: expected '{wanted}', it printed: {output.strip()[-300:]}")
    return usage.ru_utime + usage.ru_stime


def programs() -> list[list[str]]:
    """Commands for `--help` of all steps and utils."""
    paths = [path for folder in ("steps", "utils") for path in sorted((ROOT / folder).glob("*.py"))]
    return [[sys.executable, str(path), "--help"] for path in paths]


def jobs() -> list[list[str]]:
    """Commands that import each function that steps run as jobs."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "steps").glob("*.py")]
    named = {name for source in sources for name in re.findall(r'"(pyasr\.[\w.]+:\w+)"', source)}
    return [[sys.executable, "-c", IMPORT_OF_JOB, name] for name in sorted(named)]


def commands_of(recipe: Path) -> list[list[str]]:
    """The commands of all outputs of a recipe, without duplicates."""
    done = [path for folder in FOLDERS for path in sorted((recipe / folder).rglob(DONE))]
    found = {json.loads(path.read_text(encoding="utf-8"))["command"] for path in done}
    if not found:
        raise UserError(f"{recipe}: no output of a step below {' and '.join(FOLDERS)}; run the recipe first")
    words = [shlex.split(command) for command in sorted(found)]
    return [
        [sys.executable, str(program_of(name)), *arguments] for name, *arguments in words if program_of(name)
    ]


def program_of(name: str) -> Path | None:
    """The step or utility of this name; None for a program of the recipe."""
    return next(
        (path for folder in ("steps", "utils") if (path := ROOT / folder / Path(name).name).exists()), None
    )


def tell(
    what: str,
    commands: list[list[str]],
    peer: float,
    options: Benchmark,
    directory: Path | None = None,
    wanted: str = "",
) -> None:
    runs = {
        shlex.join(command[1:]): min(cpu_seconds(command, directory, wanted) for _ in range(options.num_runs))
        for command in commands
    }
    slowest = sorted(runs.items(), key=lambda item: -item[1])
    mean = sum(runs.values()) / len(runs)
    print(
        f"{what}: {len(runs)} commands, {mean:.2f} CPU s on average ({mean / peer:.1f} times numpy alone), "
        f"at most {slowest[0][1]:.2f}"
    )
    for command, seconds in slowest[: options.shown]:
        print(f"  {seconds:.2f} s  {seconds / peer:4.1f}x  {command.removeprefix(f'{ROOT}/')[:140]}")


def main(options: Benchmark) -> None:
    commands = commands_of(options.recipe) if options.recipe else []
    peer = min(cpu_seconds(PEER, None) for _ in range(options.num_runs))
    print(f"import numpy: {peer:.2f} CPU s")
    tell("--help", programs(), peer, options)
    tell("jobs until their work begins", jobs(), peer, options)
    if commands:
        tell("up to date", commands, peer, options, options.recipe, "up to date")


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
