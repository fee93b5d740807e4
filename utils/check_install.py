#!/usr/bin/env python3
"""Check that this machine has what recipes need: Python, libraries, an MPI that starts ranks, disk space and
memory.

Reads   nothing
Writes  a line for each requirement to standard output: OK, or MISSING with how to install it; exit status 1
        if a requirement is missing; with --trust-known, also the record of imported libraries in .venv

    utils/check_install.py --disk-gb 2
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.cluster.installation import all_checks, report
from pyasr.cluster.known_imports import KnownImports


@dataclass(frozen=True)
class CheckInstall:
    """Options of the check."""

    dir: Path = option(Path("."), "directory whose disk is checked; need not exist")
    disk_gb: float = option(2.0, "disk space that the recipe needs, GB", minimum=0)
    trust_known: bool = option(
        False, "do not import unchanged libraries again that this host has imported without an error"
    )


def main(options: CheckInstall) -> None:
    known = KnownImports() if options.trust_known else None
    missing = report(all_checks(options.dir.absolute(), options.disk_gb, known))
    if missing:
        raise UserError(f"missing: {', '.join(missing)}; see the lines above")


run_step(CheckInstall, main, __doc__)
