"""What the runner of a scheduler makes of status files, in whatever order it sees them."""

import os
import subprocess

from pyasr.cluster.batch import BatchRunner
from pyasr.cluster.command_line import parse_request
from pyasr.cluster.status import JobStatus, read_status, write_status

SBATCH = """#!/bin/bash
for word; do [[ $word != --array=* ]] || tasks=${word#*=}; done
for task in $(seq ${tasks/-/ }); do SLURM_ARRAY_TASK_ID=$task bash "${!#}"; done
echo 7
"""


def test_a_failure_counts_whatever_has_ended_after_it(tmp_path):
    request = parse_request(["JOB=1:3", str(tmp_path / "a.JOB.log"), "true"])
    runner = BatchRunner(request, scheduler=None)
    runner.left = dict.fromkeys(request.jobs, "7")
    for job, status, end in ((1, 0, 2.0), (2, 3, 1.0)):
        write_status(request.log_of(job), JobStatus(job, status, None, False, "host", 0.0, end, 0.0, "true"))
    runner._wait()
    assert [status.job for status in runner.ended] == [2, 1] and list(runner.left) == [3]


def test_every_job_of_an_array_is_submitted_again_as_often_as_allowed(tmp_path):
    """By a Slurm that runs all at once: jobs 1 and 2 are asked to end twice, job 3 whenever it runs."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(SBATCH)
    sbatch.chmod(0o755)
    script = r"echo again >> times.JOB; [ JOB != 3 ] && [ \$(wc -l < times.JOB) = 3 ] || exit 75"

    def run(jobs):
        words = ["slurm.pl", "--max-requeue", "2", f"JOB={jobs}", "a.JOB.log", "bash", "-c", script]
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)

    done = run("1:2")
    assert done.returncode == 0 and done.stderr.count("is submitted again, time 2 of at most 2") == 2, done.stderr
    assert all((tmp_path / f"a.{job}.requeued-{time}.log").exists() for job in (1, 2) for time in (1, 2))
    done = run("3:3")
    assert done.returncode == 1 and "job    3 on " in done.stderr and "exit status 75" in done.stderr, done.stderr
    assert done.stderr.count("is submitted again") == 2 and len((tmp_path / "times.3").read_text().splitlines()) == 3
    assert read_status(tmp_path / "a.3.log").status == 75
