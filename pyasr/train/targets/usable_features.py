"""Features that training cannot use end it at once, by the name of their utterance."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader


def read_features(reader: FeatureReader, key: str, num_frames: int) -> np.ndarray:
    """The features of an utterance, float32 (num_frames, dim). Raises UserError for another number of frames than is known of the data, for
    what is no number, and as the reader does."""
    features = reader[key]
    if len(features) != num_frames:
        raise _bad_features(reader.data, f"{key} has {len(features)} frames, utt2num_frames says {num_frames}")
    check_numbers(features, key, reader.data)
    return features


def check_numbers(features: np.ndarray, key: str, data: Path) -> None:
    """Raise UserError for NaN and infinity."""
    if not np.isfinite(features).all():
        frame, column = np.argwhere(~np.isfinite(features))[0]
        found = f"{key} has features that are no numbers ({features[frame, column]} in frame {frame}, column {column})"
        raise _bad_features(data, found)


def _bad_features(data: Path, found: str) -> UserError:
    return UserError(f"{data}: {found}; make the features of {data} again, or leave the utterance out")
