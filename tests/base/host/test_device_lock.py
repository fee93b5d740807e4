"""GPU locks between real processes: two at once, a killed one, several locks for one job, sharing, and jobs
of a runner with locks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyasr.base.errors import UserError
from pyasr.base.host.device_lock import DIRECTORY, claim, held_for_a_job

JOB = """
import sys
from pathlib import Path
from pyasr.base.host.device_lock import claim
from pyasr.base.errors import UserError
devices, num = sys.argv[1].split(), int(sys.argv[2])
share, patience_s = sys.argv[3] == "share", float(sys.argv[4])
names = {device: f"GPU {device}" for device in devices}
try:
    locks = claim([devices] * num, names, Path("exp/dnn/log/train.log"), share, patience_s=patience_s)
    print(" ".join(lock.device for lock in locks), flush=True)
except UserError as refusal:
    print(refusal, flush=True)
sys.stdin.read()
"""


class Job:
    """A process that claims GPUs, prints their names, and keeps them until it is asked to end."""

    def __init__(self, devices, num=1, share="", patience_s=0.0, **environment):
        words = [sys.executable, "-c", JOB, devices, str(num), share, str(patience_s)]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )

    def said(self):
        return self.process.stdout.readline().rstrip("\n")

    def end(self):
        self.process.communicate()


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv(DIRECTORY, str(tmp_path / "locks"))
    return tmp_path / "locks"


@pytest.fixture
def job():
    """Function that starts a job, which ends with the test."""
    begun = []

    def begin(*words, **more):
        begun.append(Job(*words, **more))
        return begun[-1]

    yield begin
    for left in begun:
        left.end()


def test_jobs_take_different_gpus_and_excess_job_is_refused(job):
    first, second = job("x y"), job("x y", patience_s=60)
    assert sorted([first.said(), second.said()]) == ["x", "y"]
    third = job("x y").said()
    holder = first if f"process {first.process.pid} on {os.uname().nodename} since 20" in third else second
    assert f"process {holder.process.pid} on" in third
    assert (
        third.startswith("GPU x (x) is used by process ")
        and f"(log: {os.getcwd()}/exp/dnn/log/train.log), GPU y as well; wait until " in third
    )
    assert third.endswith(
        "select another GPU with CUDA_VISIBLE_DEVICES, or share it with --share-devices true"
    )


def test_lock_of_killed_job_is_released(job):
    first = job("x")
    assert first.said() == "x" and f"process {first.process.pid} " in job("x").said()
    waiting = job("x", patience_s=60)
    first.process.kill()
    assert waiting.said() == "x"
    assert f"process {waiting.process.pid} " in job("x").said()


TAKES_BOTH = """
import os, pathlib, time
from pyasr.base.host.device_lock import claim
for _ in range(3):
    locks = claim([["x", "y"]] * 2, {"x": "GPU 0", "y": "GPU 1"}, pathlib.Path("a.log"), patience_s=60)
    os.mkdir("taken")
    time.sleep(0.02)
    os.rmdir("taken")
    for lock in locks:
        lock.release()
"""


def test_jobs_that_want_both_gpus_get_them_in_turn(tmp_path):
    """No job keeps one GPU while another job has the other; the directory exists while a job has both."""
    jobs = [
        subprocess.Popen([sys.executable, "-c", TAKES_BOTH], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [(one.communicate()[1], one.returncode) for one in jobs] == [("", 0)] * 3


def test_job_with_too_few_gpus_releases_its_locks(job):
    first = job("x")
    assert first.said() == "x" and "GPU x (x) is used by" in job("y x", 2).said()
    second = job("y")
    assert second.said() == "y"
    second.end()
    with pytest.raises(UserError, match="^GPU 0 "):
        claim([["x", "y"], ["y"]], {"x": "GPU 0", "y": "GPU 1"}, Path("a.log"), patience_s=0)
    (lock,) = claim([["x", "z"]] * 2, {}, Path("a.log"), least=1, patience_s=0)
    assert lock.device == "z"
    lock.release()


def test_shared_gpus_exclude_other_jobs(job):
    """Sharing jobs are never refused, and exclude other jobs as long as one of them runs; a free GPU is
    preferred."""
    first, second, third = (job("x y", share="share"), job("x y", share="share"), job("x y", share="share"))
    assert sorted([first.said(), second.said(), third.said()]) == ["x", "x", "y"]
    for ended in (first, second):
        assert "is used by process" in job("x y", 2).said()
        ended.end()
    assert f"is used by process {third.process.pid} " in job("x y", 2).said()
    third.end()
    alone = job("x y", 2, patience_s=60)
    assert alone.said() == "x y"
    assert job("x y", 3, share="share").said() == "x y x"


def test_job_uses_gpu_locked_by_its_runner(job, directory):
    """Two programs of one job get different GPUs; a program outside the job is refused."""
    runner = claim([["GPU-AB1"]], {}, Path("runner.log"))
    inside = held_for_a_job(runner)
    first = job("ab1", **inside)  # torch's form of the same UUID
    assert first.said() == "ab1"
    assert f"process {first.process.pid} " in job("ab1", **inside).said()
    assert f"process {os.getpid()} " in job("ab1").said()
    first.end()
    for lock in runner:
        lock.release()
    assert sorted(path.name for path in directory.iterdir()) == ["choosing", "gpu.ab1", "gpu.ab1.inner"]


def test_nested_runner_uses_gpus_of_outer_runner(job, monkeypatch):
    for name, value in held_for_a_job(outer := claim([["x"]], {}, Path("outer.log"))).items():
        monkeypatch.setenv(name, value)
    inner = claim([["x"]], {}, Path("inner.log"), patience_s=0)
    assert job("x", **held_for_a_job(inner)).said() == "x"
    for lock in outer + inner:
        lock.release()


def test_unusable_lock_directory_is_reported(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(DIRECTORY, str(tmp_path / "file"))
    with pytest.raises(
        UserError,
        match=f"file: File exists, so that GPUs cannot be locked; set {DIRECTORY} to another directory",
    ):
        claim([["x"]], {}, Path("a.log"))


def test_lock_directory_of_another_user_is_reported(tmp_path, monkeypatch):
    """Another user may have created the default directory."""
    monkeypatch.delenv(DIRECTORY)
    monkeypatch.setattr(
        "pyasr.base.host.device_lock.Path",
        lambda name: tmp_path / "theirs" if str(name).startswith("/tmp/pyasr-") else Path(name),
    )
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").symlink_to(tmp_path / "ours")
    with pytest.raises(
        UserError, match=f"theirs: .* belongs to another user; set {DIRECTORY} to a directory of your own"
    ):
        claim([["x"]], {}, Path("a.log"))
