"""Segments against the lengths of recordings: those that Kaldi's extract-segments accepts are kept unchanged,
others removed and counted."""

from collections import Counter

import numpy as np
import pytest
import soundfile

from pyasr.data.audio.recordings import cut_utterance, read_recording
from pyasr.data.tables import fit_segments
from pyasr.data.tables.datadir import DataDir, Segment, write_data_dir
from pyasr.data.tables.fit_segments import fit

SECONDS = {"sw3409-A": 30.0, "sw3409-B": 30.0, "fe_03_00002-A": 61.5, "fe_03_05852-A": 60.0}


@pytest.mark.parametrize(
    "segment, reason",
    [
        (Segment("sw3409-A", 28.0, 30.3), ""),
        (Segment("sw3409-A", 28.0, 30.5), ""),
        (Segment("sw3409-A", 28.0, 30.0), ""),
        (Segment("sw3409-A", 28.0, -1.0), ""),
        (Segment("sw3409-B", 30.2, 31.0), fit_segments.AFTER_THE_END),
        (Segment("sw3409-B", 30.0, 30.2), fit_segments.AFTER_THE_END),
        (Segment("sw3409-B", 30.2, -1.0), fit_segments.AFTER_THE_END),
        (Segment("fe_03_00002-A", 60.0, 66.5), fit_segments.TOO_LONG),
        (Segment("fe_03_00002-A", 60.0, 62.01), fit_segments.TOO_LONG),
        (Segment("fe_03_05852-A", 20.5, 19.5), fit_segments.BACKWARD),
        (Segment("fe_03_05852-A", 20.5, 20.5), fit_segments.BACKWARD),
        (Segment("fe_03_05852-A", -0.5, 1.0), fit_segments.BACKWARD),
        (Segment("fe_03_05852-A", float("nan"), 1.0), fit_segments.BACKWARD),
        (Segment("sw2289-A", 1.0, 2.0), fit_segments.WITHOUT_AUDIO),
    ],
)
def test_single_segment_is_kept_or_dropped_with_reason(segment, reason):
    kept, dropped = fit({"utt": segment}, SECONDS)
    assert (kept, dropped) == (({}, Counter([reason])) if reason else ({"utt": segment}, Counter()))


def test_reasons_are_counted_and_order_is_kept():
    segments = {
        "b": Segment("sw3409-A", 1, 2),
        "x": Segment("nowhere", 1, 2),
        "a": Segment("sw3409-B", 0, 1),
        "y": Segment("nowhere", 2, 3),
    }
    kept, dropped = fit(segments, SECONDS)
    assert list(kept) == ["b", "a"] and dropped == {fit_segments.WITHOUT_AUDIO: 2}


@pytest.mark.parametrize("end_s", [0.9, 1.0, 1.4, 1.5])
def test_kept_segments_equal_those_of_feature_extraction(end_s, tmp_path):
    """Extraction truncates segments at the end of the file."""
    soundfile.write(tmp_path / "a.wav", np.zeros(8000), 8000)
    write_data_dir(
        tmp_path,
        {
            "wav.scp": {"rec": tmp_path / "a.wav"},
            "segments": {"utt": f"rec 0.5 {end_s}"},
            "utt2spk": {"utt": "utt"},
        },
    )
    data = DataDir(tmp_path)
    kept, _ = fit(data.segments, {"rec": 1.0})
    assert kept == data.segments
    assert len(cut_utterance(*read_recording(data, "rec"), data, "utt")) == round(
        8000 * (min(end_s, 1.0) - 0.5)
    )
