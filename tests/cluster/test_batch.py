"""What the runner of a scheduler makes of status files, in whatever order it sees them."""

from pyasr.cluster.batch import BatchRunner
from pyasr.cluster.command_line import parse_request
from pyasr.cluster.status import JobStatus, write_status


def test_a_failure_counts_whatever_has_ended_after_it(tmp_path):
    request = parse_request(["JOB=1:3", str(tmp_path / "a.JOB.log"), "true"])
    runner = BatchRunner(request, scheduler=None)
    runner.left = dict.fromkeys(request.jobs, "7")
    for job, status, end in ((1, 0, 2.0), (2, 3, 1.0)):
        write_status(request.log_of(job), JobStatus(job, status, None, False, "host", 0.0, end, 0.0, "true"))
    runner._wait()
    assert [status.job for status in runner.ended] == [2, 1] and list(runner.left) == [3]
