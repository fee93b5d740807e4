"""A real Slurm with emulated nodes on this machine, in its own directory. It does not touch ports, keys or
files of an installed Slurm."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "sinfo")
_DAEMONS = ":/usr/sbin:/usr/local/sbin"


def why_not() -> str | None:
    """Reason why Slurm cannot be started here; None if it can."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=os.environ["PATH"] + _DAEMONS) is None]
    if missing:
        return (
            f"needs Slurm: {', '.join(missing)} not found (apt-get install slurmctld slurmd slurm-client "
            "munge slurm-wlm-basic-plugins)"
        )
    return "needs root, to start Slurm's daemons" if os.geteuid() != 0 else None


def free_ports(number: int) -> list[int]:
    """Free ports of this machine."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


_CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={dir}/munge.socket
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd-%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=100000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
KillWait=3
SlurmdTimeout=300
MessageTimeout=60
InactiveLimit=0
ReturnToService=2
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
TmpFS={dir}
PartitionName=main Nodes=n[1-{last}] Default=YES PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=n[1-{last}] PriorityTier=9 PreemptMode=OFF
PartitionName=lonely Nodes=n{num}
"""


class SlurmCluster:
    """`num` nodes n1, n2, ... with `cpus` CPUs each; the last one is in its own partition "lonely". Jobs of
    the partition "urgent" preempt jobs of "main". Programs find the cluster by SLURM_CONF, which
    `environment` has."""

    def __init__(self, directory: Path, num: int = 4, cpus: int = 2):
        self.directory, self.num = Path(directory), num
        self.environment = {
            **os.environ,
            "PATH": os.environ["PATH"] + _DAEMONS,
            "SLURM_CONF": str(self.directory / "slurm.conf"),
        }
        self._configure(cpus)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _configure(self, cpus: int) -> None:
        host, ports = socket.gethostname().partition(".")[0], free_ports(self.num + 1)
        nodes = [
            (
                f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[i]} CPUs={cpus} "
                "RealMemory=4000 State=UNKNOWN\n"
            )
            for i in range(1, self.num + 1)
        ]
        (self.directory / "state").mkdir(parents=True)
        for i in range(1, self.num + 1):
            (self.directory / "spool" / f"n{i}").mkdir(parents=True)
        text = _CONF.format(host=host, ports=ports, dir=self.directory, num=self.num, last=self.num - 1)
        (self.directory / "slurm.conf").write_text(
            text.replace("PartitionName", "".join(nodes) + "PartitionName", 1)
        )
        (self.directory / "munge.key").write_bytes(os.urandom(128))
        (self.directory / "munge.key").chmod(0o400)

    def _start(self) -> None:
        d = self.directory
        self.call(
            "munged",
            "--force",
            f"--socket={d}/munge.socket",
            f"--key-file={d}/munge.key",
            f"--log-file={d}/munged.log",
            f"--pid-file={d}/munged.pid",
            f"--seed-file={d}/munged.seed",
        )
        self.call("slurmctld")
        for i in range(1, self.num + 1):
            self.call("slurmd", "-N", f"n{i}")
        self.wait_until_idle("urgent,lonely", self.num)

    def wait_until_idle(self, partitions: str, num: int, timeout_s: float = 20) -> None:
        """Wait until this number of nodes of the partitions are up and have no running or completing jobs."""
        deadline = time.monotonic() + timeout_s
        while self.call("sinfo", "-h", "-N", "-t", "idle", "-p", partitions, "-o", "%N").count("n") < num:
            assert time.monotonic() < deadline, "Slurm's nodes did not become idle: " + self.call("sinfo")
            time.sleep(0.1)

    def lose_node(self, name: str) -> None:
        """Simulate a power failure: kill the node's daemon and everything that it started. The site's health
        check sets the node down."""
        daemon = int((self.directory / f"slurmd-{name}.pid").read_text())
        jobs = self.processes(name)
        watching = {parent_of(pid) for pid in jobs} - set(jobs)
        for pid in [daemon, *watching, *jobs]:
            kill(pid)
        self.call("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=power")

    def processes(self, name: str) -> list[int]:
        """Processes of jobs on a node."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                environment = path.read_bytes()
            except OSError:
                continue
            if (
                f"SLURMD_NODENAME={name}\0".encode() in environment
                and str(self.directory).encode() in environment
            ):
                found.append(int(path.parent.name))
        return found

    def call(self, *words: str) -> str:
        """Output of a Slurm program. A failure ends the test."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def stop(self) -> None:
        """End all daemons and jobs."""
        subprocess.run(["scancel", "-u", "root"], env=self.environment, capture_output=True, timeout=20)
        for file in sorted(self.directory.glob("*.pid"), reverse=True):
            end_process(int(file.read_text() or 0))


def end_process(pid: int, timeout_s: float = 5.0) -> None:
    """Send SIGTERM, and SIGKILL if the process does not end."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + timeout_s
        while pid > 1 and is_alive(pid) and time.monotonic() < deadline:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return
            time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Whether the process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def parent_of(pid: int) -> int:
    """PID of the living parent of a process; 0 if the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def kill(pid: int) -> None:
    """Send SIGKILL if the process exists."""
    with contextlib.suppress(ProcessLookupError):
        if pid > 1:
            os.kill(pid, signal.SIGKILL)
