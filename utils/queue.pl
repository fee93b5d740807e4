#!/usr/bin/env python3
"""Run jobs through Grid Engine, under the name and with the command line of Kaldi's queue.pl (docs/clusters.md).

    queue.pl [options] [JOB=1:N] LOG COMMAND ARGUMENTS...

  --mem AMOUNT        memory of a job for each of its threads, such as 4G
  --time TIME         after which it is ended: minutes, 12:00:00, 2-00:00:00
  --num-threads N     threads of a job [1]
  --num-ranks N       one MPI job of N ranks, on as many hosts as Grid Engine gives it
  --gpu N             GPUs of a job, on each of its hosts [0]
  --partition NAME    queue in which it runs; -q NAME, -pe smp 4 and others with one dash go to qsub
  --max-jobs-run N    jobs that run at a time [as many as Grid Engine allows]
  --max-requeue N     times that a job which was asked to end, and has saved what it has, is submitted again [3]
  --done-marker FILE  file that the command must have written, besides ending with status 0
  --config FILE       the site's flags for qsub for these options, and further ones, in Kaldi's format [conf/queue.conf, if there is one]
  --dry-run           print what would be submitted

Without a file of the site's, --mem needs the complexes mem_free and ram_free, --gpu the complex gpu, --num-threads the parallel environment
smp, and --num-ranks the parallel environment mpi. Lines of conf/queue.conf name others: `option num_threads=* -pe threads $0`.

Reads: what the command reads. Writes: LOG and, beside it, a status file for each job; q/NAME.sh, what qsub was given.

    queue.pl --mem 2G JOB=1:4 exp/log/hello.JOB.log echo hello from JOB
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyasr.cluster.runner_main import batch_main  # noqa: E402
from pyasr.cluster.schedulers.grid_engine import GridEngine  # noqa: E402

batch_main(__doc__, GridEngine())
