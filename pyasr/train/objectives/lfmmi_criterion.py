r"""The LF-MMI criterion on chunks, for the training loop.

F is the objective of `pyasr.sequence.lfmmi` for the network's outputs y, z are the second outputs, q is their
softmax, and g are the posteriors of the numerators, which are constants. The derivatives

    dF/dy   and   dX/dz,       X = sum_t sum_p g_t(p) log q_t(p)

are combined in the layers below the two output layers to dF + c dX, c = --xent-regularize. X is a frame-level
criterion with the numerators of F; its output layer is not part of the final model.

Frames that a chunk shares with the one before, which have the target `NO_TARGET`, are context: they have
derivatives only in the chunk before. Targets are the numbers of outputs, counted over the utterances of the
training set.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from pyasr.nn.networks.two_outputs import TwoOutputs
from pyasr.sequence.aligned_phones_file import PackedPhones
from pyasr.sequence.chain import AlignedPhones, num_subsampled
from pyasr.sequence.denominator_graph import DenominatorGraph
from pyasr.sequence.lfmmi import lf_mmi_with_posteriors
from pyasr.sequence.lfmmi_options import LfMmiOptions
from pyasr.sequence.supervision import Supervision, SupervisionMaker
from pyasr.train.minibatches.chunks import NO_TARGET
from pyasr.train.minibatches.over_time import Phases
from pyasr.train.sgd.criterion import Criterion
from pyasr.train.totals import SequenceTotals

# numerators in memory, of about 15 kB each; those of further chunks are computed for each minibatch
_MAX_KEPT = 20_000


class Numerators:
    """The numerators of chunks, identified by the numbers of their outputs.

    aligned  the phones of all utterances, in the order of their outputs' numbers
    """

    def __init__(self, maker: SupervisionMaker, aligned: PackedPhones | Mapping[str, AlignedPhones]):
        self.maker, self.utterances = (
            maker,
            aligned if isinstance(aligned, PackedPhones) else PackedPhones.of(aligned),
        )
        outputs = num_subsampled(self.utterances.lengths, maker.options.frame_subsampling_factor)
        self._first = np.cumsum(outputs) - outputs
        self._kept: dict[tuple[int, int], Supervision] = {}

    def of(self, targets: Tensor) -> list[Supervision]:
        """The numerators of chunks (N, T'), each from the first output to the last output that is a target.
        Every chunk must have one."""
        return [self._of_chunk(row) for row in targets.cpu().numpy()]

    def _of_chunk(self, row: np.ndarray) -> Supervision:
        known = np.flatnonzero(row != NO_TARGET)
        place = int(row[known[0]] - known[0]), int(known[-1]) + 1
        found = self._kept.get(place)
        if found is None:
            found = self._make(*place)
            if len(self._kept) < _MAX_KEPT:
                self._kept[place] = found
        return found

    def _make(self, first: int, num_outputs: int) -> Supervision:
        utterance = int(np.searchsorted(self._first, first, side="right")) - 1
        states = self.maker.utterance(*self.utterances[utterance])
        return self.maker.chunk(states, first - int(self._first[utterance]), num_outputs)


class LfMmiTotals(SequenceTotals):
    """Sums over outputs: -F without the penalty on outputs, cross-entropy of the second outputs, number of
    outputs."""

    @property
    def cross_entropy(self) -> float:
        """Cross-entropy in nats per output."""
        return float(self.sums[1] / max(self.sums[2], 1.0))

    def text(self) -> str:
        """For log lines."""
        regular = f"  cross-entropy {self.cross_entropy:.4f}" if self.sums[1] else ""
        return f"objective {self.objective:.4f}{regular}" if self.sums[2] else "no frames"

    def metrics(self) -> dict[str, float]:
        """For metrics.jsonl."""
        if not self.sums[2]:
            return {}
        return {"objective": round(self.objective, 6), "cross_entropy": round(self.cross_entropy, 6)}


class LfMmi(Criterion):
    """LF-MMI for a network with one or two output layers.

    phases  the frames of a chunk that the network gets in a minibatch
    """

    totals = LfMmiTotals
    skipped_parts = "chunks", "their likelihoods were not finite"

    def __init__(
        self,
        graph: DenominatorGraph,
        numerators: Numerators,
        options: LfMmiOptions,
        phases: Phases = Phases(),
    ):
        self.graph, self.numerators, self.options, self.phases = graph, numerators, options, phases

    def loss(
        self, network: nn.Module, x: Tensor, targets: Tensor, number: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """-F - X with the derivatives above, and (-F without the penalty on outputs, -X, number of outputs).
        Chunks whose likelihoods are not finite are skipped."""
        outputs = network(self.phases.cut(x, number))
        logits, second = outputs if isinstance(outputs, tuple) else (outputs, None)
        known = (targets != NO_TARGET)[:, :, None]
        objf, posteriors, counts = lf_mmi_with_posteriors(
            _only(logits, known), self.numerators.of(targets), self.graph, self.options
        )
        loss, cross_entropy = -objf, objf.new_zeros(())
        if second is not None:
            # others count as 0, even if they are not finite
            second = torch.where(posteriors.sum(2, keepdim=True) > 0, second, 0.0)
            cross_entropy = -(posteriors * torch.log_softmax(_only(second, known).to(posteriors), 2)).sum()
            loss = loss + cross_entropy
        self.num_skipped += counts.num_skipped
        sums = [-counts.log_prob, float(cross_entropy.detach()), counts.num_frames]
        return loss, torch.tensor(sums, dtype=torch.float64, device=loss.device)

    def log_probability(self, network: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        """F with the penalty, scaled as if only targets were counted: the objective for the combination of
        models."""
        logits = network.main if isinstance(network, TwoOutputs) else network
        objf, _, counts = lf_mmi_with_posteriors(
            logits(self.phases.cut(x)), self.numerators.of(targets), self.graph, self.options
        )
        return objf * (float((targets != NO_TARGET).sum()) / max(counts.num_frames, 1))


def _only(logits: Tensor, known: Tensor) -> Tensor:
    """`logits` with derivatives only for known targets."""
    return torch.where(known, logits, logits.detach())
