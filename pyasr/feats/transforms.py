"""Linear and affine transforms of features in Kaldi's files: LDA+MLLT (`final.mat`), fMLLR of speakers
(`trans.JOB`).

A matrix W of D rows acts on frames x of N columns: with N columns as  W x,  with N + 1 as  A x + b  where
W = [A b].
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.io.ark import read_ark, write_ark
from pyasr.io.content import read_content
from pyasr.io.int_vectors import num_archives
from pyasr.io.kaldi_objects import KaldiReader, KaldiWriter
from pyasr.io.object_kinds import MATRIX, TEXT, refuse_other

MATRIX_FILE = "final.mat"
_REMEDY = "transforms come from steps/train_sat.py, align_fmllr.py or decode_fmllr.py"


def apply_transform(features: np.ndarray, matrix: np.ndarray, what: str = "the transform") -> np.ndarray:
    """Frames (T, N) to float32 (T, D). Raises UserError, naming `what`, unless `matrix` has N or N + 1
    columns."""
    dim = features.shape[1]
    check_columns(matrix, dim, what)
    result = np.asarray(features, np.float32) @ matrix[:, :dim].T.astype(np.float32)
    if matrix.shape[1] > dim:
        result += matrix[:, dim].astype(np.float32)
    return result


def check_columns(matrix: np.ndarray, dim: int, what: str) -> None:
    """Raise UserError unless `matrix` acts on features of `dim` columns."""
    if matrix.shape[1] not in (dim, dim + 1):
        raise UserError(
            f"{what} has {matrix.shape[1]} columns, but the features {dim}; use the features and splicing "
            "it was estimated on"
        )


def affine(matrix: np.ndarray, dim: int) -> np.ndarray:
    """The transform as [A b], float64 (D, dim + 1), for features of `dim` columns."""
    matrix = np.asarray(matrix, np.float64)
    return matrix if matrix.shape[1] == dim + 1 else np.hstack([matrix, np.zeros((len(matrix), 1))])


def compose(outer: np.ndarray, inner: np.ndarray, dim: int) -> np.ndarray:
    """The transform "first `inner`, then `outer`" of features with `dim` columns, float64; linear if both are
    (compose-transforms)."""
    outer, inner = np.asarray(outer, np.float64), np.asarray(inner, np.float64)
    if outer.shape[1] == len(inner):
        return outer @ inner
    product = outer[:, :-1] @ affine(inner, dim)
    product[:, -1] += outer[:, -1]
    return product


def read_matrix(path: Path) -> np.ndarray:
    """Read a matrix file in Kaldi's format, binary or text. Raises UserError with file and offset."""
    content = read_content(path)
    reader = KaldiReader(path, content)
    try:
        matrix = reader.matrix()
        reader.expect_end()
    except UserError:
        refuse_other(f"{path}", content, MATRIX, "give a file of one matrix", (TEXT,))
        raise
    return matrix


def write_matrix(path: Path, matrix: np.ndarray, binary: bool = True) -> None:
    """Write a matrix file, atomically, as float32."""
    with KaldiWriter(path, binary) as writer:
        writer.matrix(np.asarray(matrix, np.float32))


def write_transforms(path: Path, transforms: dict[str, np.ndarray]) -> None:
    """Write an archive of float32 matrices in the order of their keys, atomically."""
    write_ark(path, {key: np.asarray(transforms[key], np.float32) for key in sorted(transforms)})


def read_transforms(directory: Path, speakers: Container[str] | None = None) -> dict[str, np.ndarray]:
    """{speaker: matrix} of `transform_files`, or only of `speakers`. A speaker whose utterances were divided
    among jobs is in several archives."""
    found: dict[str, np.ndarray] = {}
    for path in transform_files(directory):
        for speaker, matrix in read_transform_archive(path).items():
            if speakers is not None and speaker not in speakers:
                continue
            if speaker in found and not np.array_equal(found[speaker], matrix):
                raise UserError(
                    f"{path}: the transform of speaker {speaker} differs from that of an earlier job; "
                    "estimate them again"
                )
            found[speaker] = matrix
    return found


def read_transform_archive(path: Path) -> dict[str, np.ndarray]:
    """{speaker: matrix} of one archive. Raises UserError for a damaged archive and one with a vector."""
    found = read_ark(path)
    for speaker, matrix in found.items():
        if matrix.ndim != 2:
            raise UserError(
                f"{path}: speaker {speaker} has a vector of {len(matrix)} numbers, not a matrix; {_REMEDY}"
            )
    return found


def transform_files(directory: Path) -> list[Path]:
    """`DIRECTORY/trans.1` ... `trans.N`, with N from `DIRECTORY/num_jobs`."""
    return [Path(directory) / f"trans.{job}" for job in range(1, num_archives(directory, _REMEDY) + 1)]
