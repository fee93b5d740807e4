#!/usr/bin/env python3
"""Run jobs through Slurm, under the name and with the command line of Kaldi's slurm.pl (docs/clusters.md).

    slurm.pl [options] [JOB=1:N] LOG COMMAND ARGUMENTS...

  --mem AMOUNT        memory of a job for each of its threads, such as 4G
  --time TIME         after which it is ended: minutes, 12:00:00, 2-00:00:00
  --num-threads N     threads of a job [1]
  --num-ranks N       one MPI job of N ranks, on as many nodes as Slurm gives it
  --gpu N             GPUs of a job, on each of its nodes [0]
  --partition NAME    where it runs; -p NAME, -N 2 and others with one dash, and one value, go to sbatch
  --max-jobs-run N    jobs that run at a time [as many as Slurm allows]
  --max-requeue N     times that a job which was asked to end, and has saved what it has, is submitted again [3]
  --done-marker FILE  file that the command must have written, besides ending with status 0
  --config FILE       the site's flags for sbatch for these options, and further ones, in Kaldi's format [conf/slurm.conf, if there is one]
  --dry-run           print what would be submitted

Reads: what the command reads. Writes: LOG and, beside it, a status file for each job; q/NAME.sh, what sbatch was given.

    slurm.pl --mem 2G JOB=1:4 exp/log/hello.JOB.log echo hello from JOB
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyasr.cluster.runner_main import batch_main  # noqa: E402
from pyasr.cluster.schedulers.slurm import Slurm  # noqa: E402

batch_main(__doc__, Slurm())
