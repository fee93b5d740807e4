"""Hosts of a private network on one machine: Linux network namespaces on a virtual switch. Needs root.

    with PrivateNetwork(3) as network:
        subprocess.run(network.on("host2", ["hostname"]))      # host2
        network.lose("host2")                                  # simulates a power failure

They are called host1, host2, ..., resolve each other's names, and share this machine's filesystem. Each has
one interface, eth0, with the address 10.99.0.1, 10.99.0.2, ... They have no connection to the outside, so
networks of several processes can use the same addresses. Namespaces of a killed run are removed by the next
one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pyasr.base.errors import UserError

_NAME = "pyasr_net"  # namespaces are called pyasr_net.PID.NETWORK.HOST, the switch is host 0
_NUMBERS = itertools.count(1)
_TOOLS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux"}

# An "ssh" for mpiexec: `ENTER [options] HOST_OR_ADDRESS COMMAND...`; the last number is that of the host.
# `ip` makes a namespace of mounts, so no other process sees these names of hosts.
_ENTER = """#!/bin/bash
while [[ $1 == -* ]]; do case $1 in -l|-p|-o|-i) shift;; esac; shift; done
host=${{1##*[!0-9]}}; shift
exec ip netns exec {prefix}.$host unshare --uts bash -c \
    "hostname host$host && mount --bind {hosts} /etc/hosts || exit; $*"
"""


class PrivateNetwork:
    """`num_hosts` hosts that exist during a `with` block. Raises UserError without root or the required
    programs.

    hosts  their names
    """

    def __init__(self, num_hosts: int):
        self.num_hosts, self._prefix = num_hosts, f"{_NAME}.{os.getpid()}.{next(_NUMBERS)}"
        self.hosts = [f"host{number}" for number in self._numbers()]
        self._folder: Path | None = None

    def __enter__(self):
        check_possible()
        remove_leftovers()
        self._folder = Path(tempfile.mkdtemp(prefix="private_network"))
        (self._folder / "hosts").write_text(
            "127.0.0.1 localhost\n" + "".join(map("{} {}\n".format, self.addresses(), self.hosts))
        )
        self._enter = self._folder / "enter"
        self._enter.write_text(_ENTER.format(prefix=self._prefix, hosts=self._folder / "hosts"))
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
        """Addresses of the hosts."""
        return [f"10.99.0.{number}" for number in self._numbers()]

    def on(self, host: str, words: Sequence[str | Path]) -> list[str]:
        """The command that runs these words on a host, in its own process."""
        return [str(self._enter), host, f"exec {shlex.join(map(str, words))}"]

    def lose(self, host: str) -> None:
        """Simulate a power failure: stop all processes of the host and its network, without closing its
        connections."""
        name = self._of(host)
        call(f"ip -n {name} link set eth0 down")
        end_processes([name])

    def restore(self, host: str) -> None:
        """Simulate the return of power: restore the network; no processes run yet."""
        call(f"ip -n {self._of(host)} link set eth0 up")

    def processes(self, host: str) -> list[int]:
        """Processes that run on a host."""
        return _processes(self._of(host))

    def _numbers(self) -> range:
        return range(1, self.num_hosts + 1)

    def _of(self, host: str) -> str:
        return self._name(self.hosts.index(host) + 1)

    def _name(self, number: int) -> str:
        return f"{self._prefix}.{number}"

    def _build(self) -> None:
        switch = self._name(0)
        call(f"ip netns add {switch}")
        call(f"ip -n {switch} link add switch type bridge")
        call(f"ip -n {switch} link set switch up")
        for number, address in zip(self._numbers(), self.addresses()):
            name = self._name(number)
            call(f"ip netns add {name}")
            call(f"ip -n {name} link set lo up")
            call(f"ip -n {name} link add eth0 type veth peer name port{number} netns {switch}")
            call(f"ip -n {switch} link set port{number} master switch up")
            call(f"ip -n {name} addr add {address}/24 dev eth0")
            call(f"ip -n {name} link set eth0 up")


def check_possible() -> None:
    """Raise UserError unless this process can create network namespaces."""
    if os.geteuid() != 0:
        raise UserError("a private network uses network namespaces; run this program as root, on Linux")
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            raise UserError(f"a private network needs the program '{tool}'; install the package {package}")


def namespaces() -> list[str]:
    """Names of all namespaces created by this module in any process."""
    listed = call("ip netns list").splitlines()
    return [line.split()[0] for line in listed if line.startswith(_NAME + ".")]


def remove_leftovers() -> None:
    """Remove the namespaces of dead processes."""
    made = [(name, re.fullmatch(rf"{re.escape(_NAME)}\.(\d+)\.\d+\.\d+", name)) for name in namespaces()]
    remove([name for name, found in made if found and not Path(f"/proc/{found[1]}").exists()])


def remove(names: list[str]) -> None:
    """End all processes in these namespaces, then remove them."""
    end_processes(names)
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False)


def end_processes(names: list[str]) -> None:
    """Send SIGKILL to all processes in these namespaces, repeatedly, until there are none."""
    for name in names:
        while running := _processes(name):
            for pid in running:
                with contextlib.suppress(ProcessLookupError):  # harmless: the process has already ended
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


def _processes(name: str) -> list[int]:
    return list(
        map(int, subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split())
    )


def call(command: str) -> str:
    """Run a command; its output. Raises UserError if it fails."""
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode:
        raise UserError(
            f"'{command}' failed: {done.stderr.strip() or done.returncode}; check that network namespaces "
            "are permitted"
        )
    return done.stdout
