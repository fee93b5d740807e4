r"""One rank's network and its stochastic gradient descent.

With the minibatch loss F = sum_t -log p(s_t | x_t) over N frames, learning rate a (for summed gradients),
momentum m, and P training ranks:

    Delta <- m Delta - a ( dF/dtheta + 2 (l2 / P) N theta )
    theta_c <- theta_c + s s_c f Delta_c                  for each component c: a layer, or a matrix of it

    s   = (1 - m) min(1, M / tot)                         M = --max-change
    tot = (1 - m) ( sum_c s_c^2 |f Delta_c|^2 )^1/2
    s_c = min(1, m_c / ((1 - m) |f Delta_c|))             m_c = --max-change-per-layer, --max-change-of-output

These are the equations of Kaldi's nnet3, with one difference: N counts outputs, but nnet3 counts the
sequences (chunks) of the minibatch. So l2 is nnet3's l2-regularize divided by the outputs of a chunk. The l2
term is divided by P, because every rank applies it. s = 1 - m gives the rate the same meaning with any
momentum. The limits on the change by one minibatch prevent divergence at large rates. f is a diagonal matrix
of relative learning rates, 1 except for `--output-bias-rate` and `--last-layers-rate`. dF/dtheta is the plain
or the natural gradient (`pyasr.nn.layers.preconditioned_layers`, which also has nnet2's limit). A minibatch
whose gradient is not finite changes no parameter, sets Delta to 0 and is counted. All computations use flat
buffers, see `pyasr.parallel.mixing.flat`. Matrices that layers declare semi-orthogonal are periodically moved
towards that, see `pyasr.nn.layers.semi_orthogonal`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from pyasr.base.errors import UserError
from pyasr.nn.dropout import has_dropout, set_dropout
from pyasr.nn.layers.lagged_natural_gradient import Pending
from pyasr.nn.layers.preconditioned_layers import precondition
from pyasr.nn.layers.semi_orthogonal import PERIOD, approach_semi_orthogonal, semi_orthogonal_weights
from pyasr.parallel.mixing.flat import FlatParameters
from pyasr.parallel.mixing.gradient_sum import GradientSum
from pyasr.tensor.squares import Number
from pyasr.train.sgd.captured_step import CapturedStep, is_past_first_updates, reasons_not_captured
from pyasr.train.sgd.change_limits import change_factors, limits_of
from pyasr.train.sgd.completion import Completion
from pyasr.train.sgd.components import components_of
from pyasr.train.sgd.criterion import Criterion, CrossEntropy
from pyasr.train.sgd.nonfinite_guard import NonfiniteGuard, clear_unless
from pyasr.train.training_options import LearnerOptions


class Learner:
    """SGD steps of a network whose parameters are in one flat buffer.

    components       the modules that have parameters, in the order of the flat buffer
    num_steps        number of minibatches so far
    nonfinite_guard  counts of minibatches skipped because the gradient of a component was not finite
    gradient_sum     sums the gradient over ranks before it is used; None: every rank takes its own steps
    criterion        the training criterion
    loss_context     makes the context in which the criterion computes a loss
    is_captured      whether a step is a CUDA graph (`captured_step`); `not_captured` has the reasons why it
                     cannot be one
    """

    _completion: Completion | None = None
    _captured: CapturedStep | None = None
    # results of natural gradient for the captured steps of a resumed training
    _pending: list[Pending] | None = None

    def __init__(
        self,
        network: nn.Module,
        options: LearnerOptions,
        num_ranks: int = 1,
        gradient_sum: GradientSum | None = None,
        criterion: Criterion | None = None,
    ):
        self.options, self.gradient_sum, self.criterion = options, gradient_sum, criterion or CrossEntropy()
        self.momentum, self.l2, self.num_ranks = options.momentum, options.l2 / num_ranks, num_ranks
        self.max_change, self.num_steps = options.max_change, 0
        self.loss_context: Callable[[], AbstractContextManager] = nullcontext
        self._dropout_schedule = options.schedule_of_dropout()
        if self._dropout_schedule and not has_dropout(network):
            raise UserError(
                "--dropout-schedule: no layer has dropout; add it to a layer in the file of --network, or "
                "omit the schedule"
            )
        self.adopt(network)

    def adopt(self, network: nn.Module) -> None:
        """Continue with another network, such as a grown one. Flat buffers are new; all state from earlier
        minibatches is discarded."""
        self._discard_captured()
        self.criterion.reset_state()
        self.network = network.to(self.options.torch_device())
        self.natural_gradient = precondition(network, self.options.natural_gradient)
        self.flat = FlatParameters(network.parameters(), self.options.torch_dtype())
        self.semi_orthogonal = semi_orthogonal_weights(network)
        self.components = components_of(
            network, self.flat.spans, self.options.output_bias_rate, self.options.last_layers_rate
        )
        self.limits = limits_of(self.components, self.options, self.flat.master.device)
        self.natural_gradient.set_relative_rates(
            {component.name: component.rate for component in self.components}
        )
        self.velocity = torch.zeros_like(self.flat.master) if self.momentum or self.l2 else None  # Delta
        self.nonfinite_guard = NonfiniteGuard(
            [component.name for component in self.components], self.flat.master.device
        )
        if self.gradient_sum:
            self.gradient_sum.attach(self.flat.grad, [span.start for span in self.flat.spans])
        self.not_captured = reasons_not_captured(self)
        self.is_captured = self.flat.master.device.type == "cuda" and not self.not_captured
        if self.gradient_sum and self.criterion.uses_layers_once(network):
            self._completion = Completion(
                network, self.flat.spans, self.natural_gradient, self.gradient_sum.ready
            )

    def state_dict(self) -> dict:
        """The state of this rank except for the parameters, as tensors and plain values for a checkpoint."""
        pending = self._captured.state_dict() if self._captured else self._pending
        return {
            "velocity": self.velocity,
            "natural_gradient": self.natural_gradient.state_dict(),
            "skips": self.nonfinite_guard.counts,
            "num_steps": self.num_steps,
            "pending": pending,
            **self.criterion.state_dict(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Restore the state that `state_dict` returned. Raises UserError if it belongs to another network."""
        self.natural_gradient.load_state_dict(state["natural_gradient"], self.flat.master.device)
        self._discard_captured()
        self._pending = state.get("pending")
        self.nonfinite_guard.counts.copy_(state["skips"])
        self.num_steps = state["num_steps"]
        self.criterion.load_state_dict(state, self.flat.master.device)
        if self.velocity is not None:
            self.velocity.copy_(state["velocity"])

    def _discard_captured(self) -> None:
        """Discard captured steps; later steps are captured again."""
        if self._captured:
            self._captured.end()
        self._captured = self._pending = None

    def trained_network(self) -> nn.Module:
        """A copy of the network with the master parameters, in float32 on the CPU."""
        return self.network.with_parameters(self.flat.values())

    def resume_resized(self, state: dict) -> None:
        """Restore the state that `state_dict` returned in a job with another number of ranks and thus other
        minibatches."""
        self.load_state_dict(state)
        self.criterion.reset_state()

    def step(
        self, x: torch.Tensor, targets: torch.Tensor, rate: float, change_scale: float = 1.0
    ) -> torch.Tensor:
        """Update the master parameters with one minibatch. Returns the sums of the criterion, float64 (3,),
        on the device; zeros if one of them is not finite.

        change_scale  factor on `--max-change` for this minibatch
        """
        self.num_steps += 1
        self.network.train()
        if self.is_captured and isinstance(targets, torch.Tensor) and is_past_first_updates(self):
            self._captured = self._captured or CapturedStep(self, self._pending)
            counts = self._captured.step(x, targets, rate, change_scale)
        else:
            self._pending, counts = None, self.learn(x, targets, rate, self.num_steps, change_scale)
        if self.semi_orthogonal and self.num_steps % PERIOD == 0:
            self._keep_semi_orthogonal()
        return counts

    def learn(
        self,
        x: torch.Tensor,
        targets: torch.Tensor,
        rate: Number,
        number: int | torch.Tensor,
        change_scale: float,
    ) -> torch.Tensor:
        """The part of `step` that is the same in every step. `rate` and `number` (of the step) may be values
        on the device."""
        self.natural_gradient.set_rate(rate)
        loss, counts = self.loss(x, targets)
        num_frames = self._add_over_ranks(loss.backward, targets.numel())
        self._update(rate, num_frames, change_scale * self.max_change, number)
        return torch.where(counts.isfinite().all(), counts, 0.0)

    def try_out(self, x: torch.Tensor, targets: torch.Tensor) -> None:
        """Compute the gradient of a minibatch as `step` does, but without other ranks, and leave it in the
        flat buffer."""
        if self.gradient_sum:
            self._restart_completion()
            self.gradient_sum.leave_out()
        self.network.train()
        self.loss(x, targets)[0].backward()

    def skip_warm_up(self) -> int:
        """Skip the first minibatches, which take more work. Returns the number of minibatches after which the
        work of a step repeats."""
        return math.lcm(self.natural_gradient.skip_warm_up(), PERIOD if self.semi_orthogonal else 1)

    def set_progress(self, frames_seen: int, total_frames: int, learning: float = 1.0) -> None:
        """Set l2 and dropout for the next minibatch, after `frames_seen` of the `total_frames` of all ranks.

        learning  share of the ranks, up to 1, that have a minibatch
        """
        self.l2 = self.options.l2 / (self.num_ranks * learning)
        if self._dropout_schedule:
            set_dropout(self.network, self._dropout_schedule(frames_seen / total_frames))

    def loss(self, x: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of a minibatch, with a gradient, and its sums (`Criterion.loss`)."""
        with self.loss_context():
            return self.criterion.loss(
                self.network, x, targets, self.num_steps if self.network.training else None
            )

    def apply_others_gradient(self, rate: float) -> None:
        """Apply the other ranks' update if gradients are summed over ranks; for ranks without a minibatch."""
        num_frames = self._add_over_ranks(lambda: None, 0)
        if num_frames:
            self.num_steps += 1
            self._update(rate, num_frames, self.max_change, self.num_steps)
            if self.semi_orthogonal and self.num_steps % PERIOD == 0:
                self._keep_semi_orthogonal()

    def _add_over_ranks(self, backward: Callable[[], None], num_frames: int) -> float:
        """Compute the gradient with `backward`, and sum it over ranks meanwhile if there is a `gradient_sum`.
        Returns the number of frames of the gradient."""
        if self.gradient_sum is None:
            backward()
            return num_frames
        self._restart_completion()
        self.gradient_sum.begin(num_frames)
        backward()
        self.gradient_sum.finish()
        return num_frames if self.gradient_sum.frames is None else self.gradient_sum.frames

    def _restart_completion(self) -> None:
        """Begin a backward pass."""
        if self._completion:
            self._completion.restart()

    def _update(self, rate: Number, num_frames: float, max_change: float, number: int | torch.Tensor) -> None:
        """Apply the equations above and set the gradient to zero."""
        delta, unit = self._delta(rate, num_frames)
        lengths = self._lengths(delta) * abs(unit)
        finite = self.nonfinite_guard.count(lengths.isfinite(), number)
        clear_unless(finite, self.flat.grad, self.velocity)
        factors = unit * change_factors(lengths, self.limits, max_change, self.momentum)
        factors = torch.where(finite, factors, 0.0)
        self.flat.add(
            delta,
            [
                place
                for component, factor in zip(self.components, factors)
                for place in component.scaled(factor)
            ],
        )

    def _keep_semi_orthogonal(self) -> None:
        """One step towards semi-orthogonality for each matrix that requires it."""
        values = self.flat.values()
        for place in self.semi_orthogonal:
            approach_semi_orthogonal(values[place])
            self.flat.refresh(self.flat.spans[place])

    def _delta(self, rate: Number, num_frames: float) -> tuple[torch.Tensor, Number]:
        """(tensor, number) whose product is Delta."""
        if self.velocity is None:
            return self.flat.grad, -rate
        self.velocity.mul_(self.momentum)
        if isinstance(rate, torch.Tensor):
            self.velocity.addcmul_(self.flat.grad, -rate)
        else:
            self.velocity.add_(self.flat.grad, alpha=-rate)
        if self.l2:
            self.velocity.add_(self.flat.master, alpha=-2 * rate * self.l2 * num_frames)
        return self.velocity, 1.0

    def _lengths(self, delta: torch.Tensor) -> torch.Tensor:
        """|f Delta_c| of each component, float64. Without limits, which need it, any number that is finite if
        and only if it is."""
        if self.max_change or self.limits is not None:
            squares = [component.square(delta) for component in self.components]
            return torch.stack([torch.as_tensor(square, dtype=torch.float64) for square in squares]).sqrt()
        return torch.stack([delta[component.span].sum() for component in self.components]).double()

    @torch.no_grad()
    def evaluate(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The sums of a minibatch, as `step` returns them, without an update."""
        self.network.eval()
        return self.loss(x, targets)[1]
