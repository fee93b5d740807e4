r"""A trained acoustic model on disk, and its scores for decoding.

DIR/final.nnet is a torch file of plain tensors and values (read with `weights_only`, so it can hold no code): the network's options
and parameters, mean and inverse standard deviation of its input, and the log priors of the tied states. Scores are

    log p(x | s) + const = log p(s | x) - log P(s)
"""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.nn.feed_forward import DnnOptions, FeedForward
from pyasr.nn.tensor_file import load_tensors, save_tensors

MODEL_FILE = "final.nnet"
_FORMAT = 1


@dataclass
class AcousticModel:
    """A network with what it needs to score features.

    mean, inverse_std  of the network's input, float32 (input_dim,)
    log_priors         float32 (num_pdfs,)
    """

    options: DnnOptions
    network: FeedForward
    mean: torch.Tensor
    inverse_std: torch.Tensor
    log_priors: torch.Tensor

    @property
    def num_pdfs(self) -> int:
        """Tied states, the network's outputs."""
        return len(self.log_priors)

    def log_likelihoods(self, features: np.ndarray) -> np.ndarray:
        """log p(s | x) - log P(s), float32 (T, num_pdfs), of the model's input (T, input_dim)."""
        if features.shape[1] != len(self.mean):
            found = f"the model takes {len(self.mean)} columns a frame, the features have {features.shape[1]}"
            raise UserError(f"{found}; give the features it was trained on")
        with torch.inference_mode():
            x = (torch.from_numpy(np.ascontiguousarray(features)) - self.mean) * self.inverse_std
            return torch.log_softmax(self.network(x), 1).sub_(self.log_priors).numpy()

    def save(self, path: Path) -> None:
        """Write the model file described above, in float32 and on the CPU whatever it was trained in; `load_model` reads it."""
        content = {
            "format": _FORMAT,
            "options": dataclasses.asdict(self.options),
            "parameters": {name: value.detach().float().cpu().clone() for name, value in self.network.state_dict().items()},
            "mean": self.mean,
            "inverse_std": self.inverse_std,
            "log_priors": self.log_priors,
        }
        save_tensors(path, content)


def load_model(path: Path) -> AcousticModel:
    """The model that `AcousticModel.save` wrote. Raises UserError for anything else."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path}: no such file; train the model first (steps/train_dnn.py)")
    try:
        content = load_tensors(path)
        options = DnnOptions(**content["options"])
        network = FeedForward(options, len(content["mean"]), len(content["log_priors"]))
        network.load_state_dict(content["parameters"])
    except (RuntimeError, pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: not a whole model file ({type(error).__name__}); train the model again") from error
    return AcousticModel(options, network.eval(), content["mean"], content["inverse_std"], content["log_priors"])


def load_scorer(model_dir: Path) -> AcousticModel:
    """The model of a directory, for its `log_likelihoods(features)`."""
    return load_model(Path(model_dir) / MODEL_FILE)


def log_priors(counts: np.ndarray) -> torch.Tensor:
    """Log priors of tied states from their frame counts in the alignments; one is added to each, so that none is zero."""
    smoothed = counts.astype(np.float64) + 1.0
    return torch.from_numpy(np.log(smoothed / smoothed.sum())).float()
