"""Frames that do not fit into memory are streamed, and the log says so. Impossible requests are refused
before anything is loaded."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_jobs import CPU, NUM_PDFS, SEED, shard, warper, with_options
from training_corpora import make_data

from pyasr.base.errors import UserError
from pyasr.base.host import host_memory
from pyasr.feats.inputs import InputOptions
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.data import frame_memory
from pyasr.train.data.data_shard import Shard
from pyasr.train.data.frame_memory import limit_of_frames
from pyasr.train.data.minibatch_stream import ResidentFrames, StreamedFrames
from pyasr.train.data.rank_data import FrameSource, open_corpus
from pyasr.train.objectives.dnn_training import TrainSpec
from pyasr.train.sgd.learner import LearnerOptions
from pyasr.train.simulate import virtual_learners
from pyasr.train.targets.pdf_targets import TARGETS_FILE
from pyasr.train.training_options import StoreOptions

MB = 1_000_000
PROGRAM = """
import resource, sys
sys.path[:0] = [{tests!r}, {tests!r} + "/train"]
import torch
from pathlib import Path
from pyasr.base.host import host_memory
from pyasr.feats.inputs import InputOptions
from pyasr.parallel.communication.comm import SoloComm
from pyasr.train.data.rank_data import FrameSource, open_corpus
from pyasr.train.sgd.learner import LearnerOptions
from pyasr.train.training_options import StoreOptions
from pyasr.train.targets.pdf_targets import Targets
directory = Path({directory!r})
targets, options = Targets.load(directory / "targets.npz"), LearnerOptions(precision="float32", device="cpu")
torch.set_num_threads(1)
resource.setrlimit(resource.RLIMIT_DATA, (host_memory._of_host("MemTotal:"),) * 2)
taken = host_memory._of_host("MemTotal:") - int(host_memory.left_in_limits())
resource.setrlimit(resource.RLIMIT_DATA, (taken + {room}, taken + {room}))
plain = InputOptions(cmvn="none")
source = FrameSource(directory / "data", plain, targets, StoreOptions(), options, 1)
corpus = open_corpus(source, SoloComm(), (0, 1))
print(type(corpus.training).__name__, sum(pdfs.numel() for _, pdfs in corpus.training.minibatches(512, 1)))
"""


def set_memory(monkeypatch, free=float("inf"), own=float("inf"), reserved=0):
    monkeypatch.setattr(frame_memory, "_RESERVED", reserved)
    monkeypatch.setattr(host_memory, "free_bytes", lambda: free)
    monkeypatch.setattr(host_memory, "left_in_limits", lambda: own)


def limit(of, none, comm, directory=None, mb=0):
    return limit_of_frames(of, none, StoreOptions(max_store_mb=mb), comm, CPU, directory)


@pytest.fixture
def shards(tmp_path):
    """A training shard with 10 MB in 100 utterances, and an empty shard."""
    of = shard(tmp_path / "data", 100)
    none = Shard(of.reader, of.targets, [], of.packing, of.code)
    of.num_bytes = lambda: np.full(100, MB // 10)
    return of, none


def test_ranks_of_a_host_share_free_memory(shards, monkeypatch):
    """Three quarters of the free memory are for all ranks of the host together."""
    for free, own, expected in (
        (41 * MB, 15 * MB, 0),
        (39 * MB, 15 * MB, 9 * MB),
        (41 * MB, 13 * MB, 9 * MB),
        (None, 15 * MB, 0),
    ):
        set_memory(monkeypatch, free, own)
        found = run_threads(3, lambda comm: limit(*shards, comm))
        assert found == [expected] * 3


def test_memory_of_libraries_and_network_is_reserved(shards, monkeypatch):
    """Libraries and the network need a fixed amount per rank. Frames that just fit are kept in memory if
    blocks would be too small."""
    for free, expected in ((47 * MB, 0), (46 * MB, 9 * MB), (25 * MB, 1 * MB), (20 * MB, 0)):
        set_memory(monkeypatch, free, reserved=10 * MB)
        assert run_threads(2, lambda comm: limit(*shards, comm)) == [expected] * 2
    set_memory(monkeypatch, 19 * MB, reserved=10 * MB)
    with pytest.raises(UserError, match="memory is not enough for blocks of frames"):
        run_threads(2, lambda comm: limit(*shards, comm))


def test_heldout_frames_stay_in_memory(shards, monkeypatch):
    of, heldout = shards
    heldout.num_bytes = lambda: np.array([6 * MB])
    set_memory(monkeypatch, 16 * MB)
    assert limit(of, heldout, SoloComm()) == 6 * MB
    set_memory(monkeypatch, 8 * MB)
    with pytest.raises(
        UserError,
        match=r"not enough for blocks of frames: the frames of a rank take 16 MB of memory, 8.0 MB are free, "
        r"and 6.0 MB of held-out frames are not streamed; lower --heldout-share, run fewer ranks",
    ):
        limit(of, heldout, SoloComm())


def test_streaming_is_logged_in_one_line(shards, monkeypatch, caplog):
    caplog.set_level("INFO", "pyasr")
    set_memory(monkeypatch, 20 * MB)
    run_threads(2, lambda comm: limit(*shards, comm))
    assert [record.getMessage() for record in caplog.records] == [
        "the frames of a rank would take 10 MB of memory, 10 MB are free for each of the 2 ranks of a host, "
        "for frames and network together: the frames are streamed from disk, as with --max-store-mb 7"
    ]


def test_warped_frames_are_two_blocks(shards, monkeypatch):
    shards[0].warp_by(warper(), 0.1, SEED)
    set_memory(monkeypatch, 20 * MB)
    assert limit(*shards, SoloComm()) == 15 * MB


def test_blocks_are_no_larger_than_needed(shards, monkeypatch):
    """The first minibatch waits for the first block."""
    shards[0].num_bytes = lambda: np.full(100, 100 * MB)
    set_memory(monkeypatch, 8000 * MB)
    assert limit(*shards, SoloComm()) == 1000 * MB


def test_explicit_limit_that_does_not_fit_is_refused(shards, monkeypatch):
    set_memory(monkeypatch, 16 * MB)
    with pytest.raises(
        UserError,
        match=r"--max-store-mb 9: the frames of a rank take 9.0 MB of memory, 8.0 MB are free for each of "
        r"the 2 ranks "
        r"of a host; give 6 or less, or omit --max-store-mb",
    ):
        run_threads(2, lambda comm: limit(*shards, comm, mb=9))
    assert run_threads(2, lambda comm: limit(*shards, comm, mb=8)) == [8 * MB] * 2
    set_memory(monkeypatch, 1 * MB // 10)
    with pytest.raises(
        UserError,
        match=(
            "--max-store-mb 8: .*; lower --heldout-share, run fewer ranks on a host, or give the job more "
            "memory"
        ),
    ):
        limit(*shards, SoloComm(), mb=8)


def test_resumed_training_keeps_block_size(shards, tmp_path, monkeypatch):
    """The job keeps the limit as long as it fits and the number of ranks is the same."""
    set_memory(monkeypatch, 12 * MB)
    assert limit(*shards, SoloComm(), tmp_path) == 9 * MB
    set_memory(monkeypatch, 100 * MB)
    assert limit(*shards, SoloComm(), tmp_path) == 9 * MB
    assert run_threads(2, lambda comm: limit(*shards, comm, tmp_path)) == [0, 0]
    set_memory(monkeypatch, 10 * MB)
    assert run_threads(2, lambda comm: limit(*shards, comm, tmp_path)) == [3 * MB] * 2


def test_virtual_learners_share_memory_and_cannot_stream(tmp_path, monkeypatch):
    """Their frames are shared and cannot be streamed; the message comes before any frames are read."""
    targets = make_data(tmp_path / "data", {f"a-{i:02d}": 1000 for i in range(30)}, NUM_PDFS)
    targets.save(tmp_path / TARGETS_FILE)
    spec = TrainSpec(tmp_path / "data", tmp_path, InputOptions(cmvn="none"), with_options())
    set_memory(monkeypatch, MB)
    monkeypatch.setattr(virtual_learners, "run_simulated", lambda *_: pytest.fail("it begins"))
    with pytest.raises(
        UserError,
        match=(
            r"the frames of 3 learners take 1.1 MB of memory, 1.0 MB are free; give --max-store-mb 1 to "
            r"stream each"
        ),
    ):
        virtual_learners.simulate(spec, virtual_learners.VirtualOptions(num_learners=3))


def test_automatic_streaming_equals_explicit_limit(tmp_path, monkeypatch):
    """From the data directory to the minibatches. Frames that fit are kept in memory as before."""
    targets = make_data(tmp_path / "data", {f"a-{i:03d}": 100 + i for i in range(600)}, NUM_PDFS)
    options = LearnerOptions(precision="float32", device="cpu")

    def epoch(**store):
        source = FrameSource(
            tmp_path / "data", InputOptions(cmvn="none"), targets, StoreOptions(**store), options, SEED
        )
        corpus = open_corpus(source, SoloComm(), (0, 1))
        return corpus.training, list(corpus.training.minibatches(64, 1))

    in_memory, _ = epoch()
    set_memory(monkeypatch, 3 * MB)
    (by_itself, found), (asked, expected) = epoch(), epoch(max_store_mb=2)
    assert (
        isinstance(in_memory, ResidentFrames)
        and isinstance(by_itself, StreamedFrames)
        and len(by_itself.plan(1)) > 2
    )
    assert by_itself.max_bytes == asked.max_bytes and all(
        torch.equal(a[0], b[0]) for a, b in zip(found, expected, strict=True)
    )


def run_with(tmp_path, size: int):
    program = PROGRAM.format(tests=str(Path(__file__).parents[2]), directory=str(tmp_path), room=size)
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},
    )


def test_process_memory_limit_starts_streaming(tmp_path):
    """60 MB of frames stay in memory if the process may take 120 MB in addition to the training's need, and
    are streamed if it may take 55 MB."""
    targets = make_data(tmp_path / "data", {f"a-{i:03d}": 4_000 for i in range(417)}, NUM_PDFS)
    targets.save(tmp_path / "targets.npz")
    for size, kind in ((120 * MB, "ResidentFrames"), (55 * MB, "StreamedFrames")):
        done = run_with(tmp_path, frame_memory._RESERVED + size)
        assert done.stdout.split() == [kind, "1668000"], done.stderr
