"""Record results of trainings in a file, so that a comparison can take days and several machines.

A training is named TABLE/ROW/COLUMN/seedN. The file has a line of JSON per training, sorted by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from comparison.simulated_run import read_run
from comparison.trained_run import read_trained
from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import parse_object
from pyasr.base.outputs.fingerprint import read_done
from pyasr.base.outputs.output import atomic_write
from pyasr.report.provenance import facts
from pyasr.report.systems import SIMULATION, family_of

_PLACES = 4  # decimal places of losses and distances


@dataclass(frozen=True)
class KeptRun:
    """The results of one training; None for unknown numbers.

    loss, accuracy       final, of the held-out frames: nats per frame, per cent
    priors               loss of the priors
    learner_loss         of the model of one learner after the last mixing
    wer, learner_wer     of the test set, per cent
    epoch_s              virtual seconds of an epoch
    speed_up             relative to one learner's computing
    curve                (virtual seconds, loss, accuracy) of the initial model and after each epoch; empty
                         for a training on MPI ranks
    distances            of learners from the consensus at the ends of epochs, relative
    made_by              the facts of the training step
    """

    name: str
    verdict: str
    loss: float | None
    accuracy: float | None
    priors: float | None
    learner_loss: float | None
    wer: float | None
    learner_wer: float | None
    epoch_s: float | None
    speed_up: float | None
    curve: tuple[tuple[float, float, float], ...]
    distances: tuple[float, ...]
    command: str
    made_by: dict

    @property
    def cell(self) -> str:
        """TABLE/ROW/COLUMN, the common part of trainings with several seeds."""
        return cell_of(self.name)


def cell_of(name: str) -> str:
    """The cell of a training, its name without /seedN. Raises ValueError for another name."""
    found = family_of(name)
    if found is None:
        raise ValueError(name)
    return found


def keep(directory: Path, path: Path, command: str = "") -> KeptRun:
    """Add the result of a training to a file, and return it. Raises UserError if `directory` has no complete
    training, or an invalid name."""
    name = "/".join(Path(directory).absolute().parts[-4:])
    done = read_done(directory)
    if family_of(name) is None or done is None:
        raise UserError(
            f"{directory}: not a complete training TABLE/ROW/COLUMN/seedN; train it with a script of "
            "local/experiments/"
        )
    of_kind = _simulated if (directory / SIMULATION).exists() else _trained
    run = of_kind(directory, name, command or done["command"], facts(done))
    write_kept(path, [*read_kept(path), run])
    return run


def _simulated(directory: Path, name: str, command: str, made_by: dict) -> KeptRun:
    """The result of a simulation."""
    run = read_run(directory)
    history, timed, alone = run.content["history"], run.content["epoch_s"], run.of_learner
    loss, accuracy = (None, None) if run.diverged else (run.loss, run.accuracy)
    priors = (run.content.get("guessing") or {}).get("priors")
    curve = tuple(
        (round(seconds, 1), round(-objective, _PLACES), round(100 * share, 2))
        for seconds, objective, share in history
    )
    distances = tuple(round(distance, _PLACES) for _, distance in run.consensus_distances)
    return KeptRun(
        name,
        run.verdict,
        _rounded(loss),
        _rounded(accuracy, 2),
        _rounded(priors),
        _rounded(run.loss_before_consensus),
        _rounded(run.wer, 2),
        _rounded(alone.wer if alone else None, 2),
        _rounded(timed, 1),
        _rounded(timed and run.speed_up, 2),
        curve,
        distances,
        command,
        made_by,
    )


def _trained(directory: Path, name: str, command: str, made_by: dict) -> KeptRun:
    """The result of a training on MPI ranks, which has no virtual times. One that has diverged has no
    complete directory."""
    run = read_trained(directory)
    return KeptRun(
        name,
        "learns",
        _rounded(run.loss),
        _rounded(run.accuracy, 2),
        None,
        None,
        _rounded(run.wer, 2),
        None,
        None,
        None,
        (),
        tuple(round(distance, _PLACES) for distance in run.distances),
        command,
        made_by,
    )


def _rounded(value: float | None, places: int = _PLACES) -> float | None:
    return None if value is None else round(value, places)


def read_kept(path: Path) -> list[KeptRun]:
    """Read such a file; empty if there is none. Raises UserError with file and line for an invalid line."""
    if not Path(path).exists():
        return []
    return [
        _run(line, f"{path}:{number}")
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1)
    ]


def _run(line: str, where: str) -> KeptRun:
    try:
        run = KeptRun(**parse_object(line))
        if run.cell.count("/") != 2:
            raise ValueError(run.name)
    except (ValueError, TypeError):
        raise UserError(f"{where}: not a result written by local/keep_training.py; remove the line") from None
    return run


def write_kept(path: Path, runs: Iterable[KeptRun]) -> None:
    """Write a file of these, sorted by name; of two with the same name, the later one is kept."""
    by_name = {run.name: run for run in runs}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as f:
        for name in sorted(by_name):
            f.write(json.dumps(asdict(by_name[name])) + "\n")
