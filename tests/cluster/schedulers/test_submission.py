"""Messages and actions if a scheduler does not accept a job."""

import os
import signal
import subprocess
import sys

import pytest

from pyasr.base.errors import UserError
from pyasr.cluster.runner.command_line import parse_request
from pyasr.cluster.schedulers.grid_engine import GridEngine
from pyasr.cluster.schedulers.scheduler import NotTaken, submit
from pyasr.cluster.schedulers.slurm import Slurm

RUNNER = """import sys
from pyasr.cluster.schedulers import batch
from pyasr.cluster.runner_main import batch_main
from pyasr.cluster.schedulers.{module} import {scheduler}
batch._PAUSES_S = (0.01,) * 4
batch_main("", {scheduler}())
"""
RUNNERS = {
    "slurm.pl": ("slurm", "Slurm", "sbatch", "echo 7"),
    "queue.pl": ("grid_engine", "GridEngine", "qsub", """echo 'Your job 7 ("x") has been submitted'"""),
}
SUBMITS = """#!/bin/bash
echo called >> calls
case " {away} " in *" $(wc -l < calls) "*) printf '%s\\n' {said} >&2; exit 1 ;; esac
bash "${{!#}}"
{answer}
"""
NO_SLURM = (
    "'sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)'"
)
NO_GRID = """'error: commlib error: got select error (Connection refused)' \
'Unable to run job: unable to send message to qmaster using port 6444 on host "m": got send error' \
'Exiting.'"""
THROTTLED = "'sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying'"


@pytest.fixture
def run(tmp_path):
    """Function (runner, away, said, command) that runs a job. Its scheduler prints `said`, and refuses the
    1st, 2nd, ... submission as listed in `away`."""

    def run(runner, away, said, command="true"):
        module, scheduler, program, answer = RUNNERS[runner]
        (tmp_path / program).write_text(SUBMITS.format(away=away, said=said, answer=answer))
        (tmp_path / program).chmod(0o755)
        (tmp_path / runner).write_text(RUNNER.format(module=module, scheduler=scheduler))
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        words = [sys.executable, runner, "x.log", *command.split()]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stderr, len((tmp_path / "calls").read_text().splitlines())

    return run


@pytest.mark.parametrize(
    "runner, said, expected_message",
    [
        (
            "slurm.pl",
            NO_SLURM,
            "sbatch could not submit the job: Batch job submission failed: "
            "Unable to contact slurm controller (connect failure)",
        ),
        (
            "queue.pl",
            NO_GRID,
            "qsub could not submit the job: error: commlib error: got select error (Connection refused); "
            "Unable to run job: "
            'unable to send message to qmaster using port 6444 on host "m": got send error',
        ),
    ],
)
def test_submission_is_retried_while_scheduler_is_away(runner, said, expected_message, run):
    """Twice, and again when the job is resubmitted: one message."""
    code, errors, num_calls = run(runner, "1 2 4", said, "[ -e again ] || { touch again; exit 75; }")
    first, second = errors.splitlines()
    assert (code, first, num_calls) == (0, f"{runner}: {expected_message}; trying again, up to 4 times", 5)
    assert second.startswith(
        f"{runner}: the job was asked to end, has saved its state and is submitted again, time 1 of at most 3"
    )


def test_absent_scheduler_is_reported_after_retries(run):
    code, errors, num_calls = run("slurm.pl", "1 2 3 4 5", NO_SLURM)
    assert (code, num_calls) == (1, 5) and errors.count("\n") == 2
    assert errors.endswith("(connect failure); check whether Slurm is up, then run the same command again\n")


@pytest.mark.parametrize(
    "runner, said",
    [
        ("slurm.pl", "'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation'"),
        (
            "slurm.pl",
            (
                f"{THROTTLED} 'sbatch: error: Batch job submission failed: Socket timed out on send/recv "
                "operation'"
            ),
        ),
        (
            "slurm.pl",
            (
                "'sbatch: error: Batch job submission failed: Unable to contact slurm controller (receive "
                "failure)'"
            ),
        ),
        (
            "queue.pl",
            (
                "'Unable to run job: failed receiving gdi request response for mid=1 (got syncron message "
                "receive timeout error).' Exiting."
            ),
        ),
        (
            "queue.pl",
            (
                "'Unable to run job: unable to send message to qmaster using port 1 on host "
                '"m": got message acknowledge error\' Exiting.'
            ),
        ),
    ],
)
def test_possibly_accepted_job_is_not_submitted_again(runner, said, run):
    """Otherwise two jobs would write to one log. A frozen Grid Engine that continued after the last of these
    answers had accepted the job."""
    code, errors, num_calls = run(runner, "1", said)
    assert (
        (code, num_calls) == (1, 1)
        and " does not know whether the job was submitted: " in errors
        and errors.count("\n") == 1
    )


