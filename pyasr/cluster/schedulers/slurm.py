"""Slurm: sbatch, scontrol, scancel. No accounting database is needed: slurmctld still knows a job for a while
after its end (MinJobAge).

The whole environment is exported. If only a part of it is exported, such as PATH, Slurm logs in as the user
on the node to get the rest; this takes seconds, and after a timeout the job waits for minutes.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from pyasr.cluster.runner.command_line import Request
from pyasr.cluster.runner.runner_config import parse_runner_config
from pyasr.cluster.schedulers.scheduler import CUT, Fate, Scheduler, call, is_well, megabytes, numbers_of

_CONFIG = """
command sbatch --export=ALL
option time=* --time=$0
option mem=* --mem-per-cpu=$0
option mem=0
option num_threads=* --cpus-per-task=$0
option num_ranks=* --ntasks=$0 --signal=B:USR1@120
option gpu=* --gres=gpu:$0
option gpu=0
option partition=* --partition=$0
default gpu=0
"""
_WAITING = {
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "RESV_DEL_HOLD",
}
_SUSPENDED = {"SUSPENDED", "STOPPED"}
_ACTIVE = _WAITING | _SUSPENDED | {"RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING"}
_ENDS = {
    "CANCELLED": "it was cancelled (scancel)",
    "TIMEOUT": (
        "it exceeded its time limit of {TimeLimit}; ask for more with --time, or split the work into "
        "more jobs"
    ),
    "DEADLINE": "it could not end before its deadline",
    "OUT_OF_MEMORY": "it used more memory than it had requested; ask for more with --mem",
    "NODE_FAIL": "its node {NodeList} was lost",
    "BOOT_FAIL": "its node {NodeList} did not boot",
    "PREEMPTED": (
        "it was preempted by another job, and Slurm did not queue it again (see --requeue of sbatch)"
    ),
}
_HOST_LOST = ("NODE_FAIL", "BOOT_FAIL")
_OVER_LIMIT = ("OUT_OF_MEMORY", "TIMEOUT")
_NEVER = {
    "BadConstraints": "no node of its partition {Partition} satisfies its constraints",
    "PartitionConfig": "it requests more than its partition {Partition} has",
    "PartitionNodeLimit": "it requests more nodes than its partition {Partition} allows",
    "PartitionTimeLimit": "its time limit {TimeLimit} exceeds the limit of its partition {Partition}",
    "PartitionInactive": "its partition {Partition} is inactive",
    "DependencyNeverSatisfied": "a job that it depends on has failed",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its quality of service is not valid",
    "JobHeldAdmin": "it is held by an administrator, or could not be launched (see scontrol show job)",
    "launch_failed_requeued_held": "it could not be launched on {NodeList}, and is held",
}
_OF_A_JOB = (
    r"SLURM_(JOB|STEP|ARRAY|HET|MEM_PER|NTASKS|NPROCS|NNODES|NODE|CPUS_|TASKS_PER|TRES_PER|GPUS|THREADS_PER|"
    r"DISTRIBUTION$|RESTART_COUNT$|SUBMIT_|PROCID$|LOCALID$|GTIDS$|TASK_PID$)"
)
_OF_QSUB = {
    "-l .*": "resources are --mem, --time and --gpu",
    "-pe .*": "threads are --num-threads, ranks --num-ranks",
    "-j .*": "remove it",
    "-P .*": "a project is -A NAME",
    "-hold_jid .*": "a dependency is -d afterok:NUMBER",
    "-(V|cwd|wd .*|notify .*)": "remove it: jobs always get this environment and directory",
}
_USUAL_WAITS = {"None", "Priority", "Resources", "JobArrayTaskLimit", "BeginTime", "Cleaning"}


class Slurm(Scheduler):
    """Slurm 20 or newer."""

    name = "Slurm"
    own = parse_runner_config(_CONFIG, "slurm.pl's own configuration")
    usual = Path("conf/slurm.conf")
    foreign = _OF_QSUB
    task_variable = "SLURM_ARRAY_TASK_ID"
    not_taken = r"connect failure|temporarily unavailable|unable to create job record|in standby mode"
    unsure = r"timed out|(send|receive|shutdown) failure"

    def submission(self, request: Request, jobs: range, script: str, name: str) -> list[str]:
        """`sbatch ... --array=1-4%2 SCRIPT`. The array limits how many jobs run at a time; a site's file does
        not change that."""
        array = (
            [f"--array={jobs[0]}-{jobs[-1]}" + (f"%{request.max_jobs_run}" if request.max_jobs_run else "")]
            if request.name
            else []
        )
        what = ["--parsable", f"--job-name={name}", "--output=/dev/null", *array, script]
        given = tuple((name, memory(value) if name == "mem" else value) for name, value in request.given)
        words = self.site_words(replace(request, given=given), skip=("max_jobs_run",))
        return [*(_with_several_tasks_on_a_node(words) if _may_share_nodes(request) else words), *what]

    def of_a_job(self) -> list[str]:
        """Variables that describe the resources of the job in which a recipe runs, such as its memory; srun
        would apply them to the inner job. Variables that a user may have set for srun and other programs are
        not included."""
        if "SLURM_JOB_ID" not in os.environ:
            return []
        return [name for name in os.environ if re.match(_OF_A_JOB, name) or _is_binding_of_a_step(name)]

    def number(self, said: str) -> str:
        """The output of `--parsable`, which serves as the job number: NUMBER, or NUMBER;CLUSTER for a cluster
        other than the default."""
        last = "".join(said.split()[-1:])
        return last if re.fullmatch(r"[0-9]+(;\S+)?", last) else ""

    def fates(self, number: str, tasks: list[int]) -> dict[int, Fate] | None:
        """From `scontrol show job`, where waiting tasks of an array may share a line."""
        words = ["scontrol", *_cluster(number), "show", "job", "-o", _alone(number)]
        done = call(words, SLURM_BITSTR_LEN="0")  # without this, Slurm truncates long lists of tasks
        if done is None or done.returncode and "Invalid job id" not in done.stderr + done.stdout:
            return None
        found, of_others = {}, {}
        for line in done.stdout.splitlines():
            fields = dict(re.findall(r"(\w+)=(\S*)", line))
            if "JobState" in fields:
                there = fields.get("ArrayTaskId", "0")
                found.update(dict.fromkeys(numbers_of(there), fate(fields)))
                of_others.update(dict.fromkeys(tasks, fate(fields)) if CUT in there else {})
        return {**of_others, **found}

    def cancel(self, number: str) -> bool:
        """scancel"""
        return is_well(call(["scancel", *_cluster(number), _alone(number)]))


def _is_binding_of_a_step(name: str) -> bool:
    """Whether a variable describes the processors or memory to which a step, such as `srun --pty bash`, is
    bound; jobs of a recipe in that step are bound to others. A user who sets SLURM_CPU_BIND for srun does not
    set the further variables that srun adds."""
    found = re.match("SLURM_(CPU|MEM)_BIND", name)
    return found is not None and f"{found[0]}_TYPE" in os.environ


def memory(amount: str) -> str:
    """An amount of memory in Slurm's format, which has no fractions: 1.5G -> 1536M, 2GiB -> 2G."""
    return f"{megabytes(amount)}M" if "." in amount else re.sub("i?[bB]?$", "", amount)


