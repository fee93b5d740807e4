#!/usr/bin/env python3
"""CPU seconds of scoring with an stm of the size of Hub5'00: 80 channels, about 4,500 segments and 44,000
words, 1,600 rules.

Reads nothing: the stm, the glm and ctm files with random errors are generated in a temporary directory.
Writes a table to standard output; if sctk is installed, also whether sclite's counts are the same.

Example:
    benchmarks/stm_scoring.py
"""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.data.transcripts.glm import read_glm
from pyasr.data.transcripts.stm import read_stm
from pyasr.score.hub5.ctm_elements import read_entries
from pyasr.score.hub5.scorer import StmScorer
from pyasr.score.word_alignment import Counts

SCTK = Path("/usr/lib/sctk/bin")
HEAD = ";; rules\n* name \"rules\"\n* max_nrules = '2500'\n* case_sensitive = 'F'\n"
RULES = [
    "[IT'S] => [{IT IS / IT HAS}] / [ ] __ [ ]",
    "OKAY => O. K. / [ ] __ [ ]",
    "UH => %HESITATION / [ ] __ [ ]",
    ';; INPUT_DEPENDENT_APPLICATION = "ctm"',
    "[CAN'T] => [{CAN NOT / CANNOT}] / [ ] __ [ ]",
]
CHANNELS = [(f"sw_{i:04d}", side) for i in range(40) for side in "AB"]
SEGMENTS = 56
MEAN_WORDS = 9.6
WORD_S = 0.3


@dataclass(frozen=True)
class StmScoring:
    ctms: int = option(3, "number of hypotheses to score", minimum=1)


def references(rng: np.random.Generator) -> list[tuple[str, float, list[str]]]:
    """(channel, begin in seconds, words) of all segments."""
    common = [*(f"W{i}" for i in range(3000)), *["IT'S", "CAN'T", "UH", "OKAY", "UH-HUH"] * 40]
    words, weights, found = rng.permutation(common), 1 / np.arange(1, len(common) + 1), []
    for file, side in CHANNELS:
        begin_s = 0.0
        for num in np.maximum(1, rng.poisson(MEAN_WORDS, SEGMENTS)):
            found.append((f"{file} {side}", begin_s, list(rng.choice(words, num, p=weights / weights.sum()))))
            begin_s += num * WORD_S + 0.5
    return found


def stm_line(rng: np.random.Generator, channel: str, begin_s: float, words: list[str]) -> str:
    """A segment with optional hesitations and fragments."""
    shown = [rng.choice([word, "(%HESITATION)", f"({word[:2]}-)"], p=[0.94, 0.03, 0.03]) for word in words]
    end_s = begin_s + len(words) * WORD_S
    return f"{channel} {channel.replace(' ', '_')} {begin_s:.2f} {end_s:.2f} <O,en>  {' '.join(shown)}"


def ctm_lines(
    rng: np.random.Generator, channel: str, begin_s: float, words: list[str], others: list[str]
) -> list[str]:
    """The words of a segment, 5 % deleted and 15 % replaced."""
    kinds = rng.choice(3, len(words), p=[0.8, 0.05, 0.15])
    return [
        f"{channel} {begin_s + i * WORD_S:.2f} 0.28 {(rng.choice(others) if kind == 2 else word).lower()} 0.9"
        for i, (word, kind) in enumerate(zip(words, kinds))
        if kind != 1
    ]


def sclite_counts(directory: Path) -> tuple[int, ...]:
    """(correct, sub, del, ins) of csrfilt and sclite for REF.stm and 0.ctm."""
    environment = os.environ | {"PATH": f"{SCTK}:{os.environ['PATH']}", "LC_ALL": "C"}
    for kind, purpose, name in (("stm", "ref", "stm"), ("ctm", "hyp", "0.ctm")):
        command = [SCTK / "csrfilt.sh", "-i", kind, "-t", purpose, "-dh", directory / "glm"]
        message = subprocess.run(
            command, input=(directory / name).read_bytes(), capture_output=True, check=True, env=environment
        )
        (directory / f"filtered.{kind}").write_bytes(message.stdout)
    command = [
        SCTK / "sclite",
        "-r",
        "filtered.stm",
        "stm",
        "-h",
        "filtered.ctm",
        "ctm",
        "-F",
        "-D",
        "-o",
        "rsum",
        "stdout",
    ]
    message = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment, cwd=directory
    ).stdout
    row = next(line for line in message.splitlines() if line.strip().startswith("| Sum"))
    return tuple(map(int, row.replace("|", " ").split()[3:7]))


def make_files(directory: Path, num_ctms: int) -> None:
    """Write stm, glm and 0.ctm, 1.ctm, ..."""
    rng = np.random.default_rng(0)
    segments = references(rng)
    names = map("".join, itertools.product("ABCDEFGHIJKLMNOP", "ABCDEFGHIJ", "ABCDEFGHIJ"))
    rules = [*(f"{name}WORD => {name} WORD / [ ] __ [ ]" for name in names), *RULES]
    others = [word for _, _, words in segments[:100] for word in words]
    (directory / "glm").write_text(HEAD + "\n".join(rules) + "\n")
    (directory / "stm").write_text("".join(f"{stm_line(rng, *segment)}\n" for segment in segments))
    for i in range(num_ctms):
        lines = (line for segment in segments for line in ctm_lines(rng, *segment, others))
        (directory / f"{i}.ctm").write_text("".join(f"{line}\n" for line in lines))


def timed(what: str, function):
    """Call a function and print its CPU seconds; its result."""
    begin = time.process_time()
    result = function()
    print(f"{what:<36} {time.process_time() - begin:6.2f} s")
    return result


def main(options: StmScoring) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, totals = Path(name), []
        make_files(directory, options.ctms)
        scorer = timed(
            "stm and glm", lambda: StmScorer(read_stm(directory / "stm"), read_glm(directory / "glm"))
        )
        for i in range(options.ctms):
            entries = timed(f"reading ctm {i}", lambda: read_entries(directory / f"{i}.ctm"))
            totals.append(
                timed(f"scoring ctm {i}{' and compiling' * (i == 0)}", lambda: scorer.score(entries).total)
            )
        print(f"{len(scorer.segments)} segments, {totals[0].num_words} words; ctm 0: {totals[0]}")
        if (SCTK / "csrfilt.sh").exists():
            correct, sub, dele, ins = sclite_counts(directory)
            agrees = totals[0] == Counts(correct, sub, ins, dele)
            print(f"sclite: {'the same counts' if agrees else (correct, sub, dele, ins)}")


if __name__ == "__main__":
    run_step(StmScoring, main, __doc__)
