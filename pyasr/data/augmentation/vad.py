r"""Detection of speech in a recording by energy, with the decision of Kaldi's compute-vad and the constants
of its x-vector recipes.

A frame of 25 ms, one every 10 ms, is loud if its log energy E (of samples at int16 scale, mean removed) is
above

    T = energy_threshold + mean_scale * mean(E)                  mean over the utterance

A frame is speech if at least the fraction `proportion` of the frames at most `context` frames away are loud.
Runs of speech become segments: short pauses are closed, short segments are removed, long segments are cut
where they are quietest, and padding is added at both ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pyasr.base.cli.options import option
from pyasr.data.audio.audio_reading import ONLY
from pyasr.data.audio.recordings import cut_utterance, read_recordings
from pyasr.data.parts.subsegments import Subsegment, packed
from pyasr.data.tables.datadir import DataDir
from pyasr.io.keys import Groups, Keys

WINDOW_S, SHIFT_S = 0.025, 0.01
_BLOCK_FRAMES = 4096
_SMOOTHING_FRAMES = 30  # number of frames over which energy is averaged to choose a cut
_SHORTEST_HALF_S = 1.0


@dataclass(frozen=True)
class VadOptions:
    """Detection of speech, and its conversion to segments."""

    heading = "speech detection"

    vad_energy_threshold: float = option(5.5, "constant term of the threshold on log energy")
    vad_energy_mean_scale: float = option(
        0.5, "factor on the mean log energy of the recording in the threshold", minimum=0.0
    )
    vad_frames_context: int = option(2, "number of frames on each side that a decision considers", minimum=0)
    vad_proportion_threshold: float = option(
        0.12, "minimum fraction of loud frames within the context", minimum=0.0, maximum=1.0
    )
    min_silence_s: float = option(
        0.5,
        "minimum silence between two segments, seconds; shorter pauses are closed",
        minimum=0.0,
        heading="segments",
    )
    padding_s: float = option(
        0.2, "silence kept at each end of a segment, seconds", minimum=0.0, heading="segments"
    )
    min_segment_s: float = option(
        0.3, "minimum length of a segment without padding, seconds", minimum=0.0, heading="segments"
    )
    max_segment_s: float = option(
        30.0,
        "maximum length of a segment without padding, seconds",
        minimum=2.0,
        heading="segments",
        common=True,
    )


def log_energies(samples: np.ndarray, rate: int) -> np.ndarray:
    """Log energy of every frame, (num_frames,); empty if the recording is shorter than a frame."""
    size, shift = _window_and_shift(rate)
    if len(samples) < size:
        return np.zeros(0)
    frames = sliding_window_view(samples, size)[::shift]
    blocks = (
        frames[begin : begin + _BLOCK_FRAMES].astype(np.float64)
        for begin in range(0, len(frames), _BLOCK_FRAMES)
    )
    energies = np.concatenate([np.square(block - block.mean(1, keepdims=True)).sum(1) for block in blocks])
    return np.log(np.maximum(energies, np.finfo(np.float32).eps))


def _window_and_shift(rate: int) -> tuple[int, int]:
    """(samples of a frame, samples from one frame to the next)"""
    return round(WINDOW_S * rate), round(SHIFT_S * rate)


def speech_frames(log_energy: np.ndarray, options: VadOptions) -> np.ndarray:
    """Whether each frame is speech, bool (num_frames,)."""
    if not len(log_energy):
        return np.zeros(0, bool)
    loud = log_energy > options.vad_energy_threshold + options.vad_energy_mean_scale * log_energy.mean()
    window = np.ones(2 * options.vad_frames_context + 1)
    num_loud, num_all = (_sums_around(values, window) for values in (loud, np.ones(len(loud))))
    return num_loud >= options.vad_proportion_threshold * num_all


def _sums_around(values: np.ndarray, window: np.ndarray) -> np.ndarray:
    """The sum of `values` within a window centred at each index."""
    half = len(window) // 2
    return np.convolve(values, window)[half : half + len(values)]


def speech_runs(speech: np.ndarray, log_energy: np.ndarray, options: VadOptions) -> list[tuple[int, int]]:
    """(first frame, frame after the last) of the segments, without padding."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], speech, [False]]).astype(int)))
    joined: list[tuple[int, int]] = []
    for begin, end in edges.reshape(-1, 2).tolist():
        if joined and (begin - joined[-1][1]) * SHIFT_S < options.min_silence_s:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    quiet = _sums_around(log_energy, np.ones(_SMOOTHING_FRAMES)) if len(log_energy) else log_energy
    long_enough = [run for run in joined if (run[1] - run[0]) * SHIFT_S >= options.min_segment_s]
    return [piece for run in long_enough for piece in _short_pieces(run, quiet, options.max_segment_s)]


def _short_pieces(run: tuple[int, int], quiet: np.ndarray, max_s: float) -> list[tuple[int, int]]:
    """The run, cut recursively where it is quietest until no piece is longer than `max_s` seconds."""
    margin = round(min(_SHORTEST_HALF_S, max_s / 4) / SHIFT_S)
    pieces, waiting = [], [run]
    while waiting:
        begin, end = waiting.pop()
        if (end - begin) * SHIFT_S <= max_s:
            pieces.append((begin, end))
        else:
            cut = begin + margin + int(np.argmin(quiet[begin + margin : end - margin]))
            waiting += [(cut, end), (begin, cut)]
    return pieces


def find_speech(samples: np.ndarray, rate: int, options: VadOptions) -> list[Subsegment]:
    """The segments of a recording, in order; overlapping paddings of two end in the middle between them."""
    log_energy = log_energies(samples, rate)
    runs = speech_runs(speech_frames(log_energy, options), log_energy, options)
    size, shift = _window_and_shift(rate)
    times = [(begin * shift / rate, ((end - 1) * shift + size) / rate) for begin, end in runs]
    begins = [begin for begin, _ in times]
    ends = [end for _, end in times]
    edges = [0.0, *((one + other) / 2 for one, other in zip(ends, begins[1:])), len(samples) / rate]
    padding = options.padding_s
    return [
        Subsegment(max(begin - padding, low), min(end + padding, high))
        for begin, end, low, high in zip(begins, ends, edges, edges[1:])
    ]


def segments_of(data: DataDir, options: VadOptions, channel: int = ONLY) -> Mapping[str, list[Subsegment]]:
    """The segments of all utterances of a data directory; the recordings are read one after the other.

    channel  the channel of files with several; ONLY: the one named by `reco2file_and_channel`, or the first
    """
    of_recordings = Groups(data.utterances, map(data.recording, data.utterances))
    names = Keys(of_recordings.names)
    read = read_recordings(data, names, channel, unnamed=0)
    return packed(
        (utt, find_speech(cut_utterance(samples, rate, data, utt), rate, options))
        for name, (samples, rate) in zip(names, read)
        for utt in of_recordings[name]
    )
