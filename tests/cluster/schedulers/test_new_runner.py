"""The new runner of docs/extending/runner.md: its two files, copied from the page, with shell scripts in
place of PBS's programs. The scripts run each job in its own session and record it in $PBS_RECORD."""

import os
import signal
import subprocess
import sys

import pytest
from data_dirs import make_data_dir
from page_files import among_modules, toolkit_with
from test_run_pl import wait_until

from pyasr.cluster import schedulers
from pyasr.cluster.schedulers.ending import end_jobs
from pyasr.cluster.schedulers.scheduler import Fate
from pyasr.io.ark import load_all

PROGRAMS = {
    "qsub": """#!/bin/bash
echo "$*" >> $PBS_RECORD/submitted
script=${!#} range=
while [ $# -gt 1 ]; do
  case $1 in -J) range=${2%%%*} ;; -v) export "$2" ;; esac
  shift
done
number=$(wc -l < $PBS_RECORD/submitted)
start() {
  setsid bash -c "bash $script; touch $PBS_RECORD/$1.end" < /dev/null > /dev/null 2>&1 &
  echo $! > $PBS_RECORD/$1.group
}
if [ "$range" ]; then
  case $range in *-*) ;; *) echo "qsub: illegal -J value" >&2; exit 1 ;; esac
  for task in $(seq ${range/-/ }); do PBS_ARRAY_INDEX=$task start $number.$task; done
  echo "$number[].here"
else
  start $number.0
  echo "$number.here"
fi
""",
    "qstat": """#!/bin/bash
number=${!#}; number=${number%%[*} number=${number%%.*}
ls $PBS_RECORD/$number.*.group > /dev/null 2>&1 || { echo "qstat: Unknown Job Id ${!#}" >&2; exit 153; }
case ${!#} in *'[]'*) printf 'Job Id: %s\\n    job_state = B\\n    array = True\\n\\n' ${!#} ;; esac
for group in $PBS_RECORD/$number.*.group; do
  job=${group%.group} task=${group%.group}; task=${task##*.}
  case $task in 0) echo "Job Id: $number.here" ;; *) echo "Job Id: $number[$task].here" ;; esac
  [ -e $job.end ] && state=F || state=R
  printf '    Job_Name = x\\n    job_state = %s\\n    exec_host = node1/0*2\\n' $state
  [ -e $job.comment ] && echo "    comment = $(cat $job.comment)"
  echo
done
""",
    "qdel": """#!/bin/bash
number=${1%%[*} number=${number%%.*}
for group in $PBS_RECORD/$number.*.group; do
  kill -TERM -- -$(cat $group) && touch ${group%.group}.end
done
""",
}


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory):
    """A copy of the toolkit with the runner."""
    places = {"pbs.py": "pyasr/cluster/schedulers", "pbs.pl": "utils"}
    return toolkit_with("runner.md", places, tmp_path_factory.mktemp("toolkit"))


@pytest.fixture
def environment(toolkit, tmp_path):
    """Environment in which programs of the toolkit find PBS."""
    folders = tmp_path / "bin", tmp_path / "record"
    for folder in folders:
        folder.mkdir()
    for name, text in PROGRAMS.items():
        (folders[0] / name).write_text(text)
        (folders[0] / name).chmod(0o755)
    path = f"{folders[0]}:{toolkit}/utils:{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": str(toolkit), "PATH": path, "PBS_RECORD": str(folders[1])}


@pytest.fixture
def submitted(tmp_path):
    """Function: arguments of each call of qsub."""
    return lambda: (tmp_path / "record/submitted").read_text().splitlines()


@pytest.fixture
def pbs(environment, tmp_path, monkeypatch):
    """The simulated scheduler."""
    for name in ("PATH", "PBS_RECORD"):
        monkeypatch.setenv(name, environment[name])
    (tmp_path / "module").mkdir()
    with among_modules("runner.md", schedulers, tmp_path / "module", {"pbs.pl": tmp_path}):
        from pyasr.cluster.schedulers.pbs import Pbs

        yield Pbs()
    del sys.modules["pyasr.cluster.schedulers.pbs"], schedulers.pbs


def run(environment, directory, *words):
    """(exit status, standard error)."""
    command = list(map(str, words))
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stderr


