"""Minibatches of concatenated whole utterances with their lattices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader
from pyasr.nn.networks.acoustic import AcousticModel
from pyasr.parallel.communication.comm import Comm
from pyasr.sequence.lattices.hypotheses_store import HypothesesStore
from pyasr.sequence.lattices.lattice_objective import LatticeSupervision
from pyasr.train.minibatches.whole_utterances import Utterances
from pyasr.train.targets.pdf_targets import Targets
from pyasr.train.targets.usable_features import check_numbers

LatticeMinibatches = Iterator[tuple[torch.Tensor, LatticeSupervision]]


class LatticeUtterances(Utterances):
    """Utterances whose hypotheses are read from `hypotheses` for each minibatch.

    reader      reader of the model's input
    model       model whose normalisation is applied to the input
    references  transition-ids of the frames, in place of pdfs
    arguments   the last arguments of `Utterances`
    """

    def __init__(
        self,
        reader: FeatureReader,
        model: AcousticModel,
        references: Targets,
        keys: list[str],
        hypotheses: HypothesesStore,
        *arguments,
    ):
        super().__init__(reader, references, keys, [len(references.pdfs_of(key)) for key in keys], *arguments)
        self.hypotheses, self.mean, self.inverse_std = hypotheses, model.mean, model.inverse_std

    def mean_minibatch(self, comm: Comm) -> float:
        """Average number of frames per minibatch over all ranks, with utterances in the order of `keys`.
        Every rank must call this."""
        number = len(self._cut(np.arange(len(self.keys))))
        num_frames, number = comm.allreduce(np.array([self.lengths.sum(), number], np.float64))
        return num_frames / max(number, 1.0)

    def minibatches(self, _size: int, epoch: int, begin: int = 0) -> LatticeMinibatches:
        """(normalised inputs (T, input_dim), supervision) of the utterances of an epoch in random order,
        except those that begin within the first `begin` frames."""
        order, ends = self._epoch(epoch)
        yield from map(self.minibatch_of, self._cut(order[ends - self.lengths[order] >= begin]))

    def in_turn(self, _size: int) -> LatticeMinibatches:
        """The same for all utterances in the order of `keys`."""
        yield from map(self.minibatch_of, self._cut(np.arange(len(self.keys))))

    def minibatch_of(self, members: np.ndarray) -> tuple[torch.Tensor, LatticeSupervision]:
        """A minibatch of the utterances `members` (indices into `keys`), concatenated."""
        keys = [self.keys[i] for i in members]
        x = torch.from_numpy(np.concatenate([self._features(key) for key in keys]))
        x = ((x - self.mean) * self.inverse_std).to(self.device, self.dtype)
        return x, LatticeSupervision(
            [np.array(self.targets.pdfs_of(key)) for key in keys], [self.hypotheses[key] for key in keys]
        )

    def _num_frames(self, members: np.ndarray) -> int:
        return int(self.lengths[members].sum())

    def _epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """(indices into `keys` in the random order of an epoch, number of frames up to the end of each)."""
        order = self._drawn(self._random(epoch))
        return order, np.cumsum(self.lengths[order])

    def _features(self, key: str) -> np.ndarray:
        """The model's input (T, input_dim). Raises UserError if its shape does not fit or it has values that
        are not finite."""
        features, num_frames = self.reader[key], len(self.targets.pdfs_of(key))
        if features.shape != (num_frames, len(self.mean)):
            found = f"the input of {key} has {features.shape[0]} frames of {features.shape[1]} columns"
            expected = f"but its alignment has {num_frames} frames and the model {len(self.mean)} columns"
            raise UserError(
                f"{self.reader.data}: {found}, {expected}; give the features that the model was trained on"
            )
        check_numbers(features, key, self.reader.data)
        return features
