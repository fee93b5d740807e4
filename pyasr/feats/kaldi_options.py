"""The input of a model in a directory made by Kaldi, from its `cmvn_opts`, `splice_opts`, `delta_opts` and
the presence of `final.mat`.

Kaldi's scripts have two rules for the input of a model. With `final.mat`, it is spliced frames times this
matrix (`splice-feats $splice_opts`, by default 4 frames on each side). Without it, it is features and their
derivatives (`add-deltas $delta_opts`, by default of order 2). Both follow `apply-cmvn $cmvn_opts` by speaker.
For a missing or empty file, the defaults of the programs apply.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypedDict

from pyasr.base.cli.kaldi_names import BOOLS
from pyasr.base.errors import UserError
from pyasr.feats.transforms import MATRIX_FILE
from pyasr.io.text_tables import read_lines

CMVN_FILE, SPLICE_FILE, DELTA_FILE = "cmvn_opts", "splice_opts", "delta_opts"
OPTION_FILES = (CMVN_FILE, SPLICE_FILE, DELTA_FILE)
_MODEL_FILE = "final.mdl"
_BOOLS = {**BOOLS, "": True}


class _InputValues(TypedDict):
    cmvn: str
    norm_vars: bool
    deltas: int
    splice_left: int
    splice_right: int


def kaldi_input(model_dir: Path) -> _InputValues:
    """Values for `InputOptions`. Raises UserError, naming the file, for unknown options, and for a directory
    without a model."""
    model_dir = Path(model_dir)
    if not any((model_dir / name).exists() for name in (*OPTION_FILES, _MODEL_FILE)):
        raise UserError(
            f"{model_dir}/input.json: no such file, nor {CMVN_FILE} and {_MODEL_FILE} of a directory made by "
            "Kaldi; give the directory of a model"
        )
    means, variances = _cmvn(model_dir / CMVN_FILE)
    cmvn = "speaker" if means else "none"
    if (model_dir / MATRIX_FILE).exists():
        found = _options(model_dir / SPLICE_FILE, {"left-context": 4, "right-context": 4})
        return {
            "cmvn": cmvn,
            "norm_vars": variances,
            "deltas": 0,
            "splice_left": found["left-context"],
            "splice_right": found["right-context"],
        }
    found = _options(model_dir / DELTA_FILE, {"delta-order": 2, "delta-window": 2, "truncate": 0})
    if found["delta-window"] != 2 or found["truncate"]:
        raise UserError(
            f"{model_dir / DELTA_FILE}: only derivatives over a window of 2 frames are supported; train the "
            "model with those"
        )
    return {
        "cmvn": cmvn,
        "norm_vars": variances,
        "deltas": found["delta-order"],
        "splice_left": 0,
        "splice_right": 0,
    }


def kaldi_option_lines(
    cmvn: str, norm_vars: bool, deltas: int, splice_left: int, splice_right: int
) -> dict[str, str]:
    """{file name: its line} with which Kaldi's scripts compute the same input of a model; `kaldi_input` reads
    them.

    They support only normalisation by speaker: for `utterance`, make every utterance a speaker; for
    `sliding`, normalise features first.
    """
    by_speaker = cmvn in ("speaker", "utterance")
    normalise = f"--norm-means={str(by_speaker).lower()} --norm-vars={str(by_speaker and norm_vars).lower()}"
    return {
        CMVN_FILE: normalise,
        DELTA_FILE: f"--delta-order={deltas}",
        SPLICE_FILE: f"--left-context={splice_left} --right-context={splice_right}",
    }


def _cmvn(path: Path) -> tuple[bool, bool]:
    """Whether (means, variances) are normalised."""
    found = _options(path, {"norm-means": True, "norm-vars": False})
    if found["norm-vars"] and not found["norm-means"]:
        raise UserError(
            f"{path}: variances are normalised but not means, which neither Kaldi nor this toolkit "
            "supports; correct it"
        )
    return found["norm-means"], found["norm-vars"]


def _options(path: Path, defaults: dict) -> dict:
    """`defaults`, overridden by the `--name=value` words of a file. Raises UserError for an unknown option or
    an invalid value."""
    found = dict(defaults)
    for word in " ".join(read_lines(path)).split() if path.exists() else []:
        name, _, value = word.removeprefix("--").replace("_", "-").partition("=")
        if not word.startswith("--") or name not in defaults:
            known = ", ".join(f"--{name}" for name in defaults)
            raise UserError(
                f"{path}: unknown option '{word}'; known are {known}, each followed by = and a value"
            )
        found[name] = _value(value, defaults[name], word, path)
    return found


def _value(text: str, default, word: str, path: Path):
    if isinstance(default, bool):
        if text in _BOOLS:
            return _BOOLS[text]
    elif re.fullmatch("[0-9]{1,9}", text):
        return int(text)
    raise UserError(
        f"{path}: '{word}' has no {'true or false' if isinstance(default, bool) else 'whole number'} after "
        "the =; correct it"
    )
