"""A real Grid Engine on this machine, in its own directory. It does not touch the cell, ports or spool of an
installed Grid Engine."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from slurm_cluster import end_process, free_ports, is_alive, kill

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from private_network import PrivateNetwork  # noqa: E402

_PROGRAMS = ("sge_qmaster", "sge_execd", "qsub", "qstat", "qacct", "qconf")
# Debian's /usr/sbin has scripts of these names that start thirty programs before the binaries
_BINARIES = "/usr/lib/gridengine"
_DAEMONS = f"{_BINARIES}:/usr/sbin"
_INSTALLED = Path("/var/lib/gridengine")  # Debian's
_INIT = Path("/usr/share/gridengine/scripts/init_cluster")


def why_not() -> str | None:
    """Reason why Grid Engine cannot be started here; None if it can."""
    missing = [
        name for name in _PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:{_DAEMONS}") is None
    ]
    if missing:
        packages = "gridengine-master gridengine-exec gridengine-client"
        return (
            f"needs Grid Engine: {', '.join(missing)} not found (DEBIAN_FRONTEND=noninteractive apt-get "
            f"install {packages})"
        )
    if not _INIT.exists():
        return f"needs Debian's Grid Engine, with {_INIT}"
    return "needs root, to start Grid Engine's daemons" if os.geteuid() != 0 else None


_NONE = {
    "host": "load_scaling user_lists xuser_lists projects xprojects usage_scaling report_variables",
    "pe": "user_lists xuser_lists start_proc_args stop_proc_args qsort_args",
    "queue": (
        "load_thresholds suspend_thresholds ckpt_list prolog epilog starter_method suspend_method "
        "resume_method terminate_method owner_list user_lists xuser_lists subordinate_list complex_values "
        "projects xprojects calendar"
    ),
}
_QUEUE = """qname all.q
hostlist @allhosts
seq_no 0
nsuspend 1
suspend_interval 00:05:00
priority 0
min_cpu_interval 00:05:00
processors UNDEFINED
qtype BATCH INTERACTIVE
pe_list smp mpi
rerun FALSE
slots {slots}
tmpdir {scratch}
shell /bin/bash
shell_start_mode posix_compliant
notify {notify_s}
initial_state default
"""
_LIMITS = [
    f"{kind}_{what} INFINITY\n"
    for what in ("rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem")
    for kind in "sh"
]
_PE = """pe_name {name}
slots 999
allocation_rule {rule}
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary FALSE
"""


def _none(kind: str) -> str:
    return "".join(f"{name} NONE\n" for name in _NONE[kind].split())


def _changed(configuration: str, **values: str) -> str:
    """Lines `NAME VALUE` of a configuration, some with changed values."""
    lines = [line.split(maxsplit=1) for line in configuration.splitlines() if line and line[0] != "#"]
    return "".join(f"{name} {values.get(name, rest)}\n" for name, rest in lines)


class GridEngineCluster:
    """Hosts with `slots` slots each in all.q, Kaldi's complexes, and parallel environments smp and mpi. The
    hosts are either this machine alone or all hosts of a private network, whose first host is also the
    master. `environment` lets programs find the cluster; `on` runs a command on a host."""

    def __init__(self, directory: Path, slots: int = 8, network: PrivateNetwork | None = None):
        self.directory, self.network = Path(directory), network
        self.hosts = network.hosts if network else [socket.gethostname()]
        self.host = self.hosts[0]
        ports = free_ports(2)
        self.environment = {
            **os.environ,
            "PATH": f"{_DAEMONS}:{os.environ['PATH']}",
            "SGE_ARCH": "lx-amd64",
            "SGE_ROOT": str(self.directory / "root"),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(ports[0]),
            "SGE_EXECD_PORT": str(ports[1]),
        }
        self._make_cell()
        try:
            self._start(slots)
        except BaseException:
            self.stop()
            raise

    def _make_cell(self) -> None:
        """Create a cell with its spool in this directory and root as manager."""
        root, common = self.directory / "root", self.directory / "root" / "default" / "common"
        for path in (
            common,
            *(self.directory / name for name in ("qmaster", "spooldb", "execd")),
            *map(self._scratch, self.hosts),
        ):
            path.mkdir(parents=True)
        for name in ("util", "lib", "bin", "utilbin"):
            (root / name).symlink_to(_INSTALLED / name)
        installed = (
            (_INSTALLED / "default/common/bootstrap")
            .read_text()
            .replace("/var/spool/gridengine", str(self.directory))
        )
        (common / "bootstrap").write_text(_changed(installed, admin_user="none", binary_path=_BINARIES))
        if not self.network:  # 127.0.0.1 resolves to localhost
            (common / "host_aliases").write_text(
                f"{self.host} localhost localhost.localdomain ip6-localhost\n"
            )
        (common / "act_qmaster").write_text(self.host + "\n")
        self.call("sh", str(_INIT), str(root), "default", str(self.directory / "spooldb"), "root")

    def _start(self, slots: int) -> None:
        self.call("sge_qmaster")
        self._until(lambda: self._ask("qconf", "-sh").returncode == 0, "sge_qmaster does not answer")
        self.call("qconf", "-as", self.host)
        complexes = (
            self.call("qconf", "-sc")
            + "ram_free ram_free MEMORY <= YES JOB 0 0\ngpu g INT <= YES YES 0 10000\n"
        )
        self._give("-Mc", complexes)
        for host in self.hosts:
            self._give(
                "-Ae", f"hostname {host}\ncomplex_values gpu=2,ram_free=16G,mem_free=16G\n" + _none("host")
            )
        for name, rule in (("smp", "$pe_slots"), ("mpi", "$round_robin")):
            self._give("-Ap", _PE.format(name=name, rule=rule) + _none("pe"))
        self._give("-Ahgrp", f"group_name @allhosts\nhostlist {' '.join(self.hosts)}\n")
        scratch = "/tmp" + "".join(f",[{host}={self._scratch(host)}]" for host in self.hosts)
        self._give(
            "-Aq",
            _QUEUE.format(slots=slots, scratch=scratch, notify_s="00:00:03" if self.network else "00:00:20")
            + "".join(_LIMITS)
            + _none("queue"),
        )
        self._change(
            "-ssconf",
            "-Msconf",
            schedule_interval="0:0:1",
            flush_submit_sec="1",
            flush_finish_sec="1",
            schedd_job_info="true",
        )
        self._change(
            "-sconf",
            "-Mconf",
            execd_spool_dir=str(self.directory / "execd"),
            min_uid="0",
            min_gid="0",
            load_report_time="00:00:02",
            max_unheard="00:00:08",
            gid_range=_gids(self.environment),
            login_shells="csh",  # other shells read a profile, which may be slow
            reporting_params=(
                "accounting=true reporting=false flush_time=00:00:01 joblog=false sharelog=00:00:00"
            ),
        )
        self.start(*self.hosts)

    def start(self, *hosts: str) -> None:
        """Start the daemons and wait until the queues accept jobs."""
        for host in hosts:
            self.call("sge_execd", host=host)
        self._until(self._take_jobs, "not all hosts came up")

    def _take_jobs(self) -> bool:
        queues = self._ask("qstat", "-f").stdout
        return all(f"@{host} " in queues for host in self.hosts) and "-NA-" not in queues

    def _scratch(self, host: str) -> Path:
        """Directory for temporary files of a host's jobs, separate from those of other users and other Grid
        Engines."""
        return self.directory / "tmp" / host

    def _give(self, flag: str, text: str) -> None:
        """Give `text` to qconf."""
        # the file name selects the host's configuration
        file = self.directory / ("global" if flag == "-Mconf" else "given")
        file.write_text(text)
        self.call("qconf", flag, str(file))

    def _change(self, show: str, give: str, **values: str) -> None:
        self._give(give, _changed(self.call("qconf", show), **values))

    def _until(self, condition, otherwise: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, otherwise + ": " + self._ask("qstat", "-f").stderr
            time.sleep(0.2)

    def on(self, host: str, words: Sequence[str | Path]) -> list[str]:
        """Command that runs a command on a host."""
        return self.network.on(host, words) if self.network else list(map(str, words))

    def _ask(self, *words: str, host: str | None = None) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.on(host or self.host, words),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def call(self, *words: str, host: str | None = None) -> str:
        """Output of a Grid Engine program. A failure ends the test."""
        done = self._ask(*words, host=host)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def lose(self, host: str) -> None:
        """Simulate a power failure: kill the host's daemon and everything that it started."""
        if self.network:
            return self.network.lose(host)
        for process in [*map(_pid, self._execds()), *self._started()]:
            kill(process)

    def restore(self, host: str) -> None:
        """Simulate the end of a power failure."""
        if self.network:
            self.network.restore(host)
        self.start(host)

    def _execds(self) -> list[Path]:
        """PID files of the execution daemons. The directory of this machine is not always named after its
        host."""
        return list(self.directory.glob("execd/*/execd.pid"))

    def _started(self) -> list[int]:
        """Processes of jobs, their shepherds first."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if (
                    f"SGE_ROOT={self.directory}".encode() in path.read_bytes()
                    and b"JOB_ID=" in path.read_bytes()
                ):
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found

    def stop(self) -> None:
        """End all daemons and jobs."""
        self._ask("qdel", "-u", "root")
        for file in [*self._execds(), self.directory / "qmaster/qmaster.pid"]:
            if is_alive(pid := _pid(file)):
                end_process(pid)


def _gids(environment: dict[str, str]) -> str:
    """Group ids by which hosts identify processes of jobs, different from those of an installed Grid
    Engine."""
    first = 20000 + 100 * (int(environment["SGE_QMASTER_PORT"]) % 400)
    return f"{first}-{first + 99}"


def _pid(file: Path) -> int:
    return int(file.read_text().strip() or 0) if file.exists() else 0
