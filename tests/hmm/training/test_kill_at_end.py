"""A GMM training killed at its end, before any of the remaining changes to the file system, resumes to the
same bytes."""

import shutil
import sys
from pathlib import Path

import pytest
from gmm_corpus import write_corpus

from pyasr.feats.inputs import InputOptions
from pyasr.hmm.align.viterbi import AlignOptions
from pyasr.hmm.model.gmm_update import GmmUpdateOptions
from pyasr.hmm.training import train_gmm, train_mono, train_sat
from pyasr.hmm.training.train_gmm import GmmScheduleOptions, TrainOptions
from pyasr.hmm.training.train_mono import MonoSpec
from pyasr.hmm.training.train_sat import SatOptions, SatSpec
from pyasr.hmm.training.train_triphones import TreeOptions, TriphoneSpec
from pyasr.hmm.transforms.fmllr import FmllrOptions
from pyasr.parallel.communication.rank_threads import run_threads

TRAIN = TrainOptions(
    GmmScheduleOptions(num_iters=3, max_iter_inc=2, num_gauss=50, realign_iters="1 2"),
    AlignOptions(beam=30.0, retry_beam=100.0),
    GmmUpdateOptions(min_count=5.0),
)
# audit events; removals below a directory have names without it
CHANGES = {"os.remove", "os.rename", "os.rmdir", "os.mkdir", "open"}


class Killed(BaseException):
    """Simulates the end of the process without any clean-up."""


class Killer:
    """Prevents every change to the file system below `out` from the `last`-th after `arm` on, including those
    of `finally` blocks."""

    def __init__(self):
        self.out, self.armed, self.last, self.seen = "", False, 0, 0

    def arm(self, out: Path, last: int) -> None:
        self.out, self.armed, self.last, self.seen = str(out), True, last, 0

    def __call__(self, event: str, arguments: tuple) -> None:
        if (
            not self.armed
            or event not in CHANGES
            or event == "open"
            and not set(arguments[1] or "") & set("wax+")
        ):
            return
        if (path := str(arguments[0])).startswith("/") and not path.startswith(self.out):
            return
        self.seen += 1
        if self.seen >= self.last:
            raise Killed


KILLER = Killer()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    sys.addaudithook(KILLER)
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_utterances=20)


def train_monophones(corpus, out: Path, num_ranks: int = 1) -> None:
    spec = MonoSpec(*corpus, out, TRAIN, InputOptions())
    run_threads(num_ranks, lambda comm: train_mono.train_rank(spec, comm))


@pytest.fixture(scope="module")
def mono(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("mono")
    train_monophones(corpus, out)
    return out


def content(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def left_over(out: Path) -> None:
    """Removals that `stage_output` makes before it continues."""
    for path in out.rglob(".*.tmp"):
        path.unlink()


def killed_at(monkeypatch, module, last: int, train, out: Path) -> bool:
    """Whether the training was killed at the `last`-th change of its `finish`."""

    def finish(directory, trainer):
        KILLER.arm(directory, last)
        train_gmm.finish(directory, trainer)

    with monkeypatch.context() as patched:
        patched.setattr(module, "finish", finish)
        try:
            train(out)
            return False
        except Killed:
            return True
        finally:
            KILLER.armed = False


def check_every_kill(monkeypatch, module, train, path: Path, whole: Path) -> int:
    """Kill the end of a training at its first, second, ... change. Each time, the next run ends with the
    files of `whole`. Returns the number of changes."""
    (path / "begun").mkdir()
    assert killed_at(monkeypatch, module, 1, train, path / "begun")
    last = 1
    while True:
        out = Path(shutil.copytree(path / "begun", path / f"killed-{last}"))
        killed = killed_at(monkeypatch, module, last, train, out)
        left_over(out)
        train(out)
        assert content(out) == content(whole), last
        if not killed:
            return last
        last += 1


def test_monophone_training_killed_at_its_end_resumes_to_same_bytes(corpus, mono, tmp_path, monkeypatch):
    assert (
        check_every_kill(monkeypatch, train_mono, lambda out: train_monophones(corpus, out), tmp_path, mono)
        > 10
    )


def test_sat_training_killed_at_its_end_resumes_to_same_bytes(corpus, mono, tmp_path, monkeypatch):
    def train(out: Path) -> None:
        out.mkdir(exist_ok=True)
        triphones = TriphoneSpec(
            *corpus, mono, out, TreeOptions(num_leaves=30, cluster_thresh=0.0), TRAIN, InputOptions()
        )
        spec = SatSpec(triphones, SatOptions(fmllr_iters="2"), FmllrOptions(fmllr_min_count=100.0))
        run_threads(1, lambda comm: train_sat.train_rank(spec, comm))

    train(tmp_path / "whole")
    assert {"trans.1", "final.alimdl"} <= content(tmp_path / "whole").keys()
    assert check_every_kill(monkeypatch, train_sat, train, tmp_path, tmp_path / "whole") > 10


def test_resume_with_fewer_ranks_removes_surplus_archives(corpus, mono, tmp_path, monkeypatch):
    """Three ranks have written their alignments when the first is killed. One rank resumes."""
    out = tmp_path / "out"
    out.mkdir()

    def die(*_):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(train_gmm.AlignReport, "write", die)
        with pytest.raises(Killed):
            train_monophones(corpus, out, 3)
    assert (out / "ali.3.gz").exists()
    train_monophones(corpus, out)
    assert content(out).keys() == content(mono).keys() and (out / "num_jobs").read_text() == "1\n"
