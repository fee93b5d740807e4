"""One training on MPI ranks, from the files of a training step and steps/score.py in its directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import parse_object
from pyasr.io.text_tables import read_lines
from pyasr.score.score_dir import chosen_wer


@dataclass(frozen=True)
class TrainedRun:
    """Result of a training on MPI ranks.

    loss, accuracy   of the held-out frames after the last accepted epoch: nats a frame, per cent
    distances        of ranks from the consensus at the ends of epochs, relative
    wer              of the test set, per cent; None if it was not decoded
    """

    loss: float
    accuracy: float
    distances: tuple[float, ...]
    wer: float | None


def read_trained(directory: Path) -> TrainedRun:
    """The training in `directory`. Raises UserError if its metrics.jsonl is missing or damaged."""
    try:
        epochs = [
            line
            for line in map(parse_object, read_lines(directory / "metrics.jsonl"))
            if line.get("accepted")
        ]
        end = epochs[-1]
        loss, accuracy = -end["heldout_objective"], 100 * end["heldout_accuracy"]
    except (ValueError, LookupError):
        raise UserError(
            f"{directory}: metrics.jsonl has no complete epoch; train again with --force"
        ) from None
    distances = tuple(line["consensus_distance"] for line in epochs if "consensus_distance" in line)
    return TrainedRun(loss, accuracy, distances, chosen_wer(directory / "decode_test"))
