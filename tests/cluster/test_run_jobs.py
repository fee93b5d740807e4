"""run_jobs: work of a step through the runner that --cmd names; run_ranks, where what it is told is the same."""

import os

import pytest

from pyasr.base.errors import UserError
from pyasr.base.job_options import JobOptions
from pyasr.base.output import stage_output
from pyasr.cluster.jobs import run_jobs, run_ranks


def job_functions():
    """Module of functions for run_jobs, as text: it lies where PYTHONPATH of the test says."""
    return '''
from pyasr.base.errors import UserError
from pyasr.base.job_options import threads_of_job
def good(spec, job): open(f"{spec.cmd}/out.{job}", "w").write(str(job))
def tells_threads(spec, job): print("threads", threads_of_job(spec.num_threads))
def third_fails(spec, job):
    if job == 3: raise UserError("data/wav/a.wav: cut off after 512 bytes; fetch it again")
def third_raises(spec, job):
    if job == 3: raise KeyError("utt-17")
def second_fails(spec, job):
    if job == 2: raise UserError("data/wav/b.wav: cut off as well")
def disk_full(spec, job): open("/dev/full", "w").write("x" * 100000)
'''


@pytest.fixture
def functions(tmp_path, monkeypatch):
    (tmp_path / "jobs_under_test.py").write_text(job_functions())
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ['PYTHONPATH']}")
    return tmp_path


def test_run_jobs(functions):
    log = functions / "a JOB's $dir" / "x.JOB.log"
    run_jobs(JobOptions(nj=3), log, "jobs_under_test:good", JobOptions(cmd=str(functions)))
    assert [(functions / f"out.{job}").read_text() for job in (1, 2, 3)] == ["1", "2", "3"]
    assert log.with_name("x.3.log").exists() and log.with_name("x.spec.json").exists() and not list(log.parent.glob("*.done"))


@pytest.mark.parametrize("function, sentence", [
    ("third_fails", r"job 3 of 4 failed: data/wav/a\.wav: cut off after 512 bytes; fetch it again \(log: .*x\.3\.log\)"),
    ("third_raises", r"job 3 of 4 failed: KeyError: 'utt-17' "),
    ("disk_full", r"job \d of 4 failed: \S+: the disk is full; free some space"),
    ("not_there", r"not_there: no such function"),
])
def test_run_jobs_says_what_failed(function, sentence, functions):
    with pytest.raises(UserError, match=sentence):
        run_jobs(JobOptions(nj=4), functions / "log" / "x.JOB.log", f"jobs_under_test:{function}", JobOptions())


def test_a_failure_of_an_earlier_run_is_not_told_again(functions):
    """Of a job that is not begun this time; one job at a time."""
    for function, job in (("third_fails", 3), ("second_fails", 2)):
        with pytest.raises(UserError, match=f"job {job} of 4 failed"):
            run_jobs(JobOptions(nj=4, cmd="run.pl --max-jobs-run 1"), functions / "log" / "x.JOB.log", f"jobs_under_test:{function}", JobOptions())


def test_threads_of_jobs(functions):
    """As --num-threads of the step says, else the runner's own in --cmd, else its configuration."""
    (functions / "queue.conf").write_text("default num_threads=4")
    configured = f"run.pl --config {functions / 'queue.conf'}"
    for given, cmd, expected in ((None, "run.pl", 1), (None, "run.pl --num-threads 2", 2), (3, "run.pl --num-threads 2", 3),
                                 (None, configured, 4), (None, f"{configured} --num-threads 2", 2)):  # fmt: skip
        options = JobOptions(nj=1, cmd=cmd, num_threads=given)
        run_jobs(options, functions / "x.JOB.log", "jobs_under_test:tells_threads", options)
        said = (functions / "x.1.log").read_text()
        assert f"\nthreads {expected}\n" in said and f" threads={expected}\n" in said, (given, cmd)


def test_unknown_runner(functions):
    with pytest.raises(UserError, match="there is no program 'queue.pll'"):
        run_jobs(JobOptions(cmd="queue.pll -l x"), functions / "x.JOB.log", "jobs_under_test:good", JobOptions())


@pytest.mark.parametrize("cmd", ["run.pl --dry-run", "slurm.pl --dry-run", "echo"])
@pytest.mark.parametrize("run, more, proof", [(run_jobs, {}, "x.spec.1.done"), (run_ranks, {"num_ranks": 2}, "x.spec.done")])
def test_a_runner_that_ends_well_and_runs_nothing_makes_nothing(cmd, run, more, proof, functions):
    """Nor does it with proofs that an earlier run has left, and what was made before stays."""
    log = functions / "exp.tmp" / "log" / ("x.JOB.log" if run is run_jobs else "x.log")
    with stage_output(functions / "exp", {}, []) as out:
        (out / "final.mdl").touch()
    with pytest.raises(UserError, match=rf"^--cmd '{cmd}' ended with status 0 but has not run the work \(.*/{proof} is not there\)"):
        with stage_output(functions / "exp", {}, [], force=True):
            log.parent.mkdir(exist_ok=True)
            (log.parent / proof).touch()
            run(JobOptions(cmd=cmd), log, "jobs_under_test:good", JobOptions(cmd=str(functions)), **more)
    assert (functions / "exp" / "final.mdl").exists()


def test_quotation_marks_of_a_runner_that_are_left_open(functions):
    sentence = "^--cmd: 'run.pl --mem '4G' ends within quotation marks, or after a backslash; see that every mark has its other$"
    for run, more in ((run_jobs, {}), (run_ranks, {"num_ranks": 2})):
        with pytest.raises(UserError, match=sentence):
            run(JobOptions(cmd="run.pl --mem '4G"), functions / "x.JOB.log", "jobs_under_test:good", JobOptions(), **more)
