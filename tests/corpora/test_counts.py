"""The table of a data directory's counts next to the published ones."""

import pytest

from pyasr.base import log
from pyasr.corpora.counts import Published, compare, log_table, measured
from pyasr.data.tables.datadir import write_data_dir


@pytest.fixture
def data(tmp_path):
    """A data directory of 1,200 utterances of 3 s by four speakers; the last utterance has 7.5 s."""
    names = [f"s{i % 4}-{i:04d}" for i in range(1200)]
    path = tmp_path / "train"
    path.mkdir()
    write_data_dir(
        path,
        {
            "wav.scp": dict.fromkeys(names, "a.wav"),
            "utt2spk": {name: name[:2] for name in names},
            "text": dict.fromkeys(names, "a few words"),
            "utt2dur": {**dict.fromkeys(names, 3.0), names[-1]: 7.5},
        },
    )
    return path


def test_quantities_of_data_directory(data):
    assert measured(data) == {
        "recordings": 1200,
        "utterances": 1200,
        "speakers": 4,
        "hours": 3604.5 / 3600,
        "words": 3600,
        "longest": 7.5,
    }


def test_segments_are_measured_by_their_times(tmp_path):
    write_data_dir(
        tmp_path,
        {
            "wav.scp": {"r": "a.wav"},
            "utt2spk": {"r-1": "r", "r-2": "r"},
            "segments": {"r-1": "r 0 2", "r-2": "r 3 7"},
        },
    )
    assert measured(tmp_path) == {
        "recordings": 1,
        "utterances": 2,
        "speakers": 1,
        "hours": 6 / 3600,
        "words": 0,
        "longest": 4.0,
    }


def test_table_is_aligned_and_marks_deviations(data):
    published = [Published("utterances", (1500, 1600)), Published("hours", (1.0,)), Published("calls", (2,))]
    head, *rows = compare(data, published, {"calls": 1})
    assert [row.split() for row in rows] == [
        ["recordings", "1,200"],
        ["utterances", "1,200", "1,500", "or", "1,600", "-20.0", "%"],
        ["speakers", "4"],
        ["hours", "1", "1"],
        ["words", "3,600"],
        ["longest", "utterance,", "s", "7.5"],
        ["calls", "1", "2", "-50.0", "%"],
    ]
    ends = {head.index("found") + len("found")} | {
        row.index(number) + len(number) for row, number in zip(rows[:2], ("1,200", "1,200"))
    }
    assert head.startswith(str(data)) and len(ends) == 1
    assert head.index("published") + len("published") == rows[1].index("1,600") + len("1,600")


@pytest.mark.parametrize("found, fits", [(2435, True), (2438, True), (2436, False), (2400, False)])
def test_count_of_any_release_is_accepted(found, fits):
    assert Published("recordings", (2435, 2438), tolerance=0).fits(found) == fits


def test_counts_within_tolerance_are_not_marked(data, caplog):
    caplog.set_level("INFO", "pyasr")
    log.setup("test")
    log_table(data, [Published("utterances", (1204,)), Published("hours", (1.0,))])
    assert "not as published" not in caplog.text and "1,204" in caplog.text
    log_table(
        data, [Published("utterances", (1210,)), Published("words", (4000,)), Published("speakers", (4,))]
    )
    assert f"{data}: utterances, words: not as published" in caplog.text


def test_unknown_quantity_is_refused(data):
    with pytest.raises(ValueError, match="calls: not a quantity of a data directory"):
        compare(data, [Published("calls", (2,))])
