#!/usr/bin/env python3
"""Run jobs on this machine, under the name and with the command line of Kaldi's run.pl (docs/running/jobs.md).

    run.pl [options] [JOB=1:N] LOG COMMAND ARGUMENTS...

  --max-jobs-run N    maximum number of simultaneous jobs [as many as the cores, for their threads, and the GPUs allow]
  --num-threads N     threads per job, set by OMP_NUM_THREADS and similar variables [1]
  --num-ranks N       run one MPI job of N ranks
  --gpu N             GPUs per job, set by CUDA_VISIBLE_DEVICES and locked against other jobs; no effect on a machine without GPUs [0]
  --share-devices B   true: if no GPU is free, share one with other runners; false: refuse to run [false]
  --done-marker FILE  file that the command must write, in addition to ending with status 0
  --run-id WORD       stored in status files; set by slurm.pl and queue.pl, which ignore status files of other runs
  --config FILE       defaults of options and declarations of further ones, as in Kaldi's conf/queue.conf
  --dry-run           print the commands of the jobs without running them
  --mem --time        ignored, as are options declared in FILE and words with one dash: they are for other runners; unknown options with
                      two dashes, each with one value, are also ignored, with a warning

Reads: the command's inputs. Writes: LOG and a status file next to it for each job.

    run.pl JOB=1:4 exp/log/hello.JOB.log echo hello from JOB
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyasr.cluster.runner_main import local_main  # noqa: E402

local_main(__doc__)
