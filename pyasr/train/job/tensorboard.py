"""TensorBoard event files: curves over the number of frames.

    with EventWriter(Path("exp/dnn/tensorboard"), first_step=0) as events:
        events.add(200_000, {"train/objective": -2.31, "learning_rate": 0.1})

tensorboardX has the records (TFRecord) and messages (TensorFlow's event.proto and summary.proto) of these
files. Its SummaryWriter is not used: it writes from another thread, which does not report errors.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from tensorboardX import RecordWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from pyasr.base.system_errors import keeping_name


class EventWriter:
    """One event file in `directory`, for scalars from `first_step` on. Each call of `add` writes to the file
    at once.

    A file begins with the version of its format, then a session log. The session log makes TensorBoard drop
    later steps of earlier files in the directory, as needed when a job resumes from a checkpoint.
    """

    def __init__(self, directory: Path, first_step: int):
        directory.mkdir(parents=True, exist_ok=True)
        # read in the order of names
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self._path = directory / name
        self._records = RecordWriter(os.path.abspath(self._path))  # `gs:` at the beginning names a cloud
        self._write(0, file_version="brain.Event:2")
        self._write(first_step, session_log=SessionLog(status=SessionLog.START))

    def add(self, step: int, scalars: dict[str, float]) -> None:
        """Write the scalars of a step; a tag such as `train/objective` is a curve in the group `train`."""
        values = [Summary.Value(tag=tag, simple_value=number) for tag, number in scalars.items()]
        self._write(step, summary=Summary(value=values))

    def _write(self, step: int, **what) -> None:
        with keeping_name(self._path):
            self._records.write(Event(wall_time=time.time(), step=step, **what).SerializeToString())
            self._records.flush()

    def close(self) -> None:
        """Close the file."""
        with keeping_name(self._path):
            self._records.close()

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *_) -> None:
        self.close()
