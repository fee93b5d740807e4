"""Conversion of transcripts to the target units of a CTC network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from pyasr.base.cli.skipped_utterances import check_skipped
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.io.tables import Table
from pyasr.lang.lang_dirs.subwords import UNKNOWN_ID, Subwords
from pyasr.nn.networks.layered import LayeredNetwork, read_network
from pyasr.sequence.ctc import CtcSupervision
from pyasr.train.targets.alignment_spool import SPOOL_FILE, VectorSpool
from pyasr.train.targets.pdf_targets import TARGETS_FILE, CtcTargetOptions, choose_heldout, save_targets
from pyasr.train.targets.rank_reader import FEATURES_FILE

_TOO_SHORT, _STRIDE = "it is too short for its transcript", "lower the stride of the network"
_MAX_LETTERS = 50  # in a message
_BLOCK = 1000  # utterances whose units are in memory at a time


def prepare(
    data: Path, units_dir: Path, layers: Path, input: InputOptions, options: CtcTargetOptions, out: Path
) -> None:
    """Write OUT/targets.npz: units of the utterances that have a transcript in the letters of the units and
    enough frames for it.

    layers  file of the network's layers

    The log names the skipped utterances. Raises UserError if too many are skipped.
    """
    reader, subwords = FeatureReader(data, input), Subwords.read(units_dir)
    with torch.device("meta"):
        network = LayeredNetwork(read_network(layers), reader.dim, len(subwords))
    transcripts = _Transcripts(reader, subwords, Table.read(data / "text"), network.subsampling)
    with VectorSpool(out / SPOOL_FILE, transcripts.units()) as spool:
        featureless = [key for key in reader.utterances if not reader.has(key)]
        skipped = dict.fromkeys(featureless, "it has no features") | transcripts.skipped
        num_wanted = len(reader.keys) + len(featureless)
        check_skipped(skipped, num_wanted, options.missing, str(data), ", ".join(transcripts.advice()))
        lengths = np.fromiter(map(reader.num_frames, spool.keys), np.int64, len(spool.keys))
        heldout = choose_heldout(spool.keys, lengths, reader.original, options)
        reader.save_tables(out / FEATURES_FILE, spool.keys, lengths, input.cmvn)
        save_targets(
            out / TARGETS_FILE,
            spool.keys,
            spool.offsets(spool.keys),
            spool.vectors(spool.keys),
            heldout,
            len(subwords),
        )


class _Transcripts:
    """The transcripts of the utterances with features, of which some are in memory at a time.

    subsampling  number of frames for which the network has an output

    skipped      {utterance: reason why it has no units}, complete at the end of `units`
    """

    def __init__(self, reader: FeatureReader, subwords: Subwords, texts: Table, subsampling: int):
        self._reader, self._subwords, self._texts, self._subsampling = reader, subwords, texts, subsampling
        self._strange, self.skipped = dict[str, set[str]](), dict[str, str]()

    def units(self) -> Iterator[tuple[str, np.ndarray]]:
        """(utterance, its units) of the utterances that are trained on, in the order of the features."""
        for begin in range(0, len(self._reader.keys), _BLOCK):
            found = {
                key: self._subwords.encode(text)
                for key in self._reader.keys[begin : begin + _BLOCK]
                if (text := self._text(key))
            }
            num_outputs = [-(-self._reader.num_frames(key) // self._subsampling) for key in found]
            fits = CtcSupervision.of(list(found.values()), num_outputs, list(found)).reachable
            self.skipped |= {key: _TOO_SHORT for key, fit in zip(found, fits) if not fit}
            strange = {
                key: self._subwords.strange_letters(self._texts[key])
                for key, units in found.items()
                if UNKNOWN_ID in units
            }
            self._strange |= {key: letters for key, letters in strange.items() if letters}
            yield from (
                (key, units)
                for key, units in found.items()
                if key not in self.skipped and key not in self._strange
            )
        self.skipped |= dict.fromkeys(
            self._strange, f"its transcript has letters that no unit has: {_shown(self._letters)}"
        )

    def _text(self, key: str) -> str:
        text = self._texts.get(key, "")
        if not text:
            self.skipped[key] = "it has no transcript"
        return text

    @property
    def _letters(self) -> str:
        """All letters that no unit has."""
        return "".join(sorted(set().union(*self._strange.values())))

    def advice(self) -> list[str]:
        """Advice on the skipped utterances."""
        of_stride = [_STRIDE] * (_TOO_SHORT in self.skipped.values() or not self._strange)
        return [*_advice_on_letters(self._letters, self._subwords), *of_stride]


def _shown(letters: str) -> str:
    return " ".join(letters[:_MAX_LETTERS]) + " ..." * (len(letters) > _MAX_LETTERS)


def _advice_on_letters(letters: str, subwords: Subwords) -> Iterator[str]:
    """Advice on letters that no unit has; empty without such letters."""
    in_one_case = len(subwords.strange_letters(letters.swapcase()))
    if in_one_case < len(letters):
        yield (
            "convert these transcripts and the text of the units to one letter case, such as with tr A-Z a-z"
        )
    if in_one_case:
        yield "train the units on these transcripts (utils/train_subwords.py)"
