r"""One rank's restricted Boltzmann machine, a step of contrastive divergence at a time, and its momentum.

With d the gradient (5) of `pyasr.nn.networks.rbm` over a minibatch, the rate a of sums over frames (l / N for Kaldi's learning rate l), and
momentum m:

    v <- m v + a d,   theta <- theta + v

The scheduled momentum rises with the frames seen over all ranks, from 0.5 to 0.9 in 40 steps of 500,000 frames (some 55 hours), and
the rate is that of the options times (1 - scheduled momentum), which keeps the length of a long way the same. Kaldi's program
applies the greatest momentum, 0.9, from the beginning, and takes the scheduled one for the rate alone. Its constants were tuned with
this, so it is the default here (`with_bug`, Kaldi's own name); without it the scheduled momentum is the one applied.

Where the reconstruction of a Gaussian machine explodes, W and b are shrunk, the minibatch is passed over, v is set to 0 and the rate is
multiplied by 0.9 from then on. Kaldi's program has full minibatches only; here the last of an epoch is shorter, and those of a first mixing
that compares ranks are halves, so that one of less than half the size is not asked. A minibatch whose reconstruction is not finite is
passed over too, v set to 0, and counted.
"""

from __future__ import annotations

import torch

from pyasr.nn.networks.dbn import Below
from pyasr.nn.networks.rbm import LEAST_ROWS, Rbm, descend, explosion, squared_error
from pyasr.parallel.mixing.flat import FlatParameters
from pyasr.train.compute import ComputeOptions
from pyasr.train.schedules import Schedule
from pyasr.train.sgd.criterion import Criterion, Diverged
from pyasr.train.sgd.nonfinite_guard import Skips, clear_unless
from pyasr.train.totals import Totals
from pyasr.train.training_options import MomentumOptions

RATE_AFTER_EXPLOSION = 0.9
_GREATEST_ERROR = 1000.0


class MomentumSchedule(Schedule):
    """A learning rate that falls as the momentum rises."""

    def __init__(self, options, epoch_frames: int, momentum: MomentumOptions, terms: float = 1.0):
        super().__init__(options, epoch_frames, terms)
        self.momentum = momentum

    def rate(self, frames_seen: int) -> float:
        """The applied rate, less by the factor (1 - scheduled momentum)."""
        return self.options.learning_rate * (1 - self.momentum.scheduled(frames_seen))


class ReconstructionTotals(Totals):
    """Sums over frames: squared error for a visible unit, explosions, frames."""

    @property
    def objective(self) -> float:
        """The negative mean squared error, so that more is better; 1 is the variance of a Gaussian unit."""
        return float(-self.sums[0] / max(self.sums[2], 1.0))

    def text(self) -> str:
        """For log lines."""
        if not self.sums[2]:
            return "no frames"
        exploded = f"  {self.sums[1]:.0f} explosions" if self.sums[1] else ""
        return f"reconstruction error {-self.objective:.4f}{exploded}"

    def metrics(self) -> dict[str, float]:
        """For metrics.jsonl."""
        if not self.sums[2]:
            return {}
        return {"reconstruction_error": round(-self.objective, 6), "explosions": int(self.sums[1])}


class Reconstruction(Criterion):
    """The reconstruction error of a machine, which `RbmLearner` reports. Its step is contrastive divergence, not the gradient of a loss."""

    totals = ReconstructionTotals

    def __init__(self, rate_flag: str = Criterion.rate_flag):
        self.rate_flag = rate_flag

    def check(self, totals: Totals, network: Rbm, is_strict: bool) -> None:
        """An error of a thousand times the variance of the data is not that of initial weights, which explosions soon shrink."""
        if not totals.objective > -_GREATEST_ERROR:
            found = f"pretraining has diverged (reconstruction error {-totals.objective:g})"
            raise Diverged(f"{found}: give a lower {self.rate_flag}, or --lr-scaling none, and --force")


