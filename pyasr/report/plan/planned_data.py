"""Properties of the directories that a recipe's programs read and write: speech, columns of features, models,
language models.

A call defines its output. If no recorded call writes a directory, its done-file names the call that wrote it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pyasr.base.errors import UserError
from pyasr.report.plan.derived_dirs import COPIES, Speech
from pyasr.report.plan.networks import NetworkSize
from pyasr.report.plan.planned_calls import Call
from pyasr.report.plan.planned_models import LANGUAGE_MODELS, MODELS, PlannedModel, columns_made

WORDS_PER_HOUR = 10_000  # for conversations; the published corpora have 8,000 to 12,000
_COLUMNS = 40.0  # default for unknown features
Value = TypeVar("Value")


@dataclass(frozen=True)
class Disk:
    """Functions that read properties from the disk.

    speech   of a data directory; None if it does not exist
    made_by  the call that made an output; None if unknown
    ngrams   number for a directory with lm.arpa.gz; None if there is none
    words    number of words of a text; None if there is none
    network  size from (file of layers, columns of features, outputs, chunk)
    """

    speech: Callable[[str], Speech | None]
    made_by: Callable[[str], Call | None] = lambda path: None
    ngrams: Callable[[str], float | None] = lambda path: None
    words: Callable[[str], float | None] = lambda path: None
    network: Callable[[str, int, int, int], NetworkSize] = field(default=lambda *_: NetworkSize(1e6, 1e6))


class PlannedCorpus:
    """Speech of data directories and properties of models, both of existing ones and of those that calls
    would write.

    found    hours of existing directories
    assumed  sentences about directories that neither exist nor are written by a call, with the assumption
             used for them
    """

    def __init__(self, disk: Disk):
        self.disk = disk
        self.found: dict[str, float] = {}
        self.assumed: dict[str, str] = {}
        self._speech: dict[str, Speech] = {}
        self._columns: dict[str, float] = {}
        self._models: dict[str, PlannedModel] = {}
        self._ngrams: dict[str, float] = {}
        self._looked_up: set[str] = set()

    def speech_of(self, path: str) -> Speech:
        """The speech of a directory. Raises UserError if it does not exist, no call writes it, and no
        existing name is a prefix."""
        path = os.path.normpath(path)
        if path not in self._speech:
            found = self.disk.speech(path)
            if found:
                self.found[path] = found.hours
            self._speech[path] = found or self._speech_of_origin(path)
        return self._speech[path]

    def _speech_of_origin(self, path: str) -> Speech:
        """The speech of data/train for data/train_fmllr, which an earlier script derives from it."""
        origin = path
        while "_" in os.path.basename(origin):
            origin = origin.rpartition("_")[0]
            found = self._speech.get(origin) or self.disk.speech(origin)
            if found:
                self.assumed[path] = (
                    f"{path} does not exist yet; its duration is assumed to be that of {origin}"
                )
                return found
        raise UserError(
            f"{path} does not exist, so its hours of speech are unknown; prepare it first (run.sh "
            "--stop-stage 1), then plan"
        )

    def hours_of(self, path: str) -> float:
        """Hours of speech. Raises UserError as `speech_of`."""
        return self.speech_of(path).hours

    @property
    def most_hours(self) -> float:
        """Hours of the largest data directory so far."""
        return max((speech.hours for speech in self._speech.values()), default=0.0)

    def words_of(self, text: str) -> float:
        """Running words of a text: counted, or estimated from the hours of its data directory, or of the
        largest one."""
        directory = os.path.normpath(os.path.dirname(text))
        counted = None if directory in self._speech else self.disk.words(text)
        if counted is not None:
            return counted
        named = os.path.basename(text) == "text" and (
            directory in self._speech or self.disk.speech(directory)
        )
        return WORDS_PER_HOUR * (self.hours_of(directory) if named else self.most_hours)

    def columns_of(self, path: str) -> float:
        """Columns of a data directory's features."""
        return self._known(self._columns, path, f"{os.path.normpath(path)}/feats") or _COLUMNS

    def model_of(self, path: str) -> PlannedModel:
        """Properties of a model, alignment or graph directory."""
        return self._known(self._models, path) or PlannedModel()

    def network_size(self, path: str, columns: float, leaves: float, chunk: float) -> NetworkSize:
        """Size of a network with the layers of a file."""
        return self.disk.network(path, int(columns), int(leaves), int(chunk))

    def ngrams_of(self, path: str) -> float:
        """N-grams of a language model, lang directory or graph; if unknown, estimated from the largest data
        directory."""
        path = os.path.normpath(path).removesuffix("/lm.arpa.gz")
        known = self._known(self._ngrams, path)
        if known is None:
            known = self._ngrams[path] = self.disk.ngrams(path) or 1.1 * WORDS_PER_HOUR * self.most_hours
        return known

    def _known(self, table: dict[str, Value], *paths: str) -> Value | None:
        """The entry of a directory, if necessary from the calls that wrote these outputs."""
        path = os.path.normpath(paths[0])
        if path not in table and path not in self._looked_up:
            self._looked_up.add(path)
            for call in filter(None, map(self.disk.made_by, map(os.path.normpath, paths))):
                self._note_models(call)
        return table.get(path)

    def note(self, call: Call) -> None:
        """Record the properties of the directory that a call writes."""
        if call.name in COPIES and len(call.words) > 1:
            made, speech = COPIES[call.name](self, call)
            self._speech[os.path.normpath(made)] = speech
        self._note_models(call)

    def _note_models(self, call: Call) -> None:
        if found := columns_made(self, call):
            self._columns[os.path.normpath(found[0])] = found[1]
        if call.words and call.name in MODELS:
            self._models[os.path.normpath(call.words[-1])] = MODELS[call.name](self, call)
        if call.words and call.name in LANGUAGE_MODELS:
            for made, num in LANGUAGE_MODELS[call.name](self, call).items():
                self._ngrams[os.path.normpath(made)] = num
