"""End an MPI job whose ranks have become silent, when no process on their own host can do so: the host is
frozen or cut off."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from pathlib import Path

from pyasr.liveness.heartbeat import HeartbeatReader, Silence, heartbeat_dir


class HeartbeatMonitor:
    """Polls the heartbeats of one job, on the host that started it; a `timeout_s` of 0 disables it.

    silence  the ranks that were silent for more than `timeout_s` seconds, so that the job was ended; None
             otherwise
    """

    def __init__(self, spec: Path, num_ranks: int, timeout_s: float):
        self._directory = heartbeat_dir(spec)
        self.silence: Silence | None = None
        self._reader = HeartbeatReader(self._directory, num_ranks, timeout_s) if timeout_s else None
        self._has_ended = threading.Event()
        self.remove_heartbeats()

    def remove_heartbeats(self) -> None:
        """Delete the heartbeats of this job and of earlier ones."""
        shutil.rmtree(self._directory, ignore_errors=True)

    @contextlib.contextmanager
    def watching(self, process: subprocess.Popen):
        """Context that terminates the job's runner when ranks become silent."""
        if self._reader:
            self._directory.mkdir(exist_ok=True)
            thread = threading.Thread(
                target=self._poll, args=(self._reader, process), name="heartbeat monitor", daemon=True
            )
            thread.start()
        try:
            yield
        finally:
            self._has_ended.set()
            if self._reader:
                thread.join()

    def _poll(self, reader: HeartbeatReader, process: subprocess.Popen) -> None:
        while self.silence is None and not self._has_ended.wait(reader.poll_s):
            self.silence = reader.poll()
        if self.silence is not None:
            process.terminate()
