r"""Training of one rank's restricted Boltzmann machine (RBM) by contrastive divergence with momentum.

With the gradient d (5) of `pyasr.nn.networks.rbm` over a minibatch, the learning rate a for sums over frames
(l / N for Kaldi's learning rate l), and the momentum m:

    v <- m v + a d,   theta <- theta + v

The scheduled momentum rises with the frames seen over all ranks, from 0.5 to 0.9 in 40 steps of 500,000
frames (about 55 hours). The learning rate is that of the options times (1 - scheduled momentum), so that the
total step for a constant gradient stays the same. Kaldi's program applies the final momentum, 0.9, from the
beginning and uses the scheduled momentum only for the rate. Kaldi's constants were tuned with this behaviour,
so it is the default here (`with_bug`, Kaldi's own name). Without it, the scheduled momentum is applied.

If the reconstruction of a Gaussian RBM explodes, W and b are shrunk, the minibatch is skipped, v is set to 0,
and the rate is multiplied by 0.9 from then on. Kaldi's program has full minibatches only. Here the last
minibatch of an epoch is shorter, and during a first mixing that compares ranks minibatches are halved, so
minibatches of less than half the size are not tested for an explosion. A minibatch whose reconstruction is
not finite is also skipped, with v set to 0, and counted.
"""

from __future__ import annotations

import torch

from pyasr.nn.networks.dbn import Below
from pyasr.nn.networks.rbm import MIN_ROWS, Rbm, descend, explosion, squared_error
from pyasr.parallel.mixing.flat import FlatParameters
from pyasr.train.compute import ComputeOptions
from pyasr.train.schedules import Schedule
from pyasr.train.sgd.criterion import Criterion, Diverged
from pyasr.train.sgd.nonfinite_guard import NonfiniteGuard, clear_unless
from pyasr.train.totals import Totals
from pyasr.train.training_options import MomentumOptions

RATE_AFTER_EXPLOSION = 0.9
_MAX_ERROR = 1000.0


class MomentumSchedule(Schedule):
    """A learning rate that falls as the momentum rises."""

    def __init__(self, options, epoch_frames: int, momentum: MomentumOptions, terms: float = 1.0):
        super().__init__(options, epoch_frames, terms)
        self.momentum = momentum

    def rate(self, frames_seen: int) -> float:
        """Learning rate of the options times (1 - scheduled momentum)."""
        return self.options.learning_rate * (1 - self.momentum.scheduled(frames_seen))


class ReconstructionTotals(Totals):
    """Sums over frames: squared error per visible unit, explosions, frames."""

    @property
    def objective(self) -> float:
        """The negative mean squared error, so that higher is better. The variance of a Gaussian unit is 1."""
        return float(-self.sums[0] / max(self.sums[2], 1.0))

    def text(self) -> str:
        """Text for log lines."""
        if not self.sums[2]:
            return "no frames"
        exploded = f"  {self.sums[1]:.0f} explosions" if self.sums[1] else ""
        return f"reconstruction error {-self.objective:.4f}{exploded}"

    def metrics(self) -> dict[str, float]:
        """Values for metrics.jsonl."""
        if not self.sums[2]:
            return {}
        return {"reconstruction_error": round(-self.objective, 6), "explosions": int(self.sums[1])}


class ReconstructionError(Criterion):
    """The reconstruction error that `RbmLearner` reports. Its step is contrastive divergence, not the
    gradient of a loss."""

    totals = ReconstructionTotals

    def __init__(self, rate_flag: str = Criterion.rate_flag):
        self.rate_flag = rate_flag

    def check(self, totals: Totals, network: Rbm, is_strict: bool) -> None:
        """Raise Diverged for an error above 1000 times the variance of the data. Initial weights do not cause
        such an error, because explosions shrink them."""
        if not totals.objective > -_MAX_ERROR:
            found = f"pretraining has diverged (reconstruction error {-totals.objective:g})"
            raise Diverged(f"{found}: give a lower {self.rate_flag}, or --lr-scaling none, and --force")


