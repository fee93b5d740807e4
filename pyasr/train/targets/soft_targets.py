r"""Soft targets: a small network is trained on the posteriors of a large one, the teacher (W. Chan, N. R. Ke,
I. Lane, "Transferring knowledge from a RNN to a DNN", arXiv:1504.01483).

Of the teacher's posteriors p_t(s), the smallest set of pdfs with at least the share m of the mass is kept and
scaled to sum to 1:

    q_t(s) = p_t(s) / sum_{r in S_t} p_t(r),    s in S_t = the smallest set with sum_{r in S_t} p_t(r) >= m
    F      = -sum_t sum_{s in S_t} q_t(s) log y_t(s)

where y_t is the softmax of the student. F is the Kullback-Leibler divergence from q to y plus the entropy of
q, which does not depend on the student.

The q are stored as whole numbers k that sum to K = 65535. With the pdfs s_1, s_2, ... of a frame in
descending order of q,

    k_i = round(K Q_i) - round(K Q_{i-1}),   Q_i = q_t(s_1) + ... + q_t(s_i)

so that k_i / K differs from q_t(s_i) by at most 1 / K, and so does the sum of any run of successive k_i.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.base.memory_errors import computed
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.nn.files import MODEL_FILE
from pyasr.nn.networks.acoustic import load_model
from pyasr.train.targets.usable_features import check_numbers
from pyasr.train.training_options import TeacherOptions

_BLOCK = 1 << 20  # posteriors sorted at once
_PARTS = 65535  # K


@dataclass
class SoftTargets:
    """Targets of `num` frames: several pdfs per frame, with weights that sum to 1. Has the methods of a
    target tensor that learners use.

    frame    int64 (M,): the frame of each entry, ascending
    pdf      int64 (M,)
    weight   float32 (M,)
    best     int64 (num,): the pdf with the maximum weight of each frame
    """

    frame: torch.Tensor
    pdf: torch.Tensor
    weight: torch.Tensor
    best: torch.Tensor

    def __len__(self) -> int:
        return len(self.best)

    def numel(self) -> int:
        """Number of frames."""
        return len(self.best)

    def flatten(self) -> SoftTargets:
        """Itself."""
        return self

    def long(self) -> SoftTargets:
        """Itself."""
        return self

    def chunk(self, number: int) -> list[SoftTargets]:
        """Split into parts, like `torch.Tensor.chunk`."""
        size, parts = -(-len(self) // number), []
        for begin in range(0, len(self), max(size, 1)):
            here = (self.frame >= begin) & (self.frame < begin + size)
            parts.append(
                SoftTargets(
                    self.frame[here] - begin,
                    self.pdf[here],
                    self.weight[here],
                    self.best[begin : begin + size],
                )
            )
        return parts

    def followed_by(self, other: SoftTargets) -> SoftTargets:
        """These targets followed by those of `other`."""
        frame = torch.cat([self.frame, other.frame + len(self)])
        return SoftTargets(
            frame,
            *(
                torch.cat([getattr(part, name) for part in (self, other)])
                for name in ("pdf", "weight", "best")
            ),
        )

    def loss(self, logits: torch.Tensor) -> torch.Tensor:
        """F of logits (num, num_pdfs)."""
        return -(self.weight * torch.log_softmax(logits, 1)[self.frame, self.pdf]).sum()


class SoftTable:
    """The soft targets of many frames, used like a tensor of targets: `table[index]` are those of some
    frames.

    first    int64 (T + 1,): index of each frame's first entry; entries of a frame are in descending order of
             weight
    entries  (M, 2), pdf and k, unsigned values in int16, or in int32 for more than 65536 pdfs
    on_disk  whether both are memory-mapped files
    """

    def __init__(self, first: torch.Tensor, entries: torch.Tensor, on_disk: bool = False):
        self.first, self.entries, self.on_disk = first, entries, on_disk

    @staticmethod
    def of(counts: torch.Tensor, pdf: torch.Tensor, q: torch.Tensor, num_pdfs: int) -> SoftTable:
        """The table of the results of `keep_mass`; `num_pdfs`: outputs of the network."""
        first = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        return SoftTable(first, torch.stack([pdf, _in_parts(first, q)], 1).to(entry_type(num_pdfs)))

    @property
    def device(self) -> torch.device:
        return self.entries.device

    @property
    def nbytes(self) -> int:
        """Bytes of memory; 0 for memory-mapped files."""
        return 0 if self.on_disk else self.first.nbytes + self.entries.nbytes

    def to(self, device: torch.device, non_blocking: bool = False) -> SoftTable:
        """The table on another device."""
        first, entries = (part.to(device, non_blocking=non_blocking) for part in (self.first, self.entries))
        return SoftTable(first, entries, self.on_disk and device.type == "cpu")

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """See `torch.Tensor.record_stream`."""
        for part in (self.first, self.entries):
            part.record_stream(stream)

    def __getitem__(self, index: torch.Tensor) -> SoftTargets:
        begin = self.first[index]
        counts = self.first[index + 1] - begin
        frame = torch.arange(len(index), device=begin.device).repeat_interleave(counts)
        best = counts.cumsum(0) - counts
        within = torch.arange(len(frame), device=begin.device) - best[frame]
        unsigned = (1 << 8 * self.entries.itemsize) - 1
        pdf, parts = (self.entries[begin[frame] + within].long() & unsigned).unbind(1)
        return SoftTargets(frame, pdf, parts / _PARTS, pdf[best])


def entry_type(num_pdfs: int) -> torch.dtype:
    """Type of the entries of a table."""
    return torch.int16 if num_pdfs <= 1 << 16 else torch.int32


def _in_parts(first: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """k for q (M,), int32; the entries of frame t are first[t] .. first[t + 1] - 1, at least one."""
    sums = torch.cat([torch.zeros(1, dtype=torch.float64), q.double().cumsum(0)])
    before, frame = sums[first[:-1]], torch.arange(len(first) - 1).repeat_interleave(first.diff())
    ends = (_PARTS * (sums[1:] - before[frame]) / (sums[first[1:]] - before)[frame]).round()
    begins = ends.roll(1)
    begins[first[:-1]] = 0
    return (ends - begins).int()


def keep_mass(log_posteriors: torch.Tensor, mass: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(number of pdfs kept per frame, the pdfs, their q) from log p (T, num_pdfs), in descending order of q
    within a frame. Frames are sorted in blocks, which limits the temporary memory."""
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
    """Computes targets of utterances with the teacher network. Raises UserError unless the network has
    `num_pdfs` pdfs.

    open_reader  function that opens a data directory with the given options
    """

    def __init__(
        self,
        options: TeacherOptions,
        data: Path,
        num_pdfs: int,
        open_reader: Callable[[Path, InputOptions], FeatureReader] = FeatureReader,
    ):
        self.model = load_model(options.directory / MODEL_FILE)
        self.mass = options.teacher_mass
        self.num_pdfs = num_pdfs
        self.reader = open_reader(options.teacher_data or data, InputOptions.load(options.directory))
        self.model.check_answers_on_all(options.directory, "training on its posteriors")
        if self.model.num_pdfs != num_pdfs:
            raise UserError(
                f"--teacher {options.teacher}: the network has {self.model.num_pdfs} pdfs, the alignments "
                f"have {num_pdfs}; give alignments with the tree that the teacher was trained on"
            )

    def table(self, key: str, pdfs: np.ndarray) -> tuple[SoftTable, np.ndarray]:
        """(targets of an utterance, sums over its frames, float64 (4,)). `pdfs` is the alignment. The sums
        are the number of frames, the frames whose best pdf is the alignment's, the pdfs kept, and the entropy
        of q. Raises UserError unless the teacher's features have as many frames."""
        counts, pdf, q = self._targets(key, len(pdfs))
        right = pdf[counts.cumsum(0) - counts].numpy() == pdfs
        return SoftTable.of(counts, pdf, q, self.num_pdfs), np.array(
            [len(right), right.sum(), len(pdf), -float(torch.xlogy(q, q).sum())]
        )

    def _targets(self, key: str, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Result of `keep_mass` for an utterance of `length` frames."""
        if not self.reader.has(key):
            raise UserError(
                f"{self.reader.data}: the teacher has no features of {key}; compute them, or remove the "
                "utterance"
            )
        features = self.reader[key]
        check_numbers(features, key, self.reader.data)
        found = computed(key, self._forward, features)
        if len(found[0]) != length:
            raise UserError(
                f"{self.reader.data}: the teacher has {len(found[0])} frames of {key}, the alignment has "
                f"{length}; give features of the teacher's kind with the same frames"
            )
        return found

    def _forward(self, features: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return keep_mass(torch.from_numpy(self.model.log_posteriors(features)), self.mass)