def _may_share_nodes(request: Request) -> bool:
    """Whether there are several ranks and the site's `option num_ranks` does not set the number per node."""
    return request.num_ranks > 1 and "--ntasks-per-node" not in "".join(
        request.site.options.get("num_ranks", {}).values()
    )


def _with_several_tasks_on_a_node(words: list[str]) -> list[str]:
    """Remove `--ntasks-per-node=1`, which Kaldi's configuration sets for jobs of one task: each rank would
    need its own node."""
    alone = ["--ntasks-per-node", "1"]
    pairs = {place for place in range(len(words)) if words[place : place + 2] == alone}
    return [
        word
        for place, word in enumerate(words)
        if word != "=".join(alone) and pairs.isdisjoint((place, place - 1))
    ]


def _alone(number: str) -> str:
    """The job number without the name of the cluster."""
    return number.partition(";")[0]


def _cluster(number: str) -> list[str]:
    """Options that select the job's cluster."""
    cluster = number.partition(";")[2]
    return ["-M", cluster] if cluster else []


def fate(fields: dict[str, str]) -> Fate:
    """The fate of a job from its fields in the output of `scontrol show job`."""
    state, why, host = fields["JobState"], fields.get("Reason", "None"), fields.get("BatchHost", "")
    if why in _NEVER and state in ("PENDING", "FAILED"):
        return Fate(False, f"it will never start: {_filled(_NEVER[why], fields)} (Slurm says {why})")
    if state in _ACTIVE:
        reason = f"waits: {why}" if state == "PENDING" and why not in _USUAL_WAITS else ""
        return Fate(True, reason, host, waits=state in _WAITING, suspended=state in _SUSPENDED)
    if state in _ENDS:
        return Fate(
            False,
            f"{_filled(_ENDS[state], fields)} (Slurm says {state})",
            host,
            state in _HOST_LOST,
            over_limit=state in _OVER_LIMIT,
        )
    return Fate(False, "", host)


def _filled(sentence: str, fields: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: fields.get(match[1], "?"), sentence)
