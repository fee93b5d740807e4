"""A warning if fMLLR has not adapted most of the data, because the speakers have too little data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.data.tables.datadir import DataDir
from pyasr.feats.transforms import read_transform_archive, transform_files
from pyasr.hmm.transforms.fmllr import FmllrOptions, identity

_MAX_SHARE = 0.5  # of the data


def warn_of_unadapted(data: Path, transform_dir: Path, options: FmllrOptions | None = None) -> None:
    """Warn if speakers with more than half of the data have the identity as transform in TRANSFORM_DIR.

    options  options of the estimation, if the calling step did it; None: an earlier step did it
    """
    if options and options.fmllr_update_type == "none":
        return
    tables, adapted = DataDir(data), _adapted_speakers(transform_dir)
    plain = {speaker for speaker, is_adapted in adapted.items() if not is_adapted}
    durations = {
        speaker: sum(tables.durations[utt] for utt in utts)
        for speaker, utts in tables.spk2utt.items()
        if speaker in adapted
    }
    share = sum(durations.get(speaker, 0.0) for speaker in plain) / max(sum(durations.values()), 1e-9)
    if share > _MAX_SHARE:
        who = f"{len(plain)} of {len(adapted)} speakers, with {100 * share:.0f} % of the data, are not"
        who = f"none of {len(adapted)} speakers is" if len(plain) == len(adapted) else who
        earlier = f"estimate {transform_dir} again with a lower --fmllr-min-count"
        advice = f"lower --fmllr-min-count {options.fmllr_min_count:g}" if options else earlier
        reason = f"each has too little speech{speakers_advice(tables)}"
        log.warning(
            f"{data}: {who} adapted by fMLLR, because {reason}; {advice}, or assign utterances to their "
            "real speakers"
        )


def _adapted_speakers(transform_dir: Path) -> dict[str, bool]:
    """{speaker: whether its transform differs from the identity}, with one archive's matrices in memory."""
    return {
        speaker: not np.array_equal(matrix, identity(len(matrix)))
        for path in transform_files(transform_dir)
        for speaker, matrix in read_transform_archive(path).items()
    }


def speakers_advice(data: DataDir) -> str:
    """The probable reason why speakers have little data, as the end of a sentence; '' if unknown."""
    every = len(data.spk2utt) == len(data.utt2spk) > 1
    return f" (each utterance has its own speaker in {data.path}/utt2spk)" if every else ""
