"""queue.pl on a real Grid Engine with one host: every outcome of a job is reported in one sentence."""

import re
import signal
import subprocess
import sys

import pytest
from runner_case import (
    DIRECTORIES_WITH_THE_WORD,
    ROOT,
    WAIT_S,
    Case,
    begin_in_any_path,
    check_any_path,
    check_directories_with_the_word,
)
from test_run_pl import wait_until

from pyasr.cluster.runner.status import read_status
from pyasr.cluster.schedulers.grid_engine import GridEngine
from pyasr.cluster.schedulers.scheduler import seconds


def is_there(grid, name):
    """Whether Grid Engine has a job of this name."""
    return f"<JB_name>{name}<" in grid.call("qstat", "-xml")


@pytest.fixture(scope="module")
def cases(grid, tmp_path_factory):
    """All cases that can run concurrently: {name: Case}."""
    directory = tmp_path_factory.mktemp("cases")
    words = {
        "cancelled": ["cancelled.log", "sleep", "300"],
        "one_of_an_array": [
            "JOB=1:5",
            "log/a.JOB.log",
            "bash",
            "-c",
            "[ JOB != 2 ] || { echo the cause; exit 3; }; [ JOB = 1 ] || sleep 300",
        ],
        "success": [
            "--mem",
            "0.1G",
            "JOB=1:3",
            "--max-jobs-run",
            "2",
            "log/a.JOB.log",
            "echo",
            "job JOB",
            "|",
            "tr",
            "j",
            "J",
            ">",
            "out.JOB",
        ],
        "own_words": [
            "-pe",
            "smp",
            "3",
            "-v",
            "COLOUR=red",
            "-j",
            "y",
            "-cwd",
            "x.log",
            "echo",
            r"$NSLOTS $OMP_NUM_THREADS $COLOUR",
        ],
        **DIRECTORIES_WITH_THE_WORD,
        "killed": ["x.log", "bash", "-c", "kill -9 $$"],
        "lost": ["x.log", "bash", "-c", r"kill -9 \$PPID"],
        "never": ["--gpu", "9", "never.log", "true"],
        "over_time": ["-l", "h_rt=3", "over_time.log", "sleep", "300"],
    }
    cases = {name: Case(grid, "queue.pl", directory / name, *command) for name, command in words.items()}
    cases["cancelled"].begun()
    grid.call("qdel", "cancelled")
    yield cases
    for case in cases.values():
        case.process.kill()


def test_array_job_follows_kaldi_conventions(cases):
    case = cases["success"]
    assert case.end() == (0, "")
    assert [(case / f"out.{job}").read_text() for job in (1, 2, 3)] == ["Job 1\n", "Job 2\n", "Job 3\n"]
    lines = (case / "log/a.2.log").read_text().splitlines()
    assert lines[0] == '# echo "job 2" | tr j J > out.2' and lines[-1].startswith("# Ended (code 0)")
    assert read_status(case / "log/a.2.log").ok and (case / "q/a.sh").exists()


def test_logs_in_directories_with_any_name(grid, tmp_path):
    """qsub -o takes HOST:PATH and several paths separated by commas; -cwd expands variables."""
    check_any_path(begin_in_any_path(grid, "queue.pl", tmp_path))


def test_directories_containing_job_placeholder(cases):
    check_directories_with_the_word(cases)


def test_qsub_options_as_in_kaldi(cases):
    """Slots in a parallel environment are threads."""
    assert cases["own_words"].end() == (0, "")
    assert "\n3 3 red\n" in (cases["own_words"] / "x.log").read_text()


def test_failing_array_job_is_reported_once(grid, cases):
    """The report has the command that repeats the job. The other jobs are ended."""
    case = cases["one_of_an_array"]
    code, said = case.end()
    assert (
        code == 1 and "queue.pl: 1 / 5 failed, log is in log/a.JOB.log" in said and "    | the cause" in said
    )
    assert (
        re.search(r"  job    2 on \S+: exit status 3 \(after [\d.]+ s\)\n", said)
        and "queue.pl JOB=2 log/a.2.log bash -c" in said
    )
    wait_until(lambda: not is_there(grid, "a"), WAIT_S)


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("killed", "killed by signal 9"),
        (
            "lost",
            (
                "it was killed: by qdel, over a limit, or from outside (Grid Engine says failed 100: "
                "assumedly after job)"
            ),
        ),
        (
            "cancelled",
            (
                "it was killed: by qdel, over a limit, or from outside (Grid Engine says failed 100: "
                "assumedly after job)"
            ),
        ),
        (
            "over_time",
            "it exceeded its time or memory limit; ask for more with --time or --mem, or split the work into "
            "more jobs (Grid Engine says ",
        ),
        ("never", "it will never start: (-l arch=*64*,gpu=9) cannot run at host "),
    ],
)
def test_failing_jobs_are_reported(name, sentence, grid, cases):
    code, said = cases[name].end()
    assert code == 1 and sentence in said, said
    wait_until(lambda: not is_there(grid, name), WAIT_S)


