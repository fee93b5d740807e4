r"""Lattice-based criteria as torch functions of a network's outputs.

With logits z_t(s) and log priors q(s), the log-likelihoods are l_t(s) = z_t(s) - log sum_r exp z_t(r) - q(s).
The normaliser at frame t is the same for all s, and the reference and every hypothesis have exactly one state
at t. So with l'_t(s) = z_t(s) - q(s), every w(pi) and the weight of the reference are multiplied by the same
exp(k sum_t log sum_r exp z_t(r)). This factor cancels in F of MMI, a difference of logarithms, and in the
posteriors, which are ratios, and thus in F of MPFE and sMBR. Therefore, no softmax is computed, and dF/dz =
dF/dl': its rows add up to zero, as they would with a softmax. (A frame that MMI ignores has a row of zeros.)

Frame smoothing: H. Su, G. Li, D. Yu, F. Seide, "Error back propagation for sequence training of
context-dependent deep networks for conversational speech transcription", ICASSP 2013. A network that already
recognises the training data correctly increases F only by becoming more confident; the cross-entropy of its
frames counteracts this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from pyasr.sequence.lattices.hypotheses import Hypotheses
from pyasr.sequence.lattices.lattice_criteria import CriterionOptions, Value, evaluate
from pyasr.sequence.lattices.tid_classes import TidClasses


@dataclass(frozen=True)
class LatticeSupervision:
    """The targets of some utterances, whose frames are concatenated.

    references    transition-ids of each utterance, int (T,)
    hypotheses    competing hypotheses of each utterance
    """

    references: list[np.ndarray]
    hypotheses: list[Hypotheses]

    def __len__(self) -> int:
        """Number of frames."""
        return sum(map(len, self.references))

    def numel(self) -> int:
        """Number of frames, as for the target tensors of other criteria."""
        return len(self)


class LatticeObjective:
    """F of `pyasr.sequence.lattices.lattice_criteria`, and the loss of a learner.

    log_priors  float (num_pdfs,), subtracted from the logits
    factor      f of the model's log-likelihoods, l = f (z - log sum exp z - q), see
                `pyasr.nn.networks.acoustic.AcousticModel`
    """

    def __init__(
        self, options: CriterionOptions, classes: TidClasses, log_priors: torch.Tensor, factor: float = 1.0
    ):
        self.options, self.classes, self.log_priors, self.factor = options, classes, log_priors, factor

    def __call__(
        self, logits: torch.Tensor, supervision: LatticeSupervision
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(F summed over utterances, float64 (), with a derivative; float64 (F, rejected frames, frames)) of
        logits (T, num_pdfs)."""
        loglikes = self.factor * (logits.detach().cpu() - self.log_priors.to("cpu", logits.dtype))
        values = self._values(loglikes.numpy(), supervision)
        derivative = self.factor * torch.from_numpy(
            np.concatenate([value.derivative for value in values])
        ).to(logits.device)
        objective = _WithDerivative.apply(logits, sum(value.objective for value in values), derivative)
        rejected = sum(value.num_rejected for value in values)
        return objective, torch.stack(
            [objective.detach(), *objective.new_tensor([rejected, len(supervision)])]
        )

    def loss(
        self, logits: torch.Tensor, supervision: LatticeSupervision
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """((1 - h) (-F / (f k)) + h CE, float64 (-F, rejected frames, frames)). CE is the cross-entropy of
        the reference's states, summed over frames, h `frame_smoothing`. The division by f k gives learning
        rates the same meaning as in Kaldi's nnet1."""
        objective, counts = self(logits, supervision)
        loss, share = objective / -(self.factor * self.options.acoustic_scale), self.options.frame_smoothing
        if share:
            loss = (1 - share) * loss + share * self._cross_entropy(logits, supervision)
        return loss, counts * counts.new_tensor([-1.0, 1.0, 1.0])

    def _cross_entropy(self, logits: torch.Tensor, supervision: LatticeSupervision) -> torch.Tensor:
        """Cross-entropy of the reference's states, summed over frames."""
        states = torch.from_numpy(self.classes.pdfs[np.concatenate(supervision.references)]).to(
            logits.device, torch.int64
        )
        return torch.nn.functional.cross_entropy(logits, states, reduction="sum")

    def _values(self, loglikes: np.ndarray, supervision: LatticeSupervision) -> list[Value]:
        """The criterion of each utterance."""
        parts = np.split(loglikes, np.cumsum([len(reference) for reference in supervision.references])[:-1])
        return [
            evaluate(*utterance, self.classes, self.options)
            for utterance in zip(parts, supervision.hypotheses, supervision.references, strict=True)
        ]


class _WithDerivative(torch.autograd.Function):
    """A function of the input with a given value and derivative."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, value: float, derivative: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(derivative)
        return torch.tensor(value, dtype=torch.float64, device=x.device)

    @staticmethod
    def backward(ctx, grad: torch.Tensor):
        (derivative,) = ctx.saved_tensors
        return derivative * grad.to(derivative.dtype), None, None
