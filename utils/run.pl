#!/usr/bin/env python3
"""Run jobs on this machine, under the name and with the command line of Kaldi's run.pl (docs/jobs.md).

    run.pl [--max-jobs-run N] [--num-threads N] [--num-ranks N] [JOB=1:N] LOG COMMAND ARGUMENTS...

Reads: what the command reads. Writes: LOG and, beside it, a status file for each job.

    run.pl JOB=1:4 exp/log/hello.JOB.log echo hello from JOB
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyasr.cluster.local import main  # noqa: E402

if len(sys.argv) == 1 or sys.argv[1] in ("--help", "-h"):
    print(__doc__.strip())
    sys.exit(0)
sys.exit(main(sys.argv[1:]))
