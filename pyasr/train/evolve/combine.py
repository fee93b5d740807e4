r"""The final model, combined from the last models of a training.

`average` (Kaldi's nnet3-combine): the plain average of the last n models, with the best n = 1..M on a sample
of training frames.

`weights` (Kaldi's nnet-combine-fast): one unconstrained weight for each model n and layer c,

    theta_c = sum_n w_nc theta_nc,       F(w) = mean over the sample of log p(s_t | x_t)
    dF/dw_nc = <dF/dtheta_c, theta_nc>

1. Start at the better of the best single model and the plain average.
2. Compute a Fisher matrix over the weights at this point, from the gradients g_b of batches b of 64 frames:
   H = sum_b g_b g_b^T, scaled to trace dim(w). The diagonal is floored at 1e-6 and then multiplied by
   1 + alpha, alpha = 0.01. (With Kaldi's floor, 1e-20, rounding errors determine the weights that have no
   effect: those of a layer before p-norm and normalisation, if the search starts at a single model.)
3. With H = C C^T, run L-BFGS in v = C^T w, whose gradient is C^-1 dF/dw. Many weights have nearly the same
   effect; in v they are nearly independent.

The result is the best point that was evaluated, so F never falls below the start. Every rank computes on its
share of the sample; the results are summed over ranks. Memory on every rank: M times the parameters, in
float32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from pyasr.nn.networks.construction import Network
from pyasr.parallel.communication.comm import Comm
from pyasr.tensor.file import load_tensors, save_tensors
from pyasr.train.data.sample import Sample
from pyasr.train.minibatches.chunks import NO_TARGET
from pyasr.train.sgd.learner import Learner
from pyasr.train.training_options import CombineOptions

_FISHER_BATCH = 64
_ALPHA, _DIAGONAL_FLOOR = 0.01, 1e-6
_MEMORY = 10

LogProbability = Callable[[Network, torch.Tensor, torch.Tensor], torch.Tensor]


def of_targets(network: Network, x: torch.Tensor, pdfs: torch.Tensor) -> torch.Tensor:
    """The sum of the log probabilities of the target pdfs."""
    logits = network(x).flatten(0, -2).float()
    return -F.cross_entropy(logits, pdfs.flatten(), reduction="sum", ignore_index=NO_TARGET)


def remove_models_after(frames_seen: int, directory: Path) -> None:
    """Remove the models that were saved after more than `frames_seen` frames."""
    for path in directory.glob("*.pt"):
        if int(path.stem) > frames_seen:
            path.unlink()


class RecentModels:
    """The models to be combined, in files DIRECTORY/FRAMES.pt. Rank 0 writes them and keeps the last
    `combine_models`."""

    def __init__(self, directory: Path, options: CombineOptions, comm: Comm):
        self.directory, self.options, self.comm = directory, options, comm

    def keep(self, parameters: list[torch.Tensor], frames_seen: int) -> None:
        """Save the current model of all ranks."""
        if self.comm.rank:
            return
        self.directory.mkdir(exist_ok=True)
        content = {"parameters": [value.cpu().clone() for value in parameters]}
        save_tensors(self.directory / f"{frames_seen:015d}.pt", content)
        for path in self._paths()[: -self.options.combine_models]:
            path.unlink()

    def load(self, learner: Learner, frames_seen: int) -> list[list[torch.Tensor]]:
        """Parameters of the models of the current shape, oldest first. The last one is the current model,
        after `frames_seen` frames."""
        self.comm.barrier()
        present = [value.cpu().clone() for value in learner.flat.values()]
        files = [load_tensors(path) for path in self._paths() if int(path.stem) < frames_seen]
        shape = [value.shape for value in present]
        models = [
            content["parameters"]
            for content in files
            if [value.shape for value in content["parameters"]] == shape
        ]
        return [*models, present][-self.options.combine_models :]

    def _paths(self) -> list[Path]:
        return sorted(self.directory.glob("*.pt"))


class Combination:
    """Networks that are weighted sums of models, layer by layer, and their objective on a sample over all
    ranks.

    network  network of the models' shape; its parameters are overwritten
    models   parameters of each model, in the order of `network.parameters()`
    log_probability  function of network, inputs and targets: the objective, summed over the targets

    Weights are float64 (num_models, num_layers).
    """

    def __init__(
        self,
        network: Network,
        models: list[list[torch.Tensor]],
        sample: Sample,
        log_probability: LogProbability = of_targets,
    ):
        self.network, self.sample, self.comm = network.to(sample.device).eval(), sample, sample.comm
        self._log_probability = partial(log_probability, self.network)
        self.layers = [list(layer.parameters(recurse=False)) for layer in network.affine_layers]
        by_layer = _by_layer(models, self.layers)
        self.models = [torch.stack(rows).to(sample.device) for rows in by_layer]
        self.num_models, self.num_layers = len(models), len(self.layers)

    def set(self, weights: torch.Tensor) -> None:
        """Give the network the parameters theta_c = sum_n w_nc theta_nc."""
        for column, models, parameters in zip(weights.T, self.models, self.layers):
            flat = column.to(models) @ models
            for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters])):
                parameter.data.copy_(part.view_as(parameter))

    @torch.no_grad()
    def objective(self, weights: torch.Tensor) -> float:
        """F(w), nats per frame."""
        self.set(weights)
        total = sum(float(self._log_probability(*batch)) for batch in self.sample.batches())
        return float(self._summed(torch.tensor([total], dtype=torch.float64))) / self.sample.num_frames

    def gradient(self, weights: torch.Tensor) -> tuple[float, torch.Tensor]:
        """(F(w), dF/dw)."""
        self.set(weights)
        sums = torch.zeros(1 + weights.numel(), dtype=torch.float64)
        for batch in self.sample.batches():
            value, slope = self._slope(*batch)
            sums[0] += value
            sums[1:] += slope
        self._summed(sums).div_(self.sample.num_frames)
        return float(sums[0]), sums[1:].view_as(weights)

    def fisher(self, weights: torch.Tensor) -> torch.Tensor:
        """The matrix H at `weights`, positive definite; weights in the order of `weights.flatten()`."""
        self.set(weights)
        matrix = torch.zeros(weights.numel(), weights.numel(), dtype=torch.float64)
        for batch in self.sample.batches(_FISHER_BATCH):
            _, slope = self._slope(*batch)
            matrix.addr_(slope, slope)
        self._summed(matrix)
        matrix.mul_(len(matrix) / matrix.trace().clamp(min=1e-20))
        matrix.diagonal().clamp_(min=_DIAGONAL_FLOOR).mul_(1 + _ALPHA)
        return matrix

    def _slope(self, x: torch.Tensor, pdfs: torch.Tensor) -> tuple[float, torch.Tensor]:
        """(sum of log probabilities of this rank's frames, its gradient by the weights, flat)."""
        parameters = [p for layer in self.layers for p in layer]
        value = self._log_probability(x, pdfs)
        gradients = iter(torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True))
        columns = [
            models @ torch.cat([next(gradients).flatten() for _ in layer])
            for models, layer in zip(self.models, self.layers)
        ]
        return float(value.detach()), torch.stack(columns, 1).double().cpu().flatten()

    def _summed(self, array: torch.Tensor) -> torch.Tensor:
        """Sum over ranks in place, bit-identical on all ranks."""
        self.comm.allreduce(array)
        return self.comm.bcast(array)


