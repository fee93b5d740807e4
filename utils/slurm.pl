#!/usr/bin/env python3
"""Run jobs through Slurm, under the name and with the command line of Kaldi's slurm.pl (docs/running/clusters.md).

    slurm.pl [options] [JOB=1:N] LOG COMMAND ARGUMENTS...

  --mem AMOUNT        memory per thread of a job, such as 4G
  --time TIME         time limit of a job: minutes, 12:00:00, 2-00:00:00
  --num-threads N     threads per job [1]
  --num-ranks N       run one MPI job of N ranks, on the nodes that Slurm allocates
  --gpu N             GPUs per job, on each of its nodes [0]
  --partition NAME    partition of the jobs; -p NAME, -N 2 and other options with one dash and one value are passed to sbatch
  --max-jobs-run N    maximum number of simultaneous jobs [as many as Slurm allows]
  --max-requeue N     maximum number of resubmissions of a job that was asked to end and has saved its state [3]
  --done-marker FILE  file that the command must write, in addition to ending with status 0
  --config FILE       sbatch flags for these options and further ones, in Kaldi's format [conf/slurm.conf, if it exists]
  --dry-run           print the scripts without submitting them

Reads: the command's inputs. Writes: LOG and a status file next to it for each job; q/NAME.sh, the submitted script.

    slurm.pl --mem 2G JOB=1:4 exp/log/hello.JOB.log echo hello from JOB
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyasr.cluster.runner_main import batch_main  # noqa: E402
from pyasr.cluster.schedulers.slurm import Slurm  # noqa: E402

batch_main(__doc__, Slurm())
