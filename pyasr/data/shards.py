"""The utterances of a data directory for jobs that read audio, such that a file of several recordings is decoded once."""

from __future__ import annotations

from collections import Counter

import numpy as np

from pyasr.data.channels import file_and_channel
from pyasr.data.datadir import DataDir, check_split, split

_TOLERANCE = 0.025  # of a job's share, by which a border is moved to the end of a file


def shards(data: DataDir, num: int) -> list[list[str]]:
    """The utterances for each of `num` jobs, in lists of nearly equal duration.

    Where recordings are channels of one file, as `reco2file_and_channel` says, its utterances follow each other, and the next job begins
    with another file if that keeps the jobs even: at most `num` - 1 files are in several jobs. Other directories are split by speakers
    (`pyasr.data.datadir.split`). Raises UserError where there are fewer utterances than jobs.
    """
    files = _files(data)
    if len(set(files.values())) == len(files):
        return split(data, num, by_features=False)
    check_split(data, num)
    together: dict[tuple, list[str]] = {}
    for utt in data.utterances:
        together.setdefault(files[data.recording(utt)], []).append(utt)
    utterances = [utt for of_file in together.values() for utt in sorted(of_file, key=data.recording)]
    borders = _borders([data.audio_durations[utt] for utt in utterances], np.cumsum([len(of_file) for of_file in together.values()]), num)
    return [utterances[begin:end] for begin, end in zip([0, *borders], [*borders, len(utterances)])]


def _files(data: DataDir) -> dict[str, tuple]:
    """{recording: what it shares with the other channels of its file}; copies of these, at other speeds, are other files of the table."""
    names = dict.fromkeys(map(data.recording, data.utterances))
    num_of_entry = Counter(data.wav_scp.get(name) for name in names)
    shared = {name: file_and_channel(data, name) for name in names if num_of_entry[data.wav_scp.get(name)] > 1}
    return {name: (data.wav_scp.get(name), shared[name][0] if shared.get(name) else name) for name in names}


def _borders(durations: list[float], ends_of_files: np.ndarray, num: int) -> list[int]:
    """How many utterances are in the first job, in the first two, ...; of each job one at least."""
    times = np.concatenate([[0.0], np.cumsum(durations)])
    share, borders = times[-1] / num, [0]
    for job in range(1, num):
        nearest, of_file = (places[np.abs(times[places] - job * share).argmin()] for places in (np.arange(len(times)), ends_of_files))
        border = of_file if abs(times[of_file] - job * share) <= _TOLERANCE * share else nearest
        borders.append(int(np.clip(border, borders[-1] + 1, len(durations) - num + job)))
    return borders[1:]
