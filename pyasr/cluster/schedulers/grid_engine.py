"""Grid Engine (Sun's and its successors): qsub, qstat, qalter, qacct, qdel."""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree

from pyasr.cluster.runner.command_line import Request
from pyasr.cluster.runner.runner_config import parse_runner_config
from pyasr.cluster.schedulers.scheduler import Fate, Scheduler, call, is_well, numbers_of, seconds

_CONFIG = """
command qsub -v PATH -cwd -S /bin/bash -j y -l arch=*64*
option time=* -l h_rt=$0
option mem=* -l mem_free=$0,ram_free=$0
option mem=0
option num_threads=* -pe smp $0
option num_threads=1
option num_ranks=* -pe mpi $0 -notify
option max_jobs_run=* -tc $0
option gpu=* -l gpu=$0
option gpu=0
option partition=* -q $0
default gpu=0
"""
_OF_SBATCH = {
    "-p [A-Za-z].*": "a queue is --partition NAME or -q NAME",
    "-n .*": "ranks are --num-ranks",
    r"-N \d+": "Grid Engine chooses the hosts",
    r"-c \d+": "threads are --num-threads",
    r"-t [\d:-]+": "a time limit is --time, and the range of jobs JOB=1:N",
    "-G .*": "GPUs are --gpu",
    "-J .*": "a job is named after its log",
    "-x .*": "-l 'h=!HOST' excludes a host",
}
_FORCED_S = 120.0  # time limit of qdel -f
_MIN_SILENT_S = 5.0
_WARNING_S = 120  # before the time limit of ranks
_OVER_A_LIMIT = (
    "it exceeded its time or memory limit; ask for more with --time or --mem, or split the work "
    "into more jobs"
)
_KILLED = "it was killed: by qdel, over a limit, or from outside"


class GridEngine(Scheduler):
    """Grid Engine 6.2 or newer."""

    name = "Grid Engine"
    own = parse_runner_config(_CONFIG, "queue.pl's own configuration")
    usual = Path("conf/queue.conf")
    foreign = _OF_SBATCH
    task_variable = "SGE_TASK_ID"
    not_taken = (
        r"unable to contact qmaster|unable to send message to qmaster.*got send error|failed "
        r"sending gdi request"
    )
    unsure = r"unable to send message to qmaster|failed receiving gdi request"

    @cached_property
    def silent_s(self) -> float:
        """After a restart, qmaster reports all hosts as silent until they have contacted it. Hosts do so
        every `load_report_time` of the cluster's configuration (default: 40 s)."""
        found = call(["qconf", "-sconf"])
        interval = re.search(r"(?m)^load_report_time\s+(\d+):(\d+):(\d+)", found.stdout) if found else None
        hours, minutes, rest = map(int, interval.groups()) if interval else (0, 0, 40)
        return max(_MIN_SILENT_S, 1.5 * (3600 * hours + 60 * minutes + rest))

    def submission(self, request: Request, jobs: range, script: str, name: str) -> list[str]:
        """`qsub ... -t 1-4 SCRIPT`. Each rank takes one slot per thread. Times are in seconds; SIGUSR1 warns
        ranks before their time limit."""
        values = dict(request.given)
        skip = () if request.name else ("max_jobs_run",)
        if request.num_ranks:
            values["num_ranks"], skip = str(request.num_ranks * request.num_threads), (*skip, "num_threads")
        if "mem" in values:
            values["mem"] = re.sub(r"i?[bB]?$", "", values["mem"])  # 2GiB -> 2G; qsub accepts fractions
        warning = []
        if "time" in values:
            values["time"] = str(limit_s := seconds(values["time"]))
            warning = ["-l", f"s_rt={max(limit_s - _WARNING_S, limit_s // 2)}"] if request.num_ranks else []
        array = ["-t", f"{jobs[0]}-{jobs[-1]}"] if request.name else []
        words = self.site_words(replace(request, given=tuple(values.items())), skip)
        # -cwd would expand variables in the path; the script changes to it itself
        elsewhere = ["-wd", "/"] if "$" in os.getcwd() else []
        return [*words, *warning, "-N", name, *elsewhere, "-o", "/dev/null", "-j", "y", *array, script]

    def number(self, said: str) -> str:
        """`Your job-array 12.1-3:1 ("x") has been submitted`"""
        return "".join(re.findall(r"job(?:-array)? (\d+)", said)[-1:])

    def fates(self, number: str, tasks: list[int]) -> dict[int, Fate] | None:
        """From qstat; for tasks not listed any more, from qacct, which reads the whole accounting file."""
        done = call(["qstat", "-f", "-u", _own_name(), "-xml"])
        if done is None or done.returncode:
            return None
        try:
            there = _there(ElementTree.fromstring(done.stdout), number)
        except ElementTree.ParseError:
            # the output is truncated or contains a warning; the status files of the jobs still count
            return None
        never = _why_never(number) if any(state == "qw" for state, _, _ in there.values()) else ""
        gone = {} if there.keys() >= set(tasks) else _accounted(number)
        return {**gone, **{task: _fate(number, *found, never) for task, found in there.items()}}

    def cancel(self, number: str) -> bool:
        """qdel"""
        return is_well(call(["qdel", number]))

    def release(self, number: str, tasks: list[int]) -> str:
        """Run qdel -f: a job whose first host is silent would stay listed and keep its slots on all its hosts
        until that host is back. Users who are not managers need ENABLE_FORCED_QDEL on the cluster, and wait
        one minute first."""
        call(["qdel", "-f", *(f"{number}.{task}" if task else number for task in tasks)], answer_s=_FORCED_S)
        left = self.fates(number, tasks) or {}
        hosts = sorted({left[task].host for task in tasks if task in left and left[task].host_lost})
        who = "a manager of Grid Engine can free them"
        return (
            (
                f"job {number} keeps its slots on all its hosts until {' '.join(hosts)} is back; {who}: qdel "
                f"-f {number}"
            )
            if hosts
            else ""
        )


