"""Check segments of a corpus against the lengths of its recordings: transcripts have invalid times, and times
after the end of the audio.

kept, dropped = fit(segments, {name: seconds_of(path) for name, path in audio.items()})
dropped["it begins after the end of its recording"]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyasr.data.tables.datadir import TO_THE_END, Segment

# seconds by which a segment may end after its recording, as in Kaldi's extract-segments
MAX_OVERSHOOT_S = 0.5
WITHOUT_AUDIO = "its recording is missing"
BACKWARD = "its end is not after its begin"
AFTER_THE_END = "it begins after the end of its recording"
TOO_LONG = f"it ends more than {MAX_OVERSHOOT_S:g} s after the end of its recording"


def fit(
    segments: Mapping[str, Segment], durations: Mapping[str, float]
) -> tuple[dict[str, Segment], Counter[str]]:
    """(the segments that can be cut from their recordings, {reason: number of segments that cannot}).

    Segments that are kept are not changed: a segment that ends up to 0.5 s after its recording is cut to its
    end when it is read.

    segments   {utterance: segment}; an end of -1 means the end of the recording
    durations  {recording: seconds}, from `pyasr.data.audio.audio_lengths.seconds_of` of its file
    """
    reasons = {name: why_not(segment, durations) for name, segment in segments.items()}
    return {name: segment for name, segment in segments.items() if not reasons[name]}, Counter(
        filter(None, reasons.values())
    )


def why_not(segment: Segment, durations: Mapping[str, float]) -> str:
    """Why a segment cannot be cut from its recording; '' if it can."""
    if segment.recording not in durations:
        return WITHOUT_AUDIO
    is_whole, end_s = segment.end_s == TO_THE_END, durations[segment.recording]
    if not (segment.begin_s >= 0 and (is_whole or segment.begin_s < segment.end_s)):
        return BACKWARD
    if segment.begin_s >= end_s:
        return AFTER_THE_END
    return TOO_LONG if segment.end_s > end_s + MAX_OVERSHOOT_S else ""
