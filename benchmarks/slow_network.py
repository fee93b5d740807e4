"""Hosts with slow links on one machine, for benchmarks: a private network with limited bandwidth. Needs root.

    with SlowNetwork(4) as network:
        network.limit(1000)                                    # Mbit/s, each direction of each host's link
        network.run_ranks([sys.executable, "-m", "mpi4py", "x.py"], timeout_s=60)

Limits are token buckets of 5 ms, at least 128 KiB; no latency is added.
"""

from __future__ import annotations

import os
import subprocess

from private_network import PrivateNetwork, call, end_processes

from pyasr.base.errors import UserError
from pyasr.base.jobs.parent import die_with_parent
from pyasr.cluster.runner.mpi import ROOT, find_mpiexec, flavour

_BUCKET_S, _MIN_BUCKET, _QUEUE = 0.005, 131072, "100ms"  # bytes


class SlowNetwork(PrivateNetwork):
    """A private network with limited bandwidth and one MPI rank per host."""

    def limit(self, mbit_per_s: int) -> None:
        """Set the bandwidth of each link, in each direction."""
        bucket = max(int(mbit_per_s * 1e6 / 8 * _BUCKET_S), _MIN_BUCKET)
        shape = f"tbf rate {mbit_per_s}mbit burst {bucket} latency {_QUEUE}"
        for number in self._numbers():
            call(f"tc -n {self._name(number)} qdisc replace dev eth0 root {shape}")
            call(f"tc -n {self._name(0)} qdisc replace dev port{number} root {shape}")

    def run_ranks(self, words: list[str], timeout_s: float) -> None:
        """Run a command as one MPI rank on each host. Raises UserError if it fails or takes too long."""
        command = self.on(self.hosts[0], [*self._mpiexec(), *words])
        with subprocess.Popen(
            command,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=die_with_parent,
        ) as process:
            try:
                said, _ = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                raise UserError(
                    f"the ranks did not end within {timeout_s:.0f} s; use a smaller message or fewer "
                    "minibatches"
                ) from None
            finally:
                end_processes([self._name(number) for number in self._numbers()])
        if process.returncode:
            raise UserError(
                f"the ranks failed (status {process.returncode}); the end of their output:\n" + said[-2000:]
            )

    def _mpiexec(self) -> list[str]:
        mpiexec, hosts = find_mpiexec(), ",".join(self.addresses())
        if flavour(mpiexec) == "mpich":
            words = [
                "-launcher",
                "ssh",
                "-launcher-exec",
                str(self._enter),
                "-hosts",
                hosts,
                "-iface",
                "eth0",
            ]
        else:
            words = [
                "--allow-run-as-root",
                "--bind-to",
                "none",
                "--host",
                hosts,
                "--prtemca",
                "plm_ssh_agent",
                str(self._enter),
            ]
            for name, value in {
                "pml": "ob1",
                "btl": "tcp,self",
                "osc": "^ucx",
                "btl_tcp_if_include": "eth0",
            }.items():
                words += ["--mca", name, value]
        return [str(mpiexec), *words, "-n", str(self.num_hosts)]

    @staticmethod
    def _environment() -> dict[str, str]:
        over_tcp = {
            "UCX_TLS": "tcp,self",
            "UCX_NET_DEVICES": "eth0",
            "UCX_LOG_LEVEL": "error",
            "GLOO_SOCKET_IFNAME": "eth0",
        }
        python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return {**os.environ, "PYTHONPATH": python_path, "OMP_NUM_THREADS": "1", **over_tcp}
