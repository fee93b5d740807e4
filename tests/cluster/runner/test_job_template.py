"""Jobs of a group as forks of one process: environment, resources and results equal those of separately
started jobs."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_run_pl import wait_until

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.errors import UserError
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.cluster.runner import job_template
from pyasr.cluster.runner.processes import Guard
from pyasr.cluster.runner.status import read_status

ROOT = Path(__file__).resolve().parents[3]
FUNCTIONS = """
import json, os, signal, sys, threading, time
with open(os.environ["IMPORTS"], "a") as f: f.write(f"{os.getpid()}\\n")
if "PRINTS" in os.environ: print("imported", flush=True)
if "THREADS" in os.environ: threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
if "RAISES" in os.environ: raise ValueError("no such part")
def tells(spec, job):
    stat = open("/proc/self/stat").read().rpartition(")")[2].split()
    lines = open("/proc/self/status").read().splitlines()
    masks = dict(line.split(":\\t") for line in lines if line.startswith("Sig"))
    files = [os.readlink(f"/proc/self/fd/{n}") for n in ("0", "1", "2")]
    more = len(os.listdir("/proc/self/fd")) - 4
    streams = [sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering, sys.stderr.line_buffering]
    print(json.dumps({"argv": sys.argv[1:], "leads": os.getpid() == os.getsid(0) == os.getpgid(0),
                      "parent": open(f"/proc/{stat[1]}/comm").read(), "ignored": masks["SigIgn"],
                      "caught": masks["SigCgt"], "blocked": masks["SigBlk"], "files": files, "more": more,
                      "own": os.environ["PYASR_STOP_FILE"], "threads": os.environ["OMP_NUM_THREADS"],
                      "cwd": os.getcwd(), "path": sys.path[0], "streams": streams}))
def ends(spec, job):
    print("before the end")
    sys.stderr.write("of standard error\\n")
    how = spec.cmd
    if how == "exit": sys.exit(3)
    if how == "sentence": sys.exit("it has no words")
    if how == "raise": raise KeyError("utt-17")
    if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if how == "abort": os.abort()
    if how == "interrupt": raise KeyboardInterrupt
    if how == "hangup": os.kill(os.getpid(), signal.SIGHUP)
def kills_template(spec, job):
    if job > 1: return
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try: words = open(f"/proc/{name}/cmdline").read().split("\\0")
        except OSError: continue
        is_fork = "pyasr.base.jobs.job_forks" in words and any(word.startswith(spec.cmd) for word in words)
        if int(name) != os.getpid() and is_fork: os.kill(int(name), signal.SIGKILL)
def waits(spec, job):
    open(f"{spec.cmd}/pid.{job}", "w").write(f"{os.getpid()}\\n")
    time.sleep(300)
def takes_memory(spec, job):
    if job == 2: bytearray(300 << 20)
def imports(spec, job):
    known = "pyasr.score.word_alignment" in sys.modules, "llvmlite.binding" in sys.modules
    from pyasr.score.word_alignment import count
    from pyasr.score import word_alignment
    kernels = vars(word_alignment).values()
    loaded = [kernel for kernel in kernels if getattr(kernel, "__dict__", {}).get("_by_kinds")]
    print("known", *known, len(loaded) > 0, count(["a"], ["b"]))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "group_under_test.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("IMPORTS", str(tmp_path / "imports"))
    return tmp_path


def run(
    place: Path, function: str, num: int, cmd: str = "run.pl --max-jobs-run 1", say: str = ""
) -> list[Path]:
    """Logs of `num` jobs."""
    log = place / f"{function}.{num}" / "x.JOB.log"
    run_jobs(
        JobOptions(nj=num, cmd=cmd), log, f"group_under_test:{function}", JobOptions(cmd=say or str(place))
    )
    return [log.with_name(f"x.{job}.log") for job in range(1, num + 1)]


def said(log: Path) -> list[str]:
    """Output of a job without its times and paths."""
    lines = [line for line in log.read_text().splitlines() if not line.startswith("#")]
    return [
        re.sub(r"0x[0-9a-f]+|\.[12]/|\b[12]\b|x\.[12]\.", "", line)
        for line in lines
        if not re.match(r'  File "|    ', line)
    ]


def words_of_process(cmdline: Path) -> bytes:
    try:
        return cmdline.read_bytes()
    except OSError:
        return b""  # a PID that has just ended


def num_imports(place: Path) -> int:
    return len((place / "imports").read_text().split())


