"""Checks before jobs start: a directory contains the type of model that a step needs, and the features of a
data directory match it."""

from __future__ import annotations

from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.feats.fit import check_input
from pyasr.hmm.model.model_file import GMM_REMEDY, MODEL, check_gmm, first_pass_model, read_transitions

_NETWORK = "final.nnet"
_OF_NETWORKS = "to align or decode with a network, run steps/align_dnn.py or steps/decode.py"


def check_gmm_input(data: Path, model_dir: Path) -> None:
    """Raise UserError if a directory has no GMM system, or the features of `data` do not match it."""
    if (model_dir / _NETWORK).exists():
        raise UserError(
            f"{model_dir}: a network ({_NETWORK}), expected a GMM system; {GMM_REMEDY}; {_OF_NETWORKS}"
        )
    check_model_input(data, model_dir)


def check_model_input(data: Path, model_dir: Path) -> None:
    """Raise UserError if a directory has neither a network nor a GMM system, or the features of `data` do not
    match it."""
    if (model_dir / _NETWORK).exists():
        read_transitions(model_dir / MODEL)
    else:
        for path in filter(Path.exists, dict.fromkeys([model_dir / MODEL, first_pass_model(model_dir)])):
            check_gmm(path)
    check_input(data, model_dir)
