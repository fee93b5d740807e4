"""Hosts with slow links on one machine, for benchmarks: Linux network namespaces on a private switch. Needs root.

    with SlowNetwork(4) as network:
        network.limit(1000)                                    # Mbit/s, each direction of each host's link
        network.run_ranks([sys.executable, "-m", "mpi4py", "x.py"], timeout_s=60)

Each host is a namespace with one interface, eth0, at 10.99.0.1, 10.99.0.2, ...; nothing outside can be reached. Limits are token buckets of
5 ms; no delay is added. What a killed run has left behind is removed by the next.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.cluster.mpi import ROOT, find_mpiexec, flavour
from pyasr.cluster.processes import die_with_parent

_NAME = "pyasr_net"  # namespaces are called pyasr_net.PID.HOST, the switch is host 0
_BUCKET_S, _LEAST_BUCKET, _QUEUE = 0.005, 131072, "100ms"  # bytes
_TOOLS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux"}

# An "ssh" for mpiexec: `ENTER [options] ADDRESS COMMAND...`; the last number of the address is that of the host.
_ENTER = """#!/bin/bash
while [[ $1 == -* ]]; do case $1 in -l|-p|-o|-i) shift;; esac; shift; done
host=${{1##*.}}; shift
exec ip netns exec {prefix}.$host unshare --uts bash -c "hostname host$host; $*"
"""


class SlowNetwork:
    """`num_hosts` hosts, from `with` on until its end. Raises UserError without root or the programs that are needed."""

    def __init__(self, num_hosts: int):
        self.num_hosts, self._prefix = num_hosts, f"{_NAME}.{os.getpid()}"
        self._folder: Path | None = None

    def __enter__(self) -> SlowNetwork:
        check_possible()
        remove_leftovers()
        self._folder = Path(tempfile.mkdtemp(prefix="slow_network"))
        self._enter = self._folder / "enter"
        self._enter.write_text(_ENTER.format(prefix=self._prefix))
        self._enter.chmod(0o755)
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error) -> None:
        remove([name for name in namespaces() if name.startswith(self._prefix + ".")])
        shutil.rmtree(self._folder, ignore_errors=True)

    def addresses(self) -> list[str]:
        """Of the hosts, in the ranks' order."""
        return [f"10.99.0.{host}" for host in self._hosts()]

    def limit(self, mbit_per_s: int) -> None:
        """What each link carries from now on, in each direction."""
        bucket = max(int(mbit_per_s * 1e6 / 8 * _BUCKET_S), _LEAST_BUCKET)
        shape = f"tbf rate {mbit_per_s}mbit burst {bucket} latency {_QUEUE}"
        for host in self._hosts():
            _call(f"tc -n {self._name(host)} qdisc replace dev eth0 root {shape}")
            _call(f"tc -n {self._name(0)} qdisc replace dev port{host} root {shape}")

    def run_ranks(self, words: list[str], timeout_s: float) -> None:
        """Run a command as one MPI rank on each host. Raises UserError when it fails or takes too long."""
        command = [str(self._enter), self.addresses()[0], *self._mpiexec(), *words]
        with subprocess.Popen(command, env=self._environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              preexec_fn=die_with_parent) as process:  # fmt: skip
            try:
                said, _ = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                raise UserError(f"the ranks were not done after {timeout_s:.0f} s; give a smaller message or fewer minibatches") from None
            finally:
                end_processes([self._name(host) for host in self._hosts()])
        if process.returncode:
            raise UserError(f"the ranks failed (status {process.returncode}); their last words:\n" + said[-2000:])

    def _hosts(self) -> range:
        return range(1, self.num_hosts + 1)

    def _name(self, host: int) -> str:
        return f"{self._prefix}.{host}"

    def _build(self) -> None:
        switch = self._name(0)
        _call(f"ip netns add {switch}")
        _call(f"ip -n {switch} link add switch type bridge")
        _call(f"ip -n {switch} link set switch up")
        for host, address in zip(self._hosts(), self.addresses()):
            name = self._name(host)
            _call(f"ip netns add {name}")
            _call(f"ip -n {name} link set lo up")
            _call(f"ip -n {name} link add eth0 type veth peer name port{host} netns {switch}")
            _call(f"ip -n {switch} link set port{host} master switch up")
            _call(f"ip -n {name} addr add {address}/24 dev eth0")
            _call(f"ip -n {name} link set eth0 up")

    def _mpiexec(self) -> list[str]:
        mpiexec, hosts = find_mpiexec(), ",".join(self.addresses())
        if flavour(mpiexec) == "mpich":
            words = ["-launcher", "ssh", "-launcher-exec", str(self._enter), "-hosts", hosts, "-iface", "eth0"]
        else:
            words = ["--allow-run-as-root", "--bind-to", "none", "--host", hosts, "--prtemca", "plm_ssh_agent", str(self._enter)]
            for name, value in {"pml": "ob1", "btl": "tcp,self", "osc": "^ucx", "btl_tcp_if_include": "eth0"}.items():
                words += ["--mca", name, value]
        return [str(mpiexec), *words, "-n", str(self.num_hosts)]

    @staticmethod
    def _environment() -> dict[str, str]:
        over_tcp = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0", "UCX_LOG_LEVEL": "error", "GLOO_SOCKET_IFNAME": "eth0"}
        python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return {**os.environ, "PYTHONPATH": python_path, "OMP_NUM_THREADS": "1", **over_tcp}


def check_possible() -> None:
    """Raise UserError unless this process may make network namespaces."""
    if os.geteuid() != 0:
        raise UserError("slow links are made of network namespaces, which need root: run it as root, on Linux")
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            raise UserError(f"slow links need the program '{tool}': install the package {package}")


def namespaces() -> list[str]:
    """Names of all namespaces that this module has made, of any process."""
    listed = _call("ip netns list").splitlines()
    return [line.split()[0] for line in listed if line.startswith(_NAME + ".")]


def remove_leftovers() -> None:
    """Remove the namespaces of processes that have died."""
    made = [(name, re.fullmatch(rf"{re.escape(_NAME)}\.(\d+)\.\d+", name)) for name in namespaces()]
    remove([name for name, found in made if found and not Path(f"/proc/{found[1]}").exists()])


def remove(names: list[str]) -> None:
    """End all processes in these namespaces, then remove them."""
    end_processes(names)
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False)


def end_processes(names: list[str]) -> None:
    """SIGKILL to all that runs in these namespaces."""
    for name in names:
        for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass  # harmless: it has ended by itself


def _call(command: str) -> str:
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"'{command}' failed: {done.stderr.strip() or done.returncode}; are network namespaces allowed here?")
    return done.stdout
