"""Data directories of conversations: files of two channels, each of which is a recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from shorten_encoder import shortened_sphere

from pyasr.data.tables.datadir import write_data_dir

RATE, NUM_SAMPLES = 8000, 8000
CALLS = ("sw02001", "sw02005", "sw02010")


def sides(call: str) -> np.ndarray:
    """The samples of both channels of a call, int16 (NUM_SAMPLES, 2)."""
    rng = np.random.default_rng(CALLS.index(call))
    return np.round(1000 * rng.standard_normal((NUM_SAMPLES, 2))).astype(np.int16)


def make_calls(
    path: Path, labels: str = "AB", speakers: bool = False, calls: tuple[str, ...] = CALLS
) -> Path:
    """Three calls of two sides, shortened SPHERE of 16 bits, two utterances a side of 0.4 s.

    labels    what `reco2file_and_channel` calls the two channels
    speakers  whether speakers are callers, whose names begin those of utterances, and not sides
    """
    path.mkdir(parents=True)
    tables: dict[str, dict[str, str]] = {
        name: {} for name in ("wav.scp", "reco2file_and_channel", "segments", "utt2spk", "text")
    }
    for number, call in enumerate(calls):
        (path / f"{call}.sph").write_bytes(shortened_sphere(sides(call), 2, RATE, "pcm", num_means=0))
        for place, side in enumerate("AB"):
            recording = f"{call}-{side}"
            tables["wav.scp"][recording] = f"{path}/{call}.sph"
            tables["reco2file_and_channel"][recording] = f"{call} {labels[place]}"
            speaker = f"caller{(number + 2 * place) % 4}-{call}-{side}" if speakers else recording
            for begin in (0.1, 0.5):
                utt = f"{speaker}_{round(100 * begin):06d}"
                tables["segments"][utt] = f"{recording} {begin} {begin + 0.4}"
                tables["utt2spk"][utt], tables["text"][utt] = speaker, "yes"
    write_data_dir(path, tables)
    return path
