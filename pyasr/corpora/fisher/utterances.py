"""Select utterances for acoustic training from the calls of Fisher English, with reasons for the others."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyasr.corpora.call_audio import seconds_of_calls, within_audio
from pyasr.corpora.conversations import SkippedItems, Utterance, hundredths
from pyasr.corpora.fisher.fisher_calls import Calls
from pyasr.corpora.fisher.fisher_speakers import Caller
from pyasr.corpora.fisher.fisher_text import acoustic_words, is_unsure
from pyasr.corpora.fisher.fisher_transcripts import TranscriptLine, read_transcript

MAX_S = 30.0
BAD_AUDIO = frozenset({"fe_03_00446", "fe_03_01243", "fe_03_06716"})  # Kaldi's recipe sre08 excludes them


@dataclass
class Taken:
    """Utterances in the order of calls, and what is left out: whole calls, and utterances of other calls."""

    utterances: list[Utterance] = field(default_factory=list)
    skipped_calls: SkippedItems = field(default_factory=SkippedItems)
    skipped_utterances: SkippedItems = field(default_factory=SkippedItems)

    def log(self) -> None:
        """Log a warning for each reason for leaving out calls or utterances."""
        self.skipped_calls.log("calls")
        self.skipped_utterances.log("utterances")


def take(calls: Calls, callers: dict[str, Caller]) -> Taken:
    """The utterances of all calls with speech and a transcript; a side without a PIN in `callers` is a
    speaker itself."""
    taken = Taken()
    seconds = seconds_of_calls(calls.audio, _usable(calls, taken.skipped_calls))
    found: dict[str, Utterance] = {}
    for call in seconds:
        for line in read_transcript(call, calls.transcripts[call], taken.skipped_utterances):
            utterance = utterance_of(line, callers)
            if reason := _why_not(line, utterance, found):
                taken.skipped_utterances.add(reason, utterance.name)
            else:
                found[utterance.name] = utterance
    taken.utterances = within_audio(list(found.values()), seconds, taken.skipped_utterances)
    return taken


def utterance_of(line: TranscriptLine, callers: dict[str, Caller]) -> Utterance:
    """The utterance of a line; its name begins with the speaker: `2637m-fe_03_00001-A-000253-000481`."""
    speaker = callers.get(line.side, Caller()).name or line.side
    name = line.name if speaker == line.side else f"{speaker}-{line.name}"
    begin, end = hundredths(line.begin_s), hundredths(line.end_s)
    return Utterance(
        name, line.call, line.channel, speaker, begin / 100, end / 100, acoustic_words(line.text)
    )


def _why_not(line: TranscriptLine, utterance: Utterance, found: dict[str, Utterance]) -> str:
    """Why an utterance is not usable, apart from its audio; '' if it is."""
    if is_unsure(line.text):
        return "words that the transcriber was unsure of"
    if not utterance.text:
        return "no words"
    if utterance.end_s - utterance.begin_s > MAX_S:
        return f"longer than {MAX_S:g} s"
    return "the same side and times a second time" if utterance.name in found else ""


def _usable(calls: Calls, skipped: SkippedItems) -> list[str]:
    """The calls with speech and a transcript, in order, except calls with bad audio."""
    usable = []
    for call in sorted(calls.audio.keys() | calls.transcripts.keys()):
        if reason := _why_not_call(call, calls):
            skipped.add(reason, call)
        else:
            usable.append(call)
    return usable


def _why_not_call(call: str, calls: Calls) -> str:
    if call not in calls.transcripts:
        return "no transcript"
    if call not in calls.audio:
        return "no speech"
    return "bad audio" if call in BAD_AUDIO else ""
