"""Check, before any job starts, that the features of a data directory fit a model."""

from __future__ import annotations

import re
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.feats.inputs import INPUT_FILE, InputOptions
from pyasr.feats.kaldi_options import DELTA_FILE, SPLICE_FILE
from pyasr.feats.origin import check_origin
from pyasr.feats.transforms import MATRIX_FILE, read_matrix
from pyasr.io.ark import ArkReader, read_scp
from pyasr.io.content import read_content

_GMM, _NETWORK = "final.mdl", "final.nnet"
_DIMENSION = re.compile(rb"<DIMENSION>\s(?:\x04(?P<binary>.{4})|\s*(?P<text>[0-9]{1,9})\s)", re.DOTALL)
_MAX_DELTAS = 3
_USUAL_DIMS, _MAX_FRAMES = (13, 40, 39, 16, 20, 23, 24, 26, 80), 31
_TRAINED_ON = "give the features that the model was trained on"


def check_features(data: Path, model_dir: Path) -> None:
    """Raise UserError if the features of `data` are known to differ from those on which a model was trained,
    or if their dimension does not fit its matrix."""
    check_origin(data, model_dir)
    check_splicing(Path(data), Path(model_dir))


def check_input(data: Path, model_dir: Path) -> None:
    """Raise UserError if the features of `data` do not fit the GMM or network in `model_dir`."""
    check_features(data, model_dir)
    check_dimension(data, model_dir)


def check_splicing(data: Path, model_dir: Path) -> None:
    """Raise UserError if the columns of MODEL_DIR/final.mat do not fit the model's splicing options; the
    message names fitting ones."""
    path = model_dir / MATRIX_FILE
    if not path.exists() or not (data / "feats.scp").exists():
        return
    if not (columns := _num_columns(data / "feats.scp")):
        return
    options, num_columns = InputOptions.load(model_dir), read_matrix(path).shape[1]
    if num_columns in (options.dim(columns), options.dim(columns) + 1):
        return
    sentence = f"{num_columns} columns, but features of {columns} columns become {options.dim(columns)}"
    if (model_dir / INPUT_FILE).exists() or not (frames := _frames(num_columns, columns)):
        raise UserError(f"{path}: {sentence}; {_TRAINED_ON}")
    meant = f"{num_columns} = {columns} x {frames} means {splice_line(frames)}"
    raise UserError(f"{path}: {sentence}; {meant}: write that into {model_dir / SPLICE_FILE}")


def check_dimension(data: Path, model_dir: Path) -> None:
    """Raise UserError if the dimension of the input does not fit the Gaussians of MODEL_DIR/final.mdl; a
    directory with a network is not checked."""
    path, scp = model_dir / _GMM, data / "feats.scp"
    if (model_dir / _NETWORK).exists() or not path.exists() or not scp.exists():
        return
    dim, columns = gmm_dim(path), _num_columns(scp)
    if not dim or not columns:
        return
    matrix, options = model_dir / MATRIX_FILE, InputOptions.load(model_dir)
    found = len(read_matrix(matrix)) if matrix.exists() else options.dim(columns)
    if found != dim:
        by = matrix if matrix.exists() else f"the options of {model_dir}"
        sentence = (
            f"features of {columns} columns become {found} by {by}, but the Gaussians of {path} have "
            f"{dim} dimensions"
        )
        raise UserError(f"{scp}: {sentence}; {_meant_deltas(dim, columns, model_dir) or _TRAINED_ON}")


def gmm_dim(path: Path) -> int:
    """The dimension of the Gaussians of a model file, binary or text; 0 if it has none, as for a network."""
    found = _DIMENSION.search(read_content(path))
    if not found:
        return 0
    return int.from_bytes(found["binary"], "little") if found["binary"] else int(found["text"])


def _meant_deltas(dim: int, columns: int, model_dir: Path) -> str:
    """Advice on Kaldi's delta_opts for Gaussians of `dim` dimensions; '' if no order of derivatives fits."""
    order, rest = divmod(dim, columns)
    of_kaldi = not any((model_dir / name).exists() for name in (INPUT_FILE, MATRIX_FILE))
    if rest or order - 1 > _MAX_DELTAS or not of_kaldi:
        return ""
    return (
        f"{dim} = {columns} x {order} means '--delta-order={order - 1}': write that into "
        f"{model_dir / DELTA_FILE}"
    )


def _num_columns(scp: Path) -> int:
    """Columns of the first features with frames; 0 if there are none."""
    reader = ArkReader()
    features = map(reader.load, read_scp(scp).values())
    return next((matrix.shape[1] for matrix in features if len(matrix)), 0)


def meant_splicing(num_columns: int) -> tuple[int, int] | None:
    """(columns of features, spliced frames) that a matrix with this number of columns probably means; None if
    nothing fits."""
    found = ((dim, _frames(num_columns, dim)) for dim in _USUAL_DIMS)
    return next(((dim, frames) for dim, frames in found if frames), None)


def splice_line(frames: int) -> str:
    """The content of Kaldi's splice_opts for this number of frames."""
    return f"'--left-context={frames // 2} --right-context={frames // 2}'"


def _frames(num_columns: int, dim: int) -> int:
    """The number of spliced frames of `dim` columns of a linear or affine matrix, with equal context on both
    sides; 0 if none fits."""
    fitting = (num // dim for num in (num_columns, num_columns - 1) if num % dim == 0)
    return next((frames for frames in fitting if frames % 2 and frames <= _MAX_FRAMES), 0)
