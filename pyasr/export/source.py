"""The exported network of a model directory, and the conversion of features to its input."""

from __future__ import annotations

from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.feats.inputs import InputOptions
from pyasr.feats.transforms import MATRIX_FILE
from pyasr.nn.networks.acoustic import AcousticModel, load_scorer


def read_source(model_dir: Path) -> tuple[AcousticModel, InputOptions]:
    """(network, input options) of a model directory. Raises UserError if it has no network, or a matrix that
    is applied to features first."""
    if (Path(model_dir) / MATRIX_FILE).exists():
        found = f"{model_dir}/{MATRIX_FILE}: a matrix before the network cannot be exported"
        raise UserError(
            f"{found}; train on features to which it has been applied (steps/make_fmllr_feats.py)"
        )
    return load_scorer(model_dir), InputOptions.load(model_dir)


def feature_dim(model: AcousticModel, options: InputOptions) -> int:
    """Columns of the features before derivatives and splicing. Raises UserError if they do not fit the
    model's input."""
    dim, rest = divmod(len(model.mean), options.dim(1))
    if rest:
        found = f"the network takes {len(model.mean)} columns, which is not a multiple of {options.dim(1)}"
        raise UserError(
            f"{found} (deltas and splicing of input.json); take final.nnet and input.json from the same "
            "directory"
        )
    return dim
