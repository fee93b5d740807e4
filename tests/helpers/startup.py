"""Modules that programs import; each program runs in a fork of a process that has already imported numpy."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HEAVY = (
    "torch",
    "numba",
    "llvmlite",
    "scipy",
    "sympy",
    "kaldifst",
    "sentencepiece",
    "mpi4py",
    "soundfile",
    "kaldiio",
)


@dataclass(frozen=True)
class Run:
    """Result of a program."""

    status: int
    modules: list[str]
    output: str
    errors: str

    @property
    def heavy(self) -> list[str]:
        """Libraries that take long to import."""
        return [name for name in HEAVY if name in self.modules]


def start_all(commands: list[list]) -> list[Run]:
    """Run programs, each a path and its arguments, in sequence; adjacent commands of one program share a
    process."""
    words = [[str(word) for word in command] for command in commands]
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, __file__, directory], input=json.dumps(words), text=True, check=True)
        return [
            Run(**json.loads((Path(directory) / str(number)).read_text(encoding="utf-8")))
            for number in range(len(words))
        ]


def _run(command: list[str], streams: list[Path]) -> dict:
    for number, path in enumerate(streams, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.argv, sys.path[0] = command, str(Path(command[0]).parent)
    status = 0
    try:
        runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    sys.stdout.flush()
    output, errors = (path.read_text(encoding="utf-8") for path in streams)
    return {"status": status, "modules": sorted(sys.modules), "output": output, "errors": errors}


def _main(directory: Path) -> None:
    for _, group in itertools.groupby(enumerate(json.load(sys.stdin)), lambda numbered: numbered[1][0]):
        if not (child := os.fork()):
            for number, command in group:
                found = _run(command, [directory / f"{number}.{name}" for name in ("out", "err")])
                (directory / str(number)).write_text(json.dumps(found), encoding="utf-8")
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    import runpy

    import numpy  # noqa: F401

    _main(Path(sys.argv[1]))
