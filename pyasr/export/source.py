"""What is exported: the network of a model directory, and how features become its input."""

from __future__ import annotations

from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.feats.inputs import InputOptions
from pyasr.feats.transforms import MATRIX_FILE
from pyasr.nn.acoustic import AcousticModel, load_scorer


def read_source(model_dir: Path) -> tuple[AcousticModel, InputOptions]:
    """Both. Raises UserError for no network's directory, and for one whose features go through a matrix first."""
    if (Path(model_dir) / MATRIX_FILE).exists():
        found = f"{model_dir}/{MATRIX_FILE}: a matrix before the network cannot be exported"
        raise UserError(f"{found}; train on features that it was applied to (steps/make_fmllr_feats.py)")
    return load_scorer(model_dir), InputOptions.load(model_dir)


def feature_dim(model: AcousticModel, options: InputOptions) -> int:
    """Columns of the features before derivatives and splicing. Raises UserError where the model's input cannot be made of them."""
    dim, rest = divmod(len(model.mean), options.dim(1))
    if rest:
        found = f"the network takes {len(model.mean)} columns, which are not {options.dim(1)} times those of features"
        raise UserError(f"{found} (deltas and splicing of input.json); take final.nnet and input.json of the same directory")
    return dim
