r"""Targets from another network: a small network learns what a large one says of each frame (W. Chan, N. R. Ke, I. Lane, "Transferring
knowledge from a RNN to a DNN", arXiv:1504.01483).

Of the teacher's posteriors p_t(s) the likeliest pdfs are kept, as few as have the share m of the mass, and scaled to add up to 1:

    q_t(s) = p_t(s) / sum_{r in S_t} p_t(r),    s in S_t = the smallest set with sum_{r in S_t} p_t(r) >= m
    F      = -sum_t sum_{s in S_t} q_t(s) log y_t(s)                                        y_t the softmax of the student

F is the Kullback-Leibler divergence from q to y but for the entropy of q, which the student cannot change.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.base.memory import computed
from pyasr.base.options import option
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.nn.acoustic import MODEL_FILE, load_model
from pyasr.parallel.comm import Comm
from pyasr.train.usable_features import check_numbers

_BLOCK = 1 << 20  # posteriors that are sorted at once


@dataclass(frozen=True)
class TeacherOptions:
    """A network to learn from instead of the alignment."""

    teacher: Path | None = option(None, "directory of a network whose posteriors are the targets; it must have the tree of ALI_DIR")
    teacher_data: Path | None = option(None, "data directory with the teacher's features; DATA unless given")
    teacher_mass: float = option(0.98, "share of the posteriors' mass that is kept of each frame", minimum=0.01, maximum=1.0)


@dataclass
class SoftTargets:
    """Of `num` frames some pdfs each, with weights that add up to 1.

    frame    int64 (M,): the frame of each entry, ascending
    pdf      int64 (M,)
    weight   float32 (M,)
    best     int64 (num,): the pdf of the greatest weight
    """

    frame: torch.Tensor
    pdf: torch.Tensor
    weight: torch.Tensor
    best: torch.Tensor

    def __len__(self) -> int:
        return len(self.best)

    def numel(self) -> int:
        """Frames, as of a tensor of targets."""
        return len(self.best)

    def flatten(self) -> SoftTargets:
        """Itself, as of a tensor of targets."""
        return self

    def long(self) -> SoftTargets:
        """Itself, as of a tensor of targets."""
        return self

    def chunk(self, number: int) -> list[SoftTargets]:
        """Parts, as of a tensor of targets."""
        size, parts = -(-len(self) // number), []
        for begin in range(0, len(self), max(size, 1)):
            here = (self.frame >= begin) & (self.frame < begin + size)
            parts.append(SoftTargets(self.frame[here] - begin, self.pdf[here], self.weight[here], self.best[begin : begin + size]))
        return parts

    def loss(self, logits: torch.Tensor) -> torch.Tensor:
        """F of logits (num, num_pdfs)."""
        return -(self.weight * torch.log_softmax(logits, 1)[self.frame, self.pdf]).sum()


class SoftTable:
    """The soft targets of many frames, in the place of a tensor of targets: `table[index]` are those of some of them.

    first   int64 (T + 1,): where each frame's entries begin, the likeliest first
    pdf     int32 (M,)
    weight  float32 (M,)
    """

    def __init__(self, first: torch.Tensor, pdf: torch.Tensor, weight: torch.Tensor):
        self.first, self.pdf, self.weight = first, pdf, weight

    @property
    def device(self) -> torch.device:
        return self.pdf.device

    @property
    def nbytes(self) -> int:
        return self.first.nbytes + self.pdf.nbytes + self.weight.nbytes

    def to(self, device: torch.device, non_blocking: bool = False) -> SoftTable:
        """The same there."""
        return SoftTable(*(part.to(device, non_blocking=non_blocking) for part in (self.first, self.pdf, self.weight)))

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """What was made on another stream of the device is used on this one."""
        for part in (self.first, self.pdf, self.weight):
            part.record_stream(stream)

    def __getitem__(self, index: torch.Tensor) -> SoftTargets:
        begin = self.first[index]
        counts = self.first[index + 1] - begin
        frame = torch.arange(len(index), device=begin.device).repeat_interleave(counts)
        within = torch.arange(len(frame), device=begin.device) - (counts.cumsum(0) - counts)[frame]
        entry = begin[frame] + within
        return SoftTargets(frame, self.pdf[entry].long(), self.weight[entry], self.pdf[begin].long())


def keep_mass(log_posteriors: torch.Tensor, mass: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(number of pdfs kept of each frame, the pdfs, their q) of log p (T, num_pdfs); the likeliest of a frame comes first. Frames are
    sorted in blocks, which bounds the memory that is needed beside these."""
    blocks = log_posteriors.split(max(_BLOCK // log_posteriors.shape[1], 1))
    return tuple(map(torch.cat, zip(*(_keep_mass(block, mass) for block in blocks))))


def _keep_mass(log_posteriors: torch.Tensor, mass: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    p, order = log_posteriors.exp().sort(1, descending=True)
    before = p.cumsum(1) - p
    kept = before < mass
    kept[:, 0] = True
    q = p * kept / (p * kept).sum(1, keepdim=True)
    return kept.sum(1), order[kept].int(), q[kept]


class Teacher:
    """Says what it thinks of the frames of utterances.

    sums  over the frames that it has looked at: their number, those whose best pdf is the alignment's, the pdfs kept, and the entropy of q,
          float64 (4,)

    Raises UserError where it has not `num_pdfs` pdfs.
    """

    def __init__(self, options: TeacherOptions, data: Path, num_pdfs: int):
        self.model, self.mass = load_model(options.teacher / MODEL_FILE), options.teacher_mass
        self.reader = FeatureReader(options.teacher_data or data, InputOptions.load(options.teacher))
        self._known, self.sums = set(self.reader.keys), np.zeros(4)
        self.model.check_answers_on_all(options.teacher, "what is to be learned from it")
        if self.model.num_pdfs != num_pdfs:
            raise UserError(f"--teacher {options.teacher}: a network of {self.model.num_pdfs} pdfs, the alignments have {num_pdfs}; "
                            f"give alignments by the tree that it was trained on")  # fmt: skip

    def table(self, keys: list[str], pdfs: list[np.ndarray]) -> SoftTable:
        """Of the frames of utterances, one after the other, whose alignments are `pdfs`. Raises UserError where it has not as many frames
        of one, or none."""
        nothing = torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), torch.zeros(0)
        parts = [self._said(key, len(part)) for key, part in zip(keys, pdfs)]
        counts, pdf, weight = map(torch.cat, zip(nothing, *parts))
        table = SoftTable(counts.cumsum(0), pdf, weight)
        right = pdf[table.first[:-1]].numpy() == np.concatenate([np.zeros(0, np.int32), *pdfs])
        self.sums += len(right), right.sum(), len(pdf), -float(torch.xlogy(weight, weight).sum())
        return table

    def tell(self, comm: Comm) -> None:
        """Log what it has said of the frames of all ranks, and what a student can reach. Every rank must call this."""
        frames, right, kept, entropy = comm.allreduce(self.sums.copy())
        said = f"{kept / frames:.1f} pdfs a frame have {self.mass:.0%} of the mass"
        comm.say(f"the teacher agrees with the alignment in {right / frames:.2%} of the training frames; {said}; "
                 f"the objective of a student that says the same is {-entropy / frames:.4f}")  # fmt: skip

    def _said(self, key: str, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What `keep_mass` leaves of an utterance of so many frames."""
        if key not in self._known:
            raise UserError(f"{self.reader.data}: the teacher has no features of {key}; make them, or leave the utterance out")
        features = self.reader[key]
        check_numbers(features, key, self.reader.data)
        found = computed(key, self._look_at, features)
        if len(found[0]) != length:
            raise UserError(f"{self.reader.data}: the teacher has {len(found[0])} frames of {key}, there are {length} targets; give the "
                            f"features that it was trained on, of the same frames")  # fmt: skip
        return found

    def _look_at(self, features: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return keep_mass(torch.from_numpy(self.model.log_posteriors(features)), self.mass)
