"""A warning where fMLLR has not adapted most of the data, because its speakers have too little."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.data.datadir import DataDir
from pyasr.feats.transforms import read_transforms
from pyasr.hmm.fmllr import FmllrOptions, identity

_MOST = 0.5  # of the data


def warn_of_unadapted(data: Path, transform_dir: Path, options: FmllrOptions | None = None) -> None:
    """Warn where speakers with more than half of the data have the identity as their transform in TRANSFORM_DIR.

    options  how the transforms were estimated, by the step that says it; None: by an earlier one
    """
    if options and options.fmllr_update_type == "none":
        return
    tables, transforms = DataDir(data), read_transforms(transform_dir)
    plain = {speaker for speaker, matrix in transforms.items() if np.array_equal(matrix, identity(len(matrix)))}
    durations = {speaker: sum(map(tables.durations.get, utts)) for speaker, utts in tables.spk2utt.items() if speaker in transforms}
    share = sum(durations.get(speaker, 0.0) for speaker in plain) / max(sum(durations.values()), 1e-9)
    if share > _MOST:
        who = f"{len(plain)} of {len(transforms)} speakers, with {100 * share:.0f} % of the data, are not"
        who = f"none of {len(transforms)} speakers is" if len(plain) == len(transforms) else who
        earlier = f"make {transform_dir} with a lower --fmllr-min-count"
        advice = f"lower --fmllr-min-count {options.fmllr_min_count:g}" if options else earlier
        reason = f"each has too little speech{told_of_speakers(tables)}"
        log.warning(f"{data}: {who} adapted by fMLLR, as {reason}; {advice}, or give utterances their real speakers")


def told_of_speakers(data: DataDir) -> str:
    """Why speakers may have little data, if it can be seen: the end of a sentence."""
    every = len(data.spk2utt) == len(data.utt2spk) > 1
    return f" (each utterance has its own speaker in {data.path}/utt2spk)" if every else ""
