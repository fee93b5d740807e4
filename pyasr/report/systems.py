"""Scores and costs of the systems in an experiment directory."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import read_object
from pyasr.base.outputs.displaced_files import is_scratch_or_kept
from pyasr.base.outputs.fingerprint import read_done
from pyasr.score.score_dir import SUMMARY, read_summary, scoring_dir

SIMULATION = "simulation.json"  # of steps/simulate_parallel.py
_FRAMES_PER_SECOND = 100.0  # for totals without durations, written by versions without frame subsampling


@dataclass(frozen=True)
class ScoredSystem:
    """One scored test set of one model."""

    name: str
    model_dir: Path
    decode_dir: Path
    scored: Path  # directory of the test set's scores, of best paths or by minimum Bayes risk
    test: dict  # summary.json of the test set
    # of the system's set on which LM weight and penalty were chosen; None if that is another set
    dev: dict | None
    training_s: float | None
    search_rtf: float | None
    rtf: float | None

    @property
    def seed(self) -> int | None:
        """The seed of training, if the training step has one."""
        options = (read_done(self.model_dir) or {}).get("options", {})
        seeds = (_option(options, name) for name in ("seed", "train_seed"))
        return next((seed for seed in seeds if seed is not None), None)

    @property
    def directories(self) -> list[Path]:
        """Directories with the records of its steps."""
        return [self.model_dir, self.decode_dir, self.scored]

    @property
    def family(self) -> str | None:
        """`family_of` its name."""
        return family_of(self.name)


def family_of(name: str) -> str | None:
    """The common NAME of the systems NAME/seed1, NAME/seed2, ...; None for a system that is not one of
    several seeds."""
    found = re.fullmatch(r"(.+)/seed\d+(| .+)", name)
    return found and found[1] + found[2]


def find_systems(exp: Path) -> list[ScoredSystem]:
    """The systems below `exp` in the order in which their models were made. Raises UserError if nothing has
    been scored."""
    summaries = {
        (decode_dir, mbr): read_summary(decode_dir, mbr)
        for mbr in (False, True)
        for decode_dir in _scored_dirs(exp, mbr)
    }
    if not summaries:
        raise UserError(f"{exp}: nothing below it has been scored; run steps/score.py first")
    sources = {_source(scored, summaries) for scored in summaries}
    systems = [_system(exp, scored, summaries) for scored in summaries if scored not in sources]
    return sorted(
        _distinguished(systems),
        key=lambda system: (_ended(system.model_dir), _ended(system.decode_dir), system.name),
    )


def _scored_dirs(exp: Path, mbr: bool) -> list[Path]:
    """Decode directories with such scores, except those of simulated trainings, which have their own page."""
    found = [path.parents[1] for path in sorted(Path(exp).rglob(f"{scoring_dir(Path(), mbr)}/{SUMMARY}"))]
    complete = [path for path in found if not is_scratch_or_kept(path.relative_to(exp))]
    return [path for path in complete if not (path.parent / SIMULATION).exists()]


def _distinguished(systems: list[ScoredSystem]) -> list[ScoredSystem]:
    """Add the way of decoding to the names of models that were decoded in several ways, except for the best
    paths of the original lattices. The names of decode directories of the model, or of networks of its kind,
    show these ways: `decode_test`, `decode_test_fourgram`."""
    ways: dict[str, set[str]] = {}
    for system in systems:
        ways.setdefault(system.family or system.name, set()).add(_way(system))
    return [_renamed(system, ways[system.family or system.name]) for system in systems]


def _way(system: ScoredSystem) -> str:
    """The name of its decode directory, and the way of scoring if it is not by best paths."""
    return system.decode_dir.name + " mbr" * (system.scored == scoring_dir(system.decode_dir, mbr=True))


def _renamed(system: ScoredSystem, ways: set[str]) -> ScoredSystem:
    own = _way(system)
    is_first = all(way == own or way.startswith((f"{own}_", f"{own} ")) for way in ways)
    return system if is_first else replace(system, name=f"{system.name} {own}")


def _system(exp: Path, scored: tuple[Path, bool], summaries: dict[tuple[Path, bool], dict]) -> ScoredSystem:
    test, (decode_dir, mbr) = summaries[scored], scored
    model_dir = decode_dir.parent
    source = _source(scored, summaries)
    dev = summaries[source] if source and source[0].parent == model_dir else None
    totals = _totals(decode_dir)
    audio_s = totals.get("audio_s", totals.get("num_frames", 0) / _FRAMES_PER_SECOND)
    rtf = {
        name: totals[name] / audio_s if audio_s and name in totals else None for name in ("search_s", "cpu_s")
    }
    name = str(model_dir.relative_to(exp)) if model_dir != Path(exp) else decode_dir.name
    training_s = (read_done(model_dir) or {}).get("seconds")
    return ScoredSystem(
        name,
        model_dir,
        decode_dir,
        scoring_dir(decode_dir, mbr),
        test,
        dev,
        training_s,
        rtf["search_s"],
        rtf["cpu_s"],
    )


def _source(scored: tuple[Path, bool], summaries: dict[tuple[Path, bool], dict]) -> tuple[Path, bool] | None:
    """The set on which the parameters were chosen. It is found by the end of its path, because an experiment
    directory may have been moved, or, if a model's directory was renamed, by its name in the same directory.
    None if it is the test set itself, or was not scored here."""
    test, (decode_dir, mbr) = summaries[scored], scored
    if not test["params_from"]:
        return None
    neighbour = (decode_dir.parent / Path(test["params_from"]).name, mbr)
    agreements = {
        one: (_common_end(one[0], test["params_from"]), one == neighbour)
        for one in summaries
        if one[1] == mbr
    }
    best = max(agreements, key=lambda one: agreements[one])
    if agreements[best] >= (2, False):
        return best
    return (
        neighbour
        if neighbour in summaries and summaries[neighbour]["chosen"]["point"] == test["chosen"]["point"]
        else None
    )


def _common_end(directory: Path, source: str) -> int:
    """The number of equal names at the ends of two paths."""
    return len(os.path.commonprefix([path.parts[::-1] for path in (directory.absolute(), Path(source))]))


def _totals(decode_dir: Path) -> dict:
    try:
        return read_object(decode_dir / "totals.json")
    except (FileNotFoundError, ValueError):
        return {}  # harmless: lattices of another toolkit have no record of their cost


def _ended(directory: Path) -> str:
    return (read_done(directory) or {}).get("ended", "")


def _option(options: dict, name: str):
    """The value of an option, in nested groups at any depth."""
    if name in options:
        return options[name]
    found = [_option(value, name) for value in options.values() if isinstance(value, dict)]
    return next((value for value in found if value is not None), None)


def utterance_errors(scored: Path) -> dict[str, tuple[int, int]]:
    """{utterance: (errors, words of the reference)} of a directory of scores."""
    found = {}
    for line in (Path(scored) / "per_utt").read_text(encoding="utf-8").splitlines():
        utt, kind, *rest = line.split()
        if kind == "#csid":
            correct, sub, ins, dele = map(int, rest)
            found[utt] = (sub + ins + dele, correct + sub + dele)
    return found


class Scored(Protocol):
    """Scores that can be compared."""

    @property
    def scored(self) -> Path:
        """The directory of its scores."""

    @property
    def test(self) -> dict:
        """Its summary.json."""


def paired(first: Scored, second: Scored) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(errors of first, errors of second, words) over the same utterances; None if the two were scored on
    different ones."""
    a, b = utterance_errors(first.scored), utterance_errors(second.scored)
    if (
        a.keys() != b.keys()
        or any(a[utt][1] != b[utt][1] for utt in a)
        or first.test["signature"] != second.test["signature"]
    ):
        return None
    rows = np.array([(*a[utt], b[utt][0]) for utt in sorted(a)])
    return rows[:, 0], rows[:, 2], rows[:, 1]
