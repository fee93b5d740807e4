"""The model of one learner beside that of all: what H. Su's program writes, which had no mean of all learners in the end.

Where learners mix with some others only, they differ after every mixing. An epoch ends with the mean of all of them, which is the model of
the training. Here one learner's parameters are kept as they are just before that, after the last mixing of the epoch: of rank 0, or of the
first rank that learns where rank 0 is a server. Where the mixing itself makes all equal, they are those of all.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pyasr.feats.inputs import INPUT_FILE
from pyasr.feats.origin import ORIGIN_FILE
from pyasr.hmm.model.model_file import MODEL
from pyasr.nn.networks.construction import Network
from pyasr.parallel.strategies import Strategy
from pyasr.train.job.rank_job import write_model

if TYPE_CHECKING:
    from pyasr.train.job.trainer import Trainer

DIRECTORY = "learner"  # of the model, within that of the model of all
_BESIDE = (MODEL, "tree", "phones.txt", INPUT_FILE, ORIGIN_FILE)


class OneLearner:
    """Keeps the parameters of the rank that `speaks`.

    kept   after the last mixing of the last epoch that was accepted; None before, and on other ranks
    """

    def __init__(self, strategy: Strategy):
        self.strategy, self.kept = strategy, None
        self._latest: torch.Tensor | None = None

    def after_mixing(self, master: torch.Tensor) -> None:
        """The last mixing of an epoch has given this rank these parameters."""
        if self.strategy.speaks:
            self._latest = master.clone()

    def end_epoch(self, master: torch.Tensor, accepted: bool) -> None:
        """An epoch has ended with the parameters `master` of all ranks, unless the schedule went back to earlier ones."""
        if accepted and self.strategy.speaks:
            self.kept = master.clone() if self._latest is None else self._latest
        self._latest = None

    def parameters(self, master: torch.Tensor) -> torch.Tensor:
        """Those of the learner, on all ranks, of which `master` is the model. Every rank must call this."""
        comm, own = self.strategy.comm, master if self.kept is None else self.kept
        speaker = int(comm.reduce_scalar(comm.rank if self.strategy.speaks else comm.size, "min"))
        return comm.bcast(own.to("cpu", copy=True), speaker)


def save_one_learner(job: Trainer, normaliser: tuple[torch.Tensor, torch.Tensor], priors: Callable[[Network], torch.Tensor]) -> None:
    """Write OUT/learner, which can be decoded by as OUT can, and tell of its held-out frames. The job ends with this model. Every rank must
    call this.

    normaliser  of the network's input
    priors      log priors for a network
    """
    flat, directory = job.learner.flat, job.directory / DIRECTORY
    flat.master.copy_(job.one_learner.parameters(flat.master))
    flat.refresh()
    job.tell_of_one_learner(job.evaluate())
    if job.comm.rank == 0:
        directory.mkdir(exist_ok=True)
        _copy_beside(job.directory, directory)
    network = job.learner.trained_network()
    write_model(job.comm, directory, network, normaliser, priors(network))


def _copy_beside(out: Path, directory: Path) -> None:
    """What a network needs beside it."""
    for path in (out / name for name in _BESIDE):
        if path.exists():
            shutil.copyfile(path, directory / path.name)
