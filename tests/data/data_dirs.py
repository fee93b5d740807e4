"""Data directories for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

from pyasr.data.tables.datadir import write_data_dir

SPEAKERS, PER_SPEAKER = ("ann", "bob", "cy"), 4


def write_tone(path: Path, seconds: float = 0.2, rate: int = 8000) -> None:
    time = np.arange(round(seconds * rate)) / rate
    soundfile.write(path, (8000 * np.sin(2 * np.pi * 440 * time)).astype(np.int16), rate, subtype="PCM_16")


def make_data_dir(path: Path, with_segments: bool = False) -> Path:
    """A valid data directory: 3 speakers with 4 utterances each, which are recordings, or segments of one
    recording per speaker."""
    (path / "audio").mkdir(parents=True)
    utterances = {f"{speaker}-{i:03d}": speaker for speaker in SPEAKERS for i in range(PER_SPEAKER)}
    recordings = SPEAKERS if with_segments else utterances
    for name in recordings:
        write_tone(path / "audio" / f"{name}.wav", 1.0 if with_segments else 0.2)
    tables = {
        "utt2spk": utterances,
        "text": {utt: f"word{i} again" for i, utt in enumerate(utterances)},
        "wav.scp": {name: path / "audio" / f"{name}.wav" for name in recordings},
        "utt2dur": dict.fromkeys(utterances, 0.2),
    }
    if with_segments:
        begins = {utt: 0.2 * int(utt[-3:]) for utt in utterances}
        tables["segments"] = {
            utt: f"{speaker} {begins[utt]:.1f} {begins[utt] + 0.2:.1f}" for utt, speaker in utterances.items()
        }
    write_data_dir(path, tables)
    return path
