"""run_jobs: jobs of a step through the runner in --cmd. run_ranks is tested where it shares its arguments."""

import os

import pytest

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import stage_output
from pyasr.cluster.ranks.jobs import run_jobs, run_ranks


def job_functions():
    """Source of a module of functions for run_jobs. The test's PYTHONPATH contains it."""
    return """
import os, time
from pyasr.base.errors import UserError
from pyasr.base.cli.job_options import threads_of_job
def good(spec, job): open(f"{spec.cmd}/out.{job}", "w").write(str(job))
def tells_threads(spec, job): print("threads", threads_of_job(spec.num_threads))
def third_fails(spec, job):
    if job == 3: raise UserError("data/wav/a.wav: cut off after 512 bytes; fetch it again")
def third_raises(spec, job):
    if job == 3: raise KeyError("utt-17")
def second_fails(spec, job):
    if job == 2: raise UserError("data/wav/b.wav: cut off as well")
def meet(spec, job):
    open(f"{spec.cmd}/here.{job}", "w").close()
    while not all(os.path.exists(f"{spec.cmd}/here.{other}") for other in (1, 2, 3)): time.sleep(0.01)
def all_fail_for_same_reason(spec, job):
    meet(spec, job)
    raise UserError("data/train: no frames")
def all_fail(spec, job):
    meet(spec, job)
    raise UserError(f"utterance {job} is empty")
def rank_fails(spec, comm): raise UserError("data/train: no features")
def rank_is_killed(spec, comm):
    if comm.rank: os.kill(os.getpid(), 9)
    comm.barrier()
def disk_full(spec, job): open("/dev/full", "w").write("x" * 100000)
"""


@pytest.fixture
def functions(tmp_path, monkeypatch):
    (tmp_path / "jobs_under_test.py").write_text(job_functions())
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ['PYTHONPATH']}")
    return tmp_path


def test_jobs_run_with_runner(functions):
    log = functions / "a JOB's $dir" / "x.JOB.log"
    run_jobs(JobOptions(nj=3), log, "jobs_under_test:good", JobOptions(cmd=str(functions)))
    assert [(functions / f"out.{job}").read_text() for job in (1, 2, 3)] == ["1", "2", "3"]
    assert (
        log.with_name("x.3.log").exists()
        and log.with_name("x.spec.json").exists()
        and not list(log.parent.glob("*.done"))
    )


@pytest.mark.parametrize(
    "function, sentence",
    [
        (
            "third_fails",
            (
                r"job 3 of 4 failed: data/wav/a\.wav: cut off after 512 bytes; fetch it again \(log: "
                r".*x\.3\.log\)"
            ),
        ),
        ("third_raises", r"job 3 of 4 failed: KeyError: 'utt-17' "),
        ("disk_full", r"(job \d of 4|\d of 4 jobs) failed: \S+: the disk is full; free some space"),
        ("not_there", r"not_there: no such function"),
    ],
)
def test_run_jobs_reports_failed_job(function, sentence, functions):
    with pytest.raises(UserError, match=sentence):
        run_jobs(
            JobOptions(nj=4), functions / "log" / "x.JOB.log", f"jobs_under_test:{function}", JobOptions()
        )


@pytest.mark.parametrize(
    "function, sentence",
    [
        ("all_fail_for_same_reason", r"^3 of 3 jobs failed: data/train: no frames \(log: .*x\.\d\.log\)$"),
        ("all_fail", r"^3 of 3 jobs failed, job (\d) first: utterance \1 is empty \(log: .*x\.\1\.log\)$"),
    ],
)
def test_number_of_failed_jobs_is_reported(function, sentence, functions):
    """Jobs that fail at the same moment: each waits for the others."""
    with pytest.raises(UserError, match=sentence):
        run_jobs(
            JobOptions(nj=3, cmd="run.pl --max-jobs-run 3"),
            functions / "x.JOB.log",
            f"jobs_under_test:{function}",
            JobOptions(cmd=str(functions)),
        )


