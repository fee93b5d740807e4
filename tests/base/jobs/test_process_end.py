"""Exit of a process without the teardown of its modules."""

import subprocess
import sys

PROGRAM = """
import atexit, sys, threading, time
from pyasr.base.jobs.process_end import leave

class Kept:
    def __del__(self):
        print("torn down")

def late():
    time.sleep(0.1)
    print("thread ended")

kept = Kept()
atexit.register(print, "at exit")
threading.Thread(target=late).start()
sys.stderr.write("no line end")
leave(3)
"""


def test_process_end_joins_threads_and_runs_exit_functions():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "thread ended\nat exit\n", "no line end")
