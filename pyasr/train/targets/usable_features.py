"""Checks of features during training. Unusable features end the training; the message names the utterance."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader


def read_features(reader: FeatureReader, key: str, num_frames: int) -> np.ndarray:
    """The features of an utterance, float32 (num_frames, dim). Raises UserError if the number of frames is
    not `num_frames`, if values are not finite, and for errors of the reader."""
    features = reader[key]
    if len(features) != num_frames:
        raise _bad_features(
            reader.data, f"{key} has {len(features)} frames, utt2num_frames says {num_frames}"
        )
    check_numbers(features, key, reader.data)
    return features


def check_numbers(features: np.ndarray, key: str, data: Path) -> None:
    """Raise UserError if a value is NaN or infinite."""
    if not np.isfinite(features).all():
        frame, column = np.argwhere(~np.isfinite(features))[0]
        found = (
            f"{key} has features that are not finite ({features[frame, column]} in frame {frame}, "
            f"column {column})"
        )
        raise _bad_features(data, found)


def _bad_features(data: Path, found: str) -> UserError:
    return UserError(f"{data}: {found}; compute the features of {data} again, or remove the utterance")
