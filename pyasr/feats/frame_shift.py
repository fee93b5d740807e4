"""How far the frames of features lie apart: the one place that says so for all that tells times."""

from __future__ import annotations

from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.feats.origin import audio_options, kept_origins, origins_of
from pyasr.io.text import read_lines

FRAME_SHIFT_S = 0.01
_FILE = "frame_shift"


def frame_shift_s(data: Path, model_dir: Path) -> float:
    """Seconds from one frame of the features of a data directory, given to the model of MODEL_DIR, to the next.

    Told by DATA/frame_shift, as Kaldi's get_frame_shift.sh writes it; where there is none, by the options with which these features were
    made; where these are not known, by those of the features that the model was trained on; else it is 0.01. Raises UserError for a
    frame_shift that is no number of seconds.
    """
    if frame_shift_files(data):
        return _read(Path(data) / _FILE)
    origins = origins_of(data) or kept_origins(model_dir)
    return audio_options(origins[0]).frame.shift_s if origins else FRAME_SHIFT_S


def frame_shift_files(data: Path) -> list[Path]:
    """DATA/frame_shift, where there is one."""
    path = Path(data) / _FILE
    return [path] if path.exists() else []


def _read(path: Path) -> float:
    text = "".join(read_lines(path)).strip()
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 1:
        raise UserError(f"{path}: '{text[:20]}' is no number of seconds from 0 to 1; write 0.01 for frames that lie 10 ms apart")
    return seconds
