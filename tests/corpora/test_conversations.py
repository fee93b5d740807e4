"""Calls with two sides as tables of a data directory, and the report on omitted utterances."""

from pathlib import Path

from pyasr.base import log
from pyasr.corpora.conversations import SkippedItems, Utterance, hundredths, tables_of


def utterance(begin: int, channel: str = "A", text: str | None = "hello") -> Utterance:
    side = f"sw02001-{channel}"
    return Utterance(
        f"{side}_{begin:06d}-{begin + 50:06d}", "sw02001", channel, side, begin / 100, begin / 100 + 0.5, text
    )


def test_seconds_are_rounded_to_hundredths():
    assert [hundredths(seconds) for seconds in (0.98, 11.564999, 11.565001, 4.35)] == [98, 1156, 1157, 435]


def test_utterances_give_tables_of_data_directory():
    utterances = [utterance(98), utterance(200, text=None), utterance(300, "B", text="")]
    tables = tables_of(
        utterances,
        {"sw02001": Path("/d/sw02001.sph"), "sw02002": Path("/d/sw02002.sph")},
        {"sw02001-A": "f", "x": "m"},
    )
    assert tables == {
        "wav.scp": {"sw02001-A": Path("/d/sw02001.sph"), "sw02001-B": Path("/d/sw02001.sph")},
        "reco2file_and_channel": {"sw02001-A": "sw02001 A", "sw02001-B": "sw02001 B"},
        "segments": {
            "sw02001-A_000098-000148": "sw02001-A 0.98 1.48",
            "sw02001-A_000200-000250": "sw02001-A 2.00 2.50",
            "sw02001-B_000300-000350": "sw02001-B 3.00 3.50",
        },
        "utt2spk": {
            "sw02001-A_000098-000148": "sw02001-A",
            "sw02001-A_000200-000250": "sw02001-A",
            "sw02001-B_000300-000350": "sw02001-B",
        },
        "text": {"sw02001-A_000098-000148": "hello", "sw02001-B_000300-000350": ""},
        "spk2gender": {"sw02001-A": "f"},
    }
    assert "spk2gender" not in tables_of(utterances, {"sw02001": Path("/d/sw02001.sph")})


def test_omitted_utterances_are_counted_and_named(capsys):
    log.setup("test")
    left = SkippedItems()
    for i in range(7):
        left.add("no audio", f"utt{i}")
    left.add("silence", "utt9")
    left.log("utterances")
    assert left.counts == {"no audio": 7, "silence": 1}
    lines = [line.partition(": ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "7 utterances left out: no audio: utt0 utt1 utt2 utt3 utt4 ...",
        "1 utterances left out: silence: utt9",
    ]
