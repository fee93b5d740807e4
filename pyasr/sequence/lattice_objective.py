r"""Lattice-based criteria as functions of a network's outputs, for torch.

With logits z_t(s) and log priors q(s), the log-likelihoods are l_t(s) = z_t(s) - log sum_r exp z_t(r) - q(s). The normaliser at frame t is
the same for all s, and the reference and every hypothesis have exactly one state at t. So with l'_t(s) = z_t(s) - q(s) every w(pi), and
the weight of the reference, is multiplied by the same exp(k sum_t log sum_r exp z_t(r)): it cancels in F of MMI, where one is subtracted
from the other, and in the posteriors, where one is divided by another, thus in F of MPFE and sMBR. Hence no softmax is computed, and
dF/dz = dF/dl' as it stands: its rows add up to zero, which is what a softmax would have seen to. (A frame that MMI rejects has a row
of zeros.)

Frame smoothing: H. Su, G. Li, D. Yu, F. Seide, "Error back propagation for sequence training of context-dependent deep networks for
conversational speech transcription", ICASSP 2013. A network that has the training data right gains by F alone only as it grows more
certain, which the cross-entropy of its frames resists.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from pyasr.sequence.tid_classes import TidClasses
from pyasr.sequence.lattice_criteria import CriterionOptions, Value, evaluate
from pyasr.sequence.hypotheses import Hypotheses


@dataclass(frozen=True)
class LatticeSupervision:
    """What is to be learnt from some utterances, whose frames are put end to end.

    references    transition-ids of each, int (T,)
    hypotheses    what each competes with
    """

    references: list[np.ndarray]
    hypotheses: list[Hypotheses]

    def __len__(self) -> int:
        """Frames."""
        return sum(map(len, self.references))

    def numel(self) -> int:
        """The same, as of the tensors of targets that other criteria take."""
        return len(self)


class LatticeObjective:
    """F of `pyasr.sequence.lattice_criteria`, and what a learner is to make small.

    log_priors  float (num_pdfs,), which are subtracted from logits
    factor      f of the model's log-likelihoods, l = f (z - log sum exp z - q), see `pyasr.nn.acoustic.AcousticModel`
    """

    def __init__(self, options: CriterionOptions, classes: TidClasses, log_priors: torch.Tensor, factor: float = 1.0):
        self.options, self.classes, self.log_priors, self.factor = options, classes, log_priors, factor

    def __call__(self, logits: torch.Tensor, supervision: LatticeSupervision) -> tuple[torch.Tensor, torch.Tensor]:
        """(F summed over utterances, float64 (), with a derivative; float64 (F, rejected frames, frames)) of logits (T, num_pdfs)."""
        loglikes = self.factor * (logits.detach().cpu() - self.log_priors.to("cpu", logits.dtype))
        values = self._values(loglikes.numpy(), supervision)
        derivative = self.factor * torch.from_numpy(np.concatenate([value.derivative for value in values])).to(logits.device)
        objective = _WithDerivative.apply(logits, sum(value.objective for value in values), derivative)
        rejected = sum(value.num_rejected for value in values)
        return objective, torch.stack([objective.detach(), *objective.new_tensor([rejected, len(supervision)])])

    def loss(self, logits: torch.Tensor, supervision: LatticeSupervision) -> tuple[torch.Tensor, torch.Tensor]:
        """((1 - h) (-F / (f k)) + h CE, float64 (-F, rejected frames, frames)), CE being the cross-entropy of the reference's states,
        summed over frames, and h `frame_smoothing`; without the factor f k, learning rates mean what they do in Kaldi's nnet1."""
        objective, counts = self(logits, supervision)
        loss, share = objective / -(self.factor * self.options.acoustic_scale), self.options.frame_smoothing
        if share:
            loss = (1 - share) * loss + share * self._cross_entropy(logits, supervision)
        return loss, counts * counts.new_tensor([-1.0, 1.0, 1.0])

    def _cross_entropy(self, logits: torch.Tensor, supervision: LatticeSupervision) -> torch.Tensor:
        """Of the reference's states, summed over frames."""
        states = torch.from_numpy(self.classes.pdfs[np.concatenate(supervision.references)]).to(logits.device, torch.int64)
        return torch.nn.functional.cross_entropy(logits, states, reduction="sum")

    def _values(self, loglikes: np.ndarray, supervision: LatticeSupervision) -> list[Value]:
        """Of each utterance."""
        parts = np.split(loglikes, np.cumsum([len(reference) for reference in supervision.references])[:-1])
        return [evaluate(*utterance, self.classes, self.options)
                for utterance in zip(parts, supervision.hypotheses, supervision.references, strict=True)]


class _WithDerivative(torch.autograd.Function):
    """A number that is a function of the input, whose derivative by it is known."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, value: float, derivative: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(derivative)
        return torch.tensor(value, dtype=torch.float64, device=x.device)

    @staticmethod
    def backward(ctx, grad: torch.Tensor):
        (derivative,) = ctx.saved_tensors
        return derivative * grad.to(derivative.dtype), None, None
