"""Whether a directory holds the kind of model that a step needs, and the features of a data directory fit it: told before jobs begin."""

from __future__ import annotations

from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.feats.fit import check_input
from pyasr.hmm.model.model_file import GMM_REMEDY, MODEL, check_gmm, first_pass_model, read_transitions

_NETWORK = "final.nnet"
_OF_NETWORKS = "a network aligns with steps/align_dnn.py and decodes with steps/decode.py"


def check_gmm_input(data: Path, model_dir: Path) -> None:
    """Raise UserError where a directory has no GMM system, or the features of `data` do not fit it."""
    if (model_dir / _NETWORK).exists():
        raise UserError(f"{model_dir}: a network ({_NETWORK}), expected a GMM system; {GMM_REMEDY}; {_OF_NETWORKS}")
    check_model_input(data, model_dir)


def check_model_input(data: Path, model_dir: Path) -> None:
    """Raise UserError where a directory has neither a network nor a GMM system, or the features of `data` do not fit it."""
    if (model_dir / _NETWORK).exists():
        read_transitions(model_dir / MODEL)
    else:
        for path in filter(Path.exists, dict.fromkeys([model_dir / MODEL, first_pass_model(model_dir)])):
            check_gmm(path)
    check_input(data, model_dir)
