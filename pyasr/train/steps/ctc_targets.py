"""Conversion of transcripts to the target units of a CTC network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from pyasr.base.cli.skipped_utterances import check_left_out
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.io.text_tables import read_table
from pyasr.lang.lang_dirs.subwords import UNKNOWN_ID, Subwords
from pyasr.nn.networks.layered import LayeredNetwork, read_network
from pyasr.sequence.ctc import CtcSupervision
from pyasr.train.targets.pdf_targets import TARGETS_FILE, CtcTargetOptions, Targets, choose_heldout
from pyasr.train.targets.rank_reader import FEATURES_FILE

_TOO_SHORT, _STRIDE = "it is too short for its transcript", "lower the stride of the network"
_MAX_LETTERS = 50  # in a message


def prepare(data: Path, units_dir: Path, layers: Path, input: InputOptions, options: CtcTargetOptions, out: Path) -> None:
    """Write OUT/targets.npz: units of the utterances that have a transcript in the letters of the units and enough frames for it.

    layers  file of the network's layers

    The log names the skipped utterances. Raises UserError if too many are skipped.
    """
    reader, subwords, texts = FeatureReader(data, input), Subwords.read(units_dir), read_table(data / "text")
    with torch.device("meta"):
        network = LayeredNetwork(read_network(layers), reader.dim, len(subwords))
    units = {key: subwords.encode(texts[key]) for key in reader.keys if texts.get(key)}
    strange = {key: subwords.strange_letters(texts[key]) for key in units if UNKNOWN_ID in units[key]}
    num_outputs = [-(-reader.num_frames(key) // network.subsampling) for key in units]
    supervision = CtcSupervision.of(list(units.values()), num_outputs, list(units))
    wanted = set(reader.utterances).union(reader.keys)
    left_out = {key: "it has no features" for key in wanted.difference(reader.keys)}
    left_out |= {key: "it has no transcript" for key in reader.keys if key not in units}
    left_out |= {key: _TOO_SHORT for key, fits in zip(units, supervision.reachable) if not fits}
    letters = "".join(sorted(set().union(*strange.values())))
    left_out |= {key: f"its transcript has letters that no unit has: {_shown(letters)}" for key, own in strange.items() if own}
    advice = [*_advice_on_letters(letters, subwords), *[_STRIDE] * (_TOO_SHORT in left_out.values() or not letters)]
    check_left_out(left_out, len(wanted), options.missing, str(data), ", ".join(advice))
    keys = [key for key in units if key not in left_out]
    offsets = np.concatenate([[0], np.cumsum([len(units[key]) for key in keys])]).astype(np.int64)
    lengths = np.array([reader.num_frames(key) for key in keys])
    heldout = choose_heldout(keys, lengths, reader.original, options)
    flat = np.concatenate([units[key] for key in keys]).astype(np.int32)
    reader.save_tables(out / FEATURES_FILE, keys, lengths, input.cmvn)
    Targets(keys, offsets, flat, heldout, len(subwords)).save(out / TARGETS_FILE)


def _shown(letters: str) -> str:
    return " ".join(letters[:_MAX_LETTERS]) + " ..." * (len(letters) > _MAX_LETTERS)


def _advice_on_letters(letters: str, subwords: Subwords) -> Iterator[str]:
    """Advice on letters that no unit has; empty without such letters."""
    in_one_case = len(subwords.strange_letters(letters.swapcase()))
    if in_one_case < len(letters):
        yield "convert these transcripts and the text of the units to one letter case, such as with tr A-Z a-z"
    if in_one_case:
        yield "train the units on these transcripts (utils/train_subwords.py)"