def test_array_and_single_job(environment, submitted, tmp_path):
    flags = ["--mem", "1.5G", "--num-threads", 2, "--time", "1:00:00", "--gpu", 1, "--partition", "long"]
    limit = ["--max-jobs-run", 2]
    assert run(
        environment, tmp_path, "pbs.pl", *flags, *limit, "JOB=1:3", "log/a.JOB.log", "echo", "job", "JOB"
    ) == (0, "")
    assert [f"\njob {i}\n" in (tmp_path / f"log/a.{i}.log").read_text() for i in (1, 2, 3)] == [True] * 3
    assert run(environment, tmp_path, "pbs.pl", "b.log", "echo", "$OMP_NUM_THREADS") == (0, "")
    assert "\n1\n" in (tmp_path / "b.log").read_text()
    common = "-S /bin/bash -j oe -o /dev/null"
    assert submitted() == [
        f"{common} -q long -N a -l select=1:ncpus=2:ngpus=1:mem=3072mb -l walltime=3600 -J 1-3%2 q/a.sh",
        f"{common} -N b -l select=1:ncpus=1:ngpus=0 q/b.sh",
    ]


def test_first_failure_ends_other_jobs(environment, tmp_path):
    words = [
        "JOB=1:2",
        "a.JOB.log",
        "[",
        "JOB",
        "=",
        "1",
        "]",
        "||",
        "exec",
        "sleep",
        "1000",
        ";",
        "exit",
        "3",
    ]
    code, said = run(environment, tmp_path, "pbs.pl", *words)
    assert code == 1 and "a.1.log" in said and "status 3" in said
    group = int((tmp_path / "record/1.2.group").read_text())
    wait_until(lambda: not is_running(group))


def is_running(group: int) -> bool:
    """Whether a process group has running processes."""
    states = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True).stdout
    return any(
        int(pgid) == group and not state.startswith("Z")
        for pgid, state in map(str.split, states.splitlines())
    )


def test_array_job_is_resubmitted(environment, submitted, tmp_path):
    again = [
        "[",
        "-e",
        "JOB",
        "]",
        "||",
        "{",
        "touch",
        "JOB",
        ";",
        "exit",
        "75",
        ";",
        "}",
        "&&",
        "echo",
        "job",
        "JOB",
    ]
    code, said = run(environment, tmp_path, "pbs.pl", "JOB=1:2", "a.JOB.log", *again)
    assert code == 0 and "job 2 was asked to end, has saved its state and is submitted again" in said
    assert "\njob 2\n" in (tmp_path / "a.2.log").read_text()
    assert {words.partition("ngpus=0 ")[2] for words in submitted()} == {
        "-J 1-2 q/a.sh",
        "-v PBS_ARRAY_INDEX=1 q/a.sh",
        "-v PBS_ARRAY_INDEX=2 q/a.sh",
    }


def test_step_runs_its_jobs_with_new_runner(environment, toolkit, submitted, tmp_path):
    data, step = make_data_dir(tmp_path / "data"), toolkit / "steps/make_mfcc.py"
    words = ["--force", "--sample-frequency", 8000, "--nj", 2, data]
    assert run(environment, tmp_path, sys.executable, step, "--cmd", "pbs.pl --mem 1G", *words)[0] == 0
    assert len(load_all(data / "feats.scp")) == 12 and "mem=1024mb -J 1-2 " in submitted()[0]
    code, said = run(environment, tmp_path, sys.executable, step, "--cmd", "pbs.pl --mem", *words)
    assert code == 1 and "--cmd 'pbs.pl --mem': --mem: a value is missing after it" in said
    code, said = run(environment, tmp_path, sys.executable, step, "--cmd", "pbz.pl", *words)
    assert code == 1 and "there is no program 'pbz.pl'; did you mean pbs.pl?" in said


def test_pbs_job_states_are_parsed(pbs, tmp_path):
    """A running job, a job that ended with a comment, cancelled jobs, and an unknown job."""
    (tmp_path / "x.sh").write_text("exec sleep 1000\n")
    submit = ["qsub", "-J", "1-2", str(tmp_path / "x.sh")]
    number = pbs.number(subprocess.run(submit, capture_output=True, text=True, check=True).stdout)
    assert number == "1[].here" and pbs.number("Your job 7 has been submitted") == ""
    running = Fate(True, "", "node1")
    assert pbs.fates(number, [1, 2]) == {1: running, 2: running}
    os.killpg(int((tmp_path / "record/1.2.group").read_text()), signal.SIGKILL)
    (tmp_path / "record/1.2.comment").write_text("and exceeded resource walltime")
    (tmp_path / "record/1.2.end").touch()
    assert pbs.fates(number, [1, 2]) == {
        1: running,
        2: Fate(False, "and exceeded resource walltime", "node1"),
    }
    assert end_jobs(pbs, [number], 30) == []
    assert not any(fate.active for fate in pbs.fates(number, []).values())
    assert pbs.fates("8.here", [0]) == {}
    (tmp_path / "bin/qstat").write_text("#!/bin/bash\necho 'cannot connect to server' >&2; exit 111\n")
    assert pbs.fates(number, [1, 2]) is None
