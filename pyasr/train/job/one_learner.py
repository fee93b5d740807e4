"""The model of a single learner, saved in addition to the mean of all learners. H. Su's program writes this model and takes no mean.

If learners mix with a few others only, they differ after every mixing. An epoch ends with the mean of all learners, which is the model of
the training. This module keeps the parameters of one learner just before that, after the last mixing of the epoch: those of rank 0, or of
the first learning rank if rank 0 is a server. If the mixing itself makes all learners equal, they are the parameters of all.
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

DIRECTORY = "learner"  # subdirectory of OUT
_MODEL_FILES = (MODEL, "tree", "phones.txt", INPUT_FILE, ORIGIN_FILE)


class OneLearner:
    """Keeps the parameters of the rank that `speaks`.

    kept   parameters after the last mixing of the last accepted epoch; None before that, and on other ranks
    """

    def __init__(self, strategy: Strategy):
        self.strategy, self.kept = strategy, None
        self._latest: torch.Tensor | None = None

    def after_mixing(self, master: torch.Tensor) -> None:
        """Note the parameters of this rank after the last mixing of an epoch."""
        if self.strategy.speaks:
            self._latest = master.clone()

    def end_epoch(self, master: torch.Tensor, accepted: bool) -> None:
        """End an epoch. `master` is the mean of all ranks; `accepted` is False if the schedule returned to earlier parameters."""
        if accepted and self.strategy.speaks:
            self.kept = master.clone() if self._latest is None else self._latest
        self._latest = None

    def parameters(self, master: torch.Tensor) -> torch.Tensor:
        """Parameters of the learner, on all ranks; `master`, the model of all, is used if none were kept. Every rank must call this."""
        comm, own = self.strategy.comm, master if self.kept is None else self.kept
        speaker = int(comm.reduce_scalar(comm.rank if self.strategy.speaks else comm.size, "min"))
        return comm.bcast(own.to("cpu", copy=True), speaker)


def save_one_learner(job: Trainer, normaliser: tuple[torch.Tensor, torch.Tensor], priors: Callable[[Network], torch.Tensor]) -> None:
    """Write OUT/learner, a model directory for decoding like OUT, and log its held-out result. The job's parameters are this model's
    afterwards. Every rank must call this.

    normaliser  mean and inverse standard deviation of the network's input
    priors      function from a network to its log priors
    """
    flat, directory = job.learner.flat, job.directory / DIRECTORY
    flat.master.copy_(job.one_learner.parameters(flat.master))
    flat.refresh()
    job.tell_of_one_learner(job.evaluate())
    if job.comm.rank == 0:
        directory.mkdir(exist_ok=True)
        _copy_model_files(job.directory, directory)
    network = job.learner.trained_network()
    write_model(job.comm, directory, network, normaliser, priors(network))


def _copy_model_files(out: Path, directory: Path) -> None:
    """Copy the files that decoding needs in addition to the network."""
    for path in (out / name for name in _MODEL_FILES):
        if path.exists():
            shutil.copyfile(path, directory / path.name)
