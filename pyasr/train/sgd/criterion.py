"""Training criteria: the loss of a minibatch, the meaning of its sums, the halving of a minibatch, and the
detection of divergence.

A new criterion is a subclass of `Criterion` in one module, with a subclass of `Totals` if its sums are not
those of cross-entropy:

    class SquaredError(Criterion):
        totals = SquaredErrorTotals

        def loss(self, network, x, targets, number=None):
            squares = (network(x) - targets).square().sum()
            return squares, torch.stack([squares.detach().double(), ...])

docs/extending/loss.md has an example with its step. `pyasr.train.objectives.rank_training` trains with a
criterion on a rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pyasr.base.errors import UserError
from pyasr.train.minibatches.chunks import NO_TARGET
from pyasr.train.targets.soft_targets import SoftTargets
from pyasr.train.totals import SequenceTotals, Totals


class Diverged(UserError):
    """The training has diverged: the model is worse than guessing, or too many gradients were not finite."""


class Criterion:
    """A training criterion.

    totals          the class of `Totals` that interprets the sums
    rate_flag       the option of the learning rate, for messages
    num_skipped     number of parts of minibatches that `loss` has skipped so far, in training and evaluation,
                    as they were not finite
    skipped_parts   (name of these parts, the reason), for messages
    """

    totals: type[Totals] = Totals
    rate_flag = "--learning-rate"
    num_skipped = 0
    skipped_parts = "", ""

    def loss(
        self, network: nn.Module, x: Any, targets: Any, number: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """The loss of a minibatch, with a gradient, and its three sums, float64 (3,), without a gradient.

        x, targets  minibatch of the data; `targets` has a method `numel`, which counts frames
        number      the number of the minibatch in training; None in evaluation
        """
        raise NotImplementedError

    def uses_layers_once(self, network: nn.Module) -> bool:
        """Whether a layer is used once in a minibatch, so that one backward call completes its gradient."""
        return True

    def halves(self, x: Any, targets: Any) -> Iterable[tuple[Any, Any]]:
        """Two halves of a minibatch, or the whole one if it cannot be divided."""
        return zip(x.chunk(2), targets.chunk(2))

    def check(self, totals: Totals, network: nn.Module, is_strict: bool) -> None:
        """Raise Diverged if a training of `network` with these totals has diverged.

        is_strict  whether an objective clearly worse than guessing counts as divergence, for criteria that
                   know the objective of guessing
        """
        if not math.isfinite(totals.objective):
            raise Diverged(
                f"training has diverged (objective {totals.objective}): give a lower {self.rate_flag}, and "
                "--force"
            )

    def reset_state(self) -> None:
        """Discard all state from earlier minibatches: the network or the order of the data has changed."""

    def state_dict(self) -> dict:
        """The state from earlier minibatches, as tensors and plain values for a checkpoint."""
        return {}

    def load_state_dict(self, state: dict, device: torch.device) -> None:
        """Restore the state that `state_dict` returned."""


class CrossEntropy(Criterion):
    """Cross-entropy of frames, with pdfs or with the posteriors of a teacher (`SoftTargets`) as targets."""

    def loss(
        self, network: nn.Module, x: Any, targets: Tensor | SoftTargets, number: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """The loss, and (loss, correct frames, frames)."""
        logits, pdfs = self.logits(network, x).flatten(0, -2).float(), targets.flatten()
        if isinstance(pdfs, SoftTargets):
            loss, pdfs = pdfs.loss(logits), pdfs.best
        else:
            loss = self.of_frames(logits, pdfs)
        return loss, _counts(loss.detach(), logits.detach(), pdfs)

    def of_frames(self, logits: Tensor, pdfs: Tensor) -> Tensor:
        """The sum of the losses of frames; subclasses override this method.

        logits  float32 (N, num_pdfs)
        pdfs    int64 (N,); frames with `NO_TARGET` are ignored
        """
        return F.cross_entropy(logits, pdfs, reduction="sum", ignore_index=NO_TARGET)

    def logits(self, network: nn.Module, x: Any) -> Tensor:
        """The outputs of the network for a minibatch."""
        return network(x)

    def check(self, totals: Totals, network: nn.Module, is_strict: bool) -> None:
        """As `Criterion.check`; guessing gives each pdf the same probability."""
        num_pdfs = network.num_pdfs
        least = -2 * math.log(num_pdfs + 1) if is_strict else -math.inf
        if not totals.objective > least:
            raise Diverged(
                f"training has diverged (objective {totals.objective:.2f} per frame; guessing gives "
                f"{-math.log(num_pdfs):.2f}): give a lower --learning-rate, or --lr-scaling sqrt or none, "
                "and --force"
            )


class SequenceCriterion(Criterion):
    """A criterion of whole utterances. A minibatch may have only one utterance, so it is not halved."""

    totals = SequenceTotals

    def halves(self, x: Any, targets: Any) -> Iterable[tuple[Any, Any]]:
        """The whole minibatch."""
        return [(x, targets)]


def _counts(loss: Tensor, logits: Tensor, pdfs: Tensor) -> Tensor:
    correct = (logits.argmax(1) == pdfs).sum()
    return torch.stack([loss.double(), correct.double(), (pdfs != NO_TARGET).sum().double()])
