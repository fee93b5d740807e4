"""Preparation of a training job: targets and feature tables for its ranks, from alignments and features."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.hmm.model.model_file import read_transitions, read_tree
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.trees.phone_segments import split_to_phones
from pyasr.train.targets.alignment_spool import SPOOL_FILE, AlignmentSpool
from pyasr.train.targets.pdf_targets import TARGETS_FILE, HeldoutOptions, choose_heldout, join, save_targets
from pyasr.train.targets.rank_reader import FEATURES_FILE

NUM_CHECKED = 100  # utterances whose alignments are checked against the model


@dataclass(frozen=True)
class TargetOptions(HeldoutOptions):
    """Selection of the training utterances."""

    heading = "data"

    max_missing: float = option(
        0.01,
        "maximum fraction of utterances that may be skipped for lack of features or of a matching alignment",
        minimum=0.0,
        maximum=1.0,
    )


def prepare_targets(
    data: Path,
    ali_dir: Path,
    out: Path,
    options: TargetOptions,
    needs_heldout: bool = False,
    cmvn: str = "none",
) -> None:
    """Check that the alignments match the features and the tree matches the model, choose the held-out set,
    and write OUT/targets.npz and the feature tables of the ranks. At most one archive of alignments is in
    memory at a time.

    needs_heldout  whether the schedule depends on the held-out set
    cmvn           `cmvn` of the ranks' input options

    Raises UserError if they do not match, or if `needs_heldout` and nothing is held out.
    """
    reader = FeatureReader(data, InputOptions(cmvn="none"))
    transitions = read_transitions(ali_dir / "final.mdl")
    with AlignmentSpool(ali_dir, transitions.tid2pdf, out / SPOOL_FILE) as spool:
        keys = join(reader, spool.lengths, options.max_missing, ali_dir)
        read_tree(ali_dir / "tree", transitions)
        spool.check(keys)
        check_paths(spool.alignments(keys[:NUM_CHECKED]), transitions, ali_dir)
        offsets = spool.offsets(keys)
        heldout = choose_heldout(keys, np.diff(offsets), reader.original, options)
        if needs_heldout and not heldout.any():
            found = "no utterance is held out, but this --schedule needs a held-out set"
            raise UserError(f"{data}: {found}; raise --heldout-share or give another --schedule")
        reader.save_tables(out / FEATURES_FILE, keys, np.diff(offsets), cmvn)
        save_targets(
            out / TARGETS_FILE,
            keys,
            offsets,
            spool.vectors(keys),
            heldout,
            transitions.num_pdfs,
            counted=True,
        )


def check_paths(alignments: dict[str, np.ndarray], transitions: TransitionModel, ali_dir: Path) -> None:
    """Raise UserError unless the alignments are paths through the model's HMMs. Otherwise alignments of
    another model with valid transition-ids would silently give wrong pdfs."""
    try:
        split_to_phones(transitions, alignments)
    except UserError as error:
        raise UserError(f"{ali_dir}: {error}; ali.*.gz and final.mdl are of different models") from None
