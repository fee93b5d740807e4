"""From alignments and features to the targets file that the ranks of a training job read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.options import option
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.hmm.model import read_transitions
from pyasr.io.int_vectors import read_job_archives
from pyasr.train.targets import Targets, choose_heldout, join, make_targets


@dataclass(frozen=True)
class TargetOptions:
    """Which utterances are trained on."""

    max_missing: float = option(0.01, "greatest share of utterances without a matching alignment", minimum=0.0, maximum=1.0)
    heldout_share: float = option(0.03, "share of the frames held out, to be measured after every epoch", minimum=0.0, maximum=0.5)
    heldout_seed: int = option(777, "seed of the choice of held-out speakers")


def prepare_targets(data: Path, ali_dir: Path, out: Path, options: TargetOptions) -> None:
    """Check that alignments and features match, choose the held-out set, write OUT/targets.npz."""
    reader = FeatureReader(data, InputOptions(cmvn="none"))
    alignments = read_job_archives(ali_dir)
    keys = join(reader.keys, reader.num_frames, alignments, options.max_missing, data, ali_dir)
    transitions = read_transitions(ali_dir / "final.mdl")
    offsets, pdfs = make_targets(keys, alignments, transitions.tid2pdf, ali_dir)
    heldout = choose_heldout(keys, np.diff(offsets), reader.speaker, options.heldout_share, options.heldout_seed)
    Targets(keys, offsets, pdfs, heldout, transitions.num_pdfs).save(out / "targets.npz")
