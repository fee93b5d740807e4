"""Location of the checkpoints of a training job, and the content of `checkpoint.json`, which can be read
without the tensors."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.files.places import remove_tree
from pyasr.base.system_errors import SystemRefusal, naming

DIRECTORY, INDEX = "checkpoint", "checkpoint.json"
MODELS = "models"  # directory of the models to be combined, next to the checkpoints


def resume_point(out: Path, pattern: str = DIRECTORY) -> str:
    """The point from which a job with checkpoints in OUT/PATTERN resumes: `from 1200 frames`, `from 500
    frames of rbm2`, `from the beginning`."""
    indices = sorted(out.glob(f"{pattern}/{INDEX}"), key=lambda path: path.stat().st_mtime)
    if not indices:
        return "from the beginning"
    directory = indices[-1].parent
    part = f" of {directory.parent.name}" if directory.parent != out else ""
    return f"from {read_index(directory).get('frames_seen', 0)} frames{part}"


def read_index(directory: Path) -> dict:
    """Number and files of the last complete set; 0 and an empty list without one."""
    path = directory / INDEX
    if not path.exists():
        return {"number": 0, "files": []}
    with naming_damaged_file(path):
        index = json.loads(path.read_text(encoding="utf-8"))
        return {"number": index["number"], "files": index["files"], **index}


def remove_checkpoints(directory: Path) -> None:
    """Remove a directory of checkpoints, the index first: if the removal is interrupted, training starts from
    scratch."""
    (directory / INDEX).unlink(missing_ok=True)
    remove_tree(directory)


@contextlib.contextmanager
def naming_damaged_file(path: Path):
    """Convert all errors of reading a damaged checkpoint file to one UserError."""
    try:
        with naming(path):
            yield
    except Exception as error:
        if isinstance(error, SystemRefusal) and not error.is_absence:
            raise
        sentence = (
            f"this checkpoint cannot be read ({type(error).__name__}); delete {path.parent} to train "
            "from the start"
        )
        raise UserError(f"{path}: {sentence}") from error
