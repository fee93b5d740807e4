#!/usr/bin/env python3
"""Score a ctm against an stm, as NIST's hubscr.pl does for Hub5, and print the counts of speakers, subsets
and labels.

Reads   STM, CTM, GLM, SUBSETS
Writes  the tables to standard output; with --per-utt the alignment of each segment to a file

    utils/score_stm.py --glm rules.glm --subsets data/eval2000/stm_subsets hub5e00.english.000405.stm \\
        exp/tri4/ctm_eval2000/ctm
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import check_replaceable, run_step
from pyasr.base.outputs.output import atomic_write
from pyasr.data.transcripts.glm import read_glm
from pyasr.data.transcripts.stm import read_stm
from pyasr.score.hub5.ctm_elements import ctm_entries, read_entries
from pyasr.score.hub5.scored_words import DROPPED, scored_lines
from pyasr.score.hub5.scorer import StmScorer
from pyasr.score.score_tables import counts_table, per_speaker, wer_line

_PER_UTT = r"\S+ ref\b"


@dataclass(frozen=True)
class ScoreStm:
    stm: Path = argument("reference words with times, stm format")
    ctm: Path = argument("recognised words with times, ctm format")
    glm: Path | None = option(None, "word mapping rules (glm); none: compare words without mapping")
    subsets: Path | None = option(
        None,
        "subsets file, lines 'NAME PATTERN' with a regular expression for 'FILE CHANNEL SPEAKER <LABELS>'",
    )
    drop_unscored: bool = option(
        False,
        "remove noises, hesitations and fragments from the ctm and split acronyms, as steps/score.py does",
    )
    per_utt: Path | None = option(None, "file for the alignment of each segment")


def main(options: ScoreStm) -> None:
    if options.per_utt:
        check_replaceable(options.per_utt, _PER_UTT, "file of alignments")
    entries = read_entries(options.ctm)
    if options.drop_unscored:
        entries = ctm_entries(scored_lines(entry.first for entry in entries))
    glm = read_glm(options.glm) if options.glm else None
    dropped = DROPPED if options.drop_unscored else "none"
    scorer = StmScorer(read_stm(options.stm), glm, options.subsets, dropped)
    score = scorer.score(entries, str(options.ctm))
    if score.missing:
        log.warning(
            f"{len(score.missing)} segment(s) are in channels without a word in {options.ctm} and count as "
            f"deleted, for example {score.missing[0]}"
        )
    print(per_speaker(score, scorer.utt2spk))
    if scorer.parts:
        print(counts_table("SUBSET", [(name, score.part(keys).row) for name, keys in scorer.parts.items()]))
    print(f"{wer_line(score.total)} {score.signature}")
    if options.per_utt:
        with atomic_write(options.per_utt) as f:
            f.write(scorer.per_utterance(entries))


if __name__ == "__main__":
    run_step(ScoreStm, main, __doc__, force="replace an existing file that is not a file of alignments")