class RbmLearner:
    """A machine whose parameters lie flat, trained on what `below` makes of the input.

    generator  of the samples, on the machine's device; each rank has its own
    name       of the machine, for what is told of it
    momentum   m of the equations above; `reach` sets it by `course`
    course     of the momentum; None: it stays
    products   the name of their type
    """

    gradient_sum = None  # ranks mix parameters alone
    not_captured = "units are drawn"  # why steps on a GPU are not CUDA graphs

    def __init__(self, rbm: Rbm, below: Below, options: ComputeOptions, l2: float, generator: torch.Generator, name: str = "the machine",
                 course: MomentumOptions | None = None):  # fmt: skip
        self.course, self.criterion = course, Reconstruction("--rbm-lr-low" if rbm.gaussian else "--rbm-lr")
        self.rbm = self.network = rbm.to(options.torch_device())
        self.below, self.l2, self.momentum = below, l2, 0.0
        self.flat, self.products = FlatParameters(rbm.parameters(), options.torch_dtype()), options.products()
        self.velocity = torch.zeros_like(self.flat.master)
        self.rate_scale = torch.ones((), device=self.velocity.device)
        self.skips, self.num_steps = Skips([name], self.velocity.device), 0
        self._gradient = self.flat.grad if self.flat.work is self.flat.master else torch.empty_like(self.velocity)
        self.generator = generator
        self._shrinking, self._least_rows = self.flat.values()[:2], max(LEAST_ROWS, options.minibatch // 2)

    @torch.no_grad()
    def step(self, x: torch.Tensor, _targets, rate: float, _change_scale: float = 1.0) -> torch.Tensor:
        """Update the master parameters from one minibatch. Returns float64 (squared error, explosions, frames), summed, on the device;
        zeros where the error is not finite.

        `rate` is the one applied, for summed gradients.
        """
        self.num_steps += 1
        of = self.rbm.reconstruct(self.below(x), self.generator)
        error = squared_error(of)
        finite = self.skips.count(error.isfinite()[None], self.num_steps)
        shrink = torch.where(finite, explosion(of, self._least_rows), 1.0) if self.rbm.gaussian else torch.ones_like(error)
        descend(self.rbm, of, self.l2)
        self._update(rate, finite, shrink)
        return torch.where(finite, _sums(error, shrink != 1, len(x)), 0.0)

    @torch.no_grad()
    def try_out(self, x: torch.Tensor, _targets) -> None:
        """As of all learners."""
        descend(self.rbm, self.rbm.reconstruct(self.below(x), self.generator), self.l2)

    def settle(self) -> int:
        """As of all learners: every minibatch takes the same work."""
        return 1

    def reach(self, frames_seen: int, total_frames: int, learning: float = 1.0) -> None:
        """As of all learners: the momentum after so many frames."""
        if self.course:
            self.momentum = self.course.applied(frames_seen)

    def _update(self, rate: float, finite: torch.Tensor, shrink: torch.Tensor) -> None:
        """The equations above; all of it without asking the device what has happened."""
        if self._gradient is not self.flat.grad:
            self._gradient.copy_(self.flat.grad)
        clear_unless(finite, self._gradient, self.velocity)
        calm = (shrink == 1).float()
        self.velocity.mul_(self.momentum * calm).addcmul_(self._gradient, self.rate_scale * calm, value=-rate)
        if self.rbm.gaussian:
            for parameter in self._shrinking:
                parameter.mul_(shrink)
            self.rate_scale.mul_(1 - (1 - RATE_AFTER_EXPLOSION) * (1 - calm))
        self.flat.master.add_(self.velocity)
        self.flat.refresh()

    @torch.no_grad()
    def evaluate(self, x: torch.Tensor, _targets) -> torch.Tensor:
        """(squared error, 0, frames) of a minibatch without learning, always with the same samples."""
        error = squared_error(self.rbm.reconstruct(self.below(x), torch.Generator(self.generator.device)))
        return _sums(error, torch.zeros_like(error), len(x))

    def state_dict(self) -> dict:
        """All that belongs to this rank beyond the master parameters."""
        return {"velocity": self.velocity, "rate_scale": self.rate_scale, "skips": self.skips.counts, "num_steps": self.num_steps,
                "generator": self.generator.get_state()}  # fmt: skip

    def load_state_dict(self, state: dict) -> None:
        """Go on from what `state_dict` gave."""
        self.velocity.copy_(state["velocity"])
        self.rate_scale.copy_(state["rate_scale"])
        self.skips.counts.copy_(state["skips"])
        self.num_steps = state["num_steps"]
        if state["generator"].shape == self.generator.get_state().shape:  # CPUs and GPUs have generators of different kinds
            self.generator.set_state(state["generator"])

    def take_up(self, state: dict) -> None:
        """Go on from what `state_dict` gave in a job of another number of ranks."""
        self.load_state_dict(state)


def _sums(error: torch.Tensor, exploded: torch.Tensor, num_frames: int) -> torch.Tensor:
    return torch.stack([error.double(), exploded.double(), torch.full_like(error, num_frames).double()])
