r"""Criteria of sequence-discriminative training on lattices: MMI, boosted MMI, MPFE and sMBR, with their
derivatives.

K. Vesely, A. Ghoshal, L. Burget, D. Povey, "Sequence-discriminative training of deep neural networks",
Interspeech 2013; boosted MMI: D. Povey et al., "Boosted MMI for model and feature-space discriminative
training", ICASSP 2008.

l_t(s) is the log-likelihood of pdf s at frame t, k the acoustic scale, s_t the pdf of the reference
alignment, and pi a hypothesis with graph cost g(pi); all paths have T frames:

    w(pi) = exp( k sum_t l_t(pi_t) - g(pi) ),     p(pi) = w(pi) / (sum of all w)
    gamma_t(s) = sum of p(pi) over pi with pi_t = s

    MMI           F = k sum_t l_t(s_t) - log sum_pi w(pi)     dF/dl_t(s) = k ( [s = s_t] - gamma_t(s) )
    boosted MMI   the same with w(pi) exp(b E(pi)), E the number of frames with a wrong phone
    MPFE, sMBR    F = sum_pi p(pi) A(pi) = A_avg              dF/dl_t(s) = k gamma_t(s) ( A_t(s) - A_avg )

A(pi) is the number of frames of a path with the correct phone (MPFE) or pdf (sMBR), A_t(s) its expectation
over the paths with pi_t = s. F of MMI does not include the graph cost of the reference, which does not depend
on the network; so F can be positive.

MMI can ignore frames whose reference pdf is on no path of the denominator (`--drop-frames`): in these, the
lattice does not bound the derivative. F still includes them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.base.cli.option_uses import if_is
from pyasr.base.cli.options import option
from pyasr.decode.lattices.lattice_posteriors import forward_backward
from pyasr.sequence.lattices.hypotheses import Hypotheses
from pyasr.sequence.lattices.lattice_kernels import arc_sums, expected_accuracies, spread
from pyasr.sequence.lattices.tid_classes import TidClasses

_NO_POSTERIOR = 1e-20


@dataclass(frozen=True)
class CriterionOptions:
    """Options of the training criterion."""

    heading = "objective"

    criterion: str = option(
        "smbr",
        "criterion; smbr: expected accuracy of states; mpfe: expected accuracy of phones; mmi: "
        "mutual information",
        choices=("smbr", "mpfe", "mmi"),
    )
    acoustic_scale: float = option(0.1, "weight of the acoustic log-likelihoods", minimum=1e-6)
    one_silence_class: bool = option(
        True,
        "true: any silence counts as correct for any silence; false: silence is never correct",
        only=if_is("criterion", "smbr", "mpfe"),
    )
    boost: float = option(
        0.0,
        "log weight that each frame with a wrong phone adds to a path (boosted MMI: 0.1)",
        minimum=0.0,
        only=if_is("criterion", "mmi"),
    )
    drop_frames: bool = option(
        True, "ignore frames whose reference state is not in the lattice", only=if_is("criterion", "mmi")
    )
    frame_smoothing: float = option(
        0.0,
        "weight of the frame-level cross-entropy in the loss (Su, Li, Yu, Seide: 0.1 to 0.2)",
        minimum=0.0,
        maximum=1.0,
    )


@dataclass(frozen=True)
class Value:
    """Value and derivative of a criterion.

    objective     F, summed over frames
    derivative    dF/dl, of the type and shape of the log-likelihoods (T, num_pdfs)
    num_rejected  frames without a derivative
    """

    objective: float
    derivative: np.ndarray
    num_rejected: int = 0


def evaluate(
    loglikes: np.ndarray,
    hypotheses: Hypotheses,
    reference: np.ndarray,
    classes: TidClasses,
    options: CriterionOptions,
) -> Value:
    """Evaluate the criterion for an utterance.

    loglikes   (T, num_pdfs), float32 or float64; sums over frames are computed in float64
    reference  transition-ids int32 (T,), the numerator
    """
    function = mmi if options.criterion == "mmi" else expected_accuracy
    return function(loglikes, hypotheses, reference, classes, options)


def mmi(
    loglikes: np.ndarray,
    hypotheses: Hypotheses,
    reference: np.ndarray,
    classes: TidClasses,
    options: CriterionOptions,
) -> Value:
    """(Boosted) MMI."""
    scale, pdfs, own = options.acoustic_scale, classes.pdfs[hypotheses.tids], classes.pdfs[reference]
    boosts: np.ndarray | float = 0.0
    if options.boost:
        boosts = options.boost * _sums(
            hypotheses, classes.phone_errors(hypotheses.tids, reference[hypotheses.frames])
        )
    posteriors, log_sum = path_posteriors(loglikes, hypotheses, pdfs, scale, boosts)
    derivative, frames = np.zeros_like(loglikes), np.arange(len(own))
    spread(hypotheses.begins, hypotheses.lengths, pdfs, -scale * posteriors, derivative)
    rejected = frames[:0]
    if options.drop_frames:
        rejected = np.flatnonzero(derivative[frames, own] > -scale * _NO_POSTERIOR)
    derivative[frames, own] += scale
    derivative[rejected] = 0
    objective = scale * loglikes[frames, own].sum(dtype=np.float64) - log_sum
    return Value(float(objective), derivative, len(rejected))


def expected_accuracy(
    loglikes: np.ndarray,
    hypotheses: Hypotheses,
    reference: np.ndarray,
    classes: TidClasses,
    options: CriterionOptions,
) -> Value:
    """MPFE or sMBR."""
    scale, pdfs = options.acoustic_scale, classes.pdfs[hypotheses.tids]
    correct = classes.correct(
        hypotheses.tids, reference[hypotheses.frames], options.criterion == "mpfe", options.one_silence_class
    )
    posteriors, _ = path_posteriors(loglikes, hypotheses, pdfs, scale)
    arcs = hypotheses.sources, hypotheses.targets
    through, average = expected_accuracies(
        *arcs, posteriors, _sums(hypotheses, correct), hypotheses.num_states
    )
    derivative = np.zeros_like(loglikes)
    spread(hypotheses.begins, hypotheses.lengths, pdfs, scale * posteriors * (through - average), derivative)
    return Value(float(average), derivative)


def path_posteriors(
    loglikes: np.ndarray,
    hypotheses: Hypotheses,
    pdfs: np.ndarray,
    scale: float,
    boosts: np.ndarray | float = 0.0,
) -> tuple[np.ndarray, float]:
    """(posteriors of the arcs, float64 (num_arcs); log sum of w over all paths).

    pdfs    of `hypotheses.tids`
    boosts  added to the logarithms of the arcs' weights
    """
    acoustic = arc_sums(hypotheses.begins, hypotheses.lengths, pdfs, loglikes)
    finals = np.full(hypotheses.num_states, np.inf)
    finals[-1] = 0
    posteriors, cost = forward_backward(
        hypotheses.sources, hypotheses.targets, hypotheses.graph_costs - scale * acoustic - boosts, finals
    )
    return posteriors, -cost


def _sums(hypotheses: Hypotheses, of_frames: np.ndarray) -> np.ndarray:
    """Sums of `of_frames`, one value per transition-id, over the frames of each arc, float64 (num_arcs)."""
    ends = np.append(0, np.cumsum(of_frames, dtype=np.float64))
    borders = np.append(0, np.cumsum(hypotheses.lengths))
    return ends[borders[1:]] - ends[borders[:-1]]