def test_forked_jobs_equal_started_jobs(place):
    single, *group = [said(log) for num in (1, 2) for log in run(place, "tells", num)]
    first, second = group
    assert num_imports(place) == 2 and '"more": 0' in single[0] and '"leads": true' in single[0]
    # 1, the process that prints its imports
    assert second == single and first == [single[0].replace('"more": 0', '"more": ')]


@pytest.fixture
def hangups_end_processes():
    """Also if the tests run under nohup, which makes all processes ignore SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("how", ["exit", "sentence", "raise", "kill", "abort", "interrupt", "hangup"])
def test_forked_jobs_fail_like_started_jobs(how, place, hangups_end_processes):
    ends = []
    for num in (1, 2):
        with pytest.raises(UserError) as refused:
            run(place, "ends", num, say=how)
        log = place / f"ends.{num}" / "x.1.log"
        status = read_status(log)
        ends.append(
            (
                status.status,
                status.signal,
                status.stopped,
                said(log),
                str(refused.value).split(": ", 1)[1].split(" (log")[0],
            )
        )
    assert num_imports(place) == 2 and ends[0] == ends[1] and ends[0][0] > 0


@pytest.mark.parametrize("what", ["PRINTS", "THREADS"])
def test_jobs_are_started_if_forks_would_differ(what, place, monkeypatch):
    monkeypatch.setenv(what, "1")
    logs = run(place, "tells", 3)
    assert num_imports(place) == 4
    assert [log.read_text().count("imported") for log in logs] == [what == "PRINTS"] * 3


def test_each_job_reports_import_error(place, monkeypatch):
    monkeypatch.setenv("RAISES", "1")
    with pytest.raises(UserError, match="job 1 of 3 failed: ValueError: no such part"):
        run(place, "tells", 3)


def test_jobs_continue_if_template_process_is_killed(place):
    logs = run(place, "kills_template", 3)
    assert [read_status(log).status for log in logs] == [0, 0, 0] and num_imports(place) == 3


def test_fork_reparented_away_from_runner_does_nothing(place, monkeypatch):
    """The kernel reparents a fork if the runner ends."""
    (place / "x.spec.json").write_text(
        f'{{"type": "pyasr.base.cli.job_options:JobOptions", "cmd": "{place}"}}'
    )
    # PR_SET_TIMERSLACK, which has no effect here
    monkeypatch.setattr(job_template, "_PR_SET_CHILD_SUBREAPER", 29)
    guard = Guard()
    template = job_template.JobTemplate(dict(os.environ), guard)
    words = [
        sys.executable,
        "-m",
        "pyasr.base.jobs.job",
        "group_under_test:waits",
        str(place / "x.spec.json"),
        "1",
    ]
    with (place / "x.log").open("w") as log:
        assert (
            template.fork(words, log.fileno(), {}) is None and template.fork(words, log.fileno(), {}) is None
        )
    template.close()
    os.kill(guard.pid, signal.SIGKILL)
    os.waitpid(guard.pid, 0)
    wait_until(
        lambda: (
            not any(
                str(place).encode() in words_of_process(path) for path in Path("/proc").glob("[0-9]*/cmdline")
            )
        )
    )
    assert num_imports(place) == 1 and not (place / "pid.1").exists()


def test_peak_memory_is_measured_per_job(place):
    peaks = [read_status(log).peak_memory_mb for log in run(place, "takes_memory", 3)]
    assert peaks[1] > 300 and max(peaks[0], peaks[2]) < 200


def test_later_jobs_inherit_modules_loaded_by_first(place):
    for _ in range(2):
        logs = run(place, "imports", 3)
    known = [re.search("known.*", log.read_text())[0].split()[1:4] for log in logs]
    assert known == [["False"] * 3, ["True"] * 3, ["True"] * 3]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_forked_jobs_end_with_their_runner(number, place):
    words = ["-m", "pyasr.base.jobs.job", "group_under_test:waits", str(place / "x.spec.json"), "JOB"]
    (place / "x.spec.json").write_text(
        f'{{"type": "pyasr.base.cli.job_options:JobOptions", "cmd": "{place}"}}'
    )
    command = [
        sys.executable,
        ROOT / "utils/run.pl",
        "--max-jobs-run",
        "2",
        "JOB=1:2",
        place / "x.JOB.log",
        sys.executable,
        *words,
    ]
    runner = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)
    try:
        pids = [place / f"pid.{job}" for job in (1, 2)]
        wait_until(lambda: all(path.exists() and path.read_text().endswith("\n") for path in pids))
        runner.send_signal(number)
        assert runner.wait(60) in (128 + number, -number)
    finally:
        runner.kill()
    wait_until(lambda: not any(Path(f"/proc/{path.read_text().strip()}/status").exists() for path in pids))
    assert num_imports(place) == 1
