"""Segments of a corpus against the lengths of its recordings: transcripts have times beyond the end of the audio, and broken ones.

    kept, dropped = fit(segments, {name: seconds_of(path) for name, path in audio.items()})
    dropped["it begins after the end of its recording"]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyasr.data.tables.datadir import TO_THE_END, Segment

MOST_OVERSHOOT_S = 0.5  # of a segment's end beyond its recording's, as in Kaldi's extract-segments
WITHOUT_AUDIO = "its recording is missing"
BACKWARD = "it does not end after its begin"
AFTER_THE_END = "it begins after the end of its recording"
TOO_LONG = f"it ends more than {MOST_OVERSHOOT_S:g} s after the end of its recording"


def fit(segments: Mapping[str, Segment], durations: Mapping[str, float]) -> tuple[dict[str, Segment], Counter[str]]:
    """(the segments that can be cut from their recordings, how many others there are for each reason).

    Those that are kept stay as they are: one that ends up to 0.5 s after its recording is cut to the end of it when it is read.

    segments   {utterance: segment}; an end of -1 is that of the recording
    durations  {recording: seconds}, `pyasr.data.audio.audio_lengths.seconds_of` of its file
    """
    reasons = {name: why_not(segment, durations) for name, segment in segments.items()}
    return {name: segment for name, segment in segments.items() if not reasons[name]}, Counter(filter(None, reasons.values()))


def why_not(segment: Segment, durations: Mapping[str, float]) -> str:
    """Why a segment cannot be cut from its recording; '' where it can."""
    if segment.recording not in durations:
        return WITHOUT_AUDIO
    is_whole, end_s = segment.end_s == TO_THE_END, durations[segment.recording]
    if not (0 <= segment.begin_s and (is_whole or segment.begin_s < segment.end_s)):
        return BACKWARD
    if segment.begin_s >= end_s:
        return AFTER_THE_END
    return TOO_LONG if segment.end_s > end_s + MOST_OVERSHOOT_S else ""
