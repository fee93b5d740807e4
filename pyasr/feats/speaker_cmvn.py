"""CMVN statistics of all speakers of a data directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.left_out import log_reasons
from pyasr.feats.cmvn import cmvn_stats
from pyasr.io.ark import ArkWriter, iterate
from pyasr.io.text import read_table, read_utt2spk, write_table


def speaker_stats(data: Path) -> dict[str, np.ndarray]:
    """Speaker to statistics (2, D + 1), in float64, over all its utterances that have frames. Raises UserError where there are none."""
    utt2spk = read_utt2spk(data / "utt2spk")
    found: dict[str, np.ndarray] = {}
    without: list[str] = []
    for utt, features in iterate(data / "feats.scp"):
        if utt not in utt2spk:
            raise UserError(f"{data}/utt2spk: no line for utterance {utt} of feats.scp; run utils/fix_data_dir.py {data}")
        if not len(features):
            without.append(utt)
            continue
        stats = cmvn_stats(features)
        speaker = utt2spk[utt]
        if speaker in found and found[speaker].shape != stats.shape:
            counts = f"{stats.shape[1] - 1} columns, earlier ones {found[speaker].shape[1] - 1}"
            raise UserError(f"{data}/feats.scp: {utt} has {counts}; make the features again")
        found[speaker] = found[speaker] + stats if speaker in found else stats
    log_reasons(dict.fromkeys(without, "no frames"), "are not counted")
    if not found:
        raise UserError(f"{data}/feats.scp: no features; run steps/make_mfcc.py {data}")
    return found


def write_speaker_cmvn(data: Path, out: Path, named: Path) -> None:
    """Write out/cmvn.ark and out/cmvn.scp; the table names the archive as `named`/cmvn.ark."""
    stats = speaker_stats(data)
    with ArkWriter(out / "cmvn.ark", out / "cmvn.scp", named=named / "cmvn.ark") as writer:
        for speaker in sorted(stats):
            writer.write(speaker, stats[speaker])
    log.info(f"{len(stats)} speakers")


def publish(data: Path) -> None:
    """Copy the table of DATA/cmvn to DATA."""
    write_table(data / "cmvn.scp", read_table(data / "cmvn" / "cmvn.scp"))
