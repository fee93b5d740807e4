"""NIST's sclite as an oracle: its counts of many utterances."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

SCLITE = shutil.which("sclite") or (str(p) if (p := Path("/usr/lib/sctk/bin/sclite")).exists() else None)


def sclite_counts(pairs, directory: Path) -> list[tuple[int, int, int, int]]:
    """(correct, sub, ins, del) of (reference, hypothesis) pairs of word lists."""
    for name, side in (("ref", 0), ("hyp", 1)):
        (directory / name).write_text(
            "".join(f"{' '.join(pair[side])} (s-{i:06d})\n" for i, pair in enumerate(pairs))
        )
    words = [
        SCLITE,
        "-r",
        directory / "ref",
        "trn",
        "-h",
        directory / "hyp",
        "trn",
        "-i",
        "spu_id",
        "-o",
        "pra",
        "stdout",
    ]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    keys = [int(key) for key in re.findall(r"^id: \(s-(\d+)\)", output, re.M)]
    counts = re.findall(r"^Scores: \(#C #S #D #I\) (\d+) (\d+) (\d+) (\d+)", output, re.M)
    found = {key: (int(c), int(s), int(i), int(d)) for key, (c, s, d, i) in zip(keys, counts)}
    return [found[i] for i in range(len(pairs))]


def sclite_ctm(stm: Path, ctm: Path) -> tuple[int, int, int, int, float]:
    """(correct, sub, ins, del) words and the normalised cross entropy of a ctm."""
    # it truncates long paths
    words = [
        SCLITE,
        "-r",
        stm.name,
        "stm",
        "-h",
        os.path.relpath(ctm, stm.parent),
        "ctm",
        "-o",
        "rsum",
        "stdout",
    ]
    output = subprocess.run(words, cwd=stm.parent, capture_output=True, text=True, check=True).stdout
    row = next(line for line in output.splitlines() if line.strip().startswith("| Sum"))
    _, _, _, correct, sub, dele, ins, _, _, nce = row.replace("|", " ").split()
    return int(correct), int(sub), int(ins), int(dele), float(nce)