def test_permanently_refused_job_is_not_submitted_again(run):
    code, errors, num_calls = run(
        "queue.pl",
        "1",
        """'Unable to run job: Job was rejected because job requests unknown queue "qmaster.q"' Exiting.""",
    )
    assert (code, num_calls) == (1, 1) and errors.startswith(
        "queue.pl: error: qsub refused the job: Unable to run job: Job was rejected"
    )


@pytest.mark.parametrize(
    "scheduler, said",
    [
        (Slurm(), "sbatch: error: Batch job submission failed: Slurm backup controller in standby mode"),
        (
            Slurm(),
            "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
            "sbatch: error: Batch job submission failed: Resource temporarily unavailable",
        ),
        (Slurm(), "sbatch: error: Batch job submission failed: Unable to create job record, try again"),
        (
            GridEngine(),
            (
                "\nUnable to initialize environment because of error: unable to contact qmaster using port "
                "536 on host m\nExiting."
            ),
        ),
        (GridEngine(), "Unable to run job: failed sending gdi request.\nExiting."),
    ],
)
def test_messages_that_mean_not_accepted(scheduler, said, tmp_path):
    with pytest.raises(NotTaken):
        submit(scheduler, [refusing(tmp_path, said)])


def refusing(directory, said):
    """A program that refuses each job with this message."""
    (directory / "said").write_text(said + "\n")
    (directory / "sbatch").write_text(f"#!/bin/sh\ncat {directory}/said >&2\nexit 1\n")
    (directory / "sbatch").chmod(0o755)
    return str(directory / "sbatch")


@pytest.mark.parametrize(
    "said, message",
    [
        (
            'Unable to run job: Job was rejected because job requests unknown queue "nope.q"\nExiting.',
            'Unable to run job: Job was rejected because job requests unknown queue "nope.q" (',
        ),
        (
            (
                "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job "
                "violates accounting/QOS policy"
            ),
            "QOSMaxSubmitJobPerUserLimit; Batch job submission failed: Job violates accounting/QOS policy (",
        ),
        ("\n".join(f"line {number}" for number in range(9)), "line 4; line 5; line 6; line 7; line 8 ("),
        ("", "exit status 1 ("),
    ],
)
def test_refusal_is_reported_completely(said, message, tmp_path):
    """Lines without information are dropped, for example the last line of qsub."""
    program = refusing(tmp_path, said)
    with pytest.raises(UserError) as error:
        submit(GridEngine(), [program])
    assert str(error.value).startswith(
        f"{program} refused the job: {message}--dry-run shows the whole command, conf/queue.conf changes it)"
    )


def test_stopped_runner_waiting_for_scheduler_ends_at_once(tmp_path):
    """It has no jobs yet."""
    refusing(tmp_path, NO_SLURM.strip("'"))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(
        ["slurm.pl", "x.log", "true"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    ) as runner:
        assert "trying again" in runner.stderr.readline()
        runner.send_signal(signal.SIGTERM)
        assert runner.communicate(timeout=60)[1] == "slurm.pl: stopped by signal 15; its jobs were ended\n"
    assert runner.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    "words, sentence",
    [
        (
            ["--no-requeue", "--mem", "2G", "x.log", "true"],
            "--no-requeue: a value is expected after it, not '--mem'",
        ),
        (["-H", "--mem", "2G", "x.log", "true"], "-H: a value is expected after it, not '--mem'"),
        (
            ["--no-requeue", "JOB=1:2", "x.JOB.log", "true"],
            "--no-requeue: a value is expected after it, not 'JOB=1:2'",
        ),
        (["--no-requeue", "x.log", "true"], "--no-requeue: no such option; known are "),
        (["--no-requeue", "x.log", "echo", "hello"], "--no-requeue: no such option; known are "),
    ],
)
def test_sbatch_options_without_value(words, sentence):
    """They are listed separately."""
    with pytest.raises(UserError) as error:
        parse_request(words, Slurm.own, Slurm.usual)
    assert str(error.value).startswith(sentence)
    assert str(error.value).endswith(
        "; an option of sbatch without a value belongs in the line 'command' of conf/slurm.conf"
    )


@pytest.mark.parametrize("option", ["--mem", "--gpu", "--max-jobs-run"])
def test_own_options_without_value_are_refused(option):
    with pytest.raises(UserError, match=f"^{option}: a value is expected after it, not '--time'$"):
        parse_request([option, "--time", "2", "x.log", "true"], Slurm.own, Slurm.usual)