def _by_layer(models: list[list[torch.Tensor]], layers: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    """For each layer, its parameters in every model, flattened to one vector."""
    begins = np.cumsum([0, *map(len, layers)])
    return [
        [torch.cat([p.flatten() for p in model[begin:end]]) for model in models]
        for begin, end in zip(begins, begins[1:])
    ]


def combine_recent(
    options: CombineOptions,
    recent: RecentModels,
    learner: Learner,
    frames_seen: int,
    sample: Sample,
    log_probability: LogProbability = of_targets,
) -> None:
    """Give the learner the combination of the last models. Every rank must call this."""
    network = learner.network.with_parameters(learner.flat.values())
    combine(options, Combination(network, recent.load(learner, frames_seen), sample, log_probability))
    give(learner, network)


def give(learner: Learner, network: Network) -> None:
    """Copy the parameters of a network of the same shape to the learner."""
    for value, parameter in zip(learner.flat.values(), network.parameters()):
        value.copy_(parameter.detach())
    learner.flat.refresh()


def combine(options: CombineOptions, combination: Combination) -> tuple[torch.Tensor, float]:
    """(weights, F(w)) of the final model, whose parameters `combination.network` gets. Collective."""
    weights, value = (best_average if options.combine == "average" else optimal_weights)(combination, options)
    combination.set(weights)
    return weights, value


def best_average(combination: Combination, options: CombineOptions) -> tuple[torch.Tensor, float]:
    """The best average of the last n models."""
    candidates = [_average_of_last(combination, n) for n in range(1, combination.num_models + 1)]
    values = [combination.objective(weights) for weights in candidates]
    best = int(np.argmax(values))
    found = f"objective {values[best]:.4f}, the last alone {values[0]:.4f}"
    combination.comm.log(f"average of the last {best + 1} of {len(values)} models: {found}")
    return candidates[best], values[best]


def optimal_weights(combination: Combination, options: CombineOptions) -> tuple[torch.Tensor, float]:
    """A weight for each model and layer, by preconditioned L-BFGS."""
    start, begun_at = _start(combination, options)
    factor = torch.linalg.cholesky(combination.fisher(start))
    best, best_value = start, begun_at
    point = torch.nn.Parameter(factor.T @ start.flatten())
    search = torch.optim.LBFGS(
        [point],
        max_iter=options.combine_iterations,
        max_eval=3 * options.combine_iterations,
        history_size=min(len(point), _MEMORY),
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        nonlocal best, best_value
        weights = torch.linalg.solve_triangular(factor.T, point.detach()[:, None], upper=True).view_as(start)
        value, slope = combination.gradient(weights)
        point.grad = -torch.linalg.solve_triangular(factor, slope.reshape(-1, 1), upper=False).flatten()
        if value > best_value:
            best, best_value = weights, value
        return -value

    search.step(closure)
    combination.comm.log(
        f"combined {combination.num_models} models: objective {begun_at:.4f} to {best_value:.4f}"
    )
    return best, best_value


def _start(combination: Combination, options: CombineOptions) -> tuple[torch.Tensor, float]:
    """(weights, F(w)) of the better of the best single model and the average; of the average with a single
    model or `--combine-start average`."""
    num_models = combination.num_models
    if num_models == 1 or options.combine_start == "average":
        average = _average_of_last(combination, num_models)
        return average, combination.objective(average)
    singles = [combination.objective(weights) for weights in _single_models(combination)]
    best = int(np.argmax(singles))
    average = _average_of_last(combination, num_models)
    value = combination.objective(average)
    found = f"{best + 1} of {num_models}: {singles[best]:.4f}, of their average {value:.4f}"
    combination.comm.log(f"objective of the best single model, {found}")
    return (average, value) if value > singles[best] else (_single_models(combination)[best], singles[best])


def _single_models(combination: Combination) -> list[torch.Tensor]:
    unit = torch.eye(combination.num_models, dtype=torch.float64)
    return [row[:, None].expand(-1, combination.num_layers).contiguous() for row in unit]


def _average_of_last(combination: Combination, num: int) -> torch.Tensor:
    weights = torch.zeros(combination.num_models, combination.num_layers, dtype=torch.float64)
    weights[-num:] = 1 / num
    return weights
