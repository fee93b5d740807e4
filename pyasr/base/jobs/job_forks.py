"""Run the jobs of a group as forks of one process that has already imported their libraries: `python -m
pyasr.base.jobs.job_forks MODULE:FUNCTION SPEC.json SOCKET`, which run.pl starts
(`pyasr.cluster.runner.job_template`).

A request on the socket is {"job": 3, "environment": {...}} with two file descriptors, the job's log and a
pipe; the reply is the ID of the process that becomes the job. The job is an independent process: a session
leader, a child of run.pl, with its own memory, which starts as a copy of this process's. It waits until
run.pl, which then knows its ID, writes to the pipe; if the pipe is closed instead, it exits.

The first job that succeeds reports which libraries it imported and which kernels it loaded; this process
loads them, too, for all later jobs. A process with threads is not forked: if an import has started threads,
this process ends, and run.pl starts each job by itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pickle
import signal
import socket
import sys
from typing import NoReturn

from pyasr.base.compiled.kernels import load_kernels, loaded_kernels
from pyasr.base.jobs import job
from pyasr.base.jobs.fork_messages import MESSAGE_BYTES, READY
from pyasr.base.jobs.parent import die_with_parent
from pyasr.base.jobs.process_end import leave

_REPORT_BYTES = 1 << 17


class Template:
    """The state of this process, and the forking of jobs."""

    def __init__(self, name: str, spec: str, channel: socket.socket):
        self.name, self.spec, self.channel = name, spec, channel
        self.reports, self._to_reports = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.reports.setblocking(False)
        self.has_learned = False
        job.resolve(name)

    def serve(self) -> None:
        """Fork jobs until run.pl has no more, or a library has started threads."""
        while _is_alone():
            self.channel.send(READY)
            message, files, *_ = socket.recv_fds(self.channel, MESSAGE_BYTES, 2)
            self._learn()
            if not message or not _is_alone():
                return
            self.channel.send(str(self._fork(json.loads(message), *files)).encode())
            for file in files:
                os.close(file)

    def _fork(self, request: dict, log: int, go: int) -> int:
        """Fork a job; its process ID. The intermediate parent exits at once, so run.pl becomes the parent."""
        gc.freeze()  # otherwise garbage collection would copy all pages that jobs share
        reader, writer = os.pipe()
        if not (parent := os.fork()):
            if not os.fork():
                self._be(request, log, go, writer)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, encoding="ascii") as said:
            process = int(said.readline())
        os.waitpid(parent, 0)
        return process

    def _be(self, request: dict, log: int, go: int, writer: int) -> NoReturn:
        """Become the job: new session, standard streams, environment; then run it and exit."""
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.write(writer, f"{os.getpid()}\n".encode())
        os.close(writer)
        self.channel.close()
        if not os.read(go, 1):
            os._exit(0)
        kept = [] if self.has_learned else [os.dup2(self._to_reports.fileno(), 3, inheritable=False)]
        _close_files(3 + len(kept))
        os.environ.update(request["environment"])
        argv = [self.name, self.spec, str(request["job"])]
        sys.argv[:] = [job.__file__, *argv]
        _leave_like_a_program(argv, socket.socket(fileno=kept[0]) if kept else None)

    def _learn(self) -> None:
        """Import the modules and load the kernels that the first job reported. Without a report, jobs import
        them themselves."""
        if self.has_learned:
            return
        try:
            modules, kernels = pickle.loads(self.reports.recv(_REPORT_BYTES))
        except BlockingIOError:
            return
        self.has_learned = True
        for name in modules:
            importlib.import_module(name)
        load_kernels(kernels)


def _leave_like_a_program(argv: list[str], report: socket.socket | None) -> NoReturn:
    """Run the job and exit with the status and output that Python would give the program."""
    try:
        status = job.main(argv)
        if report and not status:
            _report(report)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        status = 1
    leave(status)


def _close_files(first: int) -> None:
    """Close all file descriptors from this number on, as for a newly started program."""
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:
        if number >= first:
            with contextlib.suppress(OSError):  # harmless: it was the descriptor of the directory listing
                os.close(number)


def _report(channel: socket.socket) -> None:
    """Send the names of imported modules (of pyasr; packages of other libraries) and of loaded kernels."""
    packages = {
        name.partition(".")[0] if not name.startswith("pyasr.") else name: None for name in sys.modules
    }
    found = [name for name in packages if getattr(sys.modules.get(name), "__spec__", None)]
    # harmless: another job reports, or jobs import
    with contextlib.suppress(OSError, pickle.PicklingError, TypeError, AttributeError):
        channel.send(pickle.dumps((found, loaded_kernels())), socket.MSG_DONTWAIT)


def _is_alone() -> bool:
    """Whether this process has no other threads."""
    return len(os.listdir("/proc/self/task")) == 1


def main(argv: list[str]) -> None:
    """Serve the run.pl at the other end of a socket: `argv` = [MODULE:FUNCTION, SPEC.json, SOCKET]."""
    die_with_parent(signal.SIGKILL)
    # a scheduler's warnings before the time limit are for run.pl
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    Template(argv[0], argv[1], socket.socket(fileno=int(argv[2]))).serve()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