@pytest.mark.parametrize(
    "function, run, most_lines, more",
    [
        ("third_fails", run_jobs, 2, {}),
        ("all_fail_for_same_reason", run_jobs, 2, {}),
        ("rank_fails", run_ranks, 2, {"num_ranks": 2}),
        ("rank_is_killed", run_ranks, 3, {"num_ranks": 2}),
    ],
)
def test_report_omits_error_sentence_of_step(function, run, most_lines, more, functions, capfd):
    """The last line of the step prints the sentence once."""
    options = {} if more else {"nj": 3}
    log = functions / ("x.log" if more else "x.JOB.log")
    with pytest.raises(UserError) as error:
        run(
            JobOptions(cmd="run.pl --max-jobs-run 3", **options),
            log,
            f"jobs_under_test:{function}",
            JobOptions(cmd=str(functions)),
            **more,
        )
    said = capfd.readouterr().err
    reason = str(error.value).partition(" failed: ")[2].partition(" (")[0]
    assert (
        reason and reason not in said and said.count("\n") == most_lines and " / " in said.splitlines()[0]
    ), said
    assert said.splitlines()[-1].startswith("  again  ") and not list(functions.glob("*.report"))


def test_report_on_exception_shows_traceback(functions, capfd):
    """The step raises the exception itself."""
    with pytest.raises(UserError, match="KeyError: 'utt-17'"):
        run_jobs(JobOptions(nj=3), functions / "x.JOB.log", "jobs_under_test:third_raises", JobOptions())
    said = capfd.readouterr().err
    assert (
        "    | Traceback (most recent call last):\n" in said
        and "in third_raises" in said
        and "    | KeyError" not in said
    )


def test_failure_of_earlier_run_is_not_reported_again(functions):
    """The report of a job that was not started this time is skipped. One job runs at a time."""
    for function, job in (("third_fails", 3), ("second_fails", 2)):
        with pytest.raises(UserError, match=f"job {job} of 4 failed"):
            run_jobs(
                JobOptions(nj=4, cmd="run.pl --max-jobs-run 1"),
                functions / "log" / "x.JOB.log",
                f"jobs_under_test:{function}",
                JobOptions(),
            )


def test_threads_per_job_come_from_step_then_cmd_then_configuration(functions):
    """The first of these applies: --num-threads of the step, the runner's option in --cmd, the
    configuration."""
    (functions / "queue.conf").write_text("default num_threads=4")
    configured = f"run.pl --config {functions / 'queue.conf'}"
    for given, cmd, expected in (
        (None, "run.pl", 1),
        (None, "run.pl --num-threads 2", 2),
        (3, "run.pl --num-threads 2", 3),
        (None, configured, 4),
        (None, f"{configured} --num-threads 2", 2),
    ):
        options = JobOptions(nj=1, cmd=cmd, num_threads=given)
        run_jobs(options, functions / "x.JOB.log", "jobs_under_test:tells_threads", options)
        said = (functions / "x.1.log").read_text()
        assert f"\nthreads {expected}\n" in said and f" threads={expected}\n" in said, (given, cmd)


def test_unknown_runner_gives_suggestion(functions):
    with pytest.raises(UserError, match="there is no program 'queue.pll'; did you mean queue.pl?"):
        run_jobs(
            JobOptions(cmd="queue.pll -l x"), functions / "x.JOB.log", "jobs_under_test:good", JobOptions()
        )


