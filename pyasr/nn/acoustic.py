r"""A trained acoustic model on disk, and its scores for decoding.

DIR/final.nnet is a torch file of plain tensors and values (read with `weights_only`, so it can hold no code): the network's
shape, fixed parts and parameters, mean and inverse standard deviation of its input, and the log priors of the tied states. Scores are

    log p(x | s) + const = log p(s | x) - log P(s)

times a factor, which is 1 for networks that are trained frame by frame. One that is trained by LF-MMI is meant to be used at the scale at
which its outputs are; with the factor 10, that is where LM weights of the others are, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.nn.described import restored
from pyasr.nn.files import MODEL_FILE
from pyasr.nn.networks import Network, network_from
from pyasr.tensor.file import load_object, save_tensors

_FORMAT = 3  # 1: options without fixed parts; 2: without a factor


@dataclass
class AcousticModel:
    """A network with what it needs to score features.

    mean, inverse_std  of the network's input, float32 (input_dim,)
    log_priors         float32 (num_pdfs,)
    factor             of the log-likelihoods
    """

    network: Network
    mean: torch.Tensor
    inverse_std: torch.Tensor
    log_priors: torch.Tensor
    factor: float = 1.0

    @property
    def num_pdfs(self) -> int:
        """Tied states, the network's outputs."""
        return len(self.log_priors)

    @property
    def subsampling(self) -> int:
        """Frames of which the network answers on one."""
        return getattr(self.network, "subsampling", 1)

    def check_answers_on_all(self, model_dir: Path, need: str) -> None:
        """Raise UserError for a network that leaves out frames, where `need`, such as "an alignment", has all of them."""
        if self.subsampling != 1:
            found = f"its network answers on one of {self.subsampling} frames, {need} has all of them"
            raise UserError(f"{model_dir}: {found}; take a model whose network answers on all")

    def check_pdfs(self, model_dir: Path, num_pdfs: int) -> None:
        """Raise UserError unless the network has an output for each of the `num_pdfs` pdfs of the transition model in its directory."""
        if self.num_pdfs != num_pdfs:
            told = f"{self.num_pdfs} outputs, final.mdl beside it {num_pdfs} pdfs"
            raise UserError(f"{Path(model_dir) / MODEL_FILE}: the network has {told}; take both from one training")

    def log_likelihoods(self, features: np.ndarray) -> np.ndarray:
        """Scores as above, float32 (T, num_pdfs), of the model's input (T, input_dim); of a network that subsamples, of the frames
        that it answers on."""
        return self.to_log_likelihoods(self.log_posteriors(features))

    def to_log_likelihoods(self, log_posteriors: np.ndarray) -> np.ndarray:
        """Scores as above from log p(s | x), which are changed in their place."""
        return torch.from_numpy(log_posteriors).sub_(self.log_priors).mul_(self.factor).numpy()

    def log_posteriors(self, features: np.ndarray) -> np.ndarray:
        """log p(s | x) of the same frames."""
        return self._log_posteriors(features).numpy()

    def _log_posteriors(self, features: np.ndarray) -> torch.Tensor:
        if features.shape[1] != len(self.mean):
            found = f"the model takes {len(self.mean)} columns a frame, the features have {features.shape[1]}"
            raise UserError(f"{found}; give the features it was trained on")
        with torch.inference_mode():
            x = (torch.from_numpy(np.ascontiguousarray(features)) - self.mean) * self.inverse_std
            return self.network.log_posteriors(x)

    def save(self, path: Path) -> None:
        """Write the model file described above, in float32 and on the CPU whatever it was trained in; `load_model` reads it."""
        content = {
            "format": _FORMAT if self.factor != 1.0 else 2,  # what an older pyasr can read it may
            "network": self.network.describe(),
            "parameters": {name: value.detach().float().cpu().clone() for name, value in self.network.state_dict().items()},
            "mean": self.mean,
            "inverse_std": self.inverse_std,
            "log_priors": self.log_priors,
            "factor": self.factor,
        }
        save_tensors(path, content)


def load_model(path: Path) -> AcousticModel:
    """The model that `AcousticModel.save` wrote. Raises UserError for anything else."""

    def make(content: dict) -> AcousticModel:
        _check_format(content["format"], path)
        network = restored(lambda: network_from(_description(content)), content["parameters"])
        model = AcousticModel(network, content["mean"], content["inverse_std"], content["log_priors"], content.get("factor", 1.0))
        _check_numbers(model)
        return model

    return load_object(path, make, "model", "train the model", "steps/train_dnn.py")


def _check_numbers(model: AcousticModel) -> None:
    """Raise ValueError unless what stands beside the network fits it, and all are numbers."""
    dims = model.network.input_dim, model.network.input_dim, model.network.num_pdfs
    vectors = model.mean, model.inverse_std, model.log_priors
    if [tuple(vector.shape) for vector in vectors] != [(dim,) for dim in dims]:
        raise ValueError("vectors of another length than the network's input and output")
    if not all(value.isfinite().all() for value in (*vectors, torch.tensor(model.factor), *model.network.parameters())):
        raise ValueError("values that are not numbers")


def _check_format(version: int, path: Path) -> None:
    if not 1 <= version <= _FORMAT:
        raise UserError(f"{path}: a model file of format {version}, this pyasr reads 1 to {_FORMAT}; use the pyasr that wrote it")


def _description(content: dict) -> dict:
    """What the network's `describe` gave; format 1 held the options of a feed-forward one only."""
    if content["format"] > 1:
        return content["network"]
    return {"options": content["options"], "input_dim": len(content["mean"]), "num_pdfs": len(content["log_priors"]), "fixed": {}}


def load_scorer(model_dir: Path, num_threads: int = 1) -> AcousticModel:
    """The model of a directory, for its `log_likelihoods(features)`.

    num_threads  threads that will ask it at once: where they are several, each of them computes on one core from now on, as torch would
                 otherwise take as many for every one of them as the process is given
    """
    if num_threads > 1:
        torch.set_num_threads(1)
    return load_model(Path(model_dir) / MODEL_FILE)


def log_priors(counts: np.ndarray) -> torch.Tensor:
    """Log priors of tied states from their frame counts in the alignments; one is added to each, so that none is zero."""
    smoothed = counts.astype(np.float64) + 1.0
    return torch.from_numpy(np.log(smoothed / smoothed.sum())).float()
