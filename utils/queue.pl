#!/usr/bin/env python3
"""Run jobs through Grid Engine, under the name and with the command line of Kaldi's queue.pl (docs/running/clusters.md).

    queue.pl [options] [JOB=1:N] LOG COMMAND ARGUMENTS...

  --mem AMOUNT        memory per thread of a job, such as 4G
  --time TIME         time limit of a job: minutes, 12:00:00, 2-00:00:00
  --num-threads N     threads per job [1]
  --num-ranks N       run one MPI job of N ranks, on the hosts that Grid Engine allocates
  --gpu N             GPUs per job, on each of its hosts [0]
  --partition NAME    queue of the jobs; -q NAME, -pe smp 4 and other options with one dash are passed to qsub
  --max-jobs-run N    maximum number of simultaneous jobs [as many as Grid Engine allows]
  --max-requeue N     maximum number of resubmissions of a job that was asked to end and has saved its state [3]
  --done-marker FILE  file that the command must write, in addition to ending with status 0
  --config FILE       qsub flags for these options and further ones, in Kaldi's format [conf/queue.conf, if it exists]
  --dry-run           print the scripts without submitting them

Without a configuration file, --mem needs the complexes mem_free and ram_free, --gpu the complex gpu, --num-threads the parallel environment
smp, and --num-ranks the parallel environment mpi. Lines of conf/queue.conf change these: `option num_threads=* -pe threads $0`.

Reads: the command's inputs. Writes: LOG and a status file next to it for each job; q/NAME.sh, the submitted script.

    queue.pl --mem 2G JOB=1:4 exp/log/hello.JOB.log echo hello from JOB
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyasr.cluster.runner_main import batch_main  # noqa: E402
from pyasr.cluster.schedulers.grid_engine import GridEngine  # noqa: E402

batch_main(__doc__, GridEngine())
