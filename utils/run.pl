#!/usr/bin/env python3
"""Run jobs on this machine, under the name and with the command line of Kaldi's run.pl (docs/jobs.md).

    run.pl [options] [JOB=1:N] LOG COMMAND ARGUMENTS...

  --max-jobs-run N    jobs that run at a time [as many as there are cores for their threads, and GPUs]
  --num-threads N     threads of a job: OMP_NUM_THREADS and its relatives [1]
  --num-ranks N       one MPI job of N ranks
  --gpu N             GPUs of a job, by CUDA_VISIBLE_DEVICES, kept from other jobs by locks; on a machine without any, no change [0]
  --share-devices B   true: with other runners, where none is free; false: refuse then [false]
  --done-marker FILE  file that the command must have written, besides ending with status 0
  --run-id WORD       kept in status files: slurm.pl and queue.pl, which give it, believe those of their own run alone
  --config FILE       defaults of options, and names of further ones, as in Kaldi's conf/queue.conf
  --dry-run           print the commands of the jobs and run none
  --mem --time        and the options that FILE declares, and words with one dash: for other runners, without effect here; so are
                      options with two dashes that are not known, each with one value, but of these there is a warning

Reads: what the command reads. Writes: LOG and, beside it, a status file for each job.

    run.pl JOB=1:4 exp/log/hello.JOB.log echo hello from JOB
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyasr.cluster.runner_main import local_main  # noqa: E402

local_main(__doc__)
