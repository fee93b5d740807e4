"""Runners of batch schedulers when status files appear in any order."""

import os
import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from test_run_pl import kill_guard, wait_until

from pyasr.base.cli.job_options import JobOptions, RankJobOptions
from pyasr.base.errors import UserError
from pyasr.cluster.ranks.jobs import RankLost, Recovery, run_ranks
from pyasr.cluster.runner.command_line import parse_request
from pyasr.cluster.runner.status import JobStatus, read_status, write_status
from pyasr.cluster.schedulers import batch
from pyasr.cluster.schedulers.batch import BatchRunner, script, script_path, submission
from pyasr.cluster.schedulers.grid_engine import GridEngine
from pyasr.cluster.schedulers.scheduler import Fate, submit
from pyasr.cluster.schedulers.slurm import Slurm, fate
from pyasr.liveness.heartbeat import Heartbeat, HeartbeatReader, heartbeat_dir, heartbeat_files, remove

SBATCH = """#!/bin/bash
for word; do [[ $word != --array=* ]] || tasks=${word#*=}; done
for task in $(seq ${tasks/-/ }); do SLURM_ARRAY_TASK_ID=$task bash "${!#}" & done
wait
echo 7
"""


def test_failure_is_reported_even_if_other_jobs_end_later(tmp_path):
    request = parse_request(["JOB=1:3", str(tmp_path / "a.JOB.log"), "true"])
    runner = BatchRunner(request, scheduler=None)
    runner.left = dict.fromkeys(request.jobs, "7")
    for job, status, end in ((1, 0, 2.0), (2, 3, 1.0)):
        write_status(request.log_of(job), JobStatus(job, status, None, False, "host", 0.0, end, 0.0, "true"))
    runner._wait()
    assert [status.job for status in runner.ended] == [2, 1] and list(runner.left) == [3]


