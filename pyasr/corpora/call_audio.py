"""The audio of calls: which of it can be used, how long it is, and the utterances that lie within it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.system_errors import SystemRefusal
from pyasr.base.table_paths import as_named
from pyasr.corpora.conversations import LeftOut, Utterance
from pyasr.data.audio_lengths import seconds_of
from pyasr.data.datadir import Segment
from pyasr.data.fit_segments import why_not
from pyasr.io.text import write_table


def write_audio_list(data: Path, name: str, audio: Mapping[str, Path]) -> Path:
    """DATA/local/audio_NAME.txt, `CALL FILE` lines: by it, an output that was made from other files is known to be out of date."""
    path = Path(data) / "local" / f"audio_{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, {call: as_named(file) for call, file in audio.items()})
    return path


def seconds_of_calls(audio: Mapping[str, Path], calls: Iterable[str]) -> dict[str, float]:
    """{call: seconds} of those whose audio can be used. Others, with a damaged header or cut short, are named in the log."""
    seconds = {}
    for call in calls:
        try:
            seconds[call] = seconds_of(audio[call])
        except SystemRefusal:
            raise
        except UserError as error:
            log.warning(f"{call} is left out: {error}")
    return seconds


def within_audio(utterances: list[Utterance], seconds: Mapping[str, float], left: LeftOut) -> list[Utterance]:
    """The utterances that can be cut from the audio of their calls (`pyasr.data.fit_segments`), in their order."""
    durations, kept = {one.side: seconds[one.call] for one in utterances if one.call in seconds}, []
    for one in utterances:
        if reason := why_not(Segment(one.side, one.begin_s, one.end_s), durations):
            left.add(reason, one.name)
        else:
            kept.append(one)
    return kept