def test_directory_missing_on_host_is_reported(grid, tmp_path):
    """The job enters the error state, in which it would otherwise wait forever."""
    code, said = Case(grid, "queue.pl", tmp_path / "x", "--config", "../site.conf", "x.log", "true").end()
    assert code == 1 and "site.conf: no such file or directory" in said
    (tmp_path / "site.conf").write_text("command qsub -v PATH -wd /nowhere -S /bin/bash -j y\n")
    code, said = Case(
        grid, "queue.pl", tmp_path / "error", "--config", "../site.conf", "error.log", "true"
    ).end()
    assert (
        code == 1
        and "it could not start: can't chdir to /nowhere: No such file or directory (Grid Engine says Eqw)"
        in said
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_queue_pl_leaves_no_job(number, grid, tmp_path):
    """It ends after its job, if it can wait."""
    case = Case(
        grid,
        "queue.pl",
        tmp_path / f"orphan{number}",
        f"orphan{number}.log",
        "trap",
        "true",
        "TERM",
        ";",
        "sleep",
        "300",
    ).begun()
    case.process.send_signal(number)
    assert case.end()[0] != 0
    assert number == signal.SIGKILL or not is_there(grid, f"orphan{number}")
    wait_until(lambda: not is_there(grid, f"orphan{number}"), WAIT_S)


@pytest.mark.parametrize(
    "words, sentence",
    [
        (
            ["--partition", "nope.q", "x.log", "true"],
            "error: qsub refused the job: Unable to run job: Job was rejected because job requests unknown "
            'queue "nope.q" (--dry-run shows the whole command, conf/queue.conf changes it)',
        ),
        (
            ["--num-threads", "2", "--config", "../site.conf", "x.log", "true"],
            'the requested parallel environment "threads" does not exist (--dry-run',
        ),
        (
            ["--time", "soon", "x.log", "true"],
            "error: --time: 'soon' is not a valid time such as 30, in minutes, 12:00:00 or 2-00:00:00",
        ),
        (["--nodes", "2", "x.log", "true"], "error: --nodes: no such option"),
    ],
)
def test_refused_submissions_are_reported(words, sentence, grid, tmp_path):
    (tmp_path / "site.conf").write_text("option num_threads=* -pe threads $0\n")
    code, said = Case(grid, "queue.pl", tmp_path / "x", *words).end()
    assert code == 1 and sentence in said and said.count("\n") == 1


def test_lost_only_host_is_reported(grid, tmp_path):
    """The cluster has only this host."""
    case = Case(grid, "queue.pl", tmp_path / "unlucky", "unlucky.log", "sleep", "300").begun()
    grid.lose(grid.host)
    code, said = case.end()
    grid.restore(grid.host)
    assert code == 1 and f"its host {grid.host} was lost (Grid Engine says au)" in said
    assert read_status(case / "unlucky.log").host_lost


def test_dry_run_prints_submission(tmp_path):
    """With Kaldi's default configuration without queue names, every rank takes as many slots as it has
    threads."""

    def submission(*words):
        done = subprocess.run(
            [sys.executable, ROOT / "utils/queue.pl", "--dry-run", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        return done.stdout.partition("\n\n")[0]

    usual = "qsub -v PATH -cwd -S /bin/bash -j y -l 'arch=*64*'"
    assert submission(
        "--gpu",
        "1",
        "--mem",
        "4G",
        "--num-threads",
        "3",
        "-q",
        "x.q",
        "JOB=2:5",
        "-tc",
        "2",
        "exp/log/1.JOB.log",
        "true",
    ) == (
        f"{usual} -l gpu=1 -l mem_free=4G,ram_free=4G -pe smp 3 -tc 2 -q x.q -N _1 -o /dev/null -j y -t 2-5 "
        "exp/q/1.sh"
    )
    assert submission("--num-ranks", "4", "--num-threads", "2", "--time", "90", "x.log", "true") == (
        f"{usual} -pe mpi 8 -notify -l h_rt=5400 -l s_rt=5280 -N x -o /dev/null -j y q/x.sh"
    )
    assert (
        submission("--mem", "1.5GiB", "x.log", "true")
        == f"{usual} -l mem_free=1.5G,ram_free=1.5G -N x -o /dev/null -j y q/x.sh"
    )
    assert submission("-pe", "smp", "4", "--num-threads", "2", "-M", "me@x", "x.log", "true") == (
        f"{usual} -pe smp 4 -M me@x -N x -o /dev/null -j y q/x.sh"
    )
    assert submission("-pe", "mpi", "8", "--num-ranks", "4", "--num-threads", "2", "x.log", "true") == (
        f"{usual} -pe mpi 8 -notify -pe mpi 8 -N x -o /dev/null -j y q/x.sh"
    )


@pytest.mark.parametrize(
    "time, expected",
    [
        ("2", 120),
        ("1:30", 90),
        ("2:00:00", 7200),
        ("1-12", 129600),
        ("2-1:30", 178200),
        ("1-00:00:01", 86401),
    ],
)
def test_time_limits_are_parsed_like_slurm(time, expected):
    """Formats from `man sbatch`, --time: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S."""
    assert seconds(time) == expected


QSTAT = """<job_info><queue_info>
<Queue-List><name>a.q@n1</name>
<job_list><JB_job_number>7</JB_job_number><state>r</state></job_list></Queue-List>
<Queue-List><name>a.q@n2</name><state>au</state>
<job_list><JB_job_number>7</JB_job_number><state>r</state></job_list></Queue-List>
<Queue-List><name>a.q@n3</name>
<job_list><JB_job_number>7</JB_job_number><state>r</state></job_list></Queue-List>
<Queue-List><name>a.q@n4</name><state>au</state>
<job_list><JB_job_number>8</JB_job_number><state>r</state></job_list></Queue-List>
</queue_info></job_info>
"""


@pytest.fixture
def qstat(tmp_path, monkeypatch):
    """Function that sets the output of qstat."""

    def answer(text):
        (tmp_path / "answer").write_text(text)

    (tmp_path / "qstat").write_text(f"#!/bin/sh\ncat {tmp_path / 'answer'}\n")
    (tmp_path / "qstat").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return answer


def test_lost_host_among_several_is_reported(qstat):
    """Ranks are listed with all their hosts. The lost host is neither the first nor the last."""
    qstat(QSTAT)
    fate = GridEngine().fates("7", [0])[0]
    assert (fate.active, fate.host, fate.host_lost) == (False, "n2", True)


def test_jobs_are_queried_by_name_of_submitting_user(tmp_path, monkeypatch):
    """Not by LOGNAME, which `su` may leave unchanged."""
    (tmp_path / "qstat").write_text(f"#!/bin/sh\necho $* > {tmp_path}/words\necho '<job_info/>'\n")
    (tmp_path / "qstat").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name in ("LOGNAME", "USER"):
        monkeypatch.setenv(name, "alice")
    GridEngine().fates("7", [])
    own = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    assert (tmp_path / "words").read_text() == f"-f -u {own} -xml\n"


@pytest.mark.parametrize(
    "configuration, expected",
    [("max_unheard 00:05:00\nload_report_time             00:00:40\n", 60), ("load_report_time 0:0:2\n", 5)],
)
def test_host_timeout_follows_report_interval(configuration, expected, tmp_path, monkeypatch):
    """One and a half times the report interval of the hosts; Grid Engine's default if the query fails."""
    program = tmp_path / "qconf"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{configuration}END\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert GridEngine().silent_s == 60.0
    program.chmod(0o755)
    assert GridEngine().silent_s == expected


def test_manager_command_is_named_for_stuck_slots(qstat):
    qstat(QSTAT)
    assert GridEngine().release("7", [0]) == (
        "job 7 keeps its slots on all its hosts until n2 is back; a manager of Grid Engine can free them: "
        "qdel -f 7"
    )
    assert GridEngine().release("9", [0]) == ""


@pytest.mark.parametrize(
    "state, waits, suspended",
    [
        ("r", False, False),
        ("t", False, False),
        ("Rr", False, False),
        ("s", False, True),
        ("S", False, True),
        ("T", False, True),
        ("Rq", True, False),
        ("hqw", True, False),
    ],
)
def test_waiting_and_suspended_states_are_recognised(state, waits, suspended, qstat):
    qstat(
        "<job_info><job_info><job_list><JB_job_number>7</JB_job_number>"
        f"<state>{state}</state></job_list></job_info></job_info>"
    )
    fate = GridEngine().fates("7", [0])[0]
    assert (fate.active, fate.waits, fate.suspended) == (True, waits, suspended)


@pytest.mark.parametrize("answer", [f"warning: the home directory is nearly full\n{QSTAT}", QSTAT[:200], ""])
def test_invalid_qstat_output_is_no_answer(answer, qstat):
    qstat(answer)
    assert GridEngine().fates("7", [0]) is None
