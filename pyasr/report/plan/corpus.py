"""What a plan knows of the directories that a recipe's programs read and make: their speech, and tied states of models."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from pyasr.base.errors import UserError
from pyasr.report.plan.calls import Call

_LEAVES_OF_MONO = 130.0  # three of each of about forty phones, and of silence


@dataclass(frozen=True)
class Speech:
    """Hours and number of utterances."""

    hours: float
    num_utterances: float

    def __mul__(self, share: float) -> Speech:
        return Speech(self.hours * share, self.num_utterances * share)

    def __add__(self, other: Speech) -> Speech:
        return Speech(self.hours + other.hours, self.num_utterances + other.num_utterances)


class Corpus:
    """Speech of data directories, those that are there and those that calls would make of them; leaves of model directories.

    measured  function that gives the speech of a data directory; None for one that is not there
    """

    def __init__(self, measured: Callable[[str], Speech | None]):
        self._measured = measured
        self._speech: dict[str, Speech] = {}
        self.found: dict[str, float] = {}  # hours of the directories that are there
        self._leaves: dict[str, float] = {}

    def speech_of(self, path: str) -> Speech:
        """Raises UserError for a directory that is not there, and that no call makes."""
        path = os.path.normpath(path)
        if path not in self._speech:
            found = self._measured(path)
            if found is None:
                raise UserError(f"{path} is not there, so that its hours are unknown; prepare it first (run.sh --stop-stage 1), then plan")
            self._speech[path], self.found[path] = found, found.hours
        return self._speech[path]

    def hours_of(self, path: str) -> float:
        """Hours of speech. Raises UserError as `speech_of`."""
        return self.speech_of(path).hours

    @property
    def most_hours(self) -> float:
        """Of the largest data directory so far: what graphs and language models grow with."""
        return max((speech.hours for speech in self._speech.values()), default=0.0)

    def leaves_of(self, path: str) -> float:
        """Tied states of a model or alignment directory."""
        return self._leaves.get(os.path.normpath(path), _LEAVES_OF_MONO)

    def note(self, call: Call) -> None:
        """Keep what the directory that a call makes has: the last of its words."""
        if call.name in _COPIES and len(call.words) > 1:
            made, speech = _COPIES[call.name](self, call)
            self._speech[os.path.normpath(made)] = speech
        elif call.name.startswith("train_") and "num-leaves" in call.flags:
            self._leaves[os.path.normpath(call.words[-1])] = call.number("num-leaves", 0)
        elif call.name.startswith("align_") and len(call.words) > 2:
            self._leaves[os.path.normpath(call.words[-1])] = self.leaves_of(call.words[-2])


def _first(corpus: Corpus, call: Call) -> tuple[str, Speech]:
    """A copy, or a part: the last word is a directory of at most the speech of the first."""
    return call.words[-1], corpus.speech_of(call.words[0])


def _subset(corpus: Corpus, call: Call) -> tuple[str, Speech]:
    """As many utterances as are asked for, of mean length; the shortest ones are shorter."""
    whole = corpus.speech_of(call.words[0])
    num = max(whole.num_utterances, 1)
    wanted = [call.number(flag, 0) for flag in ("first", "last", "shortest", "random", "speakers") if flag in call.flags]
    share = min([num, *wanted]) / num
    return call.words[-1], whole * max(share - call.number("all-but-first", 0) / num, 0.0)


def _perturbed(corpus: Corpus, call: Call) -> tuple[str, Speech]:
    """The original, and a copy at each speed, which lasts as long as its speed says."""
    whole = corpus.speech_of(call.words[0])
    for speed in call.flags.get("speeds", "0.9 1.1").split():
        whole += Speech(corpus.hours_of(call.words[0]) / float(speed), corpus.speech_of(call.words[0]).num_utterances)
    return call.words[-1], whole


def _replicated(corpus: Corpus, call: Call) -> tuple[str, Speech]:
    return call.words[-1], corpus.speech_of(call.words[0]) * call.number("num-replications", 1)


def _sum(corpus: Corpus, call: Call) -> tuple[str, Speech]:
    """The first word is made of all others."""
    return call.words[0], sum(map(corpus.speech_of, call.words[1:]), Speech(0.0, 0.0))


def _pasted(corpus: Corpus, call: Call) -> tuple[str, Speech]:
    return call.words[0], corpus.speech_of(call.words[1])


_COPIES = {  # programs that make a data directory of others: (the new one, its speech)
    "copy_data_dir": _first,
    "make_fmllr_feats": _first,
    "segment_data_dir": _first,
    "split_long_utterances": _first,
    "subset_data_dir": _subset,
    "perturb_data_dir": _perturbed,
    "reverberate_data_dir": _replicated,
    "combine_data": _sum,
    "paste_feats": _pasted,
}