def _own_name() -> str:
    """The name of the user under which Grid Engine submits, independent of LOGNAME."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "*"


def _there(listed: ElementTree.Element, number: str) -> dict[int, tuple[str, str, bool]]:
    """{task: (state, host, whether the host is silent)} of the tasks of a job that `qstat -f -xml` lists. An
    MPI job is listed once per host; a silent host takes precedence."""
    found = {}
    places = [
        (queue, queue.findtext("name", "").partition("@")[2], "u" in queue.findtext("state", ""))
        for queue in listed.iter("Queue-List")
    ]
    places += [(waiting, "", False) for waiting in listed.findall("job_info")]
    for place, host, is_silent in places:
        for job in place.iter("job_list"):
            if job.findtext("JB_job_number") == number:
                for task in numbers_of(job.findtext("tasks", "0")):
                    if is_silent or task not in found:
                        found[task] = job.findtext("state", ""), host, is_silent
    return found


def _fate(number: str, state: str, host: str, is_silent: bool, never: str) -> Fate:
    if "E" in state:
        return Fate(False, f"it could not start: {_error_of(number)} (Grid Engine says {state})", host)
    if is_silent:
        return Fate(False, f"its host {host} was lost (Grid Engine says au)", host, host_lost=True)
    if never and state == "qw":
        return Fate(False, f"it will never start: {never}")
    return Fate(
        True,
        f"waits: {state}" if "h" in state else "",
        host,
        waits="q" in state,
        suspended=not set("sST").isdisjoint(state),
    )


def _error_of(number: str) -> str:
    """The reason of a job's error state."""
    done = call(["qstat", "-j", number])
    found = re.search(
        r"(?m)^error reason\s+\d+:\s+(?:\S+ \S+ \[[\d:]+\]: )?(?:error: )?(.*)", done.stdout if done else ""
    )
    return found[1] if found else "see qstat -j"


def _why_never(number: str) -> str:
    """The request that no host can satisfy; "" if an empty cluster would run the job."""
    done = call(["qalter", "-w", "v", number])
    said = done.stdout.splitlines() if done else []
    if "verification: no suitable queues" not in said:
        return ""
    return (
        "; ".join(re.sub(r"^Job \d+ ", "", line) for line in said[:2] if line.startswith("Job "))
        or "no queue is suitable"
    )


def _accounted(number: str) -> dict[int, Fate]:
    """The ended tasks of a job, according to qacct."""
    done = call(["qacct", "-j", number])
    if done is None or done.returncode:
        return {}
    found = {}
    for record in done.stdout.split("=" * 20):
        fields = dict(re.findall(r"(?m)^(\w+)\s+(.*?)\s*$", record))
        if fields.get("jobnumber") == number:
            found[int(fields["taskid"]) if fields.get("taskid", "").isdigit() else 0] = _ended(fields)
    return found


def _ended(fields: dict[str, str]) -> Fate:
    """The fate of a job from its fields in qacct's output."""
    code, _, text = fields.get("failed", "0").partition(":")
    code, host = code.strip(), fields.get("hostname", "")
    if code in ("0", ""):
        return Fate(False, "", host)
    known = {"37": _OVER_A_LIMIT, "100": _KILLED}.get(code, "it could not be run")
    return Fate(
        False,
        f"{known} (Grid Engine says failed {code}: {text.strip()})",
        host,
        over_limit=known == _OVER_A_LIMIT,
    )
