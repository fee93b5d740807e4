"""Options of networks and of their gradients. This module does not import torch, which makes `--help` and the
check of options fast."""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.cli.option_uses import if_is, if_set, unless_is, unless_set
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError

ACTIVATIONS = ("relu", "sigmoid", "tanh", "pnorm")
MAX_SPREAD = 0.5  # maximum share of `pyasr.nn.dropout.SequenceDropout`: above, factors could be negative
_PRECONDITIONING = ("none", "online", "simple")
_MIN_ALPHA = 0.01
_BY_FRAMES = if_is("natural-gradient", "online") + unless_set("ng-num-minibatches-history")


@dataclass(frozen=True)
class HiddenOptions:
    """Number of hidden layers and units."""

    heading = "network"

    hidden_layers: int = option(4, "number of hidden layers", minimum=1, common=True)
    hidden_dim: int = option(768, "units of each hidden layer", minimum=1, common=True)


@dataclass(frozen=True)
class DnnOptions(HiddenOptions):
    """The shape of a feed-forward network."""

    heading = "network"

    activation: str = option(
        "relu",
        "nonlinearity of the hidden layers; with pnorm, --hidden-dim counts groups of units",
        choices=ACTIVATIONS,
        common=True,
    )
    pnorm_group: int = option(
        10,
        "units of a p-norm group; the matrix of a layer has --hidden-dim times this number of rows",
        minimum=1,
        only=if_is("activation", "pnorm"),
        rare=True,
    )
    normalize: bool = option(
        False,
        "scale the hidden units of each frame to root mean square 1; pnorm networks always do this",
        only=unless_is("activation", "pnorm"),
        rare=True,
    )
    dropout: float = option(
        0.0, "fraction of hidden units that are dropped in training", minimum=0.0, maximum=0.9, common=True
    )

    @property
    def affine_dim(self) -> int:
        """Number of rows of a hidden layer's matrix."""
        return self.hidden_dim * (self.pnorm_group if self.activation == "pnorm" else 1)


@dataclass(frozen=True)
class NaturalGradientOptions:
    """Preconditioning of gradients."""

    heading = "optimisation"

    natural_gradient: str = option(
        "none",
        "preconditioning of gradients; online: by statistics of earlier minibatches; simple: by "
        "those of the same minibatch",
        choices=_PRECONDITIONING,
    )
    ng_rank_in: int = option(
        20,
        "rank of the covariance of a layer's inputs; at most half the number of inputs",
        minimum=1,
        only=if_is("natural-gradient", "online"),
        rare=True,
    )
    ng_rank_out: int = option(
        80,
        "rank of the covariance of a layer's outputs; at most half the number of outputs",
        minimum=1,
        only=if_is("natural-gradient", "online"),
        rare=True,
    )
    ng_alpha: float = option(
        4.0,
        "smoothing of the covariance, in units of its average eigenvalue",
        minimum=0.0,
        only=if_set("natural-gradient"),
        rare=True,
    )
    ng_num_samples_history: float = option(
        2000.0, "time constant of the covariance estimate in frames", minimum=1.0, only=_BY_FRAMES, rare=True
    )
    ng_num_minibatches_history: float = option(
        0.0,
        "time constant of the covariance estimate in minibatches (nnet3's LSTMs: 4); 0: "
        "--ng-num-samples-history applies",
        minimum=0.0,
        only=if_is("natural-gradient", "online"),
        rare=True,
    )
    ng_update_period: int = option(
        4,
        "minibatches between two updates of the covariance",
        minimum=1,
        only=if_is("natural-gradient", "online"),
        rare=True,
    )
    max_change_per_sample: float = option(
        0.0,
        "limit on a layer's change by a minibatch, per frame (nnet2: 0.075); 0: no limit",
        minimum=0.0,
        rare=True,
    )
    max_gradient_per_sample: float = option(
        0.0,
        "limit on a layer's gradient, before multiplication by the learning rate, per frame (Su "
        "and Chen's code: 0.075); 0: no limit",
        minimum=0.0,
        rare=True,
    )

    @property
    def changes_gradients(self) -> bool:
        """Whether gradients are preconditioned or limited."""
        return (
            self.natural_gradient != "none"
            or self.max_change_per_sample > 0
            or self.max_gradient_per_sample > 0
        )

    def check(self) -> None:
        """Raise UserError for a history between 0 and 1 minibatch, or a smoothing that leaves a minibatch's
        covariance singular."""
        if 0 < self.ng_num_minibatches_history < 1:
            raise UserError(
                f"--ng-num-minibatches-history {self.ng_num_minibatches_history:g}: give 1 or more, or 0 to "
                "count frames"
            )
        if self.natural_gradient == "simple" and self.ng_alpha < _MIN_ALPHA:
            found = (
                "--natural-gradient simple inverts the covariance of a minibatch, which needs at least "
                f"{_MIN_ALPHA}"
            )
            raise UserError(
                f"--ng-alpha {self.ng_alpha:g}: {found}; give a larger value, or --natural-gradient online"
            )
