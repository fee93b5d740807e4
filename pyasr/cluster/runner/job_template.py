"""Start the jobs of a group as forks of one process that has already imported their modules
(`pyasr.base.jobs.job_forks`). The start of a job then takes hundredths of a CPU second, instead of tenths, or
more than a second with torch.

Like a job started in the usual way, a forked job is a child of this process and leads a process group: it has
its own log, exit status, signals, memory and environment. If the process to fork is not available or has
ended, jobs are started in the usual way.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO

from pyasr.base.jobs.fork_messages import MESSAGE_BYTES, READY
from pyasr.cluster.runner.command_line import Request
from pyasr.cluster.runner.processes import Guard

_OF_A_JOB = ("-m", "pyasr.base.jobs.job")
_PLAIN = r"[\w@%+=:,./-]+"  # words that a shell does not change
_PR_SET_CHILD_SUBREAPER = 36  # <sys/prctl.h>


@dataclass
class Forked:
    """A job's process, with the attributes of `subprocess.Popen` that the runner uses."""

    pid: int
    returncode: int | None = None


class JobTemplate:
    """The process whose forks are the jobs of a request; it starts with the first job."""

    def __init__(self, environment: dict[str, str], guard: Guard):
        self._environment, self._guard = environment, guard
        self._process: subprocess.Popen | None = None
        self._channel: socket.socket | None = None
        self._said: IO[bytes] | None = None
        self._is_usable = True

    def fork(self, words: list[str], log: int, environment: dict[str, str]) -> tuple[Forked, int] | None:
        """(process of the job, pipe through which `begin` starts its work); None if the job cannot be forked.

        words        the job's command; `are_of_a_fork` must be true for its request
        log          file descriptor for its output
        environment  variables in addition to the common environment
        """
        try:
            channel = self._ready(*words[3:5])
            if channel is None:
                return None
            reader, writer = os.pipe()
            try:
                request = json.dumps({"job": int(words[5]), "environment": environment}).encode()
                socket.send_fds(channel, [request], [log, reader])
            finally:
                os.close(reader)
            answer = channel.recv(MESSAGE_BYTES)
            if answer and _parent_of(int(answer)) == os.getpid():
                return Forked(int(answer)), writer
            os.close(writer)
        except OSError:
            pass  # harmless: the job is started in the usual way
        self._is_usable = False
        return None

    def _ready(self, name: str, spec: str) -> socket.socket | None:
        """The connection to the process to fork; None if that is not ready. It is not used if it prints
        anything, because that belongs in the log of each job."""
        if self._is_usable and self._channel is None:
            self._begin(name, spec)
        channel, said = self._channel, self._said
        self._is_usable = (
            self._is_usable
            and channel is not None
            and said is not None
            and channel.recv(len(READY)) == READY
            and not os.fstat(said.fileno()).st_size
        )
        return channel if self._is_usable else None

    def _begin(self, name: str, spec: str) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said = tempfile.TemporaryFile()
        command = [sys.executable, "-m", "pyasr.base.jobs.job_forks", name, spec, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                env=self._environment,
                pass_fds=[theirs.fileno()],
                preexec_fn=self._guard.enter,
            )
        self._guard.hold(str(self._process.pid))

    def close(self) -> None:
        """End the process; no further jobs can be forked."""
        if self._process and self._channel and self._said:
            self._channel.close()
            self._process.kill()
            self._process.wait()
            self._guard.drop(str(self._process.pid))
            self._said.close()


def _parent_of(process: int) -> int:
    """The parent of a process. It is not this runner if the kernel (or its emulation) has no subreapers."""
    with open(f"/proc/{process}/stat", "rb") as f:
        return int(f.read().rpartition(b")")[2].split()[1])


def begin(go: int) -> None:
    """Start the work of a forked job."""
    with os.fdopen(go, "wb") as f:
        f.write(b"!")


def are_of_a_fork(request: Request) -> bool:
    """Whether a request has several jobs, all started by `run_jobs`, that need neither a shell nor GPUs."""
    words = request.words
    is_of_run_jobs = (
        len(words) == 6
        and words[0] == sys.executable
        and words[1:3] == _OF_A_JOB
        and words[5] == request.name
    )
    is_plain = all(re.fullmatch(_PLAIN, word, re.ASCII) for word in words)
    return (
        sys.platform.startswith("linux")
        and len(request.jobs) > 1
        and not request.gpu
        and is_of_run_jobs
        and is_plain
    )
