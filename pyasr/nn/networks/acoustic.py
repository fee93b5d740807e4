r"""A trained acoustic model on disk, and its scores for decoding.

DIR/final.nnet is a torch file of plain tensors and values (read with `weights_only`, so it cannot contain
code): the network's shape, fixed parts and parameters, mean and inverse standard deviation of its input, and
the log priors of the tied states. Scores are

    log p(x | s) + const = log p(s | x) - log P(s)

times a factor, which is 1 for networks with frame-level training. Networks trained by LF-MMI are intended for
an acoustic scale of 1; their factor of 10 makes the LM weights of other networks suitable for them, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.nn.files import MODEL_FILE
from pyasr.nn.networks.construction import Network, network_from
from pyasr.nn.networks.described import restored
from pyasr.tensor.file import load_object, save_tensors

_PLAIN, _SCALED = 2, 3  # formats: with a factor of 1, with another


@dataclass
class AcousticModel:
    """A network and what it needs to score features.

    mean, inverse_std  normalisation of the network's input, float32 (input_dim,)
    log_priors         float32 (num_pdfs,)
    factor             factor on the log-likelihoods
    """

    network: Network
    mean: torch.Tensor
    inverse_std: torch.Tensor
    log_priors: torch.Tensor
    factor: float = 1.0

    @property
    def num_pdfs(self) -> int:
        """Number of tied states, the network's outputs."""
        return len(self.log_priors)

    @property
    def subsampling(self) -> int:
        """Input frames per output frame of the network."""
        return getattr(self.network, "subsampling", 1)

    def check_answers_on_all(self, model_dir: Path, need: str) -> None:
        """Raise UserError if the network subsamples frames, but `need`, such as "an alignment", requires all
        of them."""
        if self.subsampling != 1:
            found = f"its network has an output for one of {self.subsampling} frames, but {need} needs all"
            raise UserError(f"{model_dir}: {found}; use a model whose network has an output for every frame")

    def check_pdfs(self, model_dir: Path, num_pdfs: int) -> None:
        """Raise UserError unless the network has an output for each of the `num_pdfs` pdfs of the transition
        model."""
        if self.num_pdfs != num_pdfs:
            found = f"{self.num_pdfs} outputs, but final.mdl in the same directory has {num_pdfs} pdfs"
            raise UserError(
                f"{Path(model_dir) / MODEL_FILE}: the network has {found}; take both files from the same "
                "training"
            )

    def log_likelihoods(self, features: np.ndarray) -> np.ndarray:
        """Scores as above, float32 (T, num_pdfs), of the model's input (T, input_dim); T is the number of
        output frames if the network subsamples."""
        return self.to_log_likelihoods(self.log_posteriors(features))

    def to_log_likelihoods(self, log_posteriors: np.ndarray) -> np.ndarray:
        """Scores as above from log p(s | x), which are overwritten."""
        return torch.from_numpy(log_posteriors).sub_(self.log_priors).mul_(self.factor).numpy()

    def log_posteriors(self, features: np.ndarray) -> np.ndarray:
        """log p(s | x) of the same frames."""
        return self._log_posteriors(features).numpy()

    def _log_posteriors(self, features: np.ndarray) -> torch.Tensor:
        if features.shape[1] != len(self.mean):
            found = (
                f"the model expects {len(self.mean)} columns per frame, but the features have "
                f"{features.shape[1]}"
            )
            raise UserError(f"{found}; give features of the kind that the model was trained on")
        with torch.inference_mode():
            x = (torch.from_numpy(np.ascontiguousarray(features)) - self.mean) * self.inverse_std
            return self.network.log_posteriors(x)

    def save(self, path: Path) -> None:
        """Write the model file described above, in float32 and from the CPU; `load_model` reads it."""
        content = {
            "format": _PLAIN if self.factor == 1.0 else _SCALED,
            "network": self.network.describe(),
            "parameters": {
                name: value.detach().float().cpu().clone()
                for name, value in self.network.state_dict().items()
            },
            "mean": self.mean,
            "inverse_std": self.inverse_std,
            "log_priors": self.log_priors,
            "factor": self.factor,
        }
        save_tensors(path, content)


def load_model(path: Path) -> AcousticModel:
    """The model that `AcousticModel.save` wrote. Raises UserError for other files."""

    def make(content: dict) -> AcousticModel:
        """The model from the content of its file."""
        _check_format(content["format"], path)
        network = restored(lambda: network_from(content["network"]), content["parameters"])
        model = AcousticModel(
            network, content["mean"], content["inverse_std"], content["log_priors"], content["factor"]
        )
        _check_numbers(model)
        return model

    return load_object(path, make, "model", "train the model", "steps/train_dnn.py")


def _check_numbers(model: AcousticModel) -> None:
    """Raise ValueError unless the vectors match the network and all numbers are finite."""
    dims = model.network.input_dim, model.network.input_dim, model.network.num_pdfs
    vectors = model.mean, model.inverse_std, model.log_priors
    if [tuple(vector.shape) for vector in vectors] != [(dim,) for dim in dims]:
        raise ValueError("vectors whose lengths do not match the network's input and output")
    if not all(
        value.isfinite().all()
        for value in (*vectors, torch.tensor(model.factor), *model.network.parameters())
    ):
        raise ValueError("values that are not finite")


def _check_format(version: int, path: Path) -> None:
    if version not in (_PLAIN, _SCALED):
        raise UserError(
            f"{path}: model file of format {version}, but this pyasr reads {_PLAIN} and {_SCALED}; use the "
            "pyasr that wrote it"
        )


def load_scorer(model_dir: Path, num_threads: int = 1) -> AcousticModel:
    """The model of a directory, for its `log_likelihoods(features)`.

    num_threads  number of threads that use it concurrently: if there are several, each computes on one core
                 from now on; otherwise, torch would use all cores of the process for each of them
    """
    if num_threads > 1:
        torch.set_num_threads(1)
    return load_model(Path(model_dir) / MODEL_FILE)


def log_priors(counts: np.ndarray) -> torch.Tensor:
    """Log priors of tied states from their frame counts in the alignments; add-one smoothing makes all counts
    positive."""
    smoothed = counts.astype(np.float64) + 1.0
    return torch.from_numpy(np.log(smoothed / smoothed.sum())).float()