@pytest.fixture
def slurm_pl(tmp_path):
    """Run slurm.pl with a simulated Slurm that runs all jobs of an array at once."""

    def run(*words, **environment):
        environment = {**os.environ, **environment, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
        return subprocess.run(
            ["slurm.pl", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )

    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "sbatch", SBATCH)
    program(tmp_path / "bin" / "scontrol", "#!/bin/sh\necho JobState=COMPLETED\n")
    return run


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def begin_slurm_of_processes(programs):
    """A simulated Slurm whose jobs are processes with these PIDs."""
    program(programs / "sbatch", '#!/bin/bash\nsetsid bash "${!#}" > /dev/null 2>&1 < /dev/null &\necho $!\n')
    program(
        programs / "scontrol",
        "#!/bin/bash\nkill -0 ${!#} && echo JobState=RUNNING || echo JobState=COMPLETED\n",
    )
    program(programs / "scancel", "#!/bin/sh\nkill $1\n")


def test_each_array_job_is_resubmitted_up_to_limit(slurm_pl, tmp_path):
    """Jobs 1 and 2 are asked to end twice, job 3 at every run."""
    script = r"echo again >> times.JOB; [ JOB != 3 ] && [ \$(wc -l < times.JOB) = 3 ] || exit 75"

    def run(jobs):
        return slurm_pl("--max-requeue", "2", f"JOB={jobs}", "a.JOB.log", "bash", "-c", script)

    done = run("1:2")
    assert done.returncode == 0 and done.stderr.count("is submitted again, time 2 of at most 2") == 2, (
        done.stderr
    )
    assert all((tmp_path / f"a.{job}.requeued-{time}.log").exists() for job in (1, 2) for time in (1, 2))
    done = run("3:3")
    assert done.returncode == 1 and "job    3 on " in done.stderr and "exit status 75" in done.stderr, (
        done.stderr
    )
    assert (
        done.stderr.count("is submitted again") == 2
        and len((tmp_path / "times.3").read_text().splitlines()) == 3
    )
    assert read_status(tmp_path / "a.3.log").status == 75


@pytest.mark.parametrize(
    "scheduler, said, message",
    [
        (Slurm(), "", "sbatch printed nothing, but that of Slurm"),
        (
            Slurm(),
            "sbatch is not to be used on this host",
            "sbatch printed 'sbatch is not to be used on this host', but that of Slurm",
        ),
        (GridEngine(), "4711.pbsserver", "qsub printed '4711.pbsserver', but that of Grid Engine"),
    ],
)
def test_scheduler_answer_without_job_number_is_refused(scheduler, said, message, tmp_path, monkeypatch):
    """The qsub of PBS gives such an answer."""
    name = scheduler.own.program()[0]
    program(tmp_path / name, f"#!/bin/sh\necho '{said}'\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(UserError, match=f"^{re.escape(message)} prints a job number; check whether"):
        submit(scheduler, [name])


def test_runner_stopped_while_submitting_cancels_submitted_jobs(tmp_path, monkeypatch):
    """The signal goes to the runner's whole process group, as from a terminal."""
    (tmp_path / "bin").mkdir()
    program(
        tmp_path / "bin" / "sbatch",
        "#!/bin/sh\ntouch asked\nuntil [ -e stopped ]; do sleep 0.05; done\necho 7\n",
    )
    program(tmp_path / "bin" / "scancel", "#!/bin/sh\necho $* >> cancelled\n")
    program(tmp_path / "bin" / "scontrol", "#!/bin/sh\necho JobState=CANCELLED\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    with subprocess.Popen(
        ["slurm.pl", "a.log", "true"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as runner:
        wait_until((tmp_path / "asked").exists)
        os.killpg(runner.pid, signal.SIGTERM)
        (tmp_path / "stopped").touch()
        assert runner.communicate(timeout=60)[1] == "slurm.pl: stopped by signal 15; its jobs were ended\n"
    assert runner.returncode == 128 + signal.SIGTERM and (tmp_path / "cancelled").read_text() == "7\n"


def test_status_visible_after_scheduler_reports_end_is_used(slurm_pl, tmp_path):
    """The status appears five seconds late, as on filesystems with delayed visibility: the job is not
    reported as lost, and other jobs are not cancelled."""
    late = "mv a.2.status held; (sleep 5; mv held a.2.status) > /dev/null 2>&1 &\necho 7"
    program(tmp_path / "bin" / "sbatch", SBATCH.replace("echo 7", late))
    program(
        tmp_path / "bin" / "scontrol",
        "#!/bin/sh\nfor task in 1 2; do echo ArrayTaskId=$task JobState=COMPLETED; done\n",
    )
    done = slurm_pl("JOB=1:2", "a.JOB.log", "true")
    assert (
        (done.returncode, done.stderr) == (0, "")
        and read_status(tmp_path / "a.2.log").ok
        and not (tmp_path / "held").exists()
    )


def test_memory_error_hint_names_memory_option(slurm_pl, tmp_path):
    """Under a scheduler, each job has its own memory limit. If the limit kills the command, the job script
    survives and the scheduler knows the reason."""
    done = slurm_pl("JOB=1:1", "a.JOB.log", "python", "-c", "raise MemoryError")
    assert (
        done.returncode == 1
        and "hint   memory ran out: ask for more with --mem, in --cmd or its configuration\n" in done.stderr
    )
    killed = ["JOB=1:1", "a.JOB.log", "bash", "-c", r"kill -9 \$\$"]
    done = slurm_pl(*killed)
    assert (
        done.returncode == 1
        and "killed by signal 9" in done.stderr
        and "MB): ask for more with --mem, in" in done.stderr
    )
    program(tmp_path / "bin" / "scontrol", "#!/bin/sh\necho JobState=OUT_OF_MEMORY ArrayTaskId=1\n")
    done = slurm_pl(*killed)
    reason = "it used more memory than it had requested; ask for more with --mem (Slurm says OUT_OF_MEMORY)"
    assert (
        done.returncode == 1
        and reason in done.stderr
        and "hint" not in done.stderr
        and read_status(tmp_path / "a.1.log").reason == reason
    )
    done = slurm_pl("JOB=1:1", "a.JOB.log", "false")
    assert done.returncode == 1 and "exit status 1" in done.stderr


STUBBORN = """trap '' TERM
if [ -e before ]; then
  touch second
  while [ -e /proc/$(cat before) ]; do sleep 0.05; done
  echo well
else
  echo $PPID > new; mv new before; sleep 60
fi
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_same_command_after_stopped_runner_waits_for_old_job(number, slurm_pl, tmp_path, monkeypatch):
    """The old job takes time to end. A runner that can wait waits for it; a status that the old job writes
    later is not used for the new one."""
    begin_slurm_of_processes(tmp_path / "bin")
    if number == signal.SIGKILL:
        program(
            tmp_path / "bin" / "scancel",
            f"#!/bin/sh\nuntil [ -e {tmp_path}/second ]; do sleep 0.05; done\nkill $1\n",
        )
    (tmp_path / "job.sh").write_text(STUBBORN)
    command = ["slurm.pl", "a.log", "bash", "job.sh"]
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) as runner:
        wait_until((tmp_path / "before").exists)
        runner.send_signal(number)
        runner.wait(60)
    assert number == signal.SIGKILL or not Path("/proc", (tmp_path / "before").read_text().strip()).exists()
    done = slurm_pl(*command[1:])
    assert (done.returncode, done.stderr) == (0, "") and read_status(tmp_path / "a.log").ok
    assert (
        (tmp_path / "a.log").read_text().count("# Ended")
        == (tmp_path / "a.log").read_text().count("\nwell\n# Acc")
        == 1
    )


def test_killed_guard_does_not_affect_job(slurm_pl, tmp_path, monkeypatch):
    """The job ends normally."""
    begin_slurm_of_processes(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    words = ["slurm.pl", "a.log", "bash", "-c", "touch begun; until [ -e end ]; do sleep 0.05; done"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as runner:
        wait_until((tmp_path / "begun").exists)
        kill_guard(runner)
        (tmp_path / "end").touch()
        assert (runner.wait(60), runner.stderr.read()) == (0, "")


def test_silent_hosts_after_grid_engine_restart_are_not_lost(tmp_path, monkeypatch):
    """The restarted master reports all hosts as silent until they have connected again."""
    lost = Fate(False, "its host n1 was lost (Grid Engine says au)", "n1", host_lost=True)
    runner = BatchRunner(parse_request([str(tmp_path / "a.log"), "true"]), GridEngine())
    runner.left = {1: "7"}
    for now_s, fate_then, has_ended in (
        (0, lost, False),
        (40, lost, False),
        (45, Fate(True), False),
        (50, lost, False),
        (105, lost, False),
        (111, lost, True),
    ):
        monkeypatch.setattr(batch.time, "monotonic", lambda: now_s)
        runner._judge(1, fate_then)
        assert bool(runner.ended) == has_ended
    assert runner.ended[0].host_lost


def test_slurm_variables_of_outer_job_are_not_passed_to_jobs(slurm_pl, tmp_path):
    """For example the memory, which srun would apply to the jobs. Variables that the user set are passed."""
    program(
        tmp_path / "bin" / "sbatch",
        SBATCH.replace("echo 7", 'env | grep ^SLURM_ | sort > was\nbash "${!#}"\necho 7'),
    )
    of_the_user = {"SLURM_CONF": "/site/slurm.conf", "SLURM_MPI_TYPE": "pmix", "SLURM_CPU_BIND": "none"}
    of_its_job = {
        "SLURM_JOB_ID": "5",
        "SLURM_MEM_PER_NODE": "200",
        "SLURM_NTASKS": "1",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1",
        "SLURM_TRES_PER_TASK": "cpu:2",
        "SLURM_ARRAY_TASK_ID": "3",
    }
    assert slurm_pl("x.log", "true", **of_the_user, **of_its_job).returncode == 0
    assert (tmp_path / "was").read_text().split() == sorted(
        f"{name}={value}" for name, value in of_the_user.items()
    )


def test_cpu_binding_of_outer_step_is_not_passed_to_jobs(slurm_pl, tmp_path):
    """Within `srun --pty bash`, srun would refuse to start ranks on other processors."""
    program(
        tmp_path / "bin" / "sbatch",
        SBATCH.replace("echo 7", 'env | grep ^SLURM_ > was\nbash "${!#}"\necho 7'),
    )
    of_its_step = {
        "SLURM_JOB_ID": "5",
        "SLURM_CPU_BIND": "quiet,mask_cpu:0x1",
        "SLURM_CPU_BIND_LIST": "0x1",
        "SLURM_CPU_BIND_TYPE": "mask_cpu:",
        "SLURM_CPU_BIND_VERBOSE": "quiet",
        "SLURM_MEM_BIND": "quiet,local",
        "SLURM_MEM_BIND_TYPE": "local",
    }
    assert slurm_pl("x.log", "true", **of_its_step, SLURM_MPI_TYPE="pmix").returncode == 0
    assert (tmp_path / "was").read_text() == "SLURM_MPI_TYPE=pmix\n"


def test_end_of_first_run_is_ignored_if_job_was_restarted_elsewhere(tmp_path):
    """Slurm restarts a job if its node is lost, although the job may continue there."""
    script = (
        "[ -e first ] && me=second || me=first; touch $me; until [ -e end-$me ]; do sleep 0.05; done; "
        "[ $me = second ]"
    )
    (tmp_path / "job.sh").write_text(script)
    words = ["run.pl", "--run-id", "1", "x.log", "bash", "job.sh"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL) as first:
        wait_until((tmp_path / "first").exists)
        with subprocess.Popen(words, cwd=tmp_path) as second:
            wait_until((tmp_path / "second").exists)
            (tmp_path / "end-first").touch()
            first.wait(60)
            assert read_status(tmp_path / "x.log") is None
            (tmp_path / "end-second").touch()
            assert second.wait(60) == 0
    assert read_status(tmp_path / "x.log").ok and (tmp_path / "x.log").read_text().count("# Ended") == 1


def test_job_numbers_are_parsed():
    for scheduler, said in (
        (Slurm(), "12\n"),
        (Slurm(), "a greeting\n12\n"),
        (GridEngine(), 'Your job 12 ("x") has been submitted\n'),
        (GridEngine(), 'Your job-array 12.1-3:1 ("x") has been submitted\n'),
    ):
        assert scheduler.number(said) == "12"


def test_jobs_of_another_cluster_are_queried_and_cancelled_there(slurm_pl, tmp_path):
    """A job with the same number in Slurm's default cluster is not touched."""
    program(tmp_path / "bin" / "sbatch", "#!/bin/sh\necho '7;other'\n")
    program(
        tmp_path / "bin" / "scontrol",
        f"#!/bin/sh\necho scontrol $* >> {tmp_path}/calls\necho JobState=CANCELLED\n",
    )
    program(tmp_path / "bin" / "scancel", f"#!/bin/sh\necho scancel $* >> {tmp_path}/calls\n")
    done = slurm_pl("-M", "other", "x.log", "true")
    assert done.returncode == 1 and "it was cancelled (scancel)" in done.stderr, done.stderr
    assert set((tmp_path / "calls").read_text().splitlines()) == {
        "scontrol -M other show job -o 7",
        "scancel -M other 7",
    }


def test_restarted_ranks_are_not_confused_with_earlier_ones(
    slurm_pl, tmp_path, monkeypatch, jobs_import_tests
):
    """They are not reported as silent, even if the new job runs longer than the timeout, and the last words
    of the earlier ranks are not used."""
    begin_slurm_of_processes(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    function = "rank_workers:asked_to_end_and_lost_before_an_error"
    recovery = Recovery(RankJobOptions(max_restarts=1, rank_timeout=5.0))
    with pytest.raises(UserError, match="data/train/utt2spk: no such file") as caught:
        run_ranks(
            JobOptions(cmd="slurm.pl"),
            tmp_path / "log" / "x.log",
            function,
            JobOptions(cmd=str(tmp_path)),
            2,
            recovery,
        )
    assert not isinstance(caught.value, RankLost) and (tmp_path / "attempts").read_text() == "2\n2\n"


@pytest.fixture
def query_case(tmp_path):
    """Function (fate) that returns the heartbeat directory of a job's only rank and a function that queries a
    scheduler with this answer."""

    def begin(says):
        heartbeats = heartbeat_dir(tmp_path / "x.spec.json")
        Heartbeat(heartbeats, 1).start("rank 0 of 1")
        words = [
            "--num-ranks",
            "1",
            "--done-marker",
            str(tmp_path / "x.spec.done"),
            str(tmp_path / "x.log"),
            "true",
        ]
        runner = BatchRunner(parse_request(words), Says(says, heartbeats))
        runner.left = {1: "7"}
        return heartbeats, runner._ask

    return begin


class Says(Slurm):
    """A scheduler with this answer for a job. Another rank of the job starts during the query."""

    def __init__(self, says, heartbeats):
        self.says, self.heartbeats = says, heartbeats

    def fates(self, number, tasks):
        Heartbeat(self.heartbeats, 2).start("rank 0 of 1 on a node that answers late")
        return {0: self.says}


def test_files_of_ranks_of_requeued_job_are_removed(query_case):
    heartbeats, ask = query_case(Fate(True, waits=True))
    ask()
    assert [file.suffix for file in heartbeat_files(heartbeats)] == [".2"]


@pytest.mark.parametrize("state, is_lost", [("SUSPENDED", False), ("RUNNING", True)])
def test_ranks_of_suspended_job_are_not_lost(state, is_lost, query_case, capsys):
    """Slurm reports a suspended job as running for some time, like a job on a frozen host."""
    heartbeats, ask = query_case(fate({"JobState": state}))
    reader = HeartbeatReader(heartbeats, 1, timeout_s=20.0)
    report = []
    for _ in range(100):
        ask()
        remove([file for file in heartbeat_files(heartbeats) if file.suffix == ".2"])
        report.append(reader.poll())
    assert any(report) == is_lost
    assert capsys.readouterr().err.count("the job is suspended, says Slurm; still waiting\n") == (not is_lost)


@pytest.mark.parametrize("killed_by", [signal.SIGTERM, signal.SIGKILL])
def test_reason_of_scheduler_is_reported_if_limit_kills_command(killed_by, tmp_path, monkeypatch):
    """The scheduler reports the end some time after the status file appears."""
    answers = [Fate(True), Fate(True), Fate(False, "it exceeded its time limit", over_limit=True)]
    monkeypatch.setattr(Slurm, "fates", lambda self, number, tasks: {0: answers.pop(0)})
    monkeypatch.setattr(batch, "_END_QUESTION_S", 0.01)
    runner = BatchRunner(parse_request([str(tmp_path / "x.log"), "sleep", "300"]), Slurm())
    runner.number_of[1] = "7"
    status = JobStatus(1, 1, int(killed_by), False, "here", 0.0, 1.0, 1.0, "sleep 300")
    assert runner._with_reason(status).reason == "it exceeded its time limit" and not answers
    assert read_status(tmp_path / "x.log").reason == "it exceeded its time limit"
    for other in (replace(status, signal=None), replace(status, signal=int(signal.SIGSEGV))):
        assert runner._with_reason(other) is other


def test_jobs_take_different_gpus_if_scheduler_assigns_none(slurm_pl, tmp_path):
    program(
        tmp_path / "bin" / "nvidia-smi",
        "#!/bin/sh\nprintf 'GPU 0: H200 (UUID: GPU-a1)\\nGPU 1: H200 (UUID: GPU-b2)\\n'\n",
    )
    both = r"echo \$CUDA_VISIBLE_DEVICES > has.JOB; until [ -s has.1 ] && [ -s has.2 ]; do sleep 0.05; done"
    done = slurm_pl(
        "--gpu",
        "1",
        "JOB=1:2",
        "a.JOB.log",
        "timeout",
        "30",
        "bash",
        "-c",
        both,
        PYASR_LOCKS=str(tmp_path / "locks"),
    )
    assert done.returncode == 0, done.stderr
    assert {(tmp_path / f"has.{job}").read_text() for job in (1, 2)} == {"0\n", "1\n"}


@pytest.mark.parametrize(
    "log, job, output, name",
    [
        ("JOBS/50%/log/a.JOBX.log", "JOBX=1:2", "JOBS/50%/q/a.$TASK.out", "a"),
        ("JOBS/log/JOB.log", None, "JOBS/q/JOB.out", "JOB"),
        ("exp/JOB/x/log/a.log", "JOB=1:2", "exp/x/q/a.$TASK.out", "a"),
        ("it's/a:b/1,2 $x.JOB.log", "JOB=1:2", """'it'"'"'s/a:b/q/1,2 $x.'$TASK.out""", "_1_2__x"),
    ],
)
def test_job_script_redirects_its_own_output(log, job, output, name):
    """For any directory name, the script redirects itself, so the scheduler needs no path."""
    request = parse_request([*([job] if job else []), log, "true"])
    for scheduler in (Slurm(), GridEngine()):
        words = submission(request, scheduler, request.jobs)
        assert words[-1] == str(script_path(request)) and {name, f"--job-name={name}"} & set(words), words
        assert f"\nexec >>{output.replace('TASK', scheduler.task_variable)} 2>&1\n" in script(
            request, scheduler
        )
