"""Division of the utterances of a data directory among jobs that read audio; a file with several recordings
is decoded once."""

from __future__ import annotations

import numpy as np

from pyasr.data.audio.channels import file_and_channel
from pyasr.data.tables.datadir import DataDir, check_split, split
from pyasr.io.keys import Keys, distinct
from pyasr.io.tables import Table

_TOLERANCE = 0.025  # fraction of the share of a job by which a border may be moved to the end of a file


def shards(data: DataDir, num: int) -> list[Keys]:
    """The utterances for each of `num` jobs, in lists of nearly equal duration.

    If recordings are channels of the same file according to `reco2file_and_channel`, the utterances of a file
    are consecutive, and the next job begins with another file if the jobs stay balanced: at most `num` - 1
    files are in several jobs. Other directories are split by speakers (`pyasr.data.tables.datadir.split`).
    Raises UserError if there are fewer utterances than jobs.
    """
    names, recordings = distinct(map(data.recording, data.utterances))
    files = _files(data, names)
    if (files == np.arange(len(names))).all():
        return split(data, num, by_features=False)
    check_split(data, num)
    by_name = np.empty(len(names), np.int64)
    by_name[names.order] = np.arange(len(names))
    order = np.lexsort((by_name[recordings], files[recordings]))
    ends_of_files = np.append(1 + np.flatnonzero(np.diff(files[recordings[order]])), len(order))
    borders = _borders(data.audio_durations.array[order], ends_of_files, num)
    return [
        data.utterances.take(order[begin:end]) for begin, end in zip([0, *borders], [*borders, len(order)])
    ]


def _files(data: DataDir, names: Table) -> np.ndarray:
    """For each recording the number of the first recording that is a channel of the same file, int64 (number
    of names,); copies at other speeds have other files in the table."""
    files = np.arange(len(names))
    if not data.reco2file_and_channel:
        return files
    _, entries = distinct(data.wav_scp.get(name, "") for name in names)
    first: dict[tuple[int, str], int] = {}
    for number in np.flatnonzero(np.bincount(entries)[entries] > 1).tolist():
        name = names.key(number)
        shared = file_and_channel(data, name)
        files[number] = first.setdefault((int(entries[number]), shared[0] if shared else name), number)
    return files


def _borders(durations: np.ndarray, ends_of_files: np.ndarray, num: int) -> list[int]:
    """The number of utterances in the first job, in the first two, ...; each job has at least one."""
    times = np.concatenate([[0.0], np.cumsum(durations)])
    share, borders, of_files = times[-1] / num, [0], times[ends_of_files]
    for job in range(1, num):
        nearest, of_file = _nearest(times, job * share), ends_of_files[_nearest(of_files, job * share)]
        border = of_file if abs(times[of_file] - job * share) <= _TOLERANCE * share else nearest
        borders.append(int(np.clip(border, borders[-1] + 1, len(durations) - num + job)))
    return borders[1:]


def _nearest(times: np.ndarray, time: float) -> int:
    """The index of the first of the ascending `times` that is nearest to `time`."""
    after = min(int(np.searchsorted(times, time)), len(times) - 1)
    before = int(np.searchsorted(times, times[max(after - 1, 0)]))
    return before if abs(times[before] - time) <= abs(times[after] - time) else after
