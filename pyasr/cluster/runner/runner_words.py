"""The words of --cmd: a runner (one of utils/ or one on PATH) and its options. They are checked first."""

from __future__ import annotations

import difflib
import shutil
import sys
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.cluster.runner.command_line import check_options
from pyasr.cluster.runner.mpi import ROOT
from pyasr.cluster.runner.runner_config import split_words

_FIRST = ("run.pl", "slurm.pl", "queue.pl")  # in messages; others follow
_SUBMITTING = {
    "sbatch": "slurm.pl",
    "srun": "slurm.pl",
    "salloc": "slurm.pl",
    "qsub": "queue.pl",
    "qrsh": "queue.pl",
}


def name_of_runner(cmd: str) -> str:
    """`slurm.pl` of `utils/slurm.pl --mem 4G`."""
    return Path(_words(cmd)[0]).name


def runner_command(cmd: str) -> list[str]:
    """The words of --cmd with the path of its program: in utils/, else on PATH.

    Raises UserError for a program that is not a runner, and for an option that the runners in utils/ lack.
    """
    name, *rest = _words(cmd)
    own = ROOT / "utils" / Path(name).name
    is_own = Path(name).name in _own_runners() and ("/" not in name or Path(name).resolve() == own)
    if is_own:
        _check_own(cmd, rest)
        return [sys.executable, str(own), *rest]
    found = shutil.which(name) if name else None
    if found is None or name in _SUBMITTING:
        raise UserError(f"--cmd '{cmd}': {_why_no_runner(name)}")
    return [found, *rest]


def _own_runners() -> list[str]:
    """The names of the runners in utils/."""
    return [*_FIRST, *sorted({path.name for path in (ROOT / "utils").glob("*.pl")}.difference(_FIRST))]


def _words(cmd: str) -> list[str]:
    """The words of --cmd; at least one, which may be empty."""
    return split_words(cmd, "--cmd") or [""]


def _check_own(cmd: str, options: list[str]) -> None:
    try:
        check_options(options, Path(sys.argv[0]).name)
    except UserError as error:
        raise UserError(f"--cmd '{cmd}': {error}") from None


def _why_no_runner(name: str) -> str:
    if name in _SUBMITTING:
        return (
            f"{name} neither waits for jobs nor reports how they ended; use {_SUBMITTING[name]}, which "
            "calls it"
        )
    if name.startswith("-"):
        return f"'{name}' is an option, but a runner is expected; begin with run.pl, slurm.pl or queue.pl"
    if " " in name:
        return f"its quotation marks make '{name}' one word; remove the inner ones"
    near, own = difflib.get_close_matches(name, _own_runners(), n=1), ", ".join(_own_runners())
    hint = f"did you mean {near[0]}?" if near else f"use one of {own}, or a runner on PATH"
    return f"there is no program '{name}'; {hint}"
