"""The data directory of Switchboard, for acoustic training."""

from __future__ import annotations

from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.corpora.call_audio import seconds_of_calls, within_audio
from pyasr.corpora.conversations import SkippedItems, tables_of
from pyasr.corpora.switchboard.acronyms import acronyms_in
from pyasr.corpora.switchboard.swbd_calls import DISC, calls_with_both, utterances_of
from pyasr.corpora.switchboard.swbd_dictionary import read_dictionary
from pyasr.corpora.switchboard.swbd_speakers import SpeakerTables
from pyasr.corpora.switchboard.swbd_transcripts import read_transcripts
from pyasr.data.tables.datadir import write_data_dir


def write_switchboard(
    out: Path, audio: dict[str, Path], transcripts: list[Path], tables: SpeakerTables, by_caller: bool
) -> None:
    """Fill the directory `out`; log what is left out, with reasons. Raises UserError if nothing is left.

    audio        {call: file}
    transcripts  files of `find_transcripts`
    by_caller    use callers as speakers, instead of sides
    """
    contents, left = read_transcripts(transcripts), SkippedItems()
    calls = calls_with_both(audio, contents.sides)
    callers = tables.callers() if by_caller else {}
    utterances = utterances_of(contents, calls, acronyms_in(read_dictionary(contents)), callers, left)
    utterances = within_audio(utterances, seconds_of_calls(audio, calls), left)
    left.log("segments")
    if not utterances:
        raise UserError(f"{DISC.name}: no call with a transcript has usable audio; check what was left out")
    write_data_dir(
        out, tables_of(utterances, audio, tables.sexes_of({one.speaker: one.side for one in utterances}))
    )
