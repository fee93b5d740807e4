"""The input of a model whose directory Kaldi made, told by its `cmvn_opts`, `splice_opts`, `delta_opts` and by a `final.mat` or none.

Kaldi's scripts feed a model by two rules. With `final.mat` it sees spliced frames times this matrix (`splice-feats $splice_opts`, 4 frames
on each side unless told otherwise), without it features and their derivatives (`add-deltas $delta_opts`, of order 2 unless told
otherwise). Before both stands `apply-cmvn $cmvn_opts` by speaker; a file that is not there, or empty, leaves the programs' defaults.
"""

from __future__ import annotations

import re
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.kaldi_names import BOOLS
from pyasr.feats.transforms import MATRIX_FILE
from pyasr.io.text import read_lines

CMVN_FILE, SPLICE_FILE, DELTA_FILE = "cmvn_opts", "splice_opts", "delta_opts"
OPTION_FILES = (CMVN_FILE, SPLICE_FILE, DELTA_FILE)
_MODEL_FILE = "final.mdl"
_BOOLS = {**BOOLS, "": True}


def kaldi_input(model_dir: Path) -> dict[str, object]:
    """Values for `InputOptions`. Raises UserError, naming the file, for options that are not understood, and for no model directory."""
    model_dir = Path(model_dir)
    if not any((model_dir / name).exists() for name in (*OPTION_FILES, _MODEL_FILE)):
        raise UserError(f"{model_dir}/input.json: no such file, nor {CMVN_FILE} and {_MODEL_FILE} of a directory that Kaldi made; "
                        "give the directory of a model")
    means, variances = _cmvn(model_dir / CMVN_FILE)
    content = {"cmvn": "speaker" if means else "none", "norm_vars": variances}
    if (model_dir / MATRIX_FILE).exists():
        found = _options(model_dir / SPLICE_FILE, {"left-context": 4, "right-context": 4})
        return {**content, "deltas": 0, "splice_left": found["left-context"], "splice_right": found["right-context"]}
    found = _options(model_dir / DELTA_FILE, {"delta-order": 2, "delta-window": 2, "truncate": 0})
    if found["delta-window"] != 2 or found["truncate"]:
        raise UserError(f"{model_dir / DELTA_FILE}: only derivatives over a window of 2 frames are made; train the model with those")
    return {**content, "deltas": found["delta-order"], "splice_left": 0, "splice_right": 0}


def kaldi_option_lines(cmvn: str, norm_vars: bool, deltas: int, splice_left: int, splice_right: int) -> dict[str, str]:
    """{file name: its line} by which Kaldi's scripts feed a model as `kaldi_input` reads it.

    They know one normalisation, by speaker: for `utterance` let every utterance be a speaker, for `sliding` normalise the features before.
    """
    by_speaker = cmvn in ("speaker", "utterance")
    normalise = f"--norm-means={str(by_speaker).lower()} --norm-vars={str(by_speaker and norm_vars).lower()}"
    return {CMVN_FILE: normalise, DELTA_FILE: f"--delta-order={deltas}",
            SPLICE_FILE: f"--left-context={splice_left} --right-context={splice_right}"}


def _cmvn(path: Path) -> tuple[bool, bool]:
    """Whether (means, variances) are normalised."""
    found = _options(path, {"norm-means": True, "norm-vars": False})
    if found["norm-vars"] and not found["norm-means"]:
        raise UserError(f"{path}: variances are normalised but not means; that is no normalisation that Kaldi or this toolkit can do")
    return found["norm-means"], found["norm-vars"]


def _options(path: Path, defaults: dict) -> dict:
    """`defaults` with what the `--name=value` words of a file say. Raises UserError for another option or an impossible value."""
    found = dict(defaults)
    for word in " ".join(read_lines(path)).split() if path.exists() else []:
        name, _, value = word.removeprefix("--").replace("_", "-").partition("=")
        if not word.startswith("--") or name not in defaults:
            known = ", ".join(f"--{name}" for name in defaults)
            raise UserError(f"{path}: '{word}' is not understood; known are {known}, each followed by = and a value")
        found[name] = _value(value, defaults[name], word, path)
    return found


def _value(text: str, default, word: str, path: Path):
    if isinstance(default, bool):
        if text in _BOOLS:
            return _BOOLS[text]
    elif re.fullmatch("[0-9]{1,9}", text):
        return int(text)
    raise UserError(f"{path}: '{word}' has no {'true or false' if isinstance(default, bool) else 'whole number'} after the =; correct it")
