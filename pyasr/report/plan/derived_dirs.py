"""Amount of speech in data directories that calls derive from others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyasr.report.plan.planned_calls import Call

_FISHER = 1960.0  # hours of both parts


@dataclass(frozen=True)
class Speech:
    """Hours and number of utterances."""

    hours: float
    num_utterances: float

    def __mul__(self, share: float) -> Speech:
        return Speech(self.hours * share, self.num_utterances * share)

    def __add__(self, other: Speech) -> Speech:
        return Speech(self.hours + other.hours, self.num_utterances + other.num_utterances)


class KnownSpeech(Protocol):
    """The speech of directories, by path."""

    def speech_of(self, path: str) -> Speech:
        """Hours and number of utterances."""

    def hours_of(self, path: str) -> float: ...


def _first(corpus: KnownSpeech, call: Call) -> tuple[str, Speech]:
    """A copy or a part: the last word is a directory with at most the speech of the first."""
    return call.words[-1], corpus.speech_of(call.words[0])


def _subset(corpus: KnownSpeech, call: Call) -> tuple[str, Speech]:
    """The requested number of utterances, of mean length; the shortest utterances are shorter."""
    whole = corpus.speech_of(call.words[0])
    num = max(whole.num_utterances, 1)
    wanted = [
        call.number(flag, 0)
        for flag in ("first", "last", "shortest", "random", "speakers")
        if flag in call.flags
    ]
    share = min([num, *wanted]) / num
    return call.words[-1], whole * max(share - call.number("all-but-first", 0) / num, 0.0)


def _perturbed(corpus: KnownSpeech, call: Call) -> tuple[str, Speech]:
    """The original and a copy at each speed, whose duration depends on the speed."""
    whole = corpus.speech_of(call.words[0])
    for speed in call.flags.get("speeds", "0.9 1.1").split():
        whole += Speech(
            corpus.hours_of(call.words[0]) / float(speed), corpus.speech_of(call.words[0]).num_utterances
        )
    return call.words[-1], whole


def _replicated(corpus: KnownSpeech, call: Call) -> tuple[str, Speech]:
    return call.words[-1], corpus.speech_of(call.words[0]) * call.number("num-replications", 1)


def _sum(corpus: KnownSpeech, call: Call) -> tuple[str, Speech]:
    """The first word is the combination of all others."""
    return call.words[0], sum(map(corpus.speech_of, call.words[1:]), Speech(0.0, 0.0))


def _pasted(corpus: KnownSpeech, call: Call) -> tuple[str, Speech]:
    return call.words[0], corpus.speech_of(call.words[1])


COPIES = {  # programs that derive a data directory from others: (the new one, its speech)
    "copy_data_dir": _first,
    "make_fmllr_feats": _first,
    "segment_data_dir": _first,
    "split_long_utterances": _first,
    "subset_data_dir": _subset,
    "perturb_data_dir": _perturbed,
    "reverberate_data_dir": _replicated,
    "combine_data": _sum,
    "paste_feats": _pasted,
    "prepare_lm_text": lambda corpus, call: (call.words[-1], Speech(_FISHER, 0.0)),
}
