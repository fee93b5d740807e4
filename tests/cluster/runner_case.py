"""A runner that is tried on a real scheduler."""

import subprocess
import sys
from pathlib import Path

from test_run_pl import wait_until

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 300  # for what takes seconds on an idle machine


class Case:
    """A command of `runner` (slurm.pl, queue.pl) that runs in a directory of its own. Where its log is named after the directory, so is
    the job."""

    def __init__(self, cluster, runner, directory, *words):
        directory.mkdir()
        self.directory, self.log = directory, directory / f"{directory.name}.log"
        command = [sys.executable, ROOT / "utils" / runner, *map(str, words)]
        self.process = subprocess.Popen(command, cwd=directory, env=cluster.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __truediv__(self, name):
        return self.directory / name

    def begun(self):
        """Wait until the job runs."""
        wait_until(self.log.exists, WAIT_S)
        return self

    def end(self):
        """Exit status and what was said."""
        said, errors = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, said + errors