class RbmLearner:
    """An RBM with flat parameters, trained on the outputs of `below`, the layers below it.

    generator          random numbers of the samples, on the RBM's device; each rank has its own
    name               name of the RBM in messages
    momentum           m of the equations above; `set_progress` sets it from `momentum_schedule`
    momentum_schedule  schedule of the momentum; None: constant
    products           type of the matrix products
    """

    gradient_sum = None  # ranks mix parameters only
    not_captured = "units are drawn"  # reason why steps on a GPU are not CUDA graphs

    def __init__(
        self,
        rbm: Rbm,
        below: Below,
        options: ComputeOptions,
        l2: float,
        generator: torch.Generator,
        name: str = "the machine",
        momentum_schedule: MomentumOptions | None = None,
    ):
        self.momentum_schedule, self.criterion = (
            momentum_schedule,
            ReconstructionError("--rbm-lr-low" if rbm.gaussian else "--rbm-lr"),
        )
        self.rbm = self.network = rbm.to(options.torch_device())
        self.below, self.l2, self.momentum = below, l2, 0.0
        self.flat, self.products = FlatParameters(rbm.parameters(), options.torch_dtype()), options.products()
        self.velocity = torch.zeros_like(self.flat.master)
        self.rate_scale = torch.ones((), device=self.velocity.device)
        self.nonfinite_guard, self.num_steps = NonfiniteGuard([name], self.velocity.device), 0
        self._gradient = (
            self.flat.grad if self.flat.work is self.flat.master else torch.empty_like(self.velocity)
        )
        self.generator = generator
        self._shrinking, self._least_rows = self.flat.values()[:2], max(MIN_ROWS, options.minibatch // 2)

    @torch.no_grad()
    def step(self, x: torch.Tensor, _targets, rate: float, _change_scale: float = 1.0) -> torch.Tensor:
        """Update the master parameters from one minibatch. Returns the sums (squared error, explosions,
        frames), float64, on the device; zeros if the error is not finite.

        rate  applied learning rate, for gradients summed over frames
        """
        self.num_steps += 1
        of = self.rbm.reconstruct(self.below(x), self.generator)
        error = squared_error(of)
        finite = self.nonfinite_guard.count(error.isfinite()[None], self.num_steps)
        shrink = (
            torch.where(finite, explosion(of, self._least_rows), 1.0)
            if self.rbm.gaussian
            else torch.ones_like(error)
        )
        descend(self.rbm, of, self.l2)
        self._update(rate, finite, shrink)
        return torch.where(finite, _sums(error, shrink != 1, len(x)), 0.0)

    def apply_others_gradient(self, rate: float) -> None:
        """See `Learner.apply_others_gradient`; nothing, because ranks mix parameters only."""

    @torch.no_grad()
    def try_out(self, x: torch.Tensor, _targets) -> None:
        """Compute the gradient of a minibatch and discard it, see `Learner.try_out`."""
        descend(self.rbm, self.rbm.reconstruct(self.below(x), self.generator), self.l2)

    def skip_warm_up(self) -> int:
        """See `Learner.skip_warm_up`; 1, because every minibatch takes the same work."""
        return 1

    def set_progress(self, frames_seen: int, total_frames: int, learning: float = 1.0) -> None:
        """Set the momentum for `frames_seen` frames, see `Learner.set_progress`."""
        if self.momentum_schedule:
            self.momentum = self.momentum_schedule.applied(frames_seen)

    def _update(self, rate: float, finite: torch.Tensor, shrink: torch.Tensor) -> None:
        """Apply the equations above, without waiting for the device."""
        if self._gradient is not self.flat.grad:
            self._gradient.copy_(self.flat.grad)
        clear_unless(finite, self._gradient, self.velocity)
        no_explosion = (shrink == 1).float()
        self.velocity.mul_(self.momentum * no_explosion).addcmul_(
            self._gradient, self.rate_scale * no_explosion, value=-rate
        )
        if self.rbm.gaussian:
            for parameter in self._shrinking:
                parameter.mul_(shrink)
            self.rate_scale.mul_(1 - (1 - RATE_AFTER_EXPLOSION) * (1 - no_explosion))
        self.flat.master.add_(self.velocity)
        self.flat.refresh()

    @torch.no_grad()
    def evaluate(self, x: torch.Tensor, _targets) -> torch.Tensor:
        """(squared error, 0, frames) of a minibatch, without an update and always with the same samples."""
        error = squared_error(self.rbm.reconstruct(self.below(x), torch.Generator(self.generator.device)))
        return _sums(error, torch.zeros_like(error), len(x))

    def state_dict(self) -> dict:
        """State of this rank in addition to the master parameters."""
        return {
            "velocity": self.velocity,
            "rate_scale": self.rate_scale,
            "skips": self.nonfinite_guard.counts,
            "num_steps": self.num_steps,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Restore the state that `state_dict` returned."""
        self.velocity.copy_(state["velocity"])
        self.rate_scale.copy_(state["rate_scale"])
        self.nonfinite_guard.counts.copy_(state["skips"])
        self.num_steps = state["num_steps"]
        # CPUs and GPUs have generators of different kinds
        if state["generator"].shape == self.generator.get_state().shape:
            self.generator.set_state(state["generator"])

    def resume_resized(self, state: dict) -> None:
        """Restore the state that `state_dict` returned in a job with another number of ranks."""
        self.load_state_dict(state)


def _sums(error: torch.Tensor, exploded: torch.Tensor, num_frames: int) -> torch.Tensor:
    return torch.stack([error.double(), exploded.double(), torch.full_like(error, num_frames).double()])
