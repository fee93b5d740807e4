"""End an MPI job whose ranks have become silent, when no process on their own host can do so: the host is
frozen or cut off."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from pathlib import Path

from pyasr.liveness.heartbeat import HeartbeatReader, Silence, hearts_of


class HeartbeatMonitor:
    """Listens to the ranks of one job, on the host that started it; a `timeout_s` of 0 disables it.

    silence  the ranks that were silent for more than `timeout_s` seconds, so that the job was ended; None
             otherwise
    """

    def __init__(self, spec: Path, num_ranks: int, timeout_s: float):
        self._hearts = hearts_of(spec)
        self.silence: Silence | None = None
        self._ear = HeartbeatReader(self._hearts, num_ranks, timeout_s) if timeout_s else None
        self._over = threading.Event()
        self.forget()

    def forget(self) -> None:
        """Delete the heartbeats of this job and of earlier ones."""
        shutil.rmtree(self._hearts, ignore_errors=True)

    @contextlib.contextmanager
    def ending(self, process: subprocess.Popen):
        """Context that terminates the job's runner when ranks become silent."""
        if self._ear:
            self._hearts.mkdir(exist_ok=True)
            thread = threading.Thread(
                target=self._listen, args=(self._ear, process), name="listener", daemon=True
            )
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            if self._ear:
                thread.join()

    def _listen(self, ear: HeartbeatReader, process: subprocess.Popen) -> None:
        while self.silence is None and not self._over.wait(ear.look_s):
            self.silence = ear.listen()
        if self.silence is not None:
            process.terminate()
