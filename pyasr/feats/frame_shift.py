"""The frame shift of features, for all programs that compute times."""

from __future__ import annotations

from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.feats.origin import audio_options, kept_origins, origins_of
from pyasr.io.text_tables import read_lines

FRAME_SHIFT_S = 0.01
_FILE = "frame_shift"


def frame_shift_s(data: Path, model_dir: Path) -> float:
    """Seconds from one frame to the next of the features of a data directory as input of the model in
    MODEL_DIR.

    Taken from DATA/frame_shift, which Kaldi's get_frame_shift.sh writes, else from the options of these
    features, else from those of the features on which the model was trained; 0.01 if all are unknown. Raises
    UserError for an invalid frame_shift.
    """
    if frame_shift_files(data):
        return _read(Path(data) / _FILE)
    origins = origins_of(data) or kept_origins(model_dir)
    return audio_options(origins[0]).frame.shift_s if origins else FRAME_SHIFT_S


def frame_shift_files(data: Path) -> list[Path]:
    """DATA/frame_shift, if it exists."""
    path = Path(data) / _FILE
    return [path] if path.exists() else []


def _read(path: Path) -> float:
    text = "".join(read_lines(path)).strip()
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 1:
        raise UserError(
            f"{path}: '{text[:20]}' is not a number of seconds from 0 to 1; write 0.01 for a frame shift of "
            "10 ms"
        )
    return seconds