@pytest.mark.parametrize(
    "cmd, sentence",
    [
        (
            "run.pl JOB=1:2 --mem 2G",
            "JOB=1:2 is a range of jobs, and STEP adds its own (--nj); remove it from --cmd or cmd.sh",
        ),
        (
            "queue.pl -l h_rt=60 JOB=1:2",
            "JOB=1:2 is a range of jobs, and STEP adds its own (--nj); remove it from --cmd or cmd.sh",
        ),
        (
            "slurm.pl J=3",
            "J=3 is a range of jobs, and STEP adds its own (--nj); remove it from --cmd or cmd.sh",
        ),
        ("run.pl --mem", "--mem: a value is missing after it"),
        ("run.pl --mem --gpu 1", "--mem: a value is expected after it, not '--gpu'"),
        (
            "run.pl --mem 2 G",
            "'G' belongs to no option; remove it from --cmd, or correct the option before it",
        ),
        ("run.pl --num-ranks 2", "--num-ranks is set by STEP itself; remove it from --cmd or cmd.sh"),
        (
            "run.pl -mem 2G",
            "-mem: write --mem, with two dashes; an option with one dash is passed to the scheduler",
        ),
        ("'run.pl --mem 2G'", "its quotation marks make 'run.pl --mem 2G' one word; remove the inner ones"),
        (
            "--mem 2G",
            "'--mem' is an option, but a runner is expected; begin with run.pl, slurm.pl or queue.pl",
        ),
        ("sbatch", "sbatch neither waits for jobs nor reports how they ended; use slurm.pl, which calls it"),
        (
            "qsub -l mem=2G",
            "qsub neither waits for jobs nor reports how they ended; use queue.pl, which calls it",
        ),
        (
            "pbs.pl",
            "there is no program 'pbs.pl'; use one of run.pl, slurm.pl, queue.pl, or a runner on PATH",
        ),
        ("", "there is no program ''; use one of run.pl, slurm.pl, queue.pl, or a runner on PATH"),
    ],
)
@pytest.mark.parametrize("run, more", [(run_jobs, {}), (run_ranks, {"num_ranks": 2})])
def test_invalid_cmd_is_refused(cmd, sentence, run, more, functions, monkeypatch, capfd):
    """One sentence, before any job starts."""
    monkeypatch.setattr("sys.argv", ["steps/STEP"])
    with pytest.raises(UserError) as error:
        run(
            JobOptions(cmd=cmd),
            functions / ("x.log" if more else "x.JOB.log"),
            "jobs_under_test:good",
            JobOptions(),
            **more,
        )
    assert str(error.value) == f"--cmd '{cmd}': {sentence}" and capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "cmd, sentence",
    [
        ("run.pl --mem lots", "run.pl: --mem: 'lots' is not a valid amount of memory such as 500M or 4G"),
        (
            "queue.pl",
            "queue.pl: there is no program 'qsub' on PATH; log in to a host that submits jobs, or use run.pl",
        ),
        ("slurm.pl --config no.conf", "slurm.pl: no.conf: no such file or directory"),
    ],
)
@pytest.mark.parametrize("run, more", [(run_jobs, {}), (run_ranks, {"num_ranks": 2})])
def test_refusal_by_runner_is_printed_once(cmd, sentence, run, more, functions, monkeypatch, capfd):
    """The step prints the refusal."""
    monkeypatch.setenv("PATH", "/nowhere")
    log = functions / ("x.log" if more else "x.JOB.log")
    with pytest.raises(UserError) as error:
        run(JobOptions(cmd=cmd), log, "jobs_under_test:good", JobOptions(), **more)
    assert (
        str(error.value) == sentence
        and capfd.readouterr() == ("", "")
        and not list(functions.glob("*.report"))
    )


@pytest.mark.parametrize("cmd", ["run.pl --dry-run", "slurm.pl --dry-run", "echo"])
@pytest.mark.parametrize(
    "run, more, proof", [(run_jobs, {}, "x.spec.1.done"), (run_ranks, {"num_ranks": 2}, "x.spec.done")]
)
def test_runner_that_runs_nothing_gives_no_output(cmd, run, more, proof, functions):
    """Done markers of an earlier run do not count, and the earlier output stays."""
    log = functions / "exp.tmp" / "log" / ("x.JOB.log" if run is run_jobs else "x.log")
    with stage_output(functions / "exp", {}, []) as out:
        (out / "final.mdl").touch()
    with pytest.raises(
        UserError,
        match=rf"^--cmd '{cmd}' ended with status 0 but has not run the work \(.*/{proof} is missing\)",
    ):
        with stage_output(functions / "exp", {}, [], force=True):
            log.parent.mkdir(exist_ok=True)
            (log.parent / proof).touch()
            run(JobOptions(cmd=cmd), log, "jobs_under_test:good", JobOptions(cmd=str(functions)), **more)
    assert (functions / "exp" / "final.mdl").exists()


def test_unclosed_quotes_in_cmd_are_refused(functions):
    sentence = (
        "^--cmd: 'run.pl --mem '4G' ends within quotation marks or after a backslash; close every "
        "quotation mark$"
    )
    for run, more in ((run_jobs, {}), (run_ranks, {"num_ranks": 2})):
        with pytest.raises(UserError, match=sentence):
            run(
                JobOptions(cmd="run.pl --mem '4G"),
                functions / "x.JOB.log",
                "jobs_under_test:good",
                JobOptions(),
                **more,
            )
