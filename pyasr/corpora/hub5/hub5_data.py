"""The data directory of an evaluation set: its tables, and the files for scoring: stm, glm, stm_subsets."""

from __future__ import annotations

import re
from pathlib import Path

from pyasr.base.cli.step import make_part
from pyasr.base.errors import UserError
from pyasr.corpora.call_audio import seconds_of_calls, within_audio, write_audio_list
from pyasr.corpora.conversations import SkippedItems, tables_of
from pyasr.corpora.counts import log_table
from pyasr.corpora.hub5.hub5_sets import EvaluationSet, SetFiles, find_files, log_calls, utterances_of
from pyasr.corpora.hub5.references import References, read_pem, read_references
from pyasr.corpora.texts import read_lines
from pyasr.data.tables.datadir import write_data_dir
from pyasr.data.transcripts.glm import read_glm
from pyasr.io.text_tables import write_table
from pyasr.lang.symbols import write_lines


def make_evaluation_set(options, name: str, kind: EvaluationSet, audio: list[Path], text: list[Path]) -> None:
    """Create DATA/NAME from the discs below `audio` and `text`, unless it is up to date, and log its counts
    next to the published ones.

    `options` are those of the program; its `glm`, if given, replaces the one on the discs. Raises UserError
    for a missing file and for a glm that scoring cannot read, which would otherwise stop the recipe after the
    first decoding.
    """
    files = find_files(kind, audio, text, options.glm)
    read_glm(files.glm)
    inputs = [write_audio_list(options.data, name, files.audio), *files.tables]
    make_part(options, options.data / name, inputs, lambda out: write_evaluation_set(out, kind, files))
    log_table(options.data / name, kind.published)


def write_evaluation_set(out: Path, kind: EvaluationSet, files: SetFiles) -> None:
    """Fill the directory `out`. Raises UserError if no segment can be decoded."""
    stm, left = read_references(files.stm), SkippedItems()
    log_calls(kind, stm, files.audio)
    seconds = seconds_of_calls(
        files.audio, sorted(files.audio.keys() & {segment.file for segment in stm.segments})
    )
    utterances = utterances_of(stm, read_pem(files.pem) if files.pem else None, files.audio, left)
    utterances = within_audio(utterances, seconds, left)
    left.log("segments")
    if not utterances:
        raise UserError(
            f"{files.stm[0]}: none of its segments has usable audio; give audio and reference of the same set"
        )
    write_data_dir(out, tables_of(utterances, files.audio))
    write_lines(out / "stm", stm.lines)
    write_lines(out / "glm", read_lines(files.glm))
    write_table(
        out / "stm_subsets",
        {name: pattern for name, pattern in kind.subsets.items() if _has_segments(stm, pattern)},
    )


def _has_segments(stm: References, pattern: str) -> bool:
    return any(re.search(pattern, segment.file) for segment in stm.segments)
