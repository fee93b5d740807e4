"""The audio of calls: usable files, their durations, and the utterances within them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.files.table_paths import as_named
from pyasr.base.system_errors import SystemRefusal
from pyasr.corpora.conversations import CHANNELS, SkippedItems, Utterance
from pyasr.data.audio.audio_lengths import seconds_of
from pyasr.data.audio.audio_reading import audio_head
from pyasr.data.tables.datadir import Segment
from pyasr.data.tables.fit_segments import why_not
from pyasr.io.text_tables import write_table


def write_audio_list(data: Path, name: str, audio: Mapping[str, Path]) -> Path:
    """DATA/local/audio_NAME.txt, `CALL FILE` lines. An output made from other files is recognized by it as
    out of date."""
    path = Path(data) / "local" / f"audio_{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, {call: as_named(file) for call, file in audio.items()})
    return path


def seconds_of_calls(audio: Mapping[str, Path], calls: Iterable[str]) -> dict[str, float]:
    """{call: seconds} of the calls with usable audio. The log names the others: damaged, truncated, or
    without a channel for each side."""
    seconds = {}
    for call in calls:
        try:
            seconds[call] = _seconds_of_sides(audio[call])
        except SystemRefusal:
            raise
        except UserError as error:
            log.warning(f"{call} is left out: {error}")
    return seconds


def _seconds_of_sides(path: Path) -> float:
    """Raises UserError for audio that cannot be used."""
    seconds, head = seconds_of(path), audio_head(str(path))
    if head and head[1] != len(CHANNELS):
        raise UserError(
            f"{path}: {head[1]} channel(s), but the sides of a call need {len(CHANNELS)}; give the file as "
            "published"
        )
    return seconds


def within_audio(
    utterances: list[Utterance], seconds: Mapping[str, float], left: SkippedItems
) -> list[Utterance]:
    """The utterances that can be cut from the audio of their calls (`pyasr.data.tables.fit_segments`), in
    their order."""
    durations, kept = {one.side: seconds[one.call] for one in utterances if one.call in seconds}, []
    for one in utterances:
        if one.side not in durations:
            left.add("their audio is not usable", one.name)
        elif reason := why_not(Segment(one.side, one.begin_s, one.end_s), durations):
            left.add(reason, one.name)
        else:
            kept.append(one)
    return kept
