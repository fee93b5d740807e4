#!/usr/bin/env python3
"""Check that this machine has what recipes need: Python, libraries, an MPI that starts ranks, disk and memory.

Reads: nothing. Writes: nothing; one line for each thing, OK or MISSING with how to install it. Exit status 1 if a needed one is missing.

    utils/check_install.py --disk-gb 2
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.options import option
from pyasr.base.step import run_step
from pyasr.cluster.installation import all_checks, report


@dataclass(frozen=True)
class CheckInstall:
    """Where the recipe will write."""

    dir: Path = option(Path("."), "directory whose disk is looked at; it need not be there yet")
    disk_gb: float = option(2.0, "what the recipe writes there in all, GB", minimum=0)


def main(options: CheckInstall) -> None:
    missing = report(all_checks(options.dir.absolute(), options.disk_gb))
    if missing:
        raise UserError(f"{', '.join(missing)} missing; see the lines above")


run_step(CheckInstall, main, __doc__)
