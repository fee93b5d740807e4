"""What a plan knows of the directories that a recipe's programs read and make: hours of speech, and tied states of models."""

from __future__ import annotations

import os
from collections.abc import Callable

from pyasr.base.errors import UserError
from pyasr.report.plan.calls import Call

_LEAVES_OF_MONO = 130.0  # three of each of about forty phones, and of silence


class Corpus:
    """Hours of data directories, those that are there and those that calls would make of them; leaves of model directories.

    measured  function from the path of a data directory to its hours, None where it is not there
    """

    def __init__(self, measured: Callable[[str], float | None]):
        self._measured = measured
        self.hours: dict[str, float] = {}
        self.found: dict[str, float] = {}  # of those that are there
        self._leaves: dict[str, float] = {}

    def hours_of(self, path: str) -> float:
        """Hours of speech. Raises UserError for a directory that is not there, and that no call makes."""
        path = os.path.normpath(path)
        if path not in self.hours:
            found = self._measured(path)
            if found is None:
                raise UserError(f"{path} is not there, so that its hours are unknown; prepare it first (run.sh --stop-stage 1), then plan")
            self.hours[path] = self.found[path] = found
        return self.hours[path]

    @property
    def most_hours(self) -> float:
        """Of the largest data directory so far: what graphs and language models grow with."""
        return max(self.hours.values(), default=0.0)

    def leaves_of(self, path: str) -> float:
        """Tied states of a model or alignment directory."""
        return self._leaves.get(os.path.normpath(path), _LEAVES_OF_MONO)

    def note(self, call: Call) -> None:
        """Keep what the directory that a call makes has: the last of its words."""
        if call.name in _COPIES and len(call.words) > 1:
            made, hours = _COPIES[call.name](self, call)
            self.hours[os.path.normpath(made)] = hours
        elif call.name.startswith("train_") and "num-leaves" in call.flags:
            self._leaves[os.path.normpath(call.words[-1])] = call.number("num-leaves", 0)
        elif call.name.startswith("align_") and len(call.words) > 2:
            self._leaves[os.path.normpath(call.words[-1])] = self.leaves_of(call.words[-2])


def _first(corpus: Corpus, call: Call) -> tuple[str, float]:
    """A copy, or a part: the last word is a directory of at most the hours of the first."""
    return call.words[-1], corpus.hours_of(call.words[0])


def _perturbed(corpus: Corpus, call: Call) -> tuple[str, float]:
    """The original, and a copy at each speed, which lasts as long as its speed says."""
    speeds = [float(speed) for speed in call.flags.get("speeds", "0.9 1.1").split()]
    return call.words[-1], corpus.hours_of(call.words[0]) * (1 + sum(1 / speed for speed in speeds))


def _replicated(corpus: Corpus, call: Call) -> tuple[str, float]:
    return call.words[-1], corpus.hours_of(call.words[0]) * call.number("num-replications", 1)


def _sum(corpus: Corpus, call: Call) -> tuple[str, float]:
    """The first word is made of all others."""
    return call.words[0], sum(map(corpus.hours_of, call.words[1:]))


def _pasted(corpus: Corpus, call: Call) -> tuple[str, float]:
    return call.words[0], corpus.hours_of(call.words[1])


_COPIES = {  # programs that make a data directory of others: (the new one, its hours)
    "copy_data_dir": _first,
    "make_fmllr_feats": _first,
    "subset_data_dir": _first,
    "segment_data_dir": _first,
    "split_long_utterances": _first,
    "perturb_data_dir": _perturbed,
    "reverberate_data_dir": _replicated,
    "combine_data": _sum,
    "paste_feats": _pasted,
}
